//! Operator schemas: PyTorch's function-schema grammar.
//!
//! A schema says everything about an operator that is not its kernel: what it takes, what it
//! returns, what it mutates and what aliases what, as in `aten::add_.Tensor(Tensor(a!) self, Tensor
//! other, *, Scalar alpha=1) -> Tensor(a!)`. Text that parses prints in one canonical form, the one
//! PyTorch prints; a text in that form round-trips byte for byte.

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

/// The signature of one operator overload. Parsed, or built by [`Schema::new`], it is valid; the
/// fields are open for reading.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Schema {
    /// The operator's name.
    pub name: OpName,
    /// The arguments: positional ones first, then keyword-only ones.
    pub args: Vec<Arg>,
    /// The returned values; none for `-> ()`.
    pub returns: Vec<Ret>,
}

/// An argument of a schema.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Arg {
    /// Its name, unique in the schema.
    pub name: String,
    /// Its type.
    pub ty: Type,
    /// Which alias sets it is in, and whether it is written. Only tensors and lists of them have
    /// one.
    pub alias: Option<Alias>,
    /// Its default value, of its type.
    pub default: Option<Default>,
    /// It comes after the `*`.
    pub kwarg_only: bool,
}

/// A returned value of a schema.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Ret {
    /// Its name, if it has one.
    pub name: Option<String>,
    /// Its type.
    pub ty: Type,
    /// Which alias sets it is in. Only tensors and lists of them have one.
    pub alias: Option<Alias>,
}

impl Schema {
    /// A schema of these parts, by the same rules as a parsed one; an error shows the schema's
    /// text.
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

    /// Parses a signature without a name, as in `(Tensor x) -> Tensor`.
    pub fn parse_signature(name: OpName, text: &str) -> Result<Schema, SchemaError> {
        parse::signature(name, text)
    }

    /// Parses a schema in which the namespace may be left out: `sin(Tensor x) -> Tensor`. One that
    /// is written must be `ns`.
    pub fn parse_in(ns: &str, text: &str) -> Result<Schema, SchemaError> {
        parse::schema(text, Some(ns))
    }

    /// The indices of the arguments that a call writes.
    pub fn mutates(&self) -> impl Iterator<Item = usize> + '_ {
        self.args.iter().enumerate().filter(|(_, a)| a.is_written()).map(|(i, _)| i)
    }

    /// Some argument is written.
    pub fn is_mutable(&self) -> bool {
        self.args.iter().any(Arg::is_written)
    }

    /// Some returned value aliases an argument that is not written.
    pub fn is_view(&self) -> bool {
        (0..self.returns.len()).any(|r| {
            self.aliased_args(r).any(|a| self.args.get(a).is_some_and(|a| !a.is_written()))
        })
    }

    /// The indices of the arguments that the `ret`-th returned value may alias.
    pub fn aliased_args(&self, ret: usize) -> impl Iterator<Item = usize> + '_ {
        let alias = self.returns.get(ret).and_then(|r| r.alias.as_ref());
        let shares =
            move |arg: &Arg| matches!((&arg.alias, alias), (Some(a), Some(r)) if r.may_share(a));
        self.args.iter().enumerate().filter(move |(_, a)| shares(a)).map(|(i, _)| i)
    }

    /// The position of the argument of this name.
    pub fn arg_index(&self, name: &str) -> Option<usize> {
        self.args.iter().position(|a| a.name == name)
    }

    /// Something is returned, and all of it is tensors or lists of tensors.
    pub fn returns_tensor_only(&self) -> bool {
        !self.returns.is_empty() && self.returns.iter().all(|r| r.ty.is_tensors())
    }

    /// A hash of the canonical text, the same on every machine and in every version.
    pub fn hash64(&self) -> u64 {
        let digest = Sha256::digest(self.to_string().as_bytes());
        digest.iter().take(8).fold(0, |hash, &byte| hash << 8 | u64::from(byte))
    }
}

impl Arg {
    /// A call writes it.
    pub fn is_written(&self) -> bool {
        self.alias.as_ref().is_some_and(|a| a.write)
    }
}
