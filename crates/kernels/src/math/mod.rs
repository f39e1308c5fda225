//! Elementary functions as branch-free code. The same source vectorises for every instruction set
//! and yields the same bits on each, because it uses only correctly rounded operations. Fused
//! multiply-add is one of these and is always requested explicitly.
//!
//! `docs/accuracy.md` lists the error of each function. The `f64` exponential, logarithm and tanh
//! vectorise; the other `f64` functions call the `libm` crate, one lane at a time.

#[cfg(target_arch = "x86_64")]
pub(crate) mod avx512;
mod exp;
mod log;
mod other;
mod trig;

use crate::element::Class;
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
    fn sin(self) -> Self;
    fn cos(self) -> Self;
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
    /// Whether `sin` and `cos` are inaccurate for this argument; `sin_slow` and `cos_slow` are
    /// accurate.
    fn trig_is_slow(self) -> bool;
    fn sin_slow(self) -> Self;
    fn cos_slow(self) -> Self;

    /// Computed from `e^-|x|`, which cannot overflow, so that small results are as accurate as
    /// large ones.
    #[inline(always)]
    fn sigmoid(self) -> Self {
        let e = (-self.abs()).exp();
        (if self < Self::ZERO { e } else { Self::ONE }) / (Self::ONE + e)
    }
    #[inline(always)]
    fn nan(self) -> bool {
        !matches!(self.partial_cmp(&self), Some(std::cmp::Ordering::Equal))
    }
}

macro_rules! float {
    ($t:ident { $($f64_fn:ident => $body:expr,)* }) => {
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
            $(#[inline(always)]
            fn $f64_fn(self) -> Self { $body(self) })*
            #[inline(always)]
            fn pow(self, y: Self) -> Self { other::pow::$t(self, y) }
            #[inline(always)]
            fn atan2(self, x: Self) -> Self { libm::atan2(f64::from(self), f64::from(x)) as $t }
            #[inline(always)]
            fn hypot(self, y: Self) -> Self { libm::hypot(f64::from(self), f64::from(y)) as $t }
            #[inline(always)]
            fn trig_is_slow(self) -> bool { trig::is_slow::$t(self) }
        }
    };
}

/// An `f32` function computed by an `f64` function and rounded once.
macro_rules! wide {
    ($f:path) => {
        |x: f32| $f(f64::from(x)) as f32
    };
}

float!(f32 {
    exp => exp::f32::exp,
    exp2 => wide!(exp::exp2_f64),
    expm1 => other::expm1_f32,
    tanh => exp::tanh_f32,
    log => log::f32::log,
    log2 => |x: f32| (log::f64::log(f64::from(x)) * std::f64::consts::LOG2_E) as f32,
    log10 => |x: f32| (log::f64::log(f64::from(x)) * std::f64::consts::LOG10_E) as f32,
    log1p => other::log1p_f32,
    sin => trig::sin_f32,
    cos => trig::cos_f32,
    tan => wide!(libm::tan),
    asin => wide!(libm::asin),
    acos => wide!(libm::acos),
    atan => wide!(libm::atan),
    sinh => wide!(libm::sinh),
    cosh => wide!(libm::cosh),
    asinh => wide!(libm::asinh),
    acosh => wide!(other::acosh),
    atanh => wide!(libm::atanh),
    erf => other::erf::f32,
    erfc => wide!(libm::erfc),
    sin_slow => wide!(libm::sin),
    cos_slow => wide!(libm::cos),
});

float!(f64 {
    exp => exp::f64::exp,
    exp2 => libm::exp2,
    expm1 => libm::expm1,
    tanh => exp::tanh_f64,
    log => log::f64::log,
    log2 => libm::log2,
    log10 => libm::log10,
    log1p => libm::log1p,
    sin => libm::sin,
    cos => libm::cos,
    tan => libm::tan,
    asin => libm::asin,
    acos => libm::acos,
    atan => libm::atan,
    sinh => libm::sinh,
    cosh => libm::cosh,
    asinh => libm::asinh,
    acosh => other::acosh,
    atanh => libm::atanh,
    erf => libm::erf,
    erfc => libm::erfc,
    sin_slow => libm::sin,
    cos_slow => libm::cos,
});
