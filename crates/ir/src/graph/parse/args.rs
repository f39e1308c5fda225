//! The parsers of arguments, types and expressions.

use super::{Parser, Result};
use crate::graph::lex::Kind;
use crate::graph::types::{Arg, TensorType, TypeId, ValueId, ValueType, contiguous_strides};
use crate::graph::{MAX_LIST_DEPTH, MAX_RANK};
use crate::sym::{BoolExpr, Expr};
use crate::{DType, Device, Layout};
use smallvec::SmallVec;
use std::borrow::Cow;
use std::fmt::Display;
use std::str::FromStr;

impl Parser<'_> {
    /// Parses a reference to a defined value.
    pub(crate) fn value(&mut self) -> Result<ValueId> {
        let at = self.pos;
        let text = self.take(Kind::Value, "a value such as `%x`")?;
        self.values
            .get(text)
            .copied()
            .ok_or_else(|| self.error_at(at, format!("`%{text}` is used before it is defined")))
    }

    /// Parses an argument; `depth` is the number of enclosing lists.
    pub(crate) fn arg(&mut self, depth: usize) -> Result<Arg> {
        let token = self.peek();
        match (token.kind, self.word()) {
            (Kind::Value, _) => Ok(Arg::Value(self.value()?)),
            (Kind::Str, _) => {
                let text = self.string()?;
                Ok(Arg::Str(self.builder.intern(&text)))
            }
            (Kind::Punct, "[") => {
                if depth == MAX_LIST_DEPTH {
                    return Err(self.error_at(
                        self.pos,
                        format!("lists are nested more than {MAX_LIST_DEPTH} levels deep"),
                    ));
                }
                self.pos += 1;
                let mut items: SmallVec<[Arg; 8]> = SmallVec::new();
                self.list_until(Some("]"), |p| {
                    items.push(p.arg(depth + 1)?);
                    Ok(())
                })?;
                Ok(self.builder.list(&items))
            }
            (Kind::Float, text) => self.float(text, 1.0),
            (Kind::Punct, "-") => {
                let next = self.nth(1);
                let text = self.token_text(next);
                match next.kind {
                    Kind::Float if !text.starts_with("nan") => {
                        self.pos += 1;
                        self.float(text, -1.0)
                    }
                    Kind::Ident if text == "inf" => {
                        self.pos += 1;
                        self.float(text, -1.0)
                    }
                    _ => Ok(Arg::Int(self.expr()?)),
                }
            }
            (Kind::Ident, "inf" | "nan") => self.float(self.word(), 1.0),
            (Kind::Ident, "None") => Ok(self.word_arg(Arg::None)),
            (Kind::Ident, "true") => Ok(self.word_arg(Arg::Bool(true))),
            (Kind::Ident, "false") => Ok(self.word_arg(Arg::Bool(false))),
            (Kind::Ident, word) => {
                if let Some(dtype) = dtype(word) {
                    return Ok(self.word_arg(Arg::DType(dtype)));
                }
                if self.token_text(self.nth(1)) == "(" {
                    match word {
                        "device" => return self.in_parens(|p| p.device()).map(Arg::Device),
                        "layout" => return self.in_parens(|p| p.named()).map(Arg::Layout),
                        "memory_format" => {
                            return self.in_parens(|p| p.named()).map(Arg::MemoryFormat);
                        }
                        _ => {}
                    }
                }
                Ok(Arg::Int(self.expr()?))
            }
            (Kind::Int, _) | (Kind::Punct, "(") => Ok(Arg::Int(self.expr()?)),
            _ => Err(self.expected("an argument")),
        }
    }

    /// Consumes a word that is an argument by itself.
    fn word_arg(&mut self, arg: Arg) -> Arg {
        self.pos += 1;
        arg
    }

    /// Consumes a float with this text.
    fn float(&mut self, text: &str, sign: f64) -> Result<Arg> {
        let number = match text.strip_prefix("nan:") {
            Some(bits) => u64::from_str_radix(bits, 16)
                .map(f64::from_bits)
                .ok()
                .filter(|number| number.is_nan()),
            None => text.parse::<f64>().ok(),
        };
        let Some(number) = number else {
            return Err(self.error_at(self.pos, "malformed floating-point number"));
        };
        self.pos += 1;
        Ok(Arg::Float(if sign < 0.0 { -number } else { number }.into()))
    }

    /// Parses a word and a parenthesized operand: `device(cuda:0)`.
    fn in_parens<T>(&mut self, inner: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        self.pos += 1;
        self.expect("(")?;
        let inside = inner(self)?;
        self.expect(")")?;
        Ok(inside)
    }

    /// Parses a device: `cuda:0`.
    pub(crate) fn device(&mut self) -> Result<Device> {
        let at = self.pos;
        let mut text = self.ident("a device")?.to_owned();
        if self.eat(":") {
            text = format!("{text}:{}", self.take(Kind::Int, "a device's index")?);
        }
        text.parse().map_err(|e| self.error_at(at, e))
    }

    /// Parses a layout or memory format by name.
    fn named<T: FromStr<Err: Display>>(&mut self) -> Result<T> {
        let at = self.pos;
        self.ident("a name")?.parse().map_err(|e| self.error_at(at, e))
    }

    /// Parses the type of a value.
    pub(super) fn value_type(&mut self) -> Result<ValueType> {
        let is_tensor = self.token_text(self.nth(1)) == "[";
        match (self.word(), dtype(self.word())) {
            ("int", _) => self.in_parens(|p| p.expr()).map(ValueType::Int),
            (_, Some(dtype)) if is_tensor => self.tensor_type(dtype).map(ValueType::Tensor),
            ("float", _) => Ok(self.plain_type(ValueType::Float)),
            ("bool", _) => Ok(self.plain_type(ValueType::Bool)),
            ("str", _) => Ok(self.plain_type(ValueType::Str)),
            _ => {
                Err(self.expected("a type such as `f32[2, 3]`, `int(n)`, `float`, `bool` or `str`"))
            }
        }
    }

    /// Parses a dtype by name.
    pub(crate) fn dtype(&mut self) -> Result<DType> {
        let found = dtype(self.word()).ok_or_else(|| self.expected("a dtype such as `f32`"))?;
        self.pos += 1;
        Ok(found)
    }

    /// Consumes a word that is a type by itself.
    fn plain_type(&mut self, ty: ValueType) -> ValueType {
        self.pos += 1;
        ty
    }

    /// Parses a tensor type. Absent parts have default values; absent strides are contiguous.
    fn tensor_type(&mut self, dtype: DType) -> Result<TypeId> {
        let at = self.pos;
        self.pos += 1;
        let sizes = self.expr_list()?;
        let strides = if self.eat_word("strides") {
            let strides = self.expr_list()?;
            if strides.len() != sizes.len() {
                return Err(self.error_at(
                    at,
                    format!(
                        "expected as many strides as sizes, found {} sizes and {} strides",
                        sizes.len(),
                        strides.len()
                    ),
                ));
            }
            strides
        } else {
            contiguous_strides(&sizes, &mut self.symbols).map_err(|e| self.error_at(at, e))?
        };
        let offset = if self.eat_word("offset") { self.expr()? } else { Expr::Int(0) };
        let device = if self.eat_word("device") { self.device()? } else { Device::Cpu };
        let layout = if self.eat_word("layout") { self.named()? } else { Layout::Strided };
        let requires_grad = self.eat_word("requires_grad");
        Ok(self.builder.intern_type(TensorType {
            dtype,
            device,
            layout,
            sizes,
            strides,
            offset,
            requires_grad,
        }))
    }

    /// Parses bracketed expressions: `[n, 4]`.
    pub(crate) fn expr_list(&mut self) -> Result<SmallVec<[Expr; 4]>> {
        let at = self.pos;
        let mut exprs = SmallVec::new();
        self.expect("[")?;
        self.list_until(Some("]"), |p| {
            if exprs.len() == MAX_RANK {
                return Err(
                    p.error_at(at, format!("the tensor has more than {MAX_RANK} dimensions"))
                );
            }
            exprs.push(p.expr()?);
            Ok(())
        })?;
        Ok(exprs)
    }

    /// Parses an integer literal.
    pub(crate) fn int(&mut self) -> Result<i64> {
        let at = self.pos;
        // Space may follow the sign, which a Rust integer does not allow.
        let sign = if self.eat("-") { "-" } else { "" };
        let digits = self.take(Kind::Int, "an integer")?;
        format!("{sign}{digits}").parse().map_err(|e| self.error_at(at, e))
    }

    /// Parses an integer expression. It finds the end of the expression by alternating operands and
    /// operators, and parses the text in between with [`crate::sym::SymTable::parse_expr`].
    pub(crate) fn expr(&mut self) -> Result<Expr> {
        let at = self.pos;
        loop {
            while self.eat("-") {}
            match (self.peek().kind, self.word()) {
                (Kind::Int, _) => self.pos += 1,
                (Kind::Ident, _) => {
                    self.pos += 1;
                    if self.word() == "(" {
                        self.skip_group()?;
                    }
                }
                (Kind::Punct, "(") => self.skip_group()?,
                _ => return Err(self.expected("an expression")),
            }
            if !["+", "-", "*", "//", "%"].contains(&self.word()) {
                break;
            }
            self.pos += 1;
        }
        let text = self.slice_without_comments(at);
        if let Ok(n) = text.parse() {
            return Ok(Expr::Int(n));
        }
        if let Some(&e) = self.exprs.get(&*text) {
            return Ok(e);
        }
        let e = self.symbols.parse_expr(&text).map_err(|e| self.error_at(at, e))?;
        if let Cow::Borrowed(text) = text {
            self.exprs.insert(text, e);
        }
        Ok(e)
    }

    /// Parses a condition, which ends at a string or at the end of the line.
    pub(super) fn condition(&mut self) -> Result<BoolExpr> {
        let at = self.pos;
        while !matches!(self.peek().kind, Kind::Str | Kind::Newline | Kind::End) {
            self.pos += 1;
        }
        if self.pos == at {
            return Err(self.expected("a condition"));
        }
        let text = self.slice_without_comments(at);
        self.symbols.parse_bool(&text).map_err(|e| self.error_at(at, e))
    }

    /// Parses a string literal.
    pub(crate) fn string(&mut self) -> Result<String> {
        let at = self.pos;
        let quoted = self.take(Kind::Str, "a string")?;
        unquote(quoted).ok_or_else(|| {
            self.error_at(
                at,
                r#"unknown escape in the string; the escapes are \\ \" \n \r \t \u{hex}"#,
            )
        })
    }
}

/// The dtype with this name.
fn dtype(word: &str) -> Option<DType> {
    DType::ALL.into_iter().find(|d| d.name() == word)
}

/// The text of a string of graph text, which has its quotes; `None` if it has none, or an unknown
/// escape.
pub fn unquote(literal: &str) -> Option<String> {
    unescape(literal.strip_prefix('"')?.strip_suffix('"')?)
}

/// Resolves the escapes of a string literal; `None` if one is unknown.
fn unescape(text: &str) -> Option<String> {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('\\') {
        out.push_str(&rest[..at]);
        let mut chars = rest[at + 1..].chars();
        let c = chars.next()?;
        rest = chars.as_str();
        match c {
            '\\' | '"' => out.push(c),
            'n' => out.push('\n'),
            'r' => out.push('\r'),
            't' => out.push('\t'),
            'u' => {
                let (digits, after) = rest.strip_prefix('{')?.split_once('}')?;
                out.push(u32::from_str_radix(digits, 16).ok().and_then(char::from_u32)?);
                rest = after;
            }
            _ => return None,
        }
    }
    out.push_str(rest);
    Some(out)
}
