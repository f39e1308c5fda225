//! The floats of kernels, with the elementary functions of [`maquette_math`]. The same source
//! vectorises for every instruction set and yields the same bits on each.
//!
//! The `f64` exponential, logarithm, tanh and sigmoid vectorise. The other `f64` functions are
//! called for one lane at a time.

#[cfg(target_arch = "x86_64")]
pub(crate) mod avx512;

use crate::element::Class;
use maquette_math::{double, single};
use std::ops::{Add, Div, Mul, Neg, Rem, Sub};

/// The operations of a float class.
pub(crate) trait Float:
    Class
    + Add<Output = Self>
    + Sub<Output = Self>
    + Mul<Output = Self>
    + Div<Output = Self>
    + Rem<Output = Self>
    + Neg<Output = Self>
    + std::iter::Sum
{
    const ZERO: Self;
    const ONE: Self;
    const INFINITY: Self;
    fn from_f64(x: f64) -> Self;
    fn abs(self) -> Self;
    fn floor(self) -> Self;
    fn ceil(self) -> Self;
    fn trunc(self) -> Self;
    fn round_even(self) -> Self;
    fn sqrt(self) -> Self;
    fn copysign(self, sign: Self) -> Self;
    fn exp(self) -> Self;
    fn exp2(self) -> Self;
    fn expm1(self) -> Self;
    fn log(self) -> Self;
    fn log2(self) -> Self;
    fn log10(self) -> Self;
    fn log1p(self) -> Self;
    fn tan(self) -> Self;
    fn asin(self) -> Self;
    fn acos(self) -> Self;
    fn atan(self) -> Self;
    fn sinh(self) -> Self;
    fn cosh(self) -> Self;
    fn tanh(self) -> Self;
    fn asinh(self) -> Self;
    fn acosh(self) -> Self;
    fn atanh(self) -> Self;
    fn erf(self) -> Self;
    fn erfc(self) -> Self;
    fn pow(self, y: Self) -> Self;
    fn atan2(self, x: Self) -> Self;
    fn hypot(self, y: Self) -> Self;
    fn sigmoid(self) -> Self;
    /// Whether `sin_fast` and `cos_fast` are inaccurate for this argument; `sin_slow` and
    /// `cos_slow` are accurate for every argument.
    fn trig_is_slow(self) -> bool;
    fn sin_fast(self) -> Self;
    fn cos_fast(self) -> Self;
    fn sin_slow(self) -> Self;
    fn cos_slow(self) -> Self;
    fn nan(self) -> bool;
}

macro_rules! float {
    ($t:ident: $class:ident, $slow:expr, $($f:ident => $as:ident),*; $($same:ident),*) => {
        impl Float for $t {
            const ZERO: Self = 0.0;
            const ONE: Self = 1.0;
            const INFINITY: Self = $t::INFINITY;
            #[inline(always)]
            fn from_f64(x: f64) -> Self { x as $t }
            #[inline(always)]
            fn abs(self) -> Self { $t::abs(self) }
            #[inline(always)]
            fn floor(self) -> Self { $t::floor(self) }
            #[inline(always)]
            fn ceil(self) -> Self { $t::ceil(self) }
            #[inline(always)]
            fn trunc(self) -> Self { $t::trunc(self) }
            #[inline(always)]
            fn round_even(self) -> Self { $t::round_ties_even(self) }
            #[inline(always)]
            fn sqrt(self) -> Self { $t::sqrt(self) }
            #[inline(always)]
            fn copysign(self, sign: Self) -> Self { $t::copysign(self, sign) }
            #[inline(always)]
            fn nan(self) -> bool { self.is_nan() }
            #[inline(always)]
            fn pow(self, y: Self) -> Self { $class::pow(self, y) }
            #[inline(always)]
            fn atan2(self, x: Self) -> Self { $class::atan2(self, x) }
            #[inline(always)]
            fn hypot(self, y: Self) -> Self { $class::hypot(self, y) }
            #[inline(always)]
            fn trig_is_slow(self) -> bool { $slow(self) }
            $(#[inline(always)]
            fn $f(self) -> Self { $class::$as(self) })*
            $(#[inline(always)]
            fn $same(self) -> Self { $class::$same(self) })*
        }
    };
    ($t:ident: $class:ident, $slow:expr, $($f:ident => $as:ident),*) => {
        float!($t: $class, $slow, $($f => $as),*; exp, exp2, expm1, log, log2, log10, log1p, tan,
            asin, acos, atan, sinh, cosh, tanh, asinh, acosh, atanh, erf, erfc, sigmoid);
    };
}

float!(f32: single, single::trig_is_slow, sin_fast => sin_fast, cos_fast => cos_fast,
    sin_slow => sin_slow, cos_slow => cos_slow);
float!(f64: double, |_| false, sin_fast => sin, cos_fast => cos, sin_slow => sin, cos_slow => cos);
