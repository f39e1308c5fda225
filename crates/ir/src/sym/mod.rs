//! Symbolic integers: tensor sizes that are unknown while a program is traced, as in PyTorch's
//! `torch.fx.experimental.symbolic_shapes`.
//!
//! A [`SymTable`] hash-conses expressions in one canonical form, so two expressions are equal
//! exactly when they are the same [`Expr`]. The canonical form is a polynomial with integer
//! coefficients over *atoms*. An atom is a symbol, a floor division, a remainder, a minimum or a
//! maximum, and the operands of an atom are canonical expressions. Terms are sorted structurally
//! (by degree, then by the names of the symbols) and never by creation order, so the printed text
//! does not depend on the order of construction. Division and remainder round down as in Python:
//! `-7 // 2` is `-4` and `-7 % 2` is `1`.
//!
//! Arithmetic simplifies with declared ranges only, never with assumed facts. A canonical form
//! therefore stays valid when facts are added. [`SymTable::assume`] adds a fact;
//! [`SymTable::prove`], [`SymTable::bounds`] and [`SymTable::simplify`] use the facts.
//!
//! A [`Scope`] corresponds to PyTorch's `ShapeEnv`: it shares one table among the handles
//! [`SymInt`] and [`SymBool`] of a trace, decides guards on example values, and records guards and
//! assertions.
//!
//! | concept | modules |
//! |---|---|
//! | canonical form, interning | `poly`, `table`, `arith`, `div`, `quotient`, `boolean` |
//! | value analysis | `range` (interval arithmetic), `bounds` (intervals and congruences) |
//! | facts and proofs | `facts` (bounds propagation, substitution), `prove` (linear combinations) |
//! | text, evaluation, copies between tables | `text`, `parse`, `eval`, `rebuild` |
//! | results that must fit 64 bits | `overflow` |
//! | handles | `scope`, `sym_int`, `sym_bool`, `poison`, `error` |

mod arith;
mod boolean;
mod bounds;
mod div;
mod error;
mod eval;
mod factoring;
mod facts;
mod models;
mod overflow;
mod parse;
mod poison;
mod poly;
mod prove;
mod quotient;
mod range;
mod rebuild;
mod refusal;
mod scope;
mod scope_data;
mod sym_bool;
mod sym_int;
mod table;
mod text;

pub use error::{DataDependent, ParseSymError, SymError};
pub use eval::Symbols;
pub use overflow::MAX_SYMBOL_SIZE;
pub use poison::SharedError;
pub(crate) use poly::gcd;
pub use range::{ParseRangeError, Range};
pub use refusal::{Refusal, Watch};
pub use scope::Scope;
pub use scope_data::{Assertion, Guard, Origin, ScopeData};
pub use sym_bool::{SymBool, check_sizes_equal};
pub use sym_int::SymInt;
pub use table::SymTable;

/// A symbol of one table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SymbolId(pub(crate) u32);

impl SymbolId {
    /// The index in the order of declaration.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// An interned expression of one table that is not a constant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ExprId(pub(crate) u32);

/// An interned condition of one table that is not a constant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BoolId(pub(crate) u32);

/// An integer expression. A constant is always `Int`, so within one table `==` on `Expr` compares
/// canonical forms.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Expr {
    /// A number.
    Int(i64),
    /// An interned expression that is not a constant.
    Id(ExprId),
}

impl Expr {
    /// The number, if the expression is a constant.
    pub const fn as_i64(self) -> Option<i64> {
        match self {
            Expr::Int(n) => Some(n),
            Expr::Id(_) => None,
        }
    }
}

impl From<i64> for Expr {
    fn from(n: i64) -> Expr {
        Expr::Int(n)
    }
}

/// A condition. A constant is always `Const`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum BoolExpr {
    /// `true` or `false`.
    Const(bool),
    /// An interned condition that is not a constant.
    Id(BoolId),
}

impl BoolExpr {
    /// The truth value, if the condition is a constant.
    pub const fn as_bool(self) -> Option<bool> {
        match self {
            BoolExpr::Const(b) => Some(b),
            BoolExpr::Id(_) => None,
        }
    }
}

/// The source of a symbol's value; PyTorch distinguishes backed and unbacked SymInts likewise.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SymbolKind {
    /// The size of an input: known when the program is called.
    Backed,
    /// Data: known only after the operator that produces the value has run.
    Unbacked,
}

impl SymbolKind {
    /// The first letter of generated names, `s` or `u`.
    pub const fn prefix(self) -> char {
        match self {
            SymbolKind::Backed => 's',
            SymbolKind::Unbacked => 'u',
        }
    }
}

/// A relation between two integers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Rel {
    /// `==`
    Eq,
    /// `!=`
    Ne,
    /// `<`
    Lt,
    /// `<=`
    Le,
    /// `>`
    Gt,
    /// `>=`
    Ge,
}

impl Rel {
    /// Whether the relation holds between `a` and `b`.
    pub fn holds<T: Ord>(self, a: T, b: T) -> bool {
        match self {
            Rel::Eq => a == b,
            Rel::Ne => a != b,
            Rel::Lt => a < b,
            Rel::Le => a <= b,
            Rel::Gt => a > b,
            Rel::Ge => a >= b,
        }
    }

    /// The relation with its operands exchanged: `a op b` is `b op.swap() a`.
    pub const fn swap(self) -> Rel {
        match self {
            Rel::Lt => Rel::Gt,
            Rel::Le => Rel::Ge,
            Rel::Gt => Rel::Lt,
            Rel::Ge => Rel::Le,
            r => r,
        }
    }

    /// The complement: holds exactly where `self` does not.
    pub const fn negate(self) -> Rel {
        match self {
            Rel::Eq => Rel::Ne,
            Rel::Ne => Rel::Eq,
            Rel::Lt => Rel::Ge,
            Rel::Le => Rel::Gt,
            Rel::Gt => Rel::Le,
            Rel::Ge => Rel::Lt,
        }
    }

    /// The operator's text: `==`, `<=`, …
    pub const fn symbol(self) -> &'static str {
        match self {
            Rel::Eq => "==",
            Rel::Ne => "!=",
            Rel::Lt => "<",
            Rel::Le => "<=",
            Rel::Gt => ">",
            Rel::Ge => ">=",
        }
    }
}

#[cfg(test)]
mod examples;
#[cfg(test)]
mod long_sums;
#[cfg(test)]
mod proptests;
