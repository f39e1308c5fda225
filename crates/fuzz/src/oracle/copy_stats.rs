//! Statistics of copied elements, in eager execution and in the modes that count them.

use super::mode::{CountedWrites, WriteCount};
use maquette_ir::copy_cost::Traffic;
use std::fmt::{Display, Formatter};

/// The elements written in the programs of a fuzzing run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CopyStats {
    /// By eager execution.
    pub eager: Traffic,
    /// By the modes.
    pub planned: Traffic,
    /// The number of runs that had to copy no more than eager execution.
    pub runs: u64,
    /// How many of them had no plan within that bound, so that the original program would run.
    pub original: u64,
    /// How many of them also compared both bounds: the plan's upper bound, and lifting's lower
    /// bound for eager execution.
    pub bounded: u64,
}

impl CopyStats {
    /// Adds a run.
    ///
    /// # Errors
    /// The run copied more elements than eager execution or than its plan's bound, or eager
    /// execution copied fewer than lifting's bound.
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
                "{} elements are copied, but only {} eagerly",
                planned.copied, eager.copied
            ));
        }
        match (at_most, eager_at_least) {
            (Some(n), _) if planned.copied > n => Err(format!(
                "{} elements are copied, but the plan's upper bound is {n}",
                planned.copied
            )),
            (_, Some(n)) if eager.copied < n => Err(format!(
                "{} elements are copied eagerly, but lifting's lower bound is {n}",
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
            "elements copied: {} eager, {} planned; written: {} eager, {} planned",
            eager.copied,
            planned.copied,
            eager.written(),
            planned.written()
        )?;
        writeln!(
            f,
            "of {runs} runs, {original} would use the original program; {bounded} compared both \
                bounds"
        )
    }
}
