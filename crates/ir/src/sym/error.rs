//! Errors of symbolic integers.

use super::Range;
use crate::Loc;
use std::error::Error;
use std::sync::Arc;

/// An error of an operation on symbolic integers.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SymError {
    /// The text is not a valid symbol name.
    #[error(
        "`{0}` cannot name a symbol: expected an identifier (letters, digits, `_`, not starting \
            with a digit) other than `and`, \
         `or`, `not`, `true`, `false`, `min`, `max`, `oo`"
    )]
    InvalidName(Box<str>),
    /// Another symbol of the table has the name.
    #[error("duplicate symbol name `{0}`; the names of a table's symbols must be distinct")]
    DuplicateName(Box<str>),
    /// The table has no symbol with the name.
    #[error("no symbol is named `{0}`")]
    UnknownSymbol(Box<str>),
    /// The declared range is empty.
    #[error(
        "symbol `{name}` has an empty range: its minimum {lo} is greater than its maximum {hi}"
    )]
    EmptyRange {
        /// The symbol.
        name: Box<str>,
        /// Its minimum.
        lo: i64,
        /// Its maximum.
        hi: i64,
    },
    /// The example value is outside the declared range.
    #[error("the sample value {hint} of `{name}` is outside its range {range}")]
    HintOutOfRange {
        /// The symbol.
        name: Box<str>,
        /// Its example value.
        hint: i64,
        /// Its declared range.
        range: Range,
    },
    /// A value or coefficient needs more than 64 bits.
    #[error("`{0}` overflows a 64-bit integer")]
    Overflow(Box<str>),
    /// The divisor is zero.
    #[error("`{0}` divides by zero")]
    DivisionByZero(Box<str>),
    /// The expression exceeds a limit on size, depth, degree or operands.
    #[error("the expression is too large: it exceeds the limit of {limit} {what}")]
    TooLarge {
        /// The limited quantity.
        what: &'static str,
        /// The limit.
        limit: usize,
    },
    /// A symbol has no value in an evaluation.
    #[error("symbol `{0}` has no value")]
    Unbound(Box<str>),
    /// The text is not an expression or condition.
    #[error("{0}")]
    Parse(Box<ParseSymError>),
    /// The fact contradicts the known facts.
    #[error("`{fact}` contradicts known facts: {known}")]
    Contradiction {
        /// The fact.
        fact: Box<str>,
        /// The ranges or assertions that the fact contradicts.
        known: Box<str>,
    },
    /// A decision depends on data.
    #[error("{0}")]
    DataDependent(Box<DataDependent>),
    /// An asserted condition is false.
    #[error("{}{}", assertion(.cond), detail(.message))]
    AssertionFailed {
        /// The condition.
        cond: Box<str>,
        /// The user's message, or the empty string.
        message: Box<str>,
    },
    /// The trace of the handle has ended.
    #[error("a symbolic integer was used after its trace ended")]
    ScopeClosed,
    /// The operands belong to different traces.
    #[error("an operation combines symbolic integers of different traces")]
    DifferentScopes,
    /// The handle was used inside [`super::Scope::with`] of its own scope.
    #[error(
        "a symbolic integer was used inside `Scope::with` of its own scope; use the table there \
            instead"
    )]
    ScopeBusy,
    /// An error of another operation that the handle carries.
    #[error("{0}")]
    Poisoned(Arc<dyn Error + Send + Sync>),
    /// More errors were recorded than are stored.
    #[error("too many errors were recorded in this process; the first {0} are kept")]
    TooManyErrors(usize),
}

impl SymError {
    /// The error of another operation that the handle carries.
    pub fn poison_cause(&self) -> Option<&Arc<dyn Error + Send + Sync>> {
        match self {
            SymError::Poisoned(cause) => Some(cause),
            _ => None,
        }
    }
}

/// A condition on numbers alone folds to `false`, which says nothing.
fn assertion(cond: &str) -> String {
    match cond {
        "false" => "an assertion on sizes that are known does not hold".to_owned(),
        cond => format!("assertion `{cond}` is false"),
    }
}

fn detail(text: &str) -> String {
    if text.is_empty() { String::new() } else { format!(": {text}") }
}

/// The syntax error of an expression's text.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected {expected}, found {found} at column {} of `{text}`", .at + 1)]
pub struct ParseSymError {
    /// The text, shortened.
    pub text: String,
    /// The byte offset of the error, from 0.
    pub at: usize,
    /// The expected syntax.
    pub expected: &'static str,
    /// The text found instead.
    pub found: String,
}

/// A decision on a size that is unknown until data are computed.
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
    /// The expression to be decided.
    pub expr: String,
    /// The unbacked symbol in the expression.
    pub symbol: String,
    /// The operator that produces the symbol's value.
    pub origin: String,
    /// The line of that operator.
    pub origin_loc: Loc,
    /// The line of the decision.
    pub loc: Loc,
}
