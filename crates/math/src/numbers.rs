//! Floats as an algebra: each operation is computed.

use crate::algebra::{Bits, Double, Flag, Libm, Libm2, Number, Real, Single};
use std::num::Wrapping;

impl Flag for bool {}

macro_rules! numbers {
    ($float:ident, $bits:ident, $signed:ident) => {
        impl Number for $float {
            const INFINITY: Self = $float::INFINITY;
            const MINUS_INFINITY: Self = $float::NEG_INFINITY;
            const NAN: Self = $float::NAN;
            const ZERO: Self = 0.0;
            const ONE: Self = 1.0;
            const TWO: Self = 2.0;
            const HALF: Self = 0.5;
            const FRACTION: u32 = $float::MANTISSA_DIGITS - 1;
        }

        impl Bits for Wrapping<$bits> {
            type Flag = bool;

            #[inline(always)]
            fn constant(bits: u64) -> Self {
                Wrapping(bits as $bits)
            }
            #[inline(always)]
            fn shl(self, by: u32) -> Self {
                Wrapping(self.0 << by)
            }
            #[inline(always)]
            fn sar(self, by: u32) -> Self {
                Wrapping(((self.0 as $signed) >> by) as $bits)
            }
            #[inline(always)]
            fn is_zero(self) -> bool {
                self.0 == 0
            }
            #[inline(always)]
            fn select(flag: bool, then: Self, otherwise: Self) -> Self {
                if flag { then } else { otherwise }
            }
        }

        impl Real for $float {
            type Number = $float;
            type Bits = Wrapping<$bits>;
            type Flag = bool;

            #[inline(always)]
            fn constant(x: $float) -> Self {
                x
            }
            #[inline(always)]
            fn mul_add(self, factor: Self, term: Self) -> Self {
                $float::mul_add(self, factor, term)
            }
            #[inline(always)]
            fn abs(self) -> Self {
                $float::abs(self)
            }
            #[inline(always)]
            fn trunc(self) -> Self {
                $float::trunc(self)
            }
            #[inline(always)]
            fn copysign(self, sign: Self) -> Self {
                $float::copysign(self, sign)
            }
            #[inline(always)]
            fn to_bits(self) -> Self::Bits {
                Wrapping($float::to_bits(self))
            }
            #[inline(always)]
            fn from_bits(bits: Self::Bits) -> Self {
                $float::from_bits(bits.0)
            }
            #[inline(always)]
            fn from_signed(bits: Self::Bits) -> Self {
                bits.0 as $signed as $float
            }
            #[inline(always)]
            fn lt(self, other: Self) -> bool {
                self < other
            }
            #[inline(always)]
            fn le(self, other: Self) -> bool {
                self <= other
            }
            #[inline(always)]
            fn eq(self, other: Self) -> bool {
                self == other
            }
            #[inline(always)]
            fn is_nan(self) -> bool {
                $float::is_nan(self)
            }
            #[inline(always)]
            fn select(flag: bool, then: Self, otherwise: Self) -> Self {
                if flag { then } else { otherwise }
            }
        }
    };
}

numbers!(f32, u32, i32);
numbers!(f64, u64, i64);

impl Single for f32 {
    type Wide = f64;

    #[inline(always)]
    fn widen(self) -> f64 {
        f64::from(self)
    }
}

impl Double for f64 {
    type Narrow = f32;

    #[inline(always)]
    fn narrow(self) -> f32 {
        self as f32
    }
    #[inline(always)]
    fn libm(function: Libm, x: f64) -> f64 {
        function.of(x)
    }
    #[inline(always)]
    fn libm2(function: Libm2, x: f64, y: f64) -> f64 {
        function.of(x, y)
    }
}
