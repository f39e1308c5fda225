//! The parser of default values, directed by the type of the argument.

use super::super::lexer::Token;
use super::super::{Default, SchemaError, SchemaErrorKind, Type};
use super::Parser;
use crate::{DType, Device, Layout, MemoryFormat};
use std::str::FromStr;

impl Parser<'_> {
    /// Parses a default value of type `ty`.
    pub(super) fn default(&mut self, arg: &str, ty: &Type) -> Result<Default, SchemaError> {
        if let Token::Ident("None") = self.peek() {
            if !ty.is_optional() {
                return Err(self.bad_default(arg, ty).help(format!(
                    "an argument that may be `None` is optional: `{ty}? {arg}=None`"
                )));
            }
            self.at += 1;
            return Ok(Default::None);
        }
        let Type::List(element, count) = ty.required() else {
            let start = self.at;
            return self.constant(ty.required()).ok_or_else(|| {
                self.at = start;
                let error = self.bad_default(arg, ty);
                match self.peek() {
                    Token::Ident(s @ ("true" | "false")) => error
                        .help(format!("write `{}`", if *s == "true" { "True" } else { "False" })),
                    _ => error,
                }
            });
        };
        if let Some(count) = count
            && !matches!(self.peek(), Token::Punct("["))
            && !matches!(element.required(), Type::List(..))
        {
            let one = self.default(arg, element)?;
            return Ok(Default::List(vec![one; *count as usize]));
        }
        if !self.eat("[") {
            return Err(self.bad_default(arg, ty));
        }
        let mut items = Vec::new();
        if self.eat("]") {
            return Ok(Default::List(items));
        }
        loop {
            items.push(self.default(arg, element)?);
            if self.eat("]") {
                return Ok(Default::List(items));
            }
            if !self.eat(",") {
                return Err(self.expected("`,` or `]`"));
            }
        }
    }

    /// Parses a value of a type that is neither optional nor a list; `None` if the text is not a
    /// such value.
    fn constant(&mut self, ty: &Type) -> Option<Default> {
        let minus = self.eat("-");
        let token = self.peek().clone();
        self.at += 1;
        let sign = if minus { "-" } else { "" };
        let int = |digits: &str| format!("{sign}{digits}").parse::<i64>().ok();
        let float = |digits: &str| {
            format!("{sign}{digits}")
                .parse::<f64>()
                .ok()
                .filter(|x| x.is_finite())
                .map(Default::Float)
        };
        let value = match (ty, &token) {
            (Type::Int | Type::SymInt, Token::Number(digits)) => Default::Int(int(digits)?),
            // PyTorch's loss functions default to the number of `at::Reduction::Mean`.
            (Type::Int, Token::Ident("Mean")) if !minus => Default::Int(1),
            (Type::Float, Token::Number(digits)) => float(digits)?,
            (Type::Scalar, Token::Number(digits)) if digits.contains(['.', 'e', 'E']) => {
                float(digits)?
            }
            (Type::Scalar, Token::Number(digits)) => Default::Int(int(digits)?),
            (Type::Float | Type::Scalar, Token::Ident("inf")) => {
                Default::Float(if minus { f64::NEG_INFINITY } else { f64::INFINITY })
            }
            (Type::Float | Type::Scalar, Token::Ident("nan")) if !minus => Default::Float(f64::NAN),
            _ if minus => return None,
            (Type::ScalarType | Type::Layout | Type::MemoryFormat, Token::Number(digits)) => {
                Default::from_code(ty, int(digits)?)?
            }
            (Type::ScalarType, Token::Ident(name)) => Default::DType(DType::from_str(name).ok()?),
            (Type::Layout, Token::Ident(name)) => Default::Layout(Layout::from_str(name).ok()?),
            (Type::MemoryFormat, Token::Ident(name)) => {
                Default::MemoryFormat(MemoryFormat::from_str(name).ok()?)
            }
            (Type::Bool | Type::Scalar, Token::Ident("True")) => Default::Bool(true),
            (Type::Bool | Type::Scalar, Token::Ident("False")) => Default::Bool(false),
            (Type::Str, Token::Str(text)) => Default::Str(text.clone()),
            (Type::Device, Token::Str(name)) => Default::Device(Device::from_str(name).ok()?),
            _ => return None,
        };
        Some(value)
    }

    /// The error of a default value that is not of type `ty`.
    fn bad_default(&self, arg: &str, ty: &Type) -> SchemaError {
        let expected = match ty.required() {
            Type::Int | Type::SymInt => "an integer",
            Type::Float => "a number, such as `1.` or `1e-05`",
            Type::Bool => "`True` or `False`",
            Type::Str => "a quoted string",
            Type::Scalar => "a number, `True` or `False`",
            Type::ScalarType => "a dtype, such as `float32`",
            Type::Layout => "a layout, such as `strided`",
            Type::Device => "a device as a quoted string, such as `\"cuda:0\"`",
            Type::MemoryFormat => "a memory format, such as `contiguous_format`",
            Type::List(..) => "a list, such as `[0, 1]`",
            _ if ty.is_optional() => "`None`",
            _ => "no default",
        };
        let mut span = self.span();
        if let (Token::Punct("-"), Some((Token::Number(_), number))) =
            (self.peek(), self.tokens.get(self.at + 1))
        {
            span.end = number.end;
        }
        let found = match self.peek() {
            Token::End | Token::Punct("," | ")" | "]") => "nothing".to_owned(),
            _ => format!("`{}`", self.text.get(span.clone()).unwrap_or_default()),
        };
        let kind = SchemaErrorKind::DefaultType {
            arg: arg.to_owned(),
            ty: ty.to_string(),
            found,
            expected: expected.to_owned(),
        };
        self.fail(kind, span)
    }
}
