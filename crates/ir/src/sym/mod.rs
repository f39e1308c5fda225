//! Symbolic integers: sizes that are not known while a program is traced.
//!
//! A [`SymTable`] holds expressions in one canonical form, so that equal expressions are the same
//! [`Expr`]: a polynomial with integer coefficients over *atoms*, which are symbols, floor
//! divisions, remainders, minima and maxima of canonical expressions. Terms are kept in a
//! structural order (degree, then names), never in the order of creation. Division and remainder
//! follow the floor: `-7 // 2` is `-4` and `-7 % 2` is `1`.
//!
//! Arithmetic never uses assumed facts, only declared ranges, so a canonical form stays valid.
//! Facts given to [`SymTable::assume`] are used by [`SymTable::prove`], [`SymTable::bounds`] and
//! [`SymTable::simplify`].
//!
//! A [`Scope`] shares one table among the handles [`SymInt`] and [`SymBool`] of a trace, decides
//! guards on example values and records guards and assertions.

mod arith;
mod boolean;
mod bounds;
mod div;
mod error;
mod eval;
mod facts;
mod parse;
mod poison;
mod poly;
mod prove;
mod quotient;
mod range;
mod rebuild;
mod scope;
mod sym_bool;
mod sym_int;
mod table;
mod text;

pub use error::{DataDependent, ParseSymError, SymError};
pub use eval::Symbols;
pub use poison::SharedError;
pub(crate) use poly::gcd;
pub use range::{ParseRangeError, Range};
pub use scope::{Assertion, Guard, Origin, Scope, ScopeData};
pub use sym_bool::SymBool;
pub use sym_int::SymInt;
pub use table::SymTable;

/// A symbol of one table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SymbolId(pub(crate) u32);

/// An interned expression of one table that is not a constant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ExprId(pub(crate) u32);

/// An interned condition of one table that is not a constant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BoolId(pub(crate) u32);

/// An integer expression. A constant is always `Int`, so within one table equality is equality of
/// canonical forms.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Expr {
    /// A number.
    Int(i64),
    /// Anything else.
    Id(ExprId),
}

impl Expr {
    /// The number, if it is one.
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
    /// Anything else.
    Id(BoolId),
}

impl BoolExpr {
    /// The value, if it is constant.
    pub const fn as_bool(self) -> Option<bool> {
        match self {
            BoolExpr::Const(b) => Some(b),
            BoolExpr::Id(_) => None,
        }
    }
}

/// Where a symbol's value comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SymbolKind {
    /// The size of an input: known when a program is called.
    Backed,
    /// Data: known only after the operator that makes it has run.
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
    /// Whether it holds between two numbers.
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

    /// The relation of `b` to `a`.
    pub const fn swap(self) -> Rel {
        match self {
            Rel::Lt => Rel::Gt,
            Rel::Le => Rel::Ge,
            Rel::Gt => Rel::Lt,
            Rel::Ge => Rel::Le,
            r => r,
        }
    }

    /// The relation that holds exactly where this does not.
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

    /// As written: `==`, `<=`, …
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
mod proptests;
