//! [`SymInt`]: the handle of a symbolic size, as PyTorch's `SymInt`.

use super::arith::Op;
use super::poison::{self, PoisonId, SharedError};
use super::refusal::decided;
use super::scope::{TableId, with_data};
use super::sym_bool::SymBool;
use super::{Expr, ExprId, Range, Rel, SymError};
use crate::Loc;
use std::fmt;
use std::iter::{Product, Sum};
use std::ops::{Add, AddAssign, Mul, MulAssign, Neg, Rem, Sub, SubAssign};
use std::sync::Arc;

/// An integer: a number, an expression of a [`super::Scope`], or an error. Operations on an error
/// give the same error.
///
/// The type implements neither `PartialEq` nor `PartialOrd`, because the answer may be unknown:
/// [`SymInt::eq`], [`SymInt::lt`], … give a [`SymBool`].
#[derive(Clone, Copy)]
pub struct SymInt(Repr);

#[derive(Clone, Copy)]
enum Repr {
    Int(i64),
    Sym(TableId, ExprId),
    Poison(PoisonId),
}

const _: () = assert!(size_of::<SymInt>() == 16);

/// Two operands, lowered to one scope.
pub(super) enum Pair {
    Int(i64, i64),
    Sym(TableId, Expr, Expr),
    Poison(PoisonId),
}

impl SymInt {
    pub(super) fn of(table: TableId, e: Expr) -> SymInt {
        match e {
            Expr::Int(n) => SymInt(Repr::Int(n)),
            Expr::Id(id) => SymInt(Repr::Sym(table, id)),
        }
    }

    pub(super) fn from_result(table: TableId, r: Result<Expr, SymError>) -> SymInt {
        match r {
            Ok(e) => SymInt::of(table, e),
            Err(e) => SymInt::poison(Arc::new(e)),
        }
    }

    pub(super) fn lower(self, table: TableId) -> Result<Expr, SymError> {
        match self.0 {
            Repr::Int(n) => Ok(Expr::Int(n)),
            Repr::Sym(t, id) if t == table => Ok(Expr::Id(id)),
            Repr::Sym(..) => Err(SymError::DifferentScopes),
            Repr::Poison(p) => Err(poison::raise(p)),
        }
    }

    /// Lowers two operands to their common scope; poisons the pair if the scopes differ.
    pub(super) fn pair(self, other: SymInt) -> Pair {
        match (self.0, other.0) {
            (Repr::Int(a), Repr::Int(b)) => Pair::Int(a, b),
            (Repr::Poison(p), _) | (_, Repr::Poison(p)) => Pair::Poison(p),
            (Repr::Sym(t, a), Repr::Int(b)) => Pair::Sym(t, Expr::Id(a), Expr::Int(b)),
            (Repr::Int(a), Repr::Sym(t, b)) => Pair::Sym(t, Expr::Int(a), Expr::Id(b)),
            (Repr::Sym(t, a), Repr::Sym(u, b)) if t == u => Pair::Sym(t, Expr::Id(a), Expr::Id(b)),
            (Repr::Sym(..), Repr::Sym(..)) => {
                Pair::Poison(poison::record(Arc::new(SymError::DifferentScopes)))
            }
        }
    }

    /// A binary operation. Numbers and neutral operands take no lock.
    #[inline]
    #[track_caller]
    fn binary(self, op: Op, other: SymInt) -> SymInt {
        if let (Repr::Int(a), Repr::Int(b)) = (self.0, other.0)
            && let Some(n) = op.on_numbers(a, b)
        {
            return SymInt(Repr::Int(n));
        }
        match (op, self.0, other.0) {
            (Op::Mul, Repr::Int(1), _) | (Op::Add, Repr::Int(0), _) => other,
            (Op::Mul | Op::FloorDiv, _, Repr::Int(1)) | (Op::Add | Op::Sub, _, Repr::Int(0)) => {
                self
            }
            _ => self.binary_slow(op, other),
        }
    }

    /// The operation through the scope's table, or its error. Kept out of line to keep
    /// [`SymInt::binary`] small.
    #[inline(never)]
    #[track_caller]
    fn binary_slow(self, op: Op, other: SymInt) -> SymInt {
        let loc = Loc::caller();
        match self.pair(other) {
            Pair::Int(a, b) => SymInt::poison(Arc::new(op.number_error(a, b))),
            Pair::Sym(table, a, b) => SymInt::from_result(
                table,
                with_data(table, |data| data.binary(op, a, b, loc)).flatten(),
            ),
            Pair::Poison(p) => SymInt(Repr::Poison(p)),
        }
    }

    /// The quotient, rounded down. A divisor that is the number zero poisons the result.
    #[track_caller]
    pub fn floor_div(self, divisor: impl Into<SymInt>) -> SymInt {
        self.binary(Op::FloorDiv, divisor.into())
    }

    /// The remainder of [`SymInt::floor_div`], with the divisor's sign; also `%`.
    #[track_caller]
    pub fn modulo(self, divisor: impl Into<SymInt>) -> SymInt {
        self.binary(Op::Mod, divisor.into())
    }

    /// The minimum.
    #[track_caller]
    pub fn min(self, other: impl Into<SymInt>) -> SymInt {
        self.binary(Op::Min, other.into())
    }

    /// The maximum.
    #[track_caller]
    pub fn max(self, other: impl Into<SymInt>) -> SymInt {
        self.binary(Op::Max, other.into())
    }

    /// The number, if the value is a constant.
    pub const fn as_i64(self) -> Option<i64> {
        match self.0 {
            Repr::Int(n) => Some(n),
            _ => None,
        }
    }

    /// The value as a number, which specialises the trace to it: unless the value is provable, the
    /// guard that it equals the example value is recorded at the caller's line.
    ///
    /// A trace fails with an error that this gives, even if the program discards it. To ask without
    /// deciding, use [`SymInt::as_i64`] or [`SymInt::hint`].
    ///
    /// # Errors
    /// [`SymError::DataDependent`] if the value depends on data without example values.
    #[track_caller]
    pub fn guard_int(self) -> Result<i64, SymError> {
        let loc = Loc::caller();
        match self.0 {
            Repr::Int(n) => Ok(n),
            Repr::Sym(table, id) => {
                let found = with_data(table, |data| data.guard_int(Expr::Id(id), loc)).flatten();
                decided(Some(table), loc, found)
            }
            Repr::Poison(p) => decided(None, loc, Err(poison::raise(p))),
        }
    }

    /// The value on the example inputs, if every symbol has an example value.
    pub fn hint(self) -> Option<i64> {
        match self.0 {
            Repr::Int(n) => Some(n),
            Repr::Sym(table, id) => with_data(table, |data| data.hint(Expr::Id(id))).ok().flatten(),
            Repr::Poison(_) => None,
        }
    }

    /// The range of possible values, by declared ranges, guards and assertions.
    pub fn range(self) -> Range {
        match self.0 {
            Repr::Int(n) => Range::point(n),
            Repr::Sym(table, id) => with_data(table, |data| {
                let e = data.table.simplify(Expr::Id(id));
                data.table.bounds(e)
            })
            .unwrap_or(Range::ALL),
            Repr::Poison(_) => Range::ALL,
        }
    }

    /// A poisoned value; operations on it give the same error.
    pub fn poison(e: SharedError) -> SymInt {
        SymInt(Repr::Poison(poison::record(e)))
    }

    /// The error, if the value is poisoned.
    pub fn poisoned(self) -> Option<SharedError> {
        match self.0 {
            Repr::Poison(p) => Some(poison::get(p)),
            _ => None,
        }
    }
}

macro_rules! relations {
    ($($(#[$doc:meta])* $name:ident = $rel:ident),*) => {
        impl SymInt {
            $($(#[$doc])*
            pub fn $name(self, other: impl Into<SymInt>) -> SymBool {
                SymBool::relation(Rel::$rel, self, other.into())
            })*
        }
    };
}
relations!(
    /// Whether `self == other`.
    eq = Eq,
    /// Whether `self != other`.
    ne = Ne,
    /// Whether `self < other`.
    lt = Lt,
    /// Whether `self <= other`.
    le = Le,
    /// Whether `self > other`.
    gt = Gt,
    /// Whether `self >= other`.
    ge = Ge
);

macro_rules! operators {
    ($($trait:ident $method:ident = $op:ident),*) => { $(
        impl<T: Into<SymInt>> $trait<T> for SymInt {
            type Output = SymInt;
            #[inline]
            #[track_caller]
            fn $method(self, other: T) -> SymInt {
                self.binary(Op::$op, other.into())
            }
        }
        impl $trait<SymInt> for i64 {
            type Output = SymInt;
            #[inline]
            #[track_caller]
            fn $method(self, other: SymInt) -> SymInt {
                SymInt::from(self).binary(Op::$op, other)
            }
        }
    )* };
}
operators!(Add add = Add, Sub sub = Sub, Mul mul = Mul, Rem rem = Mod);

macro_rules! assignments {
    ($($trait:ident $method:ident = $op:ident),*) => { $(
        impl<T: Into<SymInt>> $trait<T> for SymInt {
            #[track_caller]
            fn $method(&mut self, other: T) {
                *self = self.binary(Op::$op, other.into());
            }
        }
    )* };
}
assignments!(AddAssign add_assign = Add, SubAssign sub_assign = Sub, MulAssign mul_assign = Mul);

impl Neg for SymInt {
    type Output = SymInt;
    #[track_caller]
    fn neg(self) -> SymInt {
        SymInt::from(0i64).binary(Op::Sub, self)
    }
}

impl<T: Into<SymInt>> Sum<T> for SymInt {
    #[track_caller]
    fn sum<I: Iterator<Item = T>>(iter: I) -> SymInt {
        let mut sum = SymInt::from(0i64);
        for next in iter {
            sum += next;
        }
        sum
    }
}

impl<T: Into<SymInt>> Product<T> for SymInt {
    #[track_caller]
    fn product<I: Iterator<Item = T>>(iter: I) -> SymInt {
        let mut product = SymInt::from(1i64);
        for next in iter {
            product *= next;
        }
        product
    }
}

macro_rules! from_small {
    ($($t:ty),*) => { $(impl From<$t> for SymInt {
        #[inline]
        fn from(n: $t) -> SymInt { SymInt(Repr::Int(n.into())) }
    })* };
}
from_small!(i8, i16, i32, i64, u8, u16, u32);

macro_rules! from_large {
    ($($t:ty),*) => { $(impl From<$t> for SymInt {
        /// Poisoned if `n` is not an `i64`.
        #[inline]
        fn from(n: $t) -> SymInt {
            match i64::try_from(n) {
                Ok(n) => SymInt(Repr::Int(n)),
                Err(_) => SymInt::poison(Arc::new(SymError::Overflow(n.to_string().into()))),
            }
        }
    })* };
}
from_large!(u64, usize, isize);

impl From<&SymInt> for SymInt {
    fn from(s: &SymInt) -> SymInt {
        *s
    }
}

impl fmt::Display for SymInt {
    /// The text of [`super::SymTable::display`]. Never records a guard.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Repr::Int(n) => write!(f, "{n}"),
            Repr::Sym(table, id) => {
                match with_data(table, |data| data.table.display(Expr::Id(id)).to_string()) {
                    Ok(text) => f.write_str(&text),
                    Err(e) => write!(f, "<{e}>"),
                }
            }
            Repr::Poison(p) => write!(f, "<{}>", poison::get(p)),
        }
    }
}

impl fmt::Debug for SymInt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
