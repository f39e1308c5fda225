//! How many elements are copied, by the eager programs and by what is compared with them.

use super::mode::{CountedWrites, WriteCount};
use maquette_ir::copy_cost::Traffic;
use std::fmt::{Display, Formatter};

/// Elements written in the programs of a fuzzing run, by modes that count them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CopyStats {
    /// By the eager programs.
    pub eager: Traffic,
    /// By the modes.
    pub planned: Traffic,
    /// So many runs were to copy no more than eagerly.
    pub runs: u64,
    /// For so many of them no plan was known to: the program would run as it is.
    pub original: u64,
    /// In so many of them what the plan says it copies at most, and lifting at least, was compared
    /// too.
    pub bounded: u64,
}

impl CopyStats {
    /// Adds a run.
    ///
    /// # Errors
    /// It copied more than the eager program, and was not to; or more than its plan said, or the
    /// eager program less than lifting said.
    pub(super) fn count(&mut self, eager: WriteCount, found: WriteCount) -> Result<(), String> {
        let (eager, found) = match (eager, found) {
            (WriteCount::Counted(eager), WriteCount::Counted(found)) => (eager.traffic, found),
            (_, WriteCount::Unproven) => {
                self.add(CopyStats { runs: 1, original: 1, ..CopyStats::default() });
                return Ok(());
            }
            _ => return Ok(()),
        };
        let CountedWrites { traffic: planned, at_most, eager_at_least } = found;
        let bounded = u64::from(at_most.is_some() && eager_at_least.is_some());
        self.add(CopyStats { eager, planned, runs: 1, original: 0, bounded });
        if planned.copied > eager.copied {
            return Err(format!(
                "{} elements are copied, {} eagerly",
                planned.copied, eager.copied
            ));
        }
        match (at_most, eager_at_least) {
            (Some(n), _) if planned.copied > n => Err(format!(
                "{} elements are copied, at most {n} as the plan has it",
                planned.copied
            )),
            (_, Some(n)) if eager.copied < n => Err(format!(
                "{} elements are copied eagerly, at least {n} as lifting has it",
                eager.copied
            )),
            _ => Ok(()),
        }
    }

    pub(super) fn add(&mut self, other: CopyStats) {
        self.eager += other.eager;
        self.planned += other.planned;
        self.runs += other.runs;
        self.original += other.original;
        self.bounded += other.bounded;
    }
}

impl Display for CopyStats {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        let CopyStats { eager, planned, runs, original, bounded } = self;
        writeln!(
            f,
            "elements copied: {} eagerly, {} as planned; written: {} and {}",
            eager.copied,
            planned.copied,
            eager.written(),
            planned.written()
        )?;
        writeln!(
            f,
            "of {runs} runs, {original} would run the original program; in {bounded} both bounds \
                were compared"
        )
    }
}
