//! The parser of types and alias annotations.

use super::super::lexer::Token;
use super::super::{Alias, AliasSet, SchemaError, SchemaErrorKind, Type, closest};
use super::Parser;
use std::collections::BTreeSet;

/// The most `?` and `[]` of one type.
const MAX_MODIFIERS: usize = 8;
/// The greatest `N` of `T[N]`. A single default value is repeated `N` times, so the limit bounds
/// memory.
const MAX_LIST_SIZE: u32 = 1024;
const ALIAS_HELP: &str = "alias annotations look like `(a)`, `(a!)`, `(a|b)`, `(a -> *)`";

impl Parser<'_> {
    /// Parses a type with at most one alias annotation, on a tensor or on the elements of a list.
    pub(super) fn ty(&mut self) -> Result<(Type, Option<Alias>), SchemaError> {
        let span = self.span();
        let name = match *self.peek() {
            Token::Punct("...") => {
                return Err(self
                    .expected("a type")
                    .help("write a list, such as `Tensor[] xs`, for any number of arguments"));
            }
            Token::Punct("*") => {
                return Err(self
                    .expected("a type")
                    .help("`*` separates positional from keyword-only arguments, once"));
            }
            _ => self.ident("a type")?,
        };
        let Some(mut ty) = Type::LEAVES.into_iter().find(|t| t.leaf_name() == name) else {
            let error = self.fail(SchemaErrorKind::UnknownType(name.to_owned()), span);
            return Err(match type_help(name, self.peek()) {
                Some(help) => error.help(help),
                None => error,
            });
        };
        let mut alias = None;
        for _ in 0..=MAX_MODIFIERS {
            let open = self.span();
            if self.eat("?") {
                if ty.is_optional() {
                    return Err(self.fail(expected("one `?`", "`??`"), open.start - 1..open.end));
                }
                ty = Type::Optional(Box::new(ty));
            } else if self.eat("[") {
                let count = self.list_size()?;
                self.expect("]")?;
                ty = Type::List(Box::new(ty), count);
            } else if self.eat("(") {
                if alias.is_some() || matches!(ty.required(), Type::List(..)) {
                    let error = self.fail(expected("the argument's name", "`(`"), open);
                    return Err(
                        error.help("one alias annotation, before the `[]`: `Tensor(a!)[] xs`")
                    );
                }
                alias = Some(self.alias()?);
            } else if self.eat("!") {
                return Err(self
                    .fail(expected("the argument's name", "`!`"), open)
                    .help("a written argument names its alias set: `Tensor(a!) x`"));
            } else {
                return Ok((ty, alias));
            }
        }
        Err(self.fail(
            SchemaErrorKind::Limit("the number of `?` and `[]` of a type", MAX_MODIFIERS),
            span.start..self.end(),
        ))
    }

    /// Parses the `N` of `T[N]`, if present.
    fn list_size(&mut self) -> Result<Option<u32>, SchemaError> {
        let Token::Number(digits) = *self.peek() else { return Ok(None) };
        match digits.parse::<u32>() {
            Ok(n) if n <= MAX_LIST_SIZE => {
                self.at += 1;
                Ok(Some(n))
            }
            _ => Err(self.expected(&format!("a list size of at most {MAX_LIST_SIZE}"))),
        }
    }

    /// Parses an alias annotation after its `(`.
    fn alias(&mut self) -> Result<Alias, SchemaError> {
        let before = self.alias_sets()?;
        let write = self.eat("!");
        let after = if self.eat("->") { self.alias_sets()? } else { before.clone() };
        if self.eat(")") {
            Ok(Alias { before, write, after })
        } else {
            Err(self.expected("the `)` of the alias annotation").help(ALIAS_HELP))
        }
    }

    /// Parses alias sets separated by `|`.
    fn alias_sets(&mut self) -> Result<BTreeSet<AliasSet>, SchemaError> {
        let mut sets = BTreeSet::new();
        loop {
            sets.insert(if self.eat("*") {
                AliasSet::Wildcard
            } else {
                AliasSet::Named(
                    self.ident("an alias set").map_err(|e| e.help(ALIAS_HELP))?.to_owned(),
                )
            });
            if !self.eat("|") {
                // The wildcard contains every other set.
                return Ok(if sets.contains(&AliasSet::Wildcard) {
                    BTreeSet::from([AliasSet::Wildcard])
                } else {
                    sets
                });
            }
        }
    }
}

fn expected(expected: &str, found: &str) -> SchemaErrorKind {
    SchemaErrorKind::Expected { expected: expected.to_owned(), found: found.to_owned() }
}

/// A suggestion for an unknown type name.
fn type_help(name: &str, next: &Token<'_>) -> Option<String> {
    let instead = match name {
        "int64_t" | "int32_t" | "i64" | "i32" | "usize" | "size_t" | "long" | "integer" => {
            "use `int` or `SymInt`"
        }
        "double" | "f64" | "f32" | "float64" | "float32" => "use `float`",
        "string" | "String" | "std" | "char" => "use `str`",
        "Number" | "number" => "use `Scalar`",
        "dtype" | "DType" => "use `ScalarType`",
        "SymBool" => "use `bool`",
        "complex" => "complex numbers are not supported",
        "List" | "Sequence" | "Vec" | "list" | "ArrayRef" | "IntArrayRef" => {
            "a list is written `Tensor[]` or `int[]`"
        }
        "Tuple" | "tuple" => "tuples are not supported; a list is written `int[]`",
        "Dict" | "dict" => "dictionaries are not supported",
        "Option" | "Optional" => "an optional value is written `Tensor?`",
        "None" | "void" => "an operator that returns nothing ends in `-> ()`",
        _ => "",
    };
    if !instead.is_empty() {
        return Some(instead.to_owned());
    }
    let near = closest(name, Type::LEAVES.iter().map(Type::leaf_name));
    match (near, next) {
        (_, Token::Punct(":")) => Some(format!("the type comes before the name: `Tensor {name}`")),
        (Some(near), _) => Some(format!("did you mean `{near}`?")),
        (None, Token::Punct("," | ")" | "=")) => Some(format!(
            "an argument is a type and a name: \
            `Tensor {name}`"
        )),
        (None, _) => Some(
            "the types are Tensor, int, SymInt, float, bool, str, Scalar, ScalarType, Device, \
                Layout, MemoryFormat, Generator"
                .to_owned(),
        ),
    }
}
