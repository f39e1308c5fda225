//! The parser of schemas: recursive descent over tokens.

mod default;
mod ty;

use super::lexer::{Token, tokenize};
use super::validate::{Sites, validate};
use super::{Arg, OpName, Ret, Schema, SchemaError, SchemaErrorKind};
use std::ops::Range;
use std::str::FromStr;

impl FromStr for Schema {
    type Err = SchemaError;

    fn from_str(text: &str) -> Result<Schema, SchemaError> {
        schema(text, None)
    }
}

/// Parses a schema; its namespace may be omitted if `ns` is given.
pub(super) fn schema(text: &str, ns: Option<&str>) -> Result<Schema, SchemaError> {
    let mut parser = Parser::new(text)?;
    let (name, span) = parser.op_name(ns)?;
    if name.overload == "default" || name.overload.starts_with("__") {
        return Err(parser
            .fail(SchemaErrorKind::Overload(name.overload), span)
            .help("leave it out, or choose another name"));
    }
    parser.rest_of_schema(name)
}

/// Parses a signature of the operator `name`.
pub(super) fn signature(name: OpName, text: &str) -> Result<Schema, SchemaError> {
    let parser = Parser::new(text)?;
    if let Token::Ident(_) = parser.peek() {
        let start = parser.span().start;
        let end = parser
            .tokens
            .iter()
            .find(|(t, _)| matches!(t, Token::Punct("(") | Token::End))
            .map_or(text.len(), |(_, s)| s.start);
        let found = text.get(start..end).unwrap_or_default().trim_end();
        let span = start..start + found.len();
        return Err(parser
            .fail(SchemaErrorKind::NameInSignature(found.to_owned()), span)
            .help(format!("the name is already given: `{name}`")));
    }
    parser.rest_of_schema(name)
}

/// Parses an operator name.
pub(super) fn name(text: &str) -> Result<OpName, SchemaError> {
    let mut parser = Parser::new(text)?;
    let (mut name, _) = parser.op_name(None)?;
    match parser.peek() {
        Token::End => {}
        Token::Punct("::") => {
            return Err(parser
                .expected("the end of the name")
                .help("an operator name has exactly one `::`"));
        }
        _ => return Err(parser.expected("the end of the name").help(NAME_HELP)),
    }
    if name.overload == "default" {
        name.overload.clear();
    }
    Ok(name)
}

const NAME_HELP: &str = "an operator name is `namespace::name` or `namespace::name.overload`, of \
    letters, digits and `_`";

struct Parser<'a> {
    text: &'a str,
    tokens: Vec<(Token<'a>, Range<usize>)>,
    at: usize,
}

impl<'a> Parser<'a> {
    fn new(text: &'a str) -> Result<Parser<'a>, SchemaError> {
        Ok(Parser { text, tokens: tokenize(text)?, at: 0 })
    }

    fn peek(&self) -> &Token<'a> {
        self.tokens.get(self.at).map_or(&Token::End, |(t, _)| t)
    }

    fn span(&self) -> Range<usize> {
        self.tokens.get(self.at).map_or(self.text.len()..self.text.len(), |(_, s)| s.clone())
    }

    /// The byte offset of the end of the last consumed token.
    fn end(&self) -> usize {
        self.at.checked_sub(1).and_then(|i| self.tokens.get(i)).map_or(0, |(_, s)| s.end)
    }

    /// Consumes a punctuation token if it is next.
    fn eat(&mut self, punct: &str) -> bool {
        let found = matches!(self.peek(), Token::Punct(p) if *p == punct);
        self.at += usize::from(found);
        found
    }

    fn expect(&mut self, punct: &str) -> Result<(), SchemaError> {
        if self.eat(punct) { Ok(()) } else { Err(self.expected(&format!("`{punct}`"))) }
    }

    fn ident(&mut self, what: &str) -> Result<&'a str, SchemaError> {
        match *self.peek() {
            Token::Ident(name) => {
                self.at += 1;
                Ok(name)
            }
            _ => Err(self.expected(what)),
        }
    }

    fn fail(&self, kind: SchemaErrorKind, span: Range<usize>) -> SchemaError {
        SchemaError::new(kind, self.text, span)
    }

    /// The error that the current token is not the expected syntax.
    fn expected(&self, expected: &str) -> SchemaError {
        let kind = SchemaErrorKind::Expected {
            expected: expected.to_owned(),
            found: self.peek().to_string(),
        };
        self.fail(kind, self.span())
    }

    /// Parses an operator name. Its namespace must be `ns` and may be omitted if `ns` is given;
    /// otherwise it is required.
    fn op_name(&mut self, ns: Option<&str>) -> Result<(OpName, Range<usize>), SchemaError> {
        let start = self.span().start;
        let first = self.ident("an operator name").map_err(|e| e.help(NAME_HELP))?;
        let first_end = self.end();
        let (found_ns, name) = if self.eat("::") {
            (Some(first), self.ident("the operator's name after `::`")?)
        } else {
            (None, first)
        };
        let overload = if self.eat(".") { self.ident("an overload name after `.`")? } else { "" };
        let span = start..self.end();
        let ns = match (found_ns, ns) {
            (Some(found), Some(expected)) if found != expected => {
                let kind = SchemaErrorKind::Namespace {
                    expected: expected.to_owned(),
                    found: found.to_owned(),
                };
                return Err(self
                    .fail(kind, start..first_end)
                    .help("the namespace may be left out here"));
            }
            (Some(ns), _) | (None, Some(ns)) => ns,
            (None, None) if !matches!(self.peek(), Token::Punct("(") | Token::End) => {
                return Err(self.expected("`::` and the operator's name").help(NAME_HELP));
            }
            (None, None) => {
                let found = self.text.get(span.clone()).unwrap_or_default().to_owned();
                return Err(self
                    .fail(SchemaErrorKind::NoNamespace(found), span)
                    .help(format!("for example `mylib::{name}`")));
            }
        };
        Ok((
            OpName { ns: ns.to_owned(), name: name.to_owned(), overload: overload.to_owned() },
            span,
        ))
    }

    /// Parses arguments and returns, and validates the schema.
    fn rest_of_schema(mut self, name: OpName) -> Result<Schema, SchemaError> {
        if !matches!(self.peek(), Token::Punct("(")) {
            let help = match self.peek() {
                Token::Punct("::") => "an operator name has exactly one `::`",
                Token::Punct("-" | "." | ":" | "+") => NAME_HELP,
                _ => "a schema looks like `mylib::crop(Tensor x, int top=0) -> Tensor`",
            };
            return Err(self.expected("the `(` of the arguments").help(help));
        }
        let mut sites = Sites::default();
        let args = self.args(&mut sites)?;
        if !self.eat("->") {
            return Err(self
                .expected("`->` and the returns")
                .help("an operator that returns nothing ends in `-> ()`"));
        }
        let returns = self.returns(&mut sites)?;
        if *self.peek() != Token::End {
            return Err(self.expected("the end of the schema"));
        }
        let schema = Schema { name, args, returns };
        validate(&schema, &sites, self.text)?;
        Ok(schema)
    }

    /// Parses `( item, … )`; `whose` names the parenthesis in error messages.
    fn parenthesized(
        &mut self,
        whose: &str,
        mut item: impl FnMut(&mut Self) -> Result<(), SchemaError>,
    ) -> Result<(), SchemaError> {
        let open = self.span();
        self.expect("(")?;
        if self.eat(")") {
            return Ok(());
        }
        loop {
            item(self)?;
            if self.eat(")") {
                return Ok(());
            }
            if !self.eat(",") {
                let error = self.expected("`,` or `)`");
                return Err(match self.peek() {
                    Token::End | Token::Punct("->") => error.help(format!(
                        "the `(` of the {whose}, at column {}, is not closed",
                        open.start + 1
                    )),
                    Token::Punct("[" | "?") => {
                        error.help("`?` and `[]` belong to the type: `int[] x`, `Tensor? x`")
                    }
                    Token::Punct(":") => error.help("the type comes before the name: `Tensor x`"),
                    _ => error,
                });
            }
        }
    }

    /// Parses the parenthesized arguments.
    fn args(&mut self, sites: &mut Sites) -> Result<Vec<Arg>, SchemaError> {
        let mut args = Vec::new();
        let mut kwarg_only = false;
        self.parenthesized("arguments", |p| {
            if !kwarg_only && p.eat("*") {
                kwarg_only = true;
                return if matches!(p.peek(), Token::Punct(",")) {
                    Ok(())
                } else {
                    Err(p.expected("`,` and keyword-only arguments after `*`"))
                };
            }
            let start = p.span().start;
            args.push(p.arg(kwarg_only)?);
            sites.args.push(start..p.end());
            Ok(())
        })?;
        Ok(args)
    }

    /// Parses one argument.
    fn arg(&mut self, kwarg_only: bool) -> Result<Arg, SchemaError> {
        let (ty, alias) = self.ty()?;
        let name = self
            .ident("the argument's name")
            .map_err(|e| e.help(format!("an argument is a type and a name: `{ty} x`")))?
            .to_owned();
        let default = if self.eat("=") { Some(self.default(&name, &ty)?) } else { None };
        Ok(Arg { name, ty, alias, default, kwarg_only })
    }

    /// Parses one return, or several in parentheses.
    fn returns(&mut self, sites: &mut Sites) -> Result<Vec<Ret>, SchemaError> {
        let mut returns = Vec::new();
        let mut one = |p: &mut Self| {
            let start = p.span().start;
            let (ty, alias) = p.ty()?;
            let name = if let Token::Ident(_) = p.peek() {
                Some(p.ident("a name")?.to_owned())
            } else {
                None
            };
            returns.push(Ret { name, ty, alias });
            sites.returns.push(start..p.end());
            Ok(())
        };
        match self.peek() {
            Token::Punct("(") => self.parenthesized("returns", one)?,
            _ => one(self)?,
        }
        Ok(returns)
    }
}
