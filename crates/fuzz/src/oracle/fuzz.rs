//! A fuzzing run: generates and checks many programs, and shrinks those that fail.

use super::check::{Verdict, check, check_with_stats};
use super::copy_stats::CopyStats;
use super::generate::generate_for;
use super::mode::Mode;
use super::program::{Family, TestProgram};
use super::shrink::shrink;
use super::stats::Stats;
use maquette_check::values::catch_panics;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

/// The parameters of a fuzzing run.
#[derive(Clone)]
pub struct Fuzzer {
    /// The number of programs.
    pub programs: u64,
    /// The seed. Equal seeds give equal programs.
    pub seed: u64,
    /// About the maximum number of statements in a program.
    pub statements: usize,
    /// The modes in which each program is run.
    pub modes: Vec<&'static dyn Mode>,
    /// The number of threads. The report does not depend on it.
    pub threads: usize,
    /// Whether to count the features that the programs exercise.
    pub stats: bool,
    /// What is run of each program.
    pub family: Family,
}

/// A program that a mode does not run as eager execution does.
#[derive(Clone, Debug)]
pub struct FuzzFailure {
    /// The number of the program.
    pub index: u64,
    /// The name of the mode.
    pub mode: &'static str,
    /// The first difference, in the reduced program.
    pub what: String,
    /// The reduced program; `None` if it could not be generated.
    pub program: Option<TestProgram>,
}

/// The result of a fuzzing run. Displays as a summary line.
#[derive(Clone, Debug, Default)]
pub struct FuzzReport {
    /// The number of programs that were run.
    pub programs: u64,
    /// The failures, in the order of program numbers.
    pub failures: Vec<FuzzFailure>,
    /// The number of programs that were refused at some size, by eager execution or for a
    /// documented reason.
    pub refused: u64,
    /// The exercised features, and the reasons for refusals.
    pub stats: Stats,
    /// The copied elements, in the modes that count them.
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
    /// Checks every program. Calls `failed` for each failure as it is found, in any order.
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
        // an operator that panics while a program is generated is a failure as well
        let generated = catch_panics("an operator", || {
            generate_for(self.family, self.seed, index, self.statements)
        });
        let verdict = generated.and_then(|generated| {
            if self.stats {
                report.stats.count(&generated);
            }
            let verdict = check_with_stats(&generated.program, &self.modes, &mut report.copies)?;
            Ok((verdict, generated.program))
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
