//! The values of the recording algebra.

use super::{Constant, Op, Operand, Recorder, Step, Type};
use crate::algebra::{Bits, Double, Flag, Libm, Libm2, Real, Single};
use std::num::Wrapping;
use std::ops::{Add, BitAnd, BitOr, Div, Mul, Neg, Not, Sub};

/// A type of numbers that values can be known as.
pub trait Known: Copy {
    /// The type.
    const TYPE: Type;

    /// The bits of a number, the unused ones 0.
    fn bits(self) -> u64;
}

macro_rules! known {
    ($($t:ty => $ty:ident, |$x:ident| $bits:expr;)*) => {
        $(impl Known for $t {
            const TYPE: Type = Type::$ty;

            fn bits(self) -> u64 {
                let $x = self;
                $bits
            }
        })*
    };
}

known! {
    bool => Flag, |x| u64::from(x);
    Wrapping<u32> => U32, |x| u64::from(x.0);
    Wrapping<u64> => U64, |x| x.0;
    f32 => F32, |x| u64::from(x.to_bits());
    f64 => F64, |x| x.to_bits();
}

/// A number, or the result of a recorded step.
#[derive(Clone, Copy, Debug)]
pub struct Value<'r, T> {
    is: Is<'r, T>,
}

#[derive(Clone, Copy, Debug)]
enum Is<'r, T> {
    Number(T),
    Recorded(&'r Recorder, Operand),
}

impl<'r, T: Known> Value<'r, T> {
    fn number(x: T) -> Self {
        Self { is: Is::Number(x) }
    }

    pub(super) fn recorded(recorder: &'r Recorder, operand: Operand) -> Self {
        Self { is: Is::Recorded(recorder, operand) }
    }

    /// This value as an operand of a step.
    pub(super) fn operand(self) -> Operand {
        match self.is {
            Is::Number(x) => Operand::Constant(Constant { ty: T::TYPE, bits: x.bits() }),
            Is::Recorded(_, operand) => operand,
        }
    }

    /// An operation of one value.
    fn map<U: Known>(self, op: Op, f: impl Fn(T) -> U) -> Value<'r, U> {
        match self.is {
            Is::Number(x) => Value::number(f(x)),
            Is::Recorded(recorder, x) => record(recorder, op, vec![x]),
        }
    }

    /// An operation of two values.
    fn zip<U: Known, V: Known>(
        self,
        op: Op,
        other: Value<'r, U>,
        f: impl Fn(T, U) -> V,
    ) -> Value<'r, V> {
        match (self.is, other.is) {
            (Is::Number(x), Is::Number(y)) => Value::number(f(x, y)),
            (Is::Recorded(recorder, _), _) | (_, Is::Recorded(recorder, _)) => {
                record(recorder, op, vec![self.operand(), other.operand()])
            }
        }
    }

    /// Shifted by a number of bits.
    fn shifted(self, op: Op, by: u32, f: impl Fn(T, u32) -> T) -> Self {
        match self.is {
            Is::Number(x) => Value::number(f(x, by)),
            Is::Recorded(recorder, x) => {
                let by = Operand::Constant(Constant { ty: Type::U32, bits: u64::from(by) });
                record(recorder, op, vec![x, by])
            }
        }
    }

    /// One of two values.
    fn selected(flag: Value<'r, bool>, then: Self, otherwise: Self) -> Self {
        match flag.is {
            Is::Number(true) => then,
            Is::Number(false) => otherwise,
            Is::Recorded(recorder, flag) => {
                record(recorder, Op::Select, vec![flag, then.operand(), otherwise.operand()])
            }
        }
    }
}

fn record<T: Known>(recorder: &Recorder, op: Op, operands: Vec<Operand>) -> Value<'_, T> {
    Value::recorded(recorder, recorder.step(Step { op, ty: T::TYPE, operands }))
}

impl Flag for Value<'_, bool> {}

/// Operators of two values of one type.
macro_rules! operators {
    ($($t:ty: $($trait:ident :: $method:ident),+;)*) => {
        $($(impl<'r> $trait for Value<'r, $t> {
            type Output = Self;

            fn $method(self, other: Self) -> Self {
                self.zip(operators!(@op $trait), other, $trait::$method)
            }
        })+)*
    };
    (@op BitAnd) => { Op::And };
    (@op BitOr) => { Op::Or };
    (@op $trait:ident) => { Op::$trait };
}

operators! {
    bool: BitAnd::bitand, BitOr::bitor;
    Wrapping<u32>: Add::add, Sub::sub, BitAnd::bitand;
    Wrapping<u64>: Add::add, Sub::sub, BitAnd::bitand;
    f32: Add::add, Sub::sub, Mul::mul, Div::div;
    f64: Add::add, Sub::sub, Mul::mul, Div::div;
}

impl Not for Value<'_, bool> {
    type Output = Self;

    fn not(self) -> Self {
        self.map(Op::Not, Not::not)
    }
}

macro_rules! floats {
    ($float:ident, $bits:ty) => {
        impl<'r> Bits for Value<'r, $bits> {
            type Flag = Value<'r, bool>;

            fn constant(bits: u64) -> Self {
                Value::number(<$bits as Bits>::constant(bits))
            }
            fn shl(self, by: u32) -> Self {
                self.shifted(Op::Shl, by, Bits::shl)
            }
            fn sar(self, by: u32) -> Self {
                self.shifted(Op::Sar, by, Bits::sar)
            }
            fn is_zero(self) -> Self::Flag {
                self.map(Op::IsZero, Bits::is_zero)
            }
            fn select(flag: Self::Flag, then: Self, otherwise: Self) -> Self {
                Value::selected(flag, then, otherwise)
            }
        }

        impl Neg for Value<'_, $float> {
            type Output = Self;

            fn neg(self) -> Self {
                self.map(Op::Neg, Neg::neg)
            }
        }

        impl<'r> Real for Value<'r, $float> {
            type Number = $float;
            type Bits = Value<'r, $bits>;
            type Flag = Value<'r, bool>;

            fn constant(x: $float) -> Self {
                Value::number(x)
            }
            fn mul_add(self, factor: Self, term: Self) -> Self {
                match (self.is, factor.is, term.is) {
                    (Is::Number(x), Is::Number(y), Is::Number(z)) => {
                        Value::number(Real::mul_add(x, y, z))
                    }
                    (Is::Recorded(r, _), _, _)
                    | (_, Is::Recorded(r, _), _)
                    | (_, _, Is::Recorded(r, _)) => {
                        let operands = vec![self.operand(), factor.operand(), term.operand()];
                        record(r, Op::MulAdd, operands)
                    }
                }
            }
            fn abs(self) -> Self {
                self.map(Op::Abs, Real::abs)
            }
            fn trunc(self) -> Self {
                self.map(Op::Trunc, Real::trunc)
            }
            fn copysign(self, sign: Self) -> Self {
                self.zip(Op::Copysign, sign, Real::copysign)
            }
            fn to_bits(self) -> Self::Bits {
                self.map(Op::ToBits, Real::to_bits)
            }
            fn from_bits(bits: Self::Bits) -> Self {
                bits.map(Op::FromBits, Real::from_bits)
            }
            fn from_signed(bits: Self::Bits) -> Self {
                bits.map(Op::FromSigned, Real::from_signed)
            }
            fn lt(self, other: Self) -> Self::Flag {
                self.zip(Op::Lt, other, |x, y| Real::lt(x, y))
            }
            fn le(self, other: Self) -> Self::Flag {
                self.zip(Op::Le, other, |x, y| Real::le(x, y))
            }
            fn eq(self, other: Self) -> Self::Flag {
                self.zip(Op::Eq, other, |x, y| Real::eq(x, y))
            }
            fn is_nan(self) -> Self::Flag {
                self.map(Op::IsNan, Real::is_nan)
            }
            fn select(flag: Self::Flag, then: Self, otherwise: Self) -> Self {
                Value::selected(flag, then, otherwise)
            }
        }
    };
}

floats!(f32, Wrapping<u32>);
floats!(f64, Wrapping<u64>);

impl<'r> Single for Value<'r, f32> {
    type Wide = Value<'r, f64>;

    fn widen(self) -> Self::Wide {
        self.map(Op::Widen, Single::widen)
    }
}

impl<'r> Double for Value<'r, f64> {
    type Narrow = Value<'r, f32>;

    fn narrow(self) -> Self::Narrow {
        self.map(Op::Narrow, Double::narrow)
    }
    fn libm(function: Libm, x: Self) -> Self {
        x.map(Op::Libm(function), |x| f64::libm(function, x))
    }
    fn libm2(function: Libm2, x: Self, y: Self) -> Self {
        x.zip(Op::Libm2(function), y, |x, y| f64::libm2(function, x, y))
    }
}
