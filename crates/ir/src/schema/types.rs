//! Types and alias annotations.

use std::collections::BTreeSet;
use std::fmt;

/// The type of an argument or a returned value.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Type {
    /// A tensor.
    Tensor,
    /// A plain integer; a symbolic argument is specialised to its value.
    Int,
    /// An integer that may be symbolic.
    SymInt,
    /// A 64-bit floating-point number.
    Float,
    /// `True` or `False`.
    Bool,
    /// A string.
    Str,
    /// A number of any category.
    Scalar,
    /// A dtype.
    ScalarType,
    /// A tensor layout.
    Layout,
    /// A device.
    Device,
    /// A memory format.
    MemoryFormat,
    /// The name of a dimension.
    Dimname,
    /// A random number generator.
    Generator,
    /// A device stream.
    Stream,
    /// A tensor's storage.
    Storage,
    /// A quantization scheme.
    QScheme,
    /// A value of any type.
    Any,
    /// `T?`: a value or `None`.
    Optional(Box<Type>),
    /// `T[]` or `T[N]`. The default of a `T[N]` may be written as a single value, which is
    /// repeated.
    List(Box<Type>, Option<u32>),
}

impl Type {
    /// All types that are neither optional nor lists.
    pub const LEAVES: [Type; 17] = [
        Type::Tensor,
        Type::Int,
        Type::SymInt,
        Type::Float,
        Type::Bool,
        Type::Str,
        Type::Scalar,
        Type::ScalarType,
        Type::Layout,
        Type::Device,
        Type::MemoryFormat,
        Type::Dimname,
        Type::Generator,
        Type::Stream,
        Type::Storage,
        Type::QScheme,
        Type::Any,
    ];

    /// The innermost type, without its `?` and `[]`.
    pub fn leaf(&self) -> &Type {
        match self {
            Type::Optional(inner) | Type::List(inner, _) => inner.leaf(),
            leaf => leaf,
        }
    }

    /// The name of [`Type::leaf`] in schema text.
    pub fn leaf_name(&self) -> &'static str {
        match self {
            Type::Tensor => "Tensor",
            Type::Int => "int",
            Type::SymInt => "SymInt",
            Type::Float => "float",
            Type::Bool => "bool",
            Type::Str => "str",
            Type::Scalar => "Scalar",
            Type::ScalarType => "ScalarType",
            Type::Layout => "Layout",
            Type::Device => "Device",
            Type::MemoryFormat => "MemoryFormat",
            Type::Dimname => "Dimname",
            Type::Generator => "Generator",
            Type::Stream => "Stream",
            Type::Storage => "Storage",
            Type::QScheme => "QScheme",
            Type::Any => "Any",
            Type::Optional(inner) | Type::List(inner, _) => inner.leaf_name(),
        }
    }

    /// Whether this is a tensor, an optional tensor, or a list of them.
    pub fn is_tensors(&self) -> bool {
        matches!(self.leaf(), Type::Tensor)
    }

    /// Whether `None` is a value of this type.
    pub fn is_optional(&self) -> bool {
        matches!(self, Type::Optional(_))
    }

    /// The type without an outermost `?`.
    pub fn required(&self) -> &Type {
        match self {
            Type::Optional(inner) => inner.required(),
            other => other,
        }
    }
}

/// An alias set: values in the same set may share storage.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum AliasSet {
    /// A set with a name, local to the schema.
    Named(String),
    /// `*`: may share storage with anything.
    Wildcard,
}

impl fmt::Display for AliasSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AliasSet::Named(name) => f.pad(name),
            AliasSet::Wildcard => f.pad("*"),
        }
    }
}

/// An alias annotation, such as `(a)`, `(a!)`, `(a|b)`, `(a -> *)`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Alias {
    /// The sets that contain the value before the call. Never empty.
    pub before: BTreeSet<AliasSet>,
    /// Whether the operator writes the value's storage.
    pub write: bool,
    /// The sets that contain the value after the call; equal to `before` unless the annotation has
    /// `->`. Never empty.
    pub after: BTreeSet<AliasSet>,
}

impl Alias {
    /// The annotation `(name)`, or `(name!)` if `write`.
    pub fn named(name: &str, write: bool) -> Alias {
        let set = BTreeSet::from([AliasSet::Named(name.to_owned())]);
        Alias { before: set.clone(), write, after: set }
    }

    /// Whether a returned value with this annotation may share storage with an argument with
    /// annotation `arg`.
    pub fn may_share(&self, arg: &Alias) -> bool {
        let wild = |sets: &BTreeSet<AliasSet>| sets.contains(&AliasSet::Wildcard);
        wild(&self.before)
            || wild(&arg.before)
            || !self.before.is_disjoint(&arg.before)
            || !self.before.is_disjoint(&arg.after)
    }
}
