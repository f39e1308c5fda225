//! Errors of schema texts and operator names.

use std::fmt;
use std::ops::Range;

/// The kind of an error in a schema or an operator name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SchemaErrorKind {
    /// A syntax error.
    #[error("expected {expected}, found {found}")]
    Expected {
        /// The expected syntax.
        expected: String,
        /// The text found instead.
        found: String,
    },
    /// A character that occurs in no schema.
    #[error("unexpected character `{}`", .0.escape_debug())]
    Character(char),
    /// A string without closing quote, or with an unknown escape.
    #[error("unterminated string, or unknown escape in a string")]
    Str,
    /// A limit on the length of the text or on the nesting of types and lists is exceeded.
    #[error("{0} exceeds the limit of {1}")]
    Limit(&'static str, usize),
    /// The operator's name has no namespace.
    #[error(
        "expected an operator name of the form `namespace::name`, found `{0}`, which has no \
            namespace"
    )]
    NoNamespace(String),
    /// The operator's name has another namespace than the one it is defined in.
    #[error("expected namespace `{expected}`, found `{found}`")]
    Namespace {
        /// The namespace in which the schema is defined.
        expected: String,
        /// The namespace in the text.
        found: String,
    },
    /// The overload name is reserved or invalid.
    #[error("`{0}` cannot be an overload name")]
    Overload(String),
    /// A signature without a name was expected, but the text has a name.
    #[error(
        "expected a signature without a name, like `(Tensor x) -> Tensor`, found the name `{0}`"
    )]
    NameInSignature(String),
    /// The type name is unknown.
    #[error("unknown type `{0}`")]
    UnknownType(String),
    /// Two arguments, or two returned values, have the same name.
    #[error("duplicate {what} `{name}`")]
    Duplicate {
        /// The kind of the duplicate: "argument" or "return".
        what: &'static str,
        /// The name.
        name: String,
    },
    /// A value without storage has an alias annotation.
    #[error("`{0}` has no storage: only tensors and lists of tensors can be aliased or mutated")]
    NoStorage(String),
    /// A returned value is in an alias set that contains no argument.
    #[error("a return is in the alias set `{0}`, but no argument is in it")]
    UnknownAlias(String),
    /// A returned value is marked as written, but no argument of its alias set is.
    #[error("a return is marked as written in the alias set `{0}`, but no argument of the set is")]
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
        /// The values that the type accepts.
        expected: String,
    },
    /// A positional argument without default follows an argument with a default.
    #[error("positional argument `{arg}` has no default, but `{before}` before it has one")]
    DefaultOrder {
        /// The argument.
        arg: String,
        /// The earlier argument that has a default.
        before: String,
    },
    /// The canonical text of a built schema parses to another schema, for example because a
    /// positional argument follows a keyword-only one, or because the grammar cannot express a
    /// default, a name or an alias annotation.
    #[error("the schema is not in canonical form: its text parses to a different schema")]
    NotCanonical,
}

/// The error of a schema or an operator name. Displays the error, the text with carets under the
/// error's location, and a suggestion.
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

    /// The kind of the error.
    pub fn kind(&self) -> &SchemaErrorKind {
        &self.0.kind
    }

    /// The text that was parsed.
    pub fn text(&self) -> &str {
        &self.0.text
    }

    /// The byte range of the error in the text; empty and at the end if the text ends too early.
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
        // A long text is cut to a window around the error.
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
