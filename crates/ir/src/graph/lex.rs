//! The lexer of graph text. One pass over the bytes, in linear time.

use super::names;

/// The kind of a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// `batch`, `graph`, `f32`
    Ident,
    /// `aten::add.Tensor`
    Op,
    /// `%add_1`; the token's range excludes the `%`.
    Value,
    /// Decimal digits.
    Int,
    /// `1.0`, `1e-7`, `nan:7ff8000000000001`
    Float,
    /// A string with its quotes.
    Str,
    /// `sha256:` and 16 hexadecimal digits; the token's range is the digits.
    Digest,
    /// `@ layers.0.norm`; the token's range is the path after the `@`.
    Scope,
    /// Brackets, separators and operators.
    Punct,
    /// The end of a line outside parentheses and brackets. Consecutive line ends give one token.
    Newline,
    /// The end of the text.
    End,
}

/// A token: its kind and its byte range in the text.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Token {
    pub kind: Kind,
    pub start: u32,
    pub end: u32,
}

/// The length of the punctuation token that starts with `b`, followed by `next`.
fn punctuation(b: u8, next: Option<u8>) -> Option<usize> {
    match (b, next) {
        (b'-', Some(b'>')) | (b'/', Some(b'/')) | (b'=' | b'!' | b'<' | b'>', Some(b'=')) => {
            Some(2)
        }
        (
            b'(' | b')' | b'[' | b']' | b'{' | b'}' | b',' | b':' | b'=' | b'-' | b'+' | b'*'
            | b'%' | b'<' | b'>',
            _,
        ) => Some(1),
        _ => None,
    }
}

/// Splits a text into tokens, the last of which is [`Kind::End`].
///
/// # Errors
/// The byte offset of the error and a message.
pub(super) fn lex(text: &str) -> Result<Vec<Token>, (usize, String)> {
    let bytes = text.as_bytes();
    let mut tokens: Vec<Token> = Vec::with_capacity(bytes.len() / 4);
    let (mut at, mut depth) = (0usize, 0usize);
    while let Some(&b) = bytes.get(at) {
        let (kind, start, end) = match b {
            b'\n' => {
                if depth == 0 && tokens.last().is_some_and(|t| t.kind != Kind::Newline) {
                    tokens.push(Token { kind: Kind::Newline, start: at as u32, end: at as u32 });
                }
                at += 1;
                continue;
            }
            b' ' | b'\t' | b'\r' => {
                at += 1;
                continue;
            }
            b'#' => {
                at = run(bytes, at, |b| b != b'\n');
                continue;
            }
            b'%' if bytes.get(at + 1).is_some_and(|&b| names::is_start(b)) => {
                (Kind::Value, at + 1, run(bytes, at + 1, names::is_continue))
            }
            b'@' => {
                let start = run(bytes, at + 1, |b| b == b' ' || b == b'\t');
                (Kind::Scope, start, run(bytes, start, names::is_continue))
            }
            b'"' => (Kind::Str, at, string(text, at)?),
            b'0'..=b'9' => number(bytes, at)?,
            b if names::is_start(b) => word(text, at)?,
            b => match punctuation(b, bytes.get(at + 1).copied()) {
                Some(len) => {
                    match b {
                        b'(' | b'[' => depth += 1,
                        b')' | b']' => depth = depth.saturating_sub(1),
                        _ => {}
                    }
                    (Kind::Punct, at, at + len)
                }
                None => {
                    let found = text.get(at..).and_then(|t| t.chars().next()).unwrap_or('?');
                    return Err((at, format!("unexpected character `{}`", found.escape_default())));
                }
            },
        };
        tokens.push(Token { kind, start: start as u32, end: end as u32 });
        at = end;
    }
    tokens.push(Token { kind: Kind::End, start: at as u32, end: at as u32 });
    Ok(tokens)
}

/// The end of the longest run of accepted bytes from `from`.
fn run(bytes: &[u8], from: usize, is: impl Fn(u8) -> bool) -> usize {
    bytes.iter().skip(from).position(|&b| !is(b)).map_or(bytes.len(), |n| from + n)
}

fn is_word(b: u8) -> bool {
    b == b'_' || b.is_ascii_alphanumeric()
}

/// The end of the string literal that starts at `from`, past its closing quote.
fn string(text: &str, from: usize) -> Result<usize, (usize, String)> {
    let mut escaped = false;
    for (i, b) in text.bytes().enumerate().skip(from + 1) {
        match b {
            b'\n' => break,
            _ if escaped => escaped = false,
            b'\\' => escaped = true,
            b'"' => return Ok(i + 1),
            _ => {}
        }
    }
    Err((from, "unterminated string".to_owned()))
}

/// An integer or a float.
fn number(bytes: &[u8], from: usize) -> Result<(Kind, usize, usize), (usize, String)> {
    let digits = |from| run(bytes, from, |b| b.is_ascii_digit());
    let mut end = digits(from);
    let mut kind = Kind::Int;
    if bytes.get(end) == Some(&b'.') {
        (kind, end) = (Kind::Float, digits(end + 1));
    }
    if matches!(bytes.get(end), Some(b'e' | b'E')) {
        let sign = usize::from(matches!(bytes.get(end + 1), Some(b'-' | b'+')));
        (kind, end) = (Kind::Float, digits(end + 1 + sign));
    }
    match bytes.get(end) {
        Some(&b) if is_word(b) => Err((from, "malformed number".to_owned())),
        _ => Ok((kind, from, end)),
    }
}

/// An identifier, an operator name, or a word with hexadecimal digits after a colon: `sha256:` or
/// `nan:`.
fn word(text: &str, from: usize) -> Result<(Kind, usize, usize), (usize, String)> {
    let bytes = text.as_bytes();
    let end = run(bytes, from, is_word);
    if bytes[end..].starts_with(b"::") {
        let end = run(bytes, end + 2, |b| is_word(b) || b == b'.');
        return match names::is_op(&text[from..end]) {
            true => Ok((Kind::Op, from, end)),
            false => Err((
                from,
                format!(
                    "`{}` is not an operator name; expected `namespace::name` or \
                        `namespace::name.overload`",
                    &text[from..end]
                ),
            )),
        };
    }
    let kind = match &text[from..end] {
        "sha256" => Kind::Digest,
        "nan" => Kind::Float,
        _ => return Ok((Kind::Ident, from, end)),
    };
    if bytes.get(end) != Some(&b':') {
        return Ok((Kind::Ident, from, end));
    }
    let digits = run(bytes, end + 1, |b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b));
    match digits - end - 1 {
        16 => Ok((kind, if kind == Kind::Digest { end + 1 } else { from }, digits)),
        n => Err((
            from,
            format!(
                "expected 16 lowercase hexadecimal digits after `{}:`, found {n}",
                &text[from..end]
            ),
        )),
    }
}
