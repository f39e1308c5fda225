//! The text form of signatures, which parses back. `docs/export.md` has the grammar.
//!
//! A name or a value is quoted, as a string of graph text, where the text would otherwise be read
//! in another way.

use super::signature::{InputKind, InputSpec, OutputKind, OutputSpec, Signature};
use maquette_ir::graph::{quote, unquote};
use std::fmt;
use std::str::FromStr;

const TIED: &str = ", tied to ";
const UNUSED: &str = ", unused";

/// The syntax error of a signature's text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SignatureSyntax {
    /// The line, from 1.
    pub line: usize,
    /// What was expected.
    pub message: String,
}

impl fmt::Display for SignatureSyntax {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.message)
    }
}

impl std::error::Error for SignatureSyntax {}

impl fmt::Display for Signature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("inputs")?;
        for input in &self.inputs {
            let InputSpec { kind, name, value, tied_to, used } = input;
            write!(f, "\n  {} {}: {}", kind.name(), Name(name, true), Value(value))?;
            if let Some(other) = tied_to {
                write!(f, "{TIED}{}", Name(other, false))?;
            }
            f.write_str(if *used { "" } else { UNUSED })?;
        }
        f.write_str("\noutputs")?;
        for OutputSpec { kind, name, value } in &self.outputs {
            write!(f, "\n  {}", kind.name())?;
            if !name.is_empty() {
                write!(f, " {}", Name(name, true))?;
            }
            write!(f, ": {}", Value(value))?;
        }
        Ok(())
    }
}

/// A name, or a list of names if that is allowed.
struct Name<'a>(&'a str, bool);

impl fmt::Display for Name<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match is_plain_name(self.0, self.1) {
            true => f.write_str(self.0),
            false => quote(self.0).fmt(f),
        }
    }
}

fn is_plain_name(text: &str, list: bool) -> bool {
    // After `output`, these words are parts of a kind.
    let is_word = |text: &str| {
        let plain = |c: char| c.is_alphanumeric() || matches!(c, '_' | '.' | '-');
        !text.is_empty() && text.chars().all(plain) && text != "alias" && text != "mutation"
    };
    if list { text.split(", ").all(is_word) } else { is_word(text) }
}

struct Value<'a>(&'a str);

impl fmt::Display for Value<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match is_plain_value(self.0) {
            true => f.write_str(self.0),
            false => quote(self.0).fmt(f),
        }
    }
}

fn is_plain_value(text: &str) -> bool {
    // Characters that a string has as they are, and quotation marks.
    let visible =
        |c: char| matches!(c, '"' | '\\') || quote(&c.to_string()).chars().nth(1) == Some(c);
    !text.is_empty()
        && text.trim() == text
        && !text.starts_with('"')
        && !text.contains(TIED)
        && !text.ends_with(UNUSED)
        && text.chars().all(visible)
}

impl Signature {
    /// Parses the text that a signature displays as.
    ///
    /// # Errors
    /// The text is not that of a signature.
    pub fn parse(text: &str) -> Result<Signature, SignatureSyntax> {
        let mut signature = Signature { inputs: Vec::new(), outputs: Vec::new() };
        let mut section = None;
        for (i, line) in text.lines().enumerate() {
            let fail = |message: &str| SignatureSyntax { line: i + 1, message: message.to_owned() };
            section = match (section, line, line.strip_prefix("  ")) {
                (None, "inputs", _) => Some(Section::Inputs),
                (Some(Section::Inputs), "outputs", _) => Some(Section::Outputs),
                (Some(Section::Inputs), _, Some(entry)) => {
                    let form = "expected an input: `KIND NAME: VALUE`, then `, tied to NAME` and \
                                `, unused` where they apply";
                    signature.inputs.push(input(entry).ok_or_else(|| fail(form))?);
                    section
                }
                (Some(Section::Outputs), _, Some(entry)) => {
                    let form = "expected an output: `KIND NAME: VALUE` or `KIND: VALUE`";
                    signature.outputs.push(output(entry).ok_or_else(|| fail(form))?);
                    section
                }
                (None, ..) => return Err(fail("expected `inputs`")),
                (Some(Section::Inputs), ..) => return Err(fail("expected an input or `outputs`")),
                (Some(Section::Outputs), ..) => return Err(fail("expected an output")),
            };
        }
        match section {
            Some(Section::Outputs) => Ok(signature),
            _ => {
                let message = "the text ends before `outputs`".to_owned();
                Err(SignatureSyntax { line: text.lines().count(), message })
            }
        }
    }
}

impl FromStr for Signature {
    type Err = SignatureSyntax;

    fn from_str(text: &str) -> Result<Signature, SignatureSyntax> {
        Signature::parse(text)
    }
}

#[derive(Clone, Copy)]
enum Section {
    Inputs,
    Outputs,
}

fn input(entry: &str) -> Option<InputSpec> {
    InputKind::ALL.into_iter().find_map(|kind| {
        let (name, rest) = name(entry.strip_prefix(kind.name())?.strip_prefix(' ')?, true)?;
        let rest = rest.strip_prefix(": ")?;
        let (rest, used) = rest.strip_suffix(UNUSED).map_or((rest, true), |rest| (rest, false));
        let (value, tied_to) = match rest.starts_with('"') {
            true => {
                let (literal, rest) = literal(rest)?;
                let tied = if rest.is_empty() { None } else { Some(rest.strip_prefix(TIED)?) };
                (unquote(literal)?, tied)
            }
            false => match rest.split_once(TIED) {
                Some((value, tied)) => (value.to_owned(), Some(tied)),
                None => (rest.to_owned(), None),
            },
        };
        let tied_to = match tied_to.map(|tied| self::name(tied, false)) {
            None => None,
            Some(Some((tied, ""))) => Some(tied),
            Some(_) => return None,
        };
        (rest.starts_with('"') || is_plain_value(&value)).then_some(InputSpec {
            kind,
            name,
            value,
            tied_to,
            used,
        })
    })
}

fn output(entry: &str) -> Option<OutputSpec> {
    OutputKind::ALL.into_iter().find_map(|kind| {
        let rest = entry.strip_prefix(kind.name())?;
        let (name, rest) = match rest.strip_prefix(' ') {
            Some(rest) => name(rest, true)?,
            None => (String::new(), rest),
        };
        let rest = rest.strip_prefix(": ")?;
        let value = match rest.starts_with('"') {
            true => unquote(literal(rest).filter(|(_, rest)| rest.is_empty())?.0)?,
            false => Some(rest.to_owned()).filter(|value| is_plain_value(value))?,
        };
        Some(OutputSpec { kind, name, value })
    })
}

/// A name at the beginning of a text, and the rest of the text.
fn name(text: &str, list: bool) -> Option<(String, &str)> {
    if text.starts_with('"') {
        let (literal, rest) = literal(text)?;
        return Some((unquote(literal)?, rest));
    }
    let (name, rest) = text.split_at(text.find(": ").unwrap_or(text.len()));
    is_plain_name(name, list).then(|| (name.to_owned(), rest))
}

/// A string literal at the beginning of a text, and the rest of the text.
fn literal(text: &str) -> Option<(&str, &str)> {
    let mut escaped = false;
    let end = text.char_indices().skip(1).find(|(_, c)| {
        let is_end = *c == '"' && !escaped;
        escaped = *c == '\\' && !escaped;
        is_end
    });
    Some(text.split_at(end?.0 + 1))
}
