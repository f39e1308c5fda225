//! Operator schemas: PyTorch's function-schema grammar.
//!
//! A schema declares everything about an operator except its kernel: arguments, results, mutations
//! and aliasing, as in
//! `aten::add_.Tensor(Tensor(a!) self, Tensor other, *, Scalar alpha=1) -> Tensor(a!)`. A parsed
//! schema prints in one canonical form, the form that PyTorch prints. A text in this form
//! round-trips byte for byte.

mod default;
mod display;
mod error;
mod lexer;
mod name;
mod parse;
mod suggest;
#[cfg(test)]
mod tests;
mod types;
mod validate;

pub use default::Default;
pub use error::{SchemaError, SchemaErrorKind};
pub use name::OpName;
pub use suggest::closest;
pub use types::{Alias, AliasSet, Type};

use sha2::{Digest, Sha256};

/// The signature of one operator overload. Parsing and [`Schema::new`] both validate it; the fields
/// are public for reading.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Schema {
    /// The operator's name.
    pub name: OpName,
    /// The arguments: positional ones first, then keyword-only ones.
    pub args: Vec<Arg>,
    /// The returned values; empty for `-> ()`.
    pub returns: Vec<Ret>,
}

/// An argument of a schema.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Arg {
    /// The name, unique in the schema.
    pub name: String,
    /// The type.
    pub ty: Type,
    /// The alias sets of the argument, and whether the operator writes it. Only tensors and lists
    /// of tensors have an annotation.
    pub alias: Option<Alias>,
    /// The default value, which is of the argument's type.
    pub default: Option<Default>,
    /// Whether the argument is keyword-only: it follows the `*`.
    pub kwarg_only: bool,
}

/// A returned value of a schema.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Ret {
    /// The name, if the schema gives one.
    pub name: Option<String>,
    /// The type.
    pub ty: Type,
    /// The alias sets of the value. Only tensors and lists of tensors have an annotation.
    pub alias: Option<Alias>,
}

impl Schema {
    /// Builds a schema from its parts, under the same rules as a parsed schema.
    ///
    /// # Errors
    /// The parts violate a rule, or their canonical text parses to a different schema. The error
    /// shows the text.
    pub fn new(name: OpName, args: Vec<Arg>, returns: Vec<Ret>) -> Result<Schema, SchemaError> {
        let built = Schema { name, args, returns };
        let text = built.to_string();
        let parsed: Schema = text.parse()?;
        if parsed == built {
            Ok(parsed)
        } else {
            Err(SchemaError::new(SchemaErrorKind::NotCanonical, &text, 0..text.len()))
        }
    }

    /// Parses a signature without a name, such as `(Tensor x) -> Tensor`.
    ///
    /// # Errors
    /// The text violates the grammar or a rule.
    pub fn parse_signature(name: OpName, text: &str) -> Result<Schema, SchemaError> {
        parse::signature(name, text)
    }

    /// Parses a schema whose namespace may be omitted: `sin(Tensor x) -> Tensor`.
    ///
    /// # Errors
    /// The text violates the grammar or a rule, or names a namespace other than `ns`.
    pub fn parse_in(ns: &str, text: &str) -> Result<Schema, SchemaError> {
        parse::schema(text, Some(ns))
    }

    /// The indices of the arguments that the operator writes.
    pub fn mutates(&self) -> impl Iterator<Item = usize> + '_ {
        self.args.iter().enumerate().filter(|(_, a)| a.is_written()).map(|(i, _)| i)
    }

    /// Whether the operator writes some argument.
    pub fn is_mutable(&self) -> bool {
        self.args.iter().any(Arg::is_written)
    }

    /// Whether some returned value aliases an argument that is not written.
    pub fn is_view(&self) -> bool {
        (0..self.returns.len()).any(|r| {
            self.aliased_args(r).any(|a| self.args.get(a).is_some_and(|a| !a.is_written()))
        })
    }

    /// The indices of the arguments that returned value number `ret` may alias.
    pub fn aliased_args(&self, ret: usize) -> impl Iterator<Item = usize> + '_ {
        let alias = self.returns.get(ret).and_then(|r| r.alias.as_ref());
        let shares =
            move |arg: &Arg| matches!((&arg.alias, alias), (Some(a), Some(r)) if r.may_share(a));
        self.args.iter().enumerate().filter(move |(_, a)| shares(a)).map(|(i, _)| i)
    }

    /// The index of the argument with a name.
    pub fn arg_index(&self, name: &str) -> Option<usize> {
        self.args.iter().position(|a| a.name == name)
    }

    /// Whether the operator returns at least one value, and only tensors or lists of tensors.
    pub fn returns_tensor_only(&self) -> bool {
        !self.returns.is_empty() && self.returns.iter().all(|r| r.ty.is_tensors())
    }

    /// A hash of the canonical text, stable across machines and versions.
    pub fn hash64(&self) -> u64 {
        let digest = Sha256::digest(self.to_string().as_bytes());
        digest.iter().take(8).fold(0, |hash, &byte| hash << 8 | u64::from(byte))
    }
}

impl Arg {
    /// Whether the operator writes the argument.
    pub fn is_written(&self) -> bool {
        self.alias.as_ref().is_some_and(|a| a.write)
    }
}
