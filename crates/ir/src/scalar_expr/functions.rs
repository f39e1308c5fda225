//! The elementary functions of the reference evaluator, as a parameter of the evaluation.
//!
//! The reference evaluator takes the functions of the standard library unless it is given others.
//! A backend has functions of its own, which differ in the last bits. To compare a backend with the
//! evaluator bit for bit, a test passes the backend's functions.

use super::{BinaryOp, UnaryOp};
use crate::DType;

/// The functions that are not computed by exactly rounded operations.
pub trait Functions {
    /// The value of an elementary function: one of [`UnaryOp::Exp`] to [`UnaryOp::Sigmoid`]. The
    /// result is rounded to `dtype` afterwards.
    fn unary(&self, op: UnaryOp, x: f64, dtype: DType) -> f64;

    /// The value of [`BinaryOp::Pow`], [`BinaryOp::Atan2`] or [`BinaryOp::Hypot`] of floats. The
    /// result is rounded to `dtype` afterwards.
    fn binary(&self, op: BinaryOp, a: f64, b: f64, dtype: DType) -> f64;
}

/// The functions of the standard library, in `f64`.
#[derive(Clone, Copy, Debug, Default)]
pub struct StdFunctions;

impl Functions for StdFunctions {
    fn unary(&self, op: UnaryOp, x: f64, _: DType) -> f64 {
        use UnaryOp::*;
        match op {
            Exp => x.exp(),
            Exp2 => x.exp2(),
            Expm1 => x.exp_m1(),
            Log => x.ln(),
            Log2 => x.log2(),
            Log10 => x.log10(),
            Log1p => x.ln_1p(),
            Sin => x.sin(),
            Cos => x.cos(),
            Tan => x.tan(),
            Asin => x.asin(),
            Acos => x.acos(),
            Atan => x.atan(),
            Sinh => x.sinh(),
            Cosh => x.cosh(),
            Tanh => x.tanh(),
            Asinh => x.asinh(),
            Acosh => x.acosh(),
            Atanh => x.atanh(),
            Erf if x.abs() < 2.0 => erf_series(x),
            Erf if x.is_nan() => x,
            Erf => (1.0 - erfc_tail(x.abs())).copysign(x),
            Erfc if x > 0.75 => erfc_tail(x),
            Erfc if x < -2.0 => 2.0 - erfc_tail(-x),
            Erfc => 1.0 - erf_series(x),
            Sigmoid if x < 0.0 => x.exp() / (1.0 + x.exp()),
            Sigmoid => 1.0 / (1.0 + (-x).exp()),
            Neg | Abs | Sign | Floor | Ceil | Round | Trunc | Sqrt | Rsqrt | Reciprocal | IsNan
            | IsInf | Not => x,
        }
    }

    fn binary(&self, op: BinaryOp, a: f64, b: f64, _: DType) -> f64 {
        match op {
            BinaryOp::Pow => a.powf(b),
            BinaryOp::Atan2 => a.atan2(b),
            _ => a.hypot(b),
        }
    }
}

/// The error function by a series of positive terms, which has no cancellation (Abramowitz and
/// Stegun 7.1.6): `2/sqrt(pi) e^{-x^2} sum 2^n x^{2n+1} / (2n+1)!!`.
fn erf_series(x: f64) -> f64 {
    let (mut term, mut sum) = (x, x);
    for n in 1..100 {
        term *= 2.0 * x * x / f64::from(2 * n + 1);
        sum += term;
    }
    std::f64::consts::FRAC_2_SQRT_PI * (-x * x).exp() * sum
}

/// The complementary error function for `x >= 0.75`, by a continued fraction (Abramowitz and Stegun
/// 7.1.14).
fn erfc_tail(x: f64) -> f64 {
    if x > 30.0 {
        return 0.0;
    }
    let tail = (1..=400).rev().fold(0.0, |t, k| f64::from(k) / 2.0 / (x + t));
    (-x * x).exp() / (std::f64::consts::PI.sqrt() * (x + tail))
}
