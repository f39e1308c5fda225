//! Many programs: generated, checked, and the failing ones made small.

use super::check::{Verdict, check, check_counting};
use super::copies::Copies;
use super::generate::generate;
use super::mode::Mode;
use super::program::Program;
use super::shrink::shrink;
use super::stats::Stats;
use crate::values::guarded;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

/// What to check.
#[derive(Clone)]
pub struct Campaign {
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
pub struct Failure {
    /// The program's number.
    pub index: u64,
    /// The mode's name.
    pub mode: &'static str,
    /// The first difference, of the small program.
    pub what: String,
    /// The program made small; nothing where it could not even be made.
    pub program: Option<Program>,
}

/// What came of a campaign. Displays as its last line.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// How many programs were run.
    pub programs: u64,
    /// In the order of their numbers.
    pub failures: Vec<Failure>,
    /// How many programs were refused at some size by eager, or for a published reason.
    pub refused: u64,
    /// What was exercised, and why programs were refused.
    pub stats: Stats,
    /// What was copied, by the modes that count it.
    pub copies: Copies,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} programs, {} mismatches, {} refused", self.programs, self.failures.len(), self.refused)
    }
}

impl Campaign {
    /// Checks every program. `failed` is told of failures as they are found, in any order.
    pub fn run(&self, failed: &(dyn Fn(&Failure) + Sync)) -> Report {
        let next = AtomicU64::new(0);
        let work = || {
            let mut report = Report::default();
            loop {
                let index = next.fetch_add(1, Ordering::Relaxed);
                if index >= self.programs {
                    return report;
                }
                self.one(index, &mut report, failed);
            }
        };
        let reports: Vec<Report> = std::thread::scope(|scope| {
            let others: Vec<_> = (1..self.threads).map(|_| scope.spawn(work)).collect();
            let mut reports = vec![work()];
            reports.extend(others.into_iter().filter_map(|t| t.join().ok()));
            reports
        });
        let mut all = Report::default();
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

    fn one(&self, index: u64, report: &mut Report, failed: &(dyn Fn(&Failure) + Sync)) {
        report.programs += 1;
        // an operator that panics while a program is made is found as well
        let made = guarded("an operator", || generate(self.seed, index, self.statements));
        let verdict = made.and_then(|made| {
            if self.stats {
                report.stats.count(&made);
            }
            let verdict = check_counting(&made.program, &self.modes, &mut report.copies)?;
            Ok((verdict, made.program))
        });
        let failure = match verdict {
            Ok((Verdict::Agree, _)) => return,
            Ok((Verdict::Refused(why), _)) => {
                report.refused += 1;
                return report.stats.refused(why);
            }
            Ok((Verdict::Mismatch { mode, what }, program)) => self.small(index, mode, what, &program),
            Err(e) => Failure { index, mode: "generator", what: e.to_string(), program: None },
        };
        failed(&failure);
        report.failures.push(failure);
    }

    fn small(&self, index: u64, mode: &'static str, what: String, program: &Program) -> Failure {
        let modes: Vec<&dyn Mode> = self.modes.iter().copied().filter(|m| m.name() == mode).collect();
        let differs = |p: &Program| match check(p, &modes) {
            Ok(Verdict::Mismatch { what, .. }) => Some(what),
            _ => None,
        };
        let program = shrink(program, &|p| differs(p).is_some());
        Failure { index, mode, what: differs(&program).unwrap_or(what), program: Some(program) }
    }
}
