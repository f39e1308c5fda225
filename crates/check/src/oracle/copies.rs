//! How many elements are copied, by the eager programs and by what is compared with them.

use maquette_ir::traffic::Traffic;
use std::fmt::{Display, Formatter};

/// Elements written in the programs of a campaign, by modes that count them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Copies {
    /// By the eager programs.
    pub eager: Traffic,
    /// By the modes.
    pub planned: Traffic,
    /// In so many programs a mode copied more.
    pub more: u64,
    /// In so many of these it wrote more, too: the copies do not stand for something that the eager program computes.
    pub worse: u64,
}

impl Copies {
    pub(super) fn of(eager: Traffic, planned: Traffic) -> Copies {
        let more = planned.copied > eager.copied;
        let worse = more && planned.written() > eager.written();
        Copies { eager, planned, more: more.into(), worse: worse.into() }
    }

    pub(super) fn add(&mut self, other: Copies) {
        self.eager += other.eager;
        self.planned += other.planned;
        self.more += other.more;
        self.worse += other.worse;
    }
}

impl Display for Copies {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        let Copies { eager, planned, more, worse } = self;
        writeln!(
            f,
            "elements copied: {} eagerly, {} as planned; written: {} and {}",
            eager.copied,
            planned.copied,
            eager.written(),
            planned.written()
        )?;
        writeln!(f, "copied more than eagerly in {more} programs, and wrote more in {worse} of them")
    }
}
