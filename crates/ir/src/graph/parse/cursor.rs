//! The parser's cursor: token lookahead, token consumption, and errors with their location.

use super::{Parser, Result};
use crate::graph::lex::{Kind, Token};
use std::borrow::Cow;
use std::fmt::{self, Display};

/// A position in a text; displays as `LINE:COLUMN`, as editors know it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TextPosition {
    /// The line, from 1.
    pub line: usize,
    /// The column in characters, from 1.
    pub column: usize,
}

impl Display for TextPosition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.line, self.column)
    }
}

/// The syntax error of a graph's text; displays the line and a caret under the column.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}, column {column}: {message}\n  | {excerpt}\n  | {:caret$}^", "")]
pub struct ParseError {
    /// The line, from 1.
    pub line: usize,
    /// The column in characters, from 1.
    pub column: usize,
    /// The expected and the found syntax.
    pub message: String,
    /// The line, or the part of a long line around the column.
    excerpt: String,
    /// The column of the caret in the excerpt, from 0.
    caret: usize,
}

impl ParseError {
    pub(crate) fn new(text: &str, at: usize, message: String) -> ParseError {
        const AROUND: usize = 60;
        let at = at.min(text.len());
        let before = text.get(..at).unwrap_or_default();
        let start = before.rfind('\n').map_or(0, |i| i + 1);
        let line = text.get(start..).unwrap_or_default().lines().next().unwrap_or_default();
        let column = text.get(start..at).unwrap_or_default().chars().count();
        let skipped = column.saturating_sub(AROUND);
        let shown = line.chars().skip(skipped).take(2 * AROUND);
        let excerpt = shown
            .map(|c| if c.is_control() { ' ' } else { c })
            .collect::<String>()
            .trim_end()
            .to_owned();
        let line = before.bytes().filter(|&b| b == b'\n').count() + 1;
        ParseError { line, column: column + 1, message, excerpt, caret: column - skipped }
    }
}

impl<'t> Parser<'t> {
    /// Parses items separated by commas: up to and including `close`, or one or more items if
    /// `close` is `None`.
    pub(crate) fn list_until(
        &mut self,
        close: Option<&str>,
        mut item: impl FnMut(&mut Self) -> Result<()>,
    ) -> Result<()> {
        if close.is_some_and(|close| self.eat(close)) {
            return Ok(());
        }
        loop {
            item(self)?;
            match close {
                Some(close) if self.eat(close) => return Ok(()),
                None if self.word() != "," => return Ok(()),
                Some(close) if self.word() != "," => {
                    return Err(self.expected(&format!("`,` or `{close}`")));
                }
                _ => self.pos += 1,
            }
        }
    }

    /// Skips a parenthesized group.
    pub(crate) fn skip_group(&mut self) -> Result<()> {
        let at = self.pos;
        self.expect("(")?;
        let mut depth = 1usize;
        while depth > 0 {
            match (self.peek().kind, self.word()) {
                (Kind::End | Kind::Newline, _) => {
                    return Err(self.error_at(at, "unclosed parenthesis"));
                }
                (Kind::Punct, "(") => depth += 1,
                (Kind::Punct, ")") => depth -= 1,
                _ => {}
            }
            self.pos += 1;
        }
        Ok(())
    }

    /// Consumes the end of a line.
    pub(crate) fn end_of_line(&mut self) -> Result<()> {
        match self.peek().kind {
            Kind::Newline => {
                self.pos += 1;
                Ok(())
            }
            _ => Err(self.expected("the end of the line")),
        }
    }

    /// Consumes the end of a line if it is next.
    pub(crate) fn newline(&mut self) {
        if self.peek().kind == Kind::Newline {
            self.pos += 1;
        }
    }

    /// Consumes an identifier with this text.
    pub(crate) fn keyword(&mut self, word: &str) -> Result<()> {
        if self.eat_word(word) { Ok(()) } else { Err(self.expected(&format!("`{word}`"))) }
    }

    /// Consumes a punctuation token.
    pub(crate) fn expect(&mut self, punct: &str) -> Result<()> {
        if self.eat(punct) { Ok(()) } else { Err(self.expected(&format!("`{punct}`"))) }
    }

    /// Consumes an identifier with this text if it is next.
    pub(crate) fn eat_word(&mut self, word: &str) -> bool {
        self.eat_if(Kind::Ident, word)
    }

    /// Consumes a punctuation token if it is next.
    pub(crate) fn eat(&mut self, punct: &str) -> bool {
        self.eat_if(Kind::Punct, punct)
    }

    fn eat_if(&mut self, kind: Kind, text: &str) -> bool {
        let is = self.peek().kind == kind && self.word() == text;
        self.pos += usize::from(is);
        is
    }

    /// Consumes an identifier; returns its text.
    pub(crate) fn ident(&mut self, what: &str) -> Result<&'t str> {
        self.take(Kind::Ident, what)
    }

    /// Consumes a token of a kind; returns its text.
    pub(crate) fn take(&mut self, kind: Kind, what: &str) -> Result<&'t str> {
        if self.peek().kind != kind {
            return Err(self.expected(what));
        }
        let text = self.word();
        self.pos += 1;
        Ok(text)
    }

    /// The current token.
    pub(crate) fn peek(&self) -> Token {
        self.nth(0)
    }

    /// The token `n` positions ahead.
    pub(crate) fn nth(&self, n: usize) -> Token {
        let end =
            Token { kind: Kind::End, start: self.text.len() as u32, end: self.text.len() as u32 };
        self.tokens.get(self.pos + n).copied().unwrap_or(end)
    }

    /// The next token's text.
    pub(crate) fn word(&self) -> &'t str {
        self.token_text(self.peek())
    }

    /// The text of a token.
    pub(crate) fn token_text(&self, token: Token) -> &'t str {
        self.text.get(token.start as usize..token.end as usize).unwrap_or_default()
    }

    /// The text from token `from` to the last consumed token.
    pub(crate) fn slice(&self, from: usize) -> &'t str {
        let end =
            self.pos.checked_sub(1).and_then(|i| self.tokens.get(i)).map_or(0, |t| t.end as usize);
        self.text.get(self.start_of(from)..end).unwrap_or_default()
    }

    /// As [`Parser::slice`], without the comments that the brackets of an expression may contain.
    pub(crate) fn slice_without_comments(&self, from: usize) -> Cow<'t, str> {
        let text = self.slice(from);
        if !text.contains('#') {
            return Cow::Borrowed(text);
        }
        let mut out = String::with_capacity(text.len());
        let mut at = self.start_of(from);
        for token in self.tokens.get(from..self.pos).unwrap_or_default() {
            // Before a token are space, comments, and the mark that the token's range excludes. A
            // comment ends with its line, so none is in the last line of this.
            let before = self.text.get(at..token.start as usize).unwrap_or_default();
            match before.rsplit_once('\n') {
                Some((_, last)) => {
                    out.push('\n');
                    out.push_str(last);
                }
                None => out.push_str(before),
            }
            out.push_str(self.token_text(*token));
            at = token.end as usize;
        }
        Cow::Owned(out)
    }

    /// The byte offset of a token.
    pub(crate) fn start_of(&self, token: usize) -> usize {
        // The range of a value token excludes its `%`.
        self.tokens
            .get(token)
            .map_or(self.text.len(), |t| t.start as usize - usize::from(t.kind == Kind::Value))
    }

    /// The error at a token.
    pub(crate) fn error_at(&self, token: usize, message: impl Display) -> ParseError {
        ParseError::new(self.text, self.start_of(token), message.to_string())
    }

    /// The error that the current token is not the expected syntax.
    pub(crate) fn expected(&self, what: &str) -> ParseError {
        const LONGEST: usize = 40;
        let found = match (self.peek().kind, self.word()) {
            (Kind::End, _) => "the end of the text".to_owned(),
            (Kind::Newline, _) => "the end of the line".to_owned(),
            (Kind::Value, name) => format!("`%{}`", name.chars().take(LONGEST).collect::<String>()),
            (_, text) => format!("`{}`", text.chars().take(LONGEST).collect::<String>()),
        };
        self.error_at(self.pos, format!("expected {what}, found {found}"))
    }
}
