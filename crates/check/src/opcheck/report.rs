//! What was found.

use std::fmt;

/// A part of the contract.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Check {
    /// The schema says what is written, and what aliases what.
    Schema,
    /// The fake kernel gives the real outputs' metadata.
    Fake,
    /// Equal inputs give equal bits.
    Determinism,
    /// A trace with the sizes as numbers does what the operator does.
    StaticTrace,
    /// A trace with every size a symbol does what the operator does, for other sizes too.
    DynamicTrace,
    /// Calls that write, or have an effect, keep their number and order in a trace.
    Effects,
}

impl Check {
    /// All of them, in the order they are reported.
    pub const ALL: [Check; 6] = [
        Check::Schema,
        Check::Fake,
        Check::Determinism,
        Check::StaticTrace,
        Check::DynamicTrace,
        Check::Effects,
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
        })
    }
}

/// How a check ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Nothing wrong was found.
    Passed,
    /// The operator breaks its contract: see [`CheckReport::failures`].
    Failed,
    /// Why it was not made.
    NotRun(String),
}

/// One check.
#[derive(Clone, Debug)]
pub struct CheckReport {
    /// Which.
    pub check: Check,
    /// How it ended.
    pub outcome: Outcome,
    /// How the operator breaks its contract.
    pub failures: Vec<String>,
    /// What is allowed, and probably not meant.
    pub warnings: Vec<String>,
    /// What is good to know.
    pub notes: Vec<String>,
    /// Failures that are counted only.
    more: usize,
}

/// How many findings of a check are kept; the others are counted.
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

    /// A failure on a sample, unless it is one that is known already.
    pub(super) fn fail(&mut self, sample: &str, message: &str) {
        self.outcome = Outcome::Failed;
        let message = message.trim_end();
        if self.failures.iter().any(|f| f.starts_with(message)) {
            // once is enough
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

/// What [`opcheck`](super::opcheck) found.
#[derive(Clone, Debug)]
pub struct Report {
    pub(super) schema: String,
    pub(super) sample: String,
    /// Where everything was registered; shown where something failed.
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

    /// Every check that was asked for.
    pub fn checks(&self) -> &[CheckReport] {
        &self.checks
    }

    /// One check; nothing where it was not asked for.
    pub fn check(&self, check: Check) -> Option<&CheckReport> {
        self.checks.iter().find(|c| c.check == check)
    }

    /// The checks that failed.
    pub fn failed(&self) -> Vec<Check> {
        self.checks.iter().filter(|c| c.failed()).map(|c| c.check).collect()
    }

    /// Every warning.
    pub fn warnings(&self) -> impl Iterator<Item = &str> {
        self.checks.iter().flat_map(|c| c.warnings.iter().map(String::as_str))
    }

    /// How many samples were derived from the one given and taken by the operator.
    pub fn derived(&self) -> usize {
        self.derived
    }

    /// What could not be varied, and why.
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

/// An operator that breaks its contract.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct OpcheckError(pub Report);
