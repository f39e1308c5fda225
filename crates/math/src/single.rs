//! The functions of `f32`.
//!
//! Most are computed in `f64` and rounded once, by the `f64` exponential and logarithm or by a
//! function of `libm`.

use crate::algebra::{Double, Libm, Libm2, Real, Single};
pub use crate::erf::erf;
pub use crate::exp::{exp, sigmoid, tanh_single as tanh};
pub use crate::log::log;
pub use crate::trig::{cos as cos_fast, is_slow as trig_is_slow, sin as sin_fast};
use crate::{double, exp};
use maquette_ir::scalar_expr::{BinaryOp, UnaryOp};

/// A function of `libm`, computed in `f64` and rounded once.
#[inline(always)]
fn libm<S: Single>(function: Libm, x: S) -> S {
    S::Wide::libm(function, x.widen()).narrow()
}

/// A function of two arguments of `libm`, computed in `f64` and rounded once.
#[inline(always)]
fn libm2<S: Single>(function: Libm2, x: S, y: S) -> S {
    S::Wide::libm2(function, x.widen(), y.widen()).narrow()
}

by_libm! { Single, libm;
    /// The tangent.
    tan => Tan;
    /// The inverse sine.
    asin => Asin;
    /// The inverse cosine.
    acos => Acos;
    /// The inverse tangent.
    atan => Atan;
    /// The hyperbolic sine.
    sinh => Sinh;
    /// The hyperbolic cosine.
    cosh => Cosh;
    /// The inverse hyperbolic sine.
    asinh => Asinh;
    /// The inverse hyperbolic tangent.
    atanh => Atanh;
    /// `1 - erf(x)`, without cancellation.
    erfc => Erfc;
    /// The sine, accurate for every argument.
    sin_slow => Sin;
    /// The cosine, accurate for every argument.
    cos_slow => Cos;
}

/// The inverse hyperbolic cosine.
#[inline(always)]
pub fn acosh<S: Single>(x: S) -> S {
    double::acosh(x.widen()).narrow()
}

/// The angle of the point `(x, y)` to the axis of `x`.
#[inline(always)]
pub fn atan2<S: Single>(y: S, x: S) -> S {
    libm2(Libm2::Atan2, y, x)
}

/// `sqrt(x^2 + y^2)`, without overflow.
#[inline(always)]
pub fn hypot<S: Single>(x: S, y: S) -> S {
    libm2(Libm2::Hypot, x, y)
}

/// `2^x`.
#[inline(always)]
pub fn exp2<S: Single>(x: S) -> S {
    exp::exp2(x.widen()).narrow()
}

/// `e^x - 1`; the Taylor series near 0, where the subtraction would cancel.
#[inline(always)]
pub fn expm1<S: Single>(x: S) -> S {
    let c = <S::Wide as Real>::constant;
    let w = x.widen();
    let series = w.mul_add(w * w.mul_add(w.mul_add(c(1.0 / 24.0), c(1.0 / 6.0)), c(0.5)), w);
    let direct = exp(w) - c(1.0);
    let value = S::Wide::select(w.abs().lt(c(1e-3)), series, direct).narrow();
    S::select(x.eq(S::constant(0.0)), x, value)
}

/// The logarithm to base 2.
#[inline(always)]
pub fn log2<S: Single>(x: S) -> S {
    (log(x.widen()) * S::Wide::constant(std::f64::consts::LOG2_E)).narrow()
}

/// The logarithm to base 10.
#[inline(always)]
pub fn log10<S: Single>(x: S) -> S {
    (log(x.widen()) * S::Wide::constant(std::f64::consts::LOG10_E)).narrow()
}

/// `log(1 + x)` as `log(u) x / (u - 1)` with `u` the rounded `1 + x`: the quotient cancels the
/// rounding error of `u` (Kahan).
#[inline(always)]
pub fn log1p<S: Single>(x: S) -> S {
    let c = <S::Wide as Real>::constant;
    let w = x.widen();
    let u = c(1.0) + w;
    let d = u - c(1.0);
    let log_u = log(u);
    let value = S::Wide::select(d.eq(c(0.0)), w, log_u * (w / d));
    let is_special = w.eq(c(f64::INFINITY)) | w.le(c(-1.0));
    let value = S::Wide::select(is_special, log_u, value).narrow();
    // A product of two NaNs is either of them.
    S::select(x.is_nan(), x, value)
}

/// The sine. As a program, the function computes [`sin_slow`] for every argument, which takes many
/// times as long as [`sin_fast`]: where a branch is possible, [`trig_is_slow`] tells which is
/// needed.
#[inline(always)]
pub fn sin<S: Single>(x: S) -> S {
    S::select(trig_is_slow(x), sin_slow(x), sin_fast(x))
}

/// The cosine, with the cost of [`sin`].
#[inline(always)]
pub fn cos<S: Single>(x: S) -> S {
    S::select(trig_is_slow(x), cos_slow(x), cos_fast(x))
}

/// `x^y` as `e^{y log|x|}` in `f64`, then the sign and the special cases of IEEE 754.
#[inline(always)]
pub fn pow<S: Single>(x: S, y: S) -> S {
    let c = <S::Wide as Real>::constant;
    let [zero, one, nan] = [0.0, 1.0, f32::NAN].map(S::constant);
    let (xw, yw) = (x.widen(), y.widen());
    let magnitude = exp(yw * log(xw.abs())).narrow();
    let is_whole = yw.trunc().eq(yw);
    let half = yw * c(0.5);
    let is_odd = is_whole & !half.trunc().eq(half);
    // x < 0 with a fractional y; infinities count as even integers.
    let is_invalid = x.lt(zero) & !is_whole & x.abs().lt(S::constant(f32::INFINITY));
    let value = S::select(is_odd, magnitude.copysign(x), magnitude);
    let value = S::select(is_invalid, nan, value);
    let value = S::select(xw.abs().eq(c(1.0)) & y.is_infinite(), one, value);
    // A product of two NaNs is either of them.
    let value = S::select(y.is_nan(), y, value);
    let value = S::select(x.is_nan(), x, value);
    S::select(x.eq(one) | y.eq(zero), one, value)
}

/// An elementary function: one of [`UnaryOp::Exp`] to [`UnaryOp::Sigmoid`]. `None` for the others,
/// which are single operations.
#[inline(always)]
pub fn unary<S: Single>(op: UnaryOp, x: S) -> Option<S> {
    Some(crate::functions!(single, op, x, return None))
}

/// The value of [`BinaryOp::Pow`], [`BinaryOp::Atan2`] or [`BinaryOp::Hypot`]. `None` for the
/// others, which are single operations.
#[inline(always)]
pub fn binary<S: Single>(op: BinaryOp, x: S, y: S) -> Option<S> {
    crate::functions2!(single, op, x, y)
}
