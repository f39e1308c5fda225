//! The parser of expressions and conditions, by precedence climbing. It reads the text of
//! [`SymTable::display`] and any text in the same grammar, and builds canonical expressions
//! directly.
//!
//! ```text
//! or      = and { "or" and }
//! and     = not { "and" not }
//! not     = "not" not | sum [ ("==" | "!=" | "<" | "<=" | ">" | ">=") sum ]
//! sum     = product { ("+" | "-") product }
//! product = unary { ("*" | "//" | "%") unary }
//! unary   = "-" unary | number | name | ("min" | "max") "(" sum { "," sum } ")"
//!          | "true" | "false" | "(" or ")"
//! ```
//!
//! Integers and conditions share one grammar; [`Typed`] rejects an operand of the wrong kind.
//! [`MAX_TEXT`] and [`MAX_NESTING`] bound the time and the stack.

use super::arith::Op;
use super::error::ParseSymError;
use super::{BoolExpr, Expr, Rel, SymError, SymTable};

/// The longest accepted text, in bytes.
const MAX_TEXT: usize = 1 << 20;
/// The greatest nesting of parentheses and signs.
const MAX_NESTING: usize = 160;

impl SymTable {
    /// Parses an expression; the inverse of [`SymTable::display`].
    ///
    /// # Errors
    /// The text is malformed, or names an undeclared symbol, or the arithmetic fails.
    pub fn parse_expr(&mut self, text: &str) -> Result<Expr, SymError> {
        self.parse(text)?.expr(INT)
    }

    /// Parses a condition; the inverse of [`SymTable::display_bool`].
    ///
    /// # Errors
    /// As [`SymTable::parse_expr`].
    pub fn parse_bool(&mut self, text: &str) -> Result<BoolExpr, SymError> {
        self.parse(text)?.condition("a condition such as `s0 <= 4`")
    }

    fn parse<'a>(&mut self, text: &'a str) -> Result<Typed<'a>, SymError> {
        if text.len() > MAX_TEXT {
            return Err(SymError::TooLarge { what: "bytes of text", limit: MAX_TEXT });
        }
        let mut parser = Parser { table: self, text, at: 0, token: Token::End, start: 0, depth: 0 };
        parser.advance()?;
        let value = parser.binary_level(0)?;
        if parser.token != Token::End {
            return Err(parser.unexpected("the end or an operator"));
        }
        Ok(Typed { value, text, at: 0 })
    }
}

#[derive(Clone, Copy, Debug)]
enum Value {
    Expr(Expr),
    Cond(BoolExpr),
}

/// A value and its byte offset in the text, for errors about its kind.
struct Typed<'a> {
    value: Value,
    text: &'a str,
    at: usize,
}

impl Typed<'_> {
    fn expr(&self, expected: &'static str) -> Result<Expr, SymError> {
        match self.value {
            Value::Expr(e) => Ok(e),
            Value::Cond(_) => Err(error(self.text, self.at, expected, "a condition".into())),
        }
    }

    fn condition(&self, expected: &'static str) -> Result<BoolExpr, SymError> {
        match self.value {
            Value::Cond(b) => Ok(b),
            Value::Expr(_) => {
                Err(error(self.text, self.at, expected, "an integer expression".into()))
            }
        }
    }
}

/// A binary operator.
#[derive(Clone, Copy)]
enum Infix {
    Junction(&'static str),
    Rel(Rel),
    Op(Op),
}

/// The precedence of `not` and of sums; see [`Parser::infix`].
const NOT: u8 = 3;
const SUM: u8 = 5;

const INT: &str = "an integer expression";
const COND: &str = "a condition";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Token<'a> {
    /// An unsigned number up to 2^63, so that `-9223372036854775808` is readable.
    Number(u64),
    Name(&'a str),
    Sign(&'static str),
    End,
}

/// Signs, each before its own prefixes: the first match is the longest.
const SIGNS: [&str; 14] =
    ["//", "==", "!=", "<=", ">=", "<", ">", "+", "-", "*", "%", "(", ")", ","];

struct Parser<'t, 'a> {
    table: &'t mut SymTable,
    text: &'a str,
    /// The byte offset at which the next token is searched.
    at: usize,
    token: Token<'a>,
    /// The byte offset of the current token.
    start: usize,
    depth: usize,
}

fn error(text: &str, at: usize, expected: &'static str, found: String) -> SymError {
    let mut short: String = text.chars().take(80).collect();
    if short.len() < text.len() {
        short.push('…');
    }
    SymError::Parse(Box::new(ParseSymError { text: short, at, expected, found }))
}

impl<'a> Parser<'_, 'a> {
    fn error(&self, expected: &'static str, found: String) -> SymError {
        error(self.text, self.start, expected, found)
    }

    fn unexpected(&self, expected: &'static str) -> SymError {
        let found = match self.token {
            Token::Number(n) => format!("`{n}`"),
            Token::Name(n) => format!("`{}`", n.chars().take(40).collect::<String>()),
            Token::Sign(s) => format!("`{s}`"),
            Token::End => "the end".into(),
        };
        self.error(expected, found)
    }

    /// Reads the next token.
    fn advance(&mut self) -> Result<(), SymError> {
        let rest = self.text.get(self.at..).unwrap_or("");
        let trimmed = rest.trim_start();
        self.start = self.at + rest.len() - trimmed.len();
        let length = |ok: fn(char) -> bool| trimmed.find(|c| !ok(c)).unwrap_or(trimmed.len());
        let (token, len) = match trimmed.chars().next() {
            None => (Token::End, 0),
            Some(c) if c.is_ascii_digit() => {
                let n = length(|c| c.is_ascii_digit());
                match trimmed[..n].parse() {
                    Ok(value) if value <= i64::MIN.unsigned_abs() => (Token::Number(value), n),
                    _ => return Err(self.error("a 64-bit integer", format!("{n} digits"))),
                }
            }
            Some(c) if c.is_ascii_alphabetic() || c == '_' => {
                let n = length(|c| c.is_ascii_alphanumeric() || c == '_');
                (Token::Name(&trimmed[..n]), n)
            }
            Some(c) => match SIGNS.iter().find(|s| trimmed.starts_with(**s)) {
                Some(s) => (Token::Sign(s), s.len()),
                None => {
                    return Err(self.error(
                        "an operator, a number or a name",
                        format!("`{}`", c.escape_debug()),
                    ));
                }
            },
        };
        self.token = token;
        self.at = self.start + len;
        Ok(())
    }

    /// Consumes the current token if it is `token`.
    fn accept(&mut self, token: Token) -> Result<bool, SymError> {
        let found = self.token == token;
        if found {
            self.advance()?;
        }
        Ok(found)
    }

    fn typed(&self, value: Value, at: usize) -> Typed<'a> {
        Typed { value, text: self.text, at }
    }

    /// Runs `f` one nesting level deeper.
    fn nested(
        &mut self,
        f: impl FnOnce(&mut Self) -> Result<Value, SymError>,
    ) -> Result<Value, SymError> {
        if self.depth >= MAX_NESTING {
            return Err(SymError::TooLarge { what: "levels of nesting", limit: MAX_NESTING });
        }
        self.depth += 1;
        let value = f(self);
        self.depth -= 1;
        value
    }

    /// The current token as a binary operator, and its precedence.
    fn infix(&self) -> Option<(Infix, u8)> {
        let found = match self.token {
            Token::Name("or") => (Infix::Junction("or"), 1),
            Token::Name("and") => (Infix::Junction("and"), 2),
            Token::Sign(sign) => match sign {
                "==" => (Infix::Rel(Rel::Eq), 4),
                "!=" => (Infix::Rel(Rel::Ne), 4),
                "<" => (Infix::Rel(Rel::Lt), 4),
                "<=" => (Infix::Rel(Rel::Le), 4),
                ">" => (Infix::Rel(Rel::Gt), 4),
                ">=" => (Infix::Rel(Rel::Ge), 4),
                "+" => (Infix::Op(Op::Add), 5),
                "-" => (Infix::Op(Op::Sub), 5),
                "*" => (Infix::Op(Op::Mul), 6),
                "//" => (Infix::Op(Op::FloorDiv), 6),
                "%" => (Infix::Op(Op::Mod), 6),
                _ => return None,
            },
            _ => return None,
        };
        Some(found)
    }

    /// Parses operands joined by operators of precedence `least` or higher.
    fn binary_level(&mut self, least: u8) -> Result<Value, SymError> {
        let at = self.start;
        let mut left = if least <= NOT && self.accept(Token::Name("not"))? {
            let at = self.start;
            let value = self.nested(|p| p.binary_level(NOT))?;
            let cond = self.typed(value, at).condition(COND)?;
            Value::Cond(self.table.not(cond))
        } else {
            self.unary()?
        };
        while let Some((infix, precedence)) =
            self.infix().filter(|&(_, precedence)| precedence >= least)
        {
            left = match infix {
                Infix::Junction(word) => {
                    let mut parts = vec![self.typed(left, at).condition(COND)?];
                    while self.accept(Token::Name(word))? {
                        let at = self.start;
                        let right = self.binary_level(precedence + 1)?;
                        parts.push(self.typed(right, at).condition(COND)?);
                    }
                    Value::Cond(self.table.junction(word == "and", &parts)?)
                }
                Infix::Rel(op) => {
                    let (a, b) = self.operands(left, at, precedence)?;
                    Value::Cond(self.table.rel(op, a, b))
                }
                Infix::Op(op) => {
                    let (a, b) = self.operands(left, at, precedence)?;
                    Value::Expr(self.table.binary(op, a, b)?)
                }
            };
        }
        Ok(left)
    }

    /// The left operand as an integer, and the right operand parsed after the operator.
    fn operands(
        &mut self,
        left: Value,
        at: usize,
        precedence: u8,
    ) -> Result<(Expr, Expr), SymError> {
        let a = self.typed(left, at).expr(INT)?;
        self.advance()?;
        let at = self.start;
        let right = self.binary_level(precedence + 1)?;
        Ok((a, self.typed(right, at).expr(INT)?))
    }

    /// Parses an operand: a number, a name, a call, a sign or parentheses.
    fn unary(&mut self) -> Result<Value, SymError> {
        match self.token {
            Token::Sign("-") => {
                self.advance()?;
                if let Token::Number(n) = self.token {
                    self.advance()?;
                    return Ok(Value::Expr(Expr::Int(0i64.wrapping_sub_unsigned(n))));
                }
                let at = self.start;
                let value = self.nested(Self::unary)?;
                let e = self.typed(value, at).expr(INT)?;
                self.table.mul(e, Expr::Int(-1)).map(Value::Expr)
            }
            Token::Number(n) => match i64::try_from(n) {
                Ok(n) => self.advance().map(|()| Value::Expr(Expr::Int(n))),
                Err(_) => Err(self.unexpected("a 64-bit integer")),
            },
            Token::Name(name @ ("true" | "false")) => {
                self.advance()?;
                Ok(Value::Cond(BoolExpr::Const(name == "true")))
            }
            Token::Name("min") => self.nested(|p| p.extremum(false)),
            Token::Name("max") => self.nested(|p| p.extremum(true)),
            Token::Name("and" | "or" | "not" | "oo") => {
                Err(self.unexpected("a number, a name or `(`"))
            }
            Token::Name(name) => {
                let e = self.table.named(name)?;
                self.advance()?;
                Ok(Value::Expr(e))
            }
            Token::Sign("(") => {
                self.advance()?;
                let value = self.nested(|p| p.binary_level(0))?;
                self.close()?;
                Ok(value)
            }
            _ => Err(self.unexpected("a number, a name or `(`")),
        }
    }

    /// Consumes a closing parenthesis.
    fn close(&mut self) -> Result<(), SymError> {
        if self.accept(Token::Sign(")"))? { Ok(()) } else { Err(self.unexpected("`)`")) }
    }

    /// Parses a call of `min` or `max`.
    fn extremum(&mut self, max: bool) -> Result<Value, SymError> {
        self.advance()?;
        if !self.accept(Token::Sign("("))? {
            return Err(self.unexpected("`(`"));
        }
        let mut args = Vec::new();
        loop {
            let at = self.start;
            let value = self.binary_level(SUM)?;
            args.push(self.typed(value, at).expr(INT)?);
            if !self.accept(Token::Sign(","))? {
                break;
            }
        }
        self.close()?;
        self.table.extremum(max, args).map(Value::Expr)
    }
}
