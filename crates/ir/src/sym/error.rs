//! What can go wrong with symbolic integers.

use super::Range;
use crate::Loc;
use std::error::Error;
use std::sync::Arc;

/// An operation on symbolic integers that could not be done.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SymError {
    /// Not a name a symbol may have.
    #[error(
        "`{0}` cannot name a symbol: expected an identifier (letters, digits, `_`, not starting \
            with a digit) other than `and`, \
         `or`, `not`, `true`, `false`, `min`, `max`, `oo`"
    )]
    InvalidName(Box<str>),
    /// The name is taken.
    #[error("a symbol named `{0}` exists already; symbols of one table have different names")]
    DuplicateName(Box<str>),
    /// No symbol has the name.
    #[error("no symbol is named `{0}`")]
    UnknownSymbol(Box<str>),
    /// A range without values.
    #[error(
        "symbol `{name}` was given an empty range: its minimum {lo} is greater than its maximum \
            {hi}"
    )]
    EmptyRange {
        /// The symbol.
        name: Box<str>,
        /// Its minimum.
        lo: i64,
        /// Its maximum.
        hi: i64,
    },
    /// An example value outside the declared range.
    #[error("the example value {hint} of `{name}` is not in its range {range}")]
    HintOutOfRange {
        /// The symbol.
        name: Box<str>,
        /// Its example value.
        hint: i64,
        /// Its declared range.
        range: Range,
    },
    /// A value or coefficient outside 64 bits.
    #[error("`{0}` overflows a 64-bit integer")]
    Overflow(Box<str>),
    /// A divisor that is zero.
    #[error("`{0}` divides by zero")]
    DivisionByZero(Box<str>),
    /// An expression beyond the limits that keep everything fast.
    #[error("an expression became too large: more than {limit} {what}")]
    TooLarge {
        /// What was counted.
        what: &'static str,
        /// How many are allowed.
        limit: usize,
    },
    /// Evaluation met a symbol without a value.
    #[error("symbol `{0}` has no value")]
    Unbound(Box<str>),
    /// A text that is not an expression.
    #[error("{0}")]
    Parse(Box<ParseSymError>),
    /// A fact that cannot be true.
    #[error("`{fact}` contradicts what is already known: {known}")]
    Contradiction {
        /// What was to be assumed.
        fact: Box<str>,
        /// The ranges or facts it contradicts.
        known: Box<str>,
    },
    /// A decision that depends on data.
    #[error("{0}")]
    DataDependent(Box<DataDependent>),
    /// A checked condition that is false.
    #[error("assertion `{cond}` is false{}", detail(.message))]
    AssertionFailed {
        /// The condition.
        cond: Box<str>,
        /// The user's words, or nothing.
        message: Box<str>,
    },
    /// The trace that owned a handle is over.
    #[error("a symbolic integer was used after the trace it belongs to has ended")]
    ScopeClosed,
    /// Operands from two traces.
    #[error("symbolic integers of two different traces were combined")]
    DifferentScopes,
    /// A handle used while its scope's data are borrowed by this thread.
    #[error(
        "a symbolic integer was used inside `Scope::with` of its own scope; use the table there \
            instead"
    )]
    ScopeBusy,
    /// A failure that happened elsewhere and reached this value.
    #[error("{0}")]
    Poisoned(Arc<dyn Error + Send + Sync>),
    /// More failures than are kept.
    #[error("too many errors were recorded in this process; the first {0} are kept")]
    TooManyErrors(usize),
}

impl SymError {
    /// The failure elsewhere that reached this value.
    pub fn poison_cause(&self) -> Option<&Arc<dyn Error + Send + Sync>> {
        match self {
            SymError::Poisoned(cause) => Some(cause),
            _ => None,
        }
    }
}

fn detail(text: &str) -> String {
    if text.is_empty() { String::new() } else { format!(": {text}") }
}

/// Where the text of an expression stops making sense.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected {expected}, found {found} at column {} of `{text}`", .at + 1)]
pub struct ParseSymError {
    /// The text, shortened.
    pub text: String,
    /// Byte offset from 0.
    pub at: usize,
    /// What would have been right.
    pub expected: &'static str,
    /// What stood there.
    pub found: String,
}

/// A branch on a size that only data can decide.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "cannot {action} `{expr}` at {loc}: {symbol} is the data-dependent size made by {origin} at \
        {origin_loc}, unknown while \
     tracing; use .check(\"message\") to assert what you know about it, or .statically_known() to \
     ask without deciding"
)]
pub struct DataDependent {
    /// `branch on` or `take the value of`.
    pub action: &'static str,
    /// The expression that was to be decided.
    pub expr: String,
    /// The data-dependent symbol in it.
    pub symbol: String,
    /// The operator that made the symbol.
    pub origin: String,
    /// The line of that operator.
    pub origin_loc: Loc,
    /// The line of the decision.
    pub loc: Loc,
}
