//! The report of an opcheck run.

use std::fmt;

/// A part of an operator's contract.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Check {
    /// The schema declares all mutation and aliasing.
    Schema,
    /// The fake kernel's metadata equals the kernel's.
    Fake,
    /// Equal inputs give equal bits.
    Determinism,
    /// A trace with static sizes agrees with the operator.
    StaticTrace,
    /// A trace with symbolic sizes agrees with the operator, at other sizes too.
    DynamicTrace,
    /// Calls that mutate or have an effect keep their number and order in a trace.
    Effects,
    /// The derivative agrees with differences of values, and in bits where it is part of a graph.
    Gradients,
}

impl Check {
    /// All checks, in the order of the report.
    pub const ALL: [Check; 7] = [
        Check::Schema,
        Check::Fake,
        Check::Determinism,
        Check::StaticTrace,
        Check::DynamicTrace,
        Check::Effects,
        Check::Gradients,
    ];
}

impl fmt::Display for Check {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Check::Schema => "schema",
            Check::Fake => "fake kernel",
            Check::Determinism => "determinism",
            Check::StaticTrace => "static trace",
            Check::DynamicTrace => "dynamic trace",
            Check::Effects => "effects",
            Check::Gradients => "gradients",
        })
    }
}

/// The result of a check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// No failure was found.
    Passed,
    /// The operator breaks its contract; see [`CheckReport::failures`].
    Failed,
    /// The check was not made, for this reason.
    NotRun(String),
}

/// One check of a report.
#[derive(Clone, Debug)]
pub struct CheckReport {
    /// The check.
    pub check: Check,
    /// The result.
    pub outcome: Outcome,
    /// The violations of the contract.
    pub failures: Vec<String>,
    /// Properties that are allowed but probably unintended.
    pub warnings: Vec<String>,
    /// Further information.
    pub notes: Vec<String>,
    /// The number of failures that are counted but not listed.
    more: usize,
}

/// The maximum number of listed failures for each check.
const KEPT: usize = 3;

impl CheckReport {
    pub(super) fn new(check: Check) -> CheckReport {
        let none = Vec::new;
        CheckReport {
            check,
            outcome: Outcome::Passed,
            failures: none(),
            warnings: none(),
            notes: none(),
            more: 0,
        }
    }

    pub(super) fn not_run(&mut self, why: impl Into<String>) {
        if self.outcome == Outcome::Passed {
            self.outcome = Outcome::NotRun(why.into());
        }
    }

    /// Adds a failure on a sample, unless the same one is listed.
    pub(super) fn fail(&mut self, sample: &str, message: &str) {
        self.outcome = Outcome::Failed;
        let message = message.trim_end();
        if self.failures.iter().any(|f| f.starts_with(message)) {
            // one report of a failure is enough
        } else if self.failures.len() < KEPT {
            self.failures.push(format!("{message}\non {sample}"));
        } else {
            self.more += 1;
        }
    }

    pub(super) fn failed(&self) -> bool {
        self.outcome == Outcome::Failed
    }
}

impl fmt::Display for CheckReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let outcome = match &self.outcome {
            Outcome::Passed => "passed".to_owned(),
            Outcome::Failed => "FAILED".to_owned(),
            Outcome::NotRun(why) => format!("not checked: {why}"),
        };
        write!(f, "{:<14} {outcome}", self.check)?;
        for (title, findings) in
            [("", &self.failures), ("warning: ", &self.warnings), ("note: ", &self.notes)]
        {
            for text in findings {
                let mut lines = text.lines();
                write!(f, "\n  {title}{}", lines.next().unwrap_or_default())?;
                for line in lines {
                    write!(f, "\n    {line}")?;
                }
            }
        }
        match self.more {
            0 => Ok(()),
            n => write!(f, "\n  and {n} more"),
        }
    }
}

/// The result of [`opcheck`](super::opcheck).
#[derive(Clone, Debug)]
pub struct Report {
    pub(super) schema: String,
    pub(super) sample: String,
    /// The places of the operator's registrations, shown if a check fails.
    pub(super) registrations: Vec<String>,
    pub(super) checks: Vec<CheckReport>,
    pub(super) derived: usize,
    pub(super) skipped_variants: Vec<String>,
}

impl Report {
    /// Whether no check failed.
    pub fn passed(&self) -> bool {
        self.checks.iter().all(|c| !c.failed())
    }

    /// All requested checks.
    pub fn checks(&self) -> &[CheckReport] {
        &self.checks
    }

    /// One check; `None` if it was not requested.
    pub fn check(&self, check: Check) -> Option<&CheckReport> {
        self.checks.iter().find(|c| c.check == check)
    }

    /// The checks that failed.
    pub fn failed(&self) -> Vec<Check> {
        self.checks.iter().filter(|c| c.failed()).map(|c| c.check).collect()
    }

    /// All warnings.
    pub fn warnings(&self) -> impl Iterator<Item = &str> {
        self.checks.iter().flat_map(|c| c.warnings.iter().map(String::as_str))
    }

    /// The number of variants that the operator accepted.
    pub fn derived(&self) -> usize {
        self.derived
    }

    /// What could not be varied, with the reasons.
    pub fn skipped_variants(&self) -> &[String] {
        &self.skipped_variants
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "opcheck of {}", self.schema)?;
        let also = match self.derived {
            0 => String::new(),
            1 => ", and 1 sample derived from it".to_owned(),
            n => format!(", and {n} samples derived from it"),
        };
        writeln!(f, "sample ({}){also}", self.sample)?;
        let lines: Vec<String> = self.checks.iter().map(ToString::to_string).collect();
        write!(f, "{}", lines.join("\n"))?;
        for u in &self.skipped_variants {
            write!(f, "\nnot tried: {u}")?;
        }
        if !self.passed() {
            write!(f, "\nregistered: {}", self.registrations.join(", "))?;
        }
        Ok(())
    }
}

/// The error for an operator that breaks its contract.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct OpcheckError(pub Report);
