//! What came of the calls of one operator.

use std::fmt;

/// The way a call was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stage {
    /// The operator is not in the table.
    Missing,
    /// At once.
    Eager,
    /// At once, by the generic executor of loop nests: without the hand-tuned ones.
    Generic,
    /// Traced with its sizes as numbers, and run.
    Static,
    /// Traced with every size a symbol, and run.
    Symbolic,
    /// Traced with its sizes as numbers, its composites decomposed, and run.
    Decomposed,
    /// Compiled for the CPU, with kernels for its layouts.
    Compiled,
    /// The operator, or one that it calls, has no derivative.
    NoRule,
    /// The call or its derivative is refused.
    Refused,
    /// Gradients differ.
    Gradient,
    /// Gradients of gradients differ, or are refused.
    Second,
}

impl Stage {
    /// The stages of calls that a table of results has columns for.
    pub const OF_CALLS: &[Stage] =
        &[Stage::Missing, Stage::Eager, Stage::Generic, Stage::Static, Stage::Symbolic];
    /// As [`Stage::OF_CALLS`], for recorded gradients.
    pub const OF_GRADIENTS: &[Stage] =
        &[Stage::Missing, Stage::NoRule, Stage::Refused, Stage::Gradient, Stage::Second];
}

impl fmt::Display for Stage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Stage::Missing => "missing",
            Stage::Eager => "eager",
            Stage::Generic => "generic",
            Stage::Static => "traced",
            Stage::Symbolic => "symbolic",
            Stage::Decomposed => "decomposed",
            Stage::Compiled => "compiled",
            Stage::NoRule => "no rule",
            Stage::Refused => "refused",
            Stage::Gradient => "gradient",
            Stage::Second => "second",
        })
    }
}

/// Why a call failed, with everything needed to see it.
#[derive(Clone, Debug)]
pub struct Failure {
    /// Where.
    pub stage: Stage,
    /// What differs, or the error.
    pub message: String,
    /// The arguments, a line each.
    pub inputs: Vec<String>,
    /// What PyTorch gave, a line each.
    pub expected: Vec<String>,
    /// What was found, a line each; none where the call was refused.
    pub found: Vec<String>,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.stage, self.message)?;
        for (title, lines) in
            [("inputs", &self.inputs), ("expected", &self.expected), ("found", &self.found)]
        {
            if !lines.is_empty() {
                write!(f, "\n    {title}:")?;
            }
            for l in lines {
                write!(f, "\n      {l}")?;
            }
        }
        Ok(())
    }
}

/// One call.
#[derive(Clone, Debug)]
pub struct CallReport {
    /// Why it failed, if it did.
    pub failure: Option<Failure>,
}

/// All calls of one operator.
#[derive(Clone, Debug)]
pub struct OperatorReport {
    /// `aten::add.Tensor`
    pub name: String,
    /// Its schema here, where it is not PyTorch's.
    pub other_schema: Option<String>,
    /// The stages at which a call of the file can fail.
    pub stages: &'static [Stage],
    /// In the order of the file.
    pub calls: Vec<CallReport>,
}

impl OperatorReport {
    /// Whether the calls were differentiated.
    pub fn of_gradients(&self) -> bool {
        self.stages == Stage::OF_GRADIENTS
    }

    /// How many calls agree.
    pub fn passed(&self) -> usize {
        self.calls.iter().filter(|c| c.failure.is_none()).count()
    }

    /// How many do not.
    pub fn failed(&self) -> usize {
        self.calls.len() - self.passed()
    }

    /// How many failed at a stage.
    pub fn failed_at(&self, stage: Stage) -> usize {
        self.calls.iter().filter(|c| c.failure.as_ref().is_some_and(|f| f.stage == stage)).count()
    }

    /// The failed calls, by their number in the file.
    pub fn failures(&self) -> impl Iterator<Item = (usize, &Failure)> {
        self.calls.iter().enumerate().filter_map(|(i, c)| Some((i, c.failure.as_ref()?)))
    }
}
