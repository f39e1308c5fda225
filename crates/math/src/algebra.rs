//! The operations that elementary functions are written in.
//!
//! All are correctly rounded or exact, but for the functions of `libm`. So a function has the same
//! bits wherever its operations are done in the order of its text. None is a branch:
//! [`Real::select`] has computed both values.

use crate::{exp, log};
use std::ops::{Add, BitAnd, BitOr, Div, Mul, Neg, Not, Sub};

/// Whether a comparison holds.
pub trait Flag: Copy + BitAnd<Output = Self> + BitOr<Output = Self> + Not<Output = Self> {}

/// The bits of a float. Sums and differences wrap around.
pub trait Bits: Copy + Add<Output = Self> + Sub<Output = Self> + BitAnd<Output = Self> {
    /// Whether a comparison holds.
    type Flag: Flag;

    /// The low bits of a number.
    fn constant(bits: u64) -> Self;
    /// Shifted towards the highest bit.
    fn shl(self, by: u32) -> Self;
    /// Shifted towards the lowest bit; copies of the highest bit come in.
    fn sar(self, by: u32) -> Self;
    /// Whether no bit is set.
    fn is_zero(self) -> Self::Flag;
    /// `then` if the flag is set, `otherwise` if it is not.
    fn select(flag: Self::Flag, then: Self, otherwise: Self) -> Self;
}

/// A float. Comparisons with a NaN do not hold.
pub trait Real:
    Copy
    + Add<Output = Self>
    + Sub<Output = Self>
    + Mul<Output = Self>
    + Div<Output = Self>
    + Neg<Output = Self>
{
    /// The numbers of this type: `f32` or `f64`.
    type Number: Number;
    /// The bits of a float.
    type Bits: Bits<Flag = Self::Flag>;
    /// Whether a comparison holds.
    type Flag: Flag;

    /// A number.
    fn constant(x: Self::Number) -> Self;
    /// `self * factor + term`, rounded once.
    fn mul_add(self, factor: Self, term: Self) -> Self;
    /// Without the sign.
    fn abs(self) -> Self;
    /// Without the fraction.
    fn trunc(self) -> Self;
    /// With the sign of another float.
    fn copysign(self, sign: Self) -> Self;
    /// The bits of this float.
    fn to_bits(self) -> Self::Bits;
    /// The float with these bits.
    fn from_bits(bits: Self::Bits) -> Self;
    /// The float nearest to a signed integer.
    fn from_signed(bits: Self::Bits) -> Self;
    /// `self < other`.
    fn lt(self, other: Self) -> Self::Flag;
    /// `self <= other`.
    fn le(self, other: Self) -> Self::Flag;
    /// `self == other`.
    fn eq(self, other: Self) -> Self::Flag;
    /// Whether this is not a number.
    fn is_nan(self) -> Self::Flag;
    /// `then` if the flag is set, `otherwise` if it is not.
    fn select(flag: Self::Flag, then: Self, otherwise: Self) -> Self;

    /// Whether this is an infinity.
    #[inline(always)]
    fn is_infinite(self) -> Self::Flag {
        self.abs().eq(Self::constant(Self::Number::INFINITY))
    }
}

/// A float of 32 bits.
pub trait Single: Real<Number = f32> {
    /// The float of 64 bits of the same algebra.
    type Wide: Double<Narrow = Self, Flag = Self::Flag>;

    /// The same number in 64 bits.
    fn widen(self) -> Self::Wide;
}

/// A float of 64 bits.
pub trait Double: Real<Number = f64> {
    /// The float of 32 bits of the same algebra.
    type Narrow: Single<Wide = Self, Flag = Self::Flag>;

    /// Rounded to 32 bits.
    fn narrow(self) -> Self::Narrow;
    /// A function of the `libm` crate.
    fn libm(function: Libm, x: Self) -> Self;
    /// A function of two arguments of the `libm` crate.
    fn libm2(function: Libm2, x: Self, y: Self) -> Self;
}

/// `f32` or `f64`, with the constants of the functions that are one text for both.
pub trait Number: Copy + exp::Constants + log::Constants {
    /// Positive infinity.
    const INFINITY: Self;
    /// Negative infinity.
    const MINUS_INFINITY: Self;
    /// Not a number.
    const NAN: Self;
    /// 0.
    const ZERO: Self;
    /// 1.
    const ONE: Self;
    /// 2.
    const TWO: Self;
    /// 1/2.
    const HALF: Self;
    /// The bits of the fraction.
    const FRACTION: u32;
}

macro_rules! libm {
    (
        $(#[$doc:meta])*
        $kind:ident of ($($x:ident),+) $arguments:tt: $($name:ident => $function:ident),+
    ) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum $kind {
            $(#[doc = concat!("`libm::", stringify!($function), "`.")] $name,)+
        }

        impl $kind {
            /// The name of the function in the crate.
            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$name => stringify!($function),)+
                }
            }

            #[inline(always)]
            pub(crate) fn of(self, $($x: f64),+) -> f64 {
                match self {
                    $(Self::$name => libm::$function $arguments,)+
                }
            }
        }
    };
}

libm! {
    /// A function of one argument of the `libm` crate.
    Libm of (x) (x):
    Exp2 => exp2, Expm1 => expm1, Log2 => log2, Log10 => log10, Log1p => log1p,
    Sin => sin, Cos => cos, Tan => tan, Asin => asin, Acos => acos, Atan => atan,
    Sinh => sinh, Cosh => cosh, Asinh => asinh, Acosh => acosh, Atanh => atanh,
    Erf => erf, Erfc => erfc
}

libm! {
    /// A function of two arguments of the `libm` crate.
    Libm2 of (x, y) (x, y):
    Pow => pow, Atan2 => atan2, Hypot => hypot
}
