//! [`SymInt`]: a size that may not be known.

use super::arith::Op;
use super::poison::{self, PoisonId, SharedError};
use super::scope::{TableId, with_data};
use super::sym_bool::SymBool;
use super::{Expr, ExprId, Range, Rel, SymError};
use crate::Loc;
use std::fmt;
use std::iter::{Product, Sum};
use std::ops::{Add, AddAssign, Mul, MulAssign, Neg, Rem, Sub, SubAssign};
use std::sync::Arc;

/// An integer: a number, or an expression of a [`super::Scope`]; or an error, which every result
/// then carries on.
///
/// It cannot be compared with `==` or `<`, because the answer may not be known: [`SymInt::eq`],
/// [`SymInt::lt`], … give a [`SymBool`].
#[derive(Clone, Copy)]
pub struct SymInt(Repr);

#[derive(Clone, Copy)]
enum Repr {
    Int(i64),
    Sym(TableId, ExprId),
    Poison(PoisonId),
}

const _: () = assert!(size_of::<SymInt>() == 16);

/// Operands in one scope.
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

    pub(super) fn pair(self, o: SymInt) -> Pair {
        match (self.0, o.0) {
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

    #[inline]
    fn binary(self, op: Op, o: SymInt) -> SymInt {
        if let (Repr::Int(a), Repr::Int(b)) = (self.0, o.0)
            && let Some(n) = op.on_numbers(a, b)
        {
            return SymInt(Repr::Int(n));
        }
        match (op, self.0, o.0) {
            (Op::Mul, Repr::Int(1), _) | (Op::Add, Repr::Int(0), _) => o,
            (Op::Mul | Op::FloorDiv, _, Repr::Int(1)) | (Op::Add | Op::Sub, _, Repr::Int(0)) => {
                self
            }
            _ => self.binary_slow(op, o),
        }
    }

    #[inline(never)]
    fn binary_slow(self, op: Op, o: SymInt) -> SymInt {
        match self.pair(o) {
            Pair::Int(a, b) => SymInt::poison(Arc::new(op.number_error(a, b))),
            Pair::Sym(t, a, b) => {
                SymInt::from_result(t, with_data(t, |d| d.table.binary(op, a, b)).flatten())
            }
            Pair::Poison(p) => SymInt(Repr::Poison(p)),
        }
    }

    /// The quotient, rounded down.
    pub fn floor_div(self, divisor: impl Into<SymInt>) -> SymInt {
        self.binary(Op::FloorDiv, divisor.into())
    }

    /// The remainder of [`SymInt::floor_div`], with the divisor's sign; also `%`.
    pub fn modulo(self, divisor: impl Into<SymInt>) -> SymInt {
        self.binary(Op::Mod, divisor.into())
    }

    /// The smaller.
    pub fn min(self, o: impl Into<SymInt>) -> SymInt {
        self.binary(Op::Min, o.into())
    }

    /// The larger.
    pub fn max(self, o: impl Into<SymInt>) -> SymInt {
        self.binary(Op::Max, o.into())
    }

    /// The number, if it is a plain one.
    pub const fn as_i64(self) -> Option<i64> {
        match self.0 {
            Repr::Int(n) => Some(n),
            _ => None,
        }
    }

    /// The value as a number, specialising the trace to it: records the guard that it equals the
    /// example value. An error if it depends on data.
    #[track_caller]
    pub fn guard_int(self) -> Result<i64, SymError> {
        match self.0 {
            Repr::Int(n) => Ok(n),
            Repr::Sym(t, id) => {
                let loc = Loc::caller();
                with_data(t, |d| d.guard_int(Expr::Id(id), loc))?
            }
            Repr::Poison(p) => Err(poison::raise(p)),
        }
    }

    /// The value on the example inputs, if data do not decide it.
    pub fn hint(self) -> Option<i64> {
        match self.0 {
            Repr::Int(n) => Some(n),
            Repr::Sym(t, id) => with_data(t, |d| d.hint(Expr::Id(id))).ok().flatten(),
            Repr::Poison(_) => None,
        }
    }

    /// The values it can have, by declared ranges and all that was guarded and checked.
    pub fn range(self) -> Range {
        match self.0 {
            Repr::Int(n) => Range::point(n),
            Repr::Sym(t, id) => with_data(t, |d| {
                let e = d.table.simplify(Expr::Id(id));
                d.table.bounds(e)
            })
            .unwrap_or(Range::ALL),
            Repr::Poison(_) => Range::ALL,
        }
    }

    /// A value that stands for an error; what is computed from it carries the same error.
    pub fn poison(e: SharedError) -> SymInt {
        SymInt(Repr::Poison(poison::record(e)))
    }

    /// The error it stands for.
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
            pub fn $name(self, o: impl Into<SymInt>) -> SymBool {
                SymBool::relation(Rel::$rel, self, o.into())
            })*
        }
    };
}
relations!(
    /// Whether both are equal.
    eq = Eq,
    /// Whether they differ.
    ne = Ne,
    /// Whether it is smaller.
    lt = Lt,
    /// Whether it is smaller or equal.
    le = Le,
    /// Whether it is larger.
    gt = Gt,
    /// Whether it is larger or equal.
    ge = Ge
);

macro_rules! operators {
    ($($trait:ident $method:ident = $op:ident),*) => { $(
        impl<T: Into<SymInt>> $trait<T> for SymInt {
            type Output = SymInt;
            #[inline]
            fn $method(self, o: T) -> SymInt {
                self.binary(Op::$op, o.into())
            }
        }
        impl $trait<SymInt> for i64 {
            type Output = SymInt;
            #[inline]
            fn $method(self, o: SymInt) -> SymInt {
                SymInt::from(self).binary(Op::$op, o)
            }
        }
    )* };
}
operators!(Add add = Add, Sub sub = Sub, Mul mul = Mul, Rem rem = Mod);

macro_rules! assignments {
    ($($trait:ident $method:ident = $op:ident),*) => { $(
        impl<T: Into<SymInt>> $trait<T> for SymInt {
            fn $method(&mut self, o: T) {
                *self = self.binary(Op::$op, o.into());
            }
        }
    )* };
}
assignments!(AddAssign add_assign = Add, SubAssign sub_assign = Sub, MulAssign mul_assign = Mul);

impl Neg for SymInt {
    type Output = SymInt;
    fn neg(self) -> SymInt {
        SymInt::from(0i64).binary(Op::Sub, self)
    }
}

impl<T: Into<SymInt>> Sum<T> for SymInt {
    fn sum<I: Iterator<Item = T>>(iter: I) -> SymInt {
        iter.fold(SymInt::from(0i64), |a, b| a + b)
    }
}

impl<T: Into<SymInt>> Product<T> for SymInt {
    fn product<I: Iterator<Item = T>>(iter: I) -> SymInt {
        iter.fold(SymInt::from(1i64), |a, b| a * b)
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
        /// Poisoned beyond the largest `i64`.
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
    /// As the scope's table prints it; never records a guard.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Repr::Int(n) => write!(f, "{n}"),
            Repr::Sym(t, id) => match with_data(t, |d| d.table.display(Expr::Id(id)).to_string()) {
                Ok(text) => f.write_str(&text),
                Err(e) => write!(f, "<{e}>"),
            },
            Repr::Poison(p) => write!(f, "<{}>", poison::get(p)),
        }
    }
}

impl fmt::Debug for SymInt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
