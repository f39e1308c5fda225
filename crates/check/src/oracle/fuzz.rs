//! Many programs: generated, checked, and the failing ones made small.

use super::check::{Verdict, check, check_with_stats};
use super::copy_stats::CopyStats;
use super::generate::generate;
use super::mode::Mode;
use super::program::TestProgram;
use super::shrink::shrink;
use super::stats::Stats;
use crate::values::catch_panics;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

/// What to check.
#[derive(Clone)]
pub struct Fuzzer {
    /// How many programs.
    pub programs: u64,
    /// The programs of a seed are always the same.
    pub seed: u64,
    /// About how many statements a program has at most.
    pub statements: usize,
    /// How to run each.
    pub modes: Vec<&'static dyn Mode>,
    /// On how many threads; the report does not depend on it.
    pub threads: usize,
    /// Whether to count what the programs exercise.
    pub stats: bool,
}

/// A program that some mode does not run as eager does.
#[derive(Clone, Debug)]
pub struct FuzzFailure {
    /// The program's number.
    pub index: u64,
    /// The mode's name.
    pub mode: &'static str,
    /// The first difference, of the small program.
    pub what: String,
    /// The program made small; nothing where it could not even be made.
    pub program: Option<TestProgram>,
}

/// The result of a fuzzing run. Displays as its last line.
#[derive(Clone, Debug, Default)]
pub struct FuzzReport {
    /// How many programs were run.
    pub programs: u64,
    /// In the order of their numbers.
    pub failures: Vec<FuzzFailure>,
    /// How many programs were refused at some size by eager, or for a published reason.
    pub refused: u64,
    /// What was exercised, and why programs were refused.
    pub stats: Stats,
    /// What was copied, by the modes that count it.
    pub copies: CopyStats,
}

impl fmt::Display for FuzzReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} programs, {} mismatches, {} refused",
            self.programs,
            self.failures.len(),
            self.refused
        )
    }
}

impl Fuzzer {
    /// Checks every program. `failed` is told of failures as they are found, in any order.
    pub fn run(&self, failed: &(dyn Fn(&FuzzFailure) + Sync)) -> FuzzReport {
        let next = AtomicU64::new(0);
        let work = || {
            let mut report = FuzzReport::default();
            loop {
                let index = next.fetch_add(1, Ordering::Relaxed);
                if index >= self.programs {
                    return report;
                }
                self.run_one(index, &mut report, failed);
            }
        };
        let reports: Vec<FuzzReport> = std::thread::scope(|scope| {
            let others: Vec<_> = (1..self.threads).map(|_| scope.spawn(work)).collect();
            let mut reports = vec![work()];
            reports.extend(others.into_iter().filter_map(|t| t.join().ok()));
            reports
        });
        let mut all = FuzzReport::default();
        for report in reports {
            all.programs += report.programs;
            all.refused += report.refused;
            all.stats.add(&report.stats);
            all.copies.add(report.copies);
            all.failures.extend(report.failures);
        }
        all.failures.sort_by_key(|f| f.index);
        all
    }

    fn run_one(&self, index: u64, report: &mut FuzzReport, failed: &(dyn Fn(&FuzzFailure) + Sync)) {
        report.programs += 1;
        // an operator that panics while a program is made is found as well
        let made = catch_panics("an operator", || generate(self.seed, index, self.statements));
        let verdict = made.and_then(|made| {
            if self.stats {
                report.stats.count(&made);
            }
            let verdict = check_with_stats(&made.program, &self.modes, &mut report.copies)?;
            Ok((verdict, made.program))
        });
        let failure = match verdict {
            Ok((Verdict::Agree, _)) => return,
            Ok((Verdict::Refused(why), _)) => {
                report.refused += 1;
                return report.stats.refused(why);
            }
            Ok((Verdict::Mismatch { mode, what }, program)) => {
                self.shrink_failure(index, mode, what, &program)
            }
            Err(e) => FuzzFailure { index, mode: "generator", what: e.to_string(), program: None },
        };
        failed(&failure);
        report.failures.push(failure);
    }

    fn shrink_failure(
        &self,
        index: u64,
        mode: &'static str,
        what: String,
        program: &TestProgram,
    ) -> FuzzFailure {
        let modes: Vec<&dyn Mode> =
            self.modes.iter().copied().filter(|m| m.name() == mode).collect();
        let differs = |p: &TestProgram| match check(p, &modes) {
            Ok(Verdict::Mismatch { what, .. }) => Some(what),
            _ => None,
        };
        let program = shrink(program, &|p| differs(p).is_some());
        FuzzFailure { index, mode, what: differs(&program).unwrap_or(what), program: Some(program) }
    }
}
