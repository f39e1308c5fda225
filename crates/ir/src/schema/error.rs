//! Errors of schema texts.

use std::fmt;
use std::ops::Range;

/// What is wrong with a schema or an operator name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SchemaErrorKind {
    /// The grammar wants something else here.
    #[error("expected {expected}, found {found}")]
    Expected {
        /// What the grammar allows here.
        expected: String,
        /// What is here.
        found: String,
    },
    /// A character that no schema contains.
    #[error("unexpected character `{}`", .0.escape_debug())]
    Character(char),
    /// A string without its closing quote, or with an unknown escape.
    #[error("a string that is never closed, or has an unknown escape")]
    Str,
    /// The text is longer than any schema, or types or lists nest deeper than any.
    #[error("{0} is over the limit of {1}")]
    Limit(&'static str, usize),
    /// The operator's name has no namespace.
    #[error(
        "expected an operator name of the form `namespace::name`, found `{0}`, which has no \
            namespace"
    )]
    NoNamespace(String),
    /// The operator is defined in one namespace, and its name is in another.
    #[error("expected namespace `{expected}`, found `{found}`")]
    Namespace {
        /// The namespace that the schema is defined in.
        expected: String,
        /// The one that its text names.
        found: String,
    },
    /// A name that is reserved or cannot be an overload name.
    #[error("`{0}` cannot be an overload name")]
    Overload(String),
    /// A signature was asked for, and the text has a name too.
    #[error(
        "expected a signature without a name, like `(Tensor x) -> Tensor`, found the name `{0}`"
    )]
    NameInSignature(String),
    /// No such type.
    #[error("unknown type `{0}`")]
    UnknownType(String),
    /// Two arguments, or two returned values, of the same name.
    #[error("{what} `{name}` is there twice")]
    Duplicate {
        /// "argument" or "return".
        what: &'static str,
        /// The name.
        name: String,
    },
    /// An alias annotation on something that has no storage.
    #[error("`{0}` has no storage: only tensors and lists of tensors can be aliased or mutated")]
    NoStorage(String),
    /// A returned value names an alias set that no argument is in.
    #[error("a return is in the alias set `{0}`, but no argument is")]
    UnknownAlias(String),
    /// A returned value is marked as written, and no argument of its alias set is.
    #[error("a return is written in the alias set `{0}`, but no argument is")]
    WrittenReturn(String),
    /// The default value is not of the argument's type.
    #[error("`{ty} {arg}` cannot default to {found}: expected {expected}")]
    DefaultType {
        /// The argument.
        arg: String,
        /// Its type.
        ty: String,
        /// The default value, as written.
        found: String,
        /// What values the type has.
        expected: String,
    },
    /// A positional argument without a default after one with a default.
    #[error("positional argument `{arg}` has no default, but `{before}` before it has one")]
    DefaultOrder {
        /// The argument.
        arg: String,
        /// The one before it that has a default.
        before: String,
    },
    /// The parts of a built schema do not survive printing: a positional argument after a
    /// keyword-only one, or a default, a name or an alias annotation that the grammar cannot
    /// express.
    #[error("the schema's parts are not in canonical form: its text means another schema")]
    NotCanonical,
}

/// A schema or an operator name that is wrong. Prints the fault, the text with a caret under the
/// place, and what to write instead.
#[derive(Clone, PartialEq, Eq)]
pub struct SchemaError(Box<Detail>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Detail {
    kind: SchemaErrorKind,
    text: String,
    span: Range<usize>,
    help: Option<String>,
}

impl SchemaError {
    pub(super) fn new(kind: SchemaErrorKind, text: &str, span: Range<usize>) -> SchemaError {
        SchemaError(Box::new(Detail { kind, text: text.to_owned(), span, help: None }))
    }

    pub(super) fn help(mut self, help: impl Into<String>) -> SchemaError {
        self.0.help = Some(help.into());
        self
    }

    /// What is wrong.
    pub fn kind(&self) -> &SchemaErrorKind {
        &self.0.kind
    }

    /// The text that was parsed.
    pub fn text(&self) -> &str {
        &self.0.text
    }

    /// The bytes of the text at fault; empty at its end if something is missing there.
    pub fn span(&self) -> Range<usize> {
        self.0.span.clone()
    }
}

impl std::error::Error for SchemaError {}

impl fmt::Debug for SchemaError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Display for SchemaError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Long texts are cut to a window around the fault.
        const MARGIN: usize = 60;
        let Detail { kind, text, span, help } = &*self.0;
        let chars = |range: Range<usize>| {
            text.get(range)
                .unwrap_or_default()
                .chars()
                .map(|c| if c.is_control() { ' ' } else { c })
        };
        let before: Vec<char> = chars(0..span.start).collect();
        let fault: String = chars(span.clone()).take(2 * MARGIN).collect();
        let mut after = chars(span.end..text.len());
        let (cut, kept) = before.split_at(before.len().saturating_sub(MARGIN));
        let start: String =
            if cut.is_empty() { "" } else { "…" }.chars().chain(kept.iter().copied()).collect();
        let mut end: String = after.by_ref().take(MARGIN).collect();
        if after.next().is_some() {
            end.push('…');
        }
        write!(f, "{kind}")?;
        if !text.is_empty() {
            let (indent, carets) =
                (" ".repeat(start.chars().count()), "^".repeat(fault.chars().count().max(1)));
            write!(f, "\n  {start}{fault}{end}\n  {indent}{carets}")?;
        }
        match help {
            Some(help) => write!(f, "\n  help: {help}"),
            None => Ok(()),
        }
    }
}
