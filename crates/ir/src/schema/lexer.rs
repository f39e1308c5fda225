//! The lexer of schema text.

use super::{SchemaError, SchemaErrorKind};
use std::fmt;
use std::ops::Range;

/// The longest accepted text, in bytes. Real schemas are below 2 KiB.
const MAX_TEXT: usize = 1 << 16;

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Token<'a> {
    Ident(&'a str),
    /// An unsigned number, as written.
    Number(&'a str),
    Str(String),
    Punct(&'static str),
    End,
}

impl fmt::Display for Token<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Token::Ident(s) | Token::Number(s) => write!(f, "`{s}`"),
            Token::Str(s) => write!(f, "`{s:?}`"),
            Token::Punct(s) => write!(f, "`{s}`"),
            Token::End => f.write_str("the end of the text"),
        }
    }
}

const PUNCTUATION: [&str; 17] =
    ["->", "::", "...", "(", ")", "[", "]", ",", "*", "=", "?", "!", "|", ".", "-", "+", ":"];

/// The tokens of `text` with their byte ranges; the last token is [`Token::End`].
pub(super) fn tokenize(text: &str) -> Result<Vec<(Token<'_>, Range<usize>)>, SchemaError> {
    if text.len() > MAX_TEXT {
        return Err(SchemaError::new(
            SchemaErrorKind::Limit("the schema's length in bytes", MAX_TEXT),
            "",
            0..0,
        ));
    }
    let mut tokens = Vec::new();
    let mut rest = text.trim_start();
    while let Some(first) = rest.chars().next() {
        let start = text.len() - rest.len();
        let (token, length) = if first.is_ascii_alphabetic() || first == '_' {
            let length = prefix(rest, |c| c.is_ascii_alphanumeric() || c == '_');
            (Token::Ident(&rest[..length]), length)
        } else if first.is_ascii_digit() {
            let length = number(rest);
            (Token::Number(&rest[..length]), length)
        } else if first == '"' || first == '\'' {
            match string(rest, first) {
                Some((value, length)) => (Token::Str(value), length),
                None => {
                    return Err(SchemaError::new(
                        SchemaErrorKind::Str,
                        text,
                        start..text.trim_end().len(),
                    ));
                }
            }
        } else if let Some(punct) = PUNCTUATION.into_iter().find(|p| rest.starts_with(p)) {
            (Token::Punct(punct), punct.len())
        } else {
            return Err(SchemaError::new(
                SchemaErrorKind::Character(first),
                text,
                start..start + first.len_utf8(),
            ));
        };
        tokens.push((token, start..start + length));
        rest = rest[length..].trim_start();
    }
    let end = text.trim_end().len();
    tokens.push((Token::End, end..end));
    Ok(tokens)
}

/// The length of the longest prefix of accepted characters.
fn prefix(text: &str, keep: impl Fn(char) -> bool) -> usize {
    text.find(|c| !keep(c)).unwrap_or(text.len())
}

/// The length of a number: `12`, `1.`, `1.5`, `1e-05`.
fn number(text: &str) -> usize {
    let digits = |from: usize| from + prefix(&text[from..], |c| c.is_ascii_digit());
    let mut end = digits(0);
    if text[end..].starts_with('.') {
        end = digits(end + 1);
    }
    if text[end..].starts_with(['e', 'E']) {
        let sign = usize::from(text[end + 1..].starts_with(['-', '+']));
        let exponent = digits(end + 1 + sign);
        if exponent > end + 1 + sign {
            end = exponent;
        }
    }
    end
}

/// The value of a string literal and its length including quotes; `None` if it is not terminated or
/// has an unknown escape.
fn string(text: &str, quote: char) -> Option<(String, usize)> {
    let mut value = String::new();
    let mut chars = text.char_indices().skip(1);
    while let Some((at, c)) = chars.next() {
        match c {
            _ if c == quote => return Some((value, at + 1)),
            '\\' => value.push(match chars.next()?.1 {
                'n' => '\n',
                'r' => '\r',
                't' => '\t',
                c @ ('\\' | '\'' | '"') => c,
                c => char::from(octal(c, chars.next()?.1, chars.next()?.1)?),
            }),
            _ => value.push(c),
        }
    }
    None
}

/// The character of an octal escape such as `\007`; ASCII only.
fn octal(a: char, b: char, c: char) -> Option<u8> {
    let code = a.to_digit(8)? * 64 + b.to_digit(8)? * 8 + c.to_digit(8)?;
    u8::try_from(code).ok().filter(u8::is_ascii)
}
