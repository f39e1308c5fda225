//! Arbitrary-precision references for the `f64` functions.
//!
//! For `f32`, a platform's `f64` function is an accurate enough reference. For `f64` the reference
//! must have more bits than the result, so the functions are evaluated with `astro_float_num`, in
//! 192 bits, and in 320 bits where a subtraction follows.

use super::{Error, Op};
use astro_float_num::{BigFloat, Consts, RoundingMode};
use maquette_ir::scalar_expr::{BinaryOp, UnaryOp};

/// The precision of a reference, in bits.
const BITS: usize = 192;
/// The precision of intermediate results from which another number is subtracted.
const MORE: usize = 320;
/// Rounding to nearest, ties to even.
const RM: RoundingMode = RoundingMode::ToEven;

/// Evaluates functions to 192 bits, and caches the constants that they need.
pub struct Big {
    consts: Consts,
}

impl Big {
    /// An evaluator with an empty cache.
    pub fn new() -> Result<Self, Error> {
        Ok(Big { consts: Consts::new().map_err(|e| Error::Constants(format!("{e:?}")))? })
    }

    /// The error of `got` in ULP of `f64`; `None` if it is wrong in a way that has no distance.
    ///
    /// `approx` is the result of the platform's function. It decides about NaN and signs, and it is
    /// taken as exact if the arguments are not `regular` (zeros, infinities, NaN), or if `got`
    /// equals it and is an infinity or a zero.
    pub fn error(
        &mut self,
        got: f64,
        approx: f64,
        regular: bool,
        exact: impl FnOnce(&mut Big) -> Option<BigFloat>,
    ) -> Option<f64> {
        if got.is_nan() || approx.is_nan() {
            return (got.is_nan() && approx.is_nan()).then_some(0.0);
        }
        if got.is_sign_negative() != approx.is_sign_negative() {
            return None;
        }
        if got.to_bits() == approx.to_bits() && (got == 0.0 || got.is_infinite()) {
            return Some(0.0);
        }
        let exact = if regular { exact(self) } else { None };
        let exact = exact.unwrap_or_else(|| big(approx));
        Some(distance(got, &exact))
    }

    /// The function at a finite `x` other than 0; `None` for an unknown function.
    pub fn unary(&mut self, op: UnaryOp, x: f64) -> Option<BigFloat> {
        use UnaryOp::*;
        let b = big(x);
        let one = big(1.0);
        let cc = &mut self.consts;
        // beyond this bound, every exponential is an infinity, a zero, or 1 to all bits
        let c = big(x.clamp(-1.0e4, 1.0e4));
        let tiny = x.abs() < 1.0e-12;
        Some(match op {
            Exp => c.exp(BITS, RM, cc),
            Exp2 => big(2.0).pow(&c, BITS, RM, cc),
            Expm1 if tiny => polynomial(&b, &[1.0, 2.0, 6.0, 24.0, 120.0]),
            Expm1 => c.exp(MORE, RM, cc).sub(&one, BITS, RM),
            Log => b.ln(BITS, RM, cc),
            Log2 => b.log2(BITS, RM, cc),
            Log10 => b.log10(BITS, RM, cc),
            Log1p if tiny => polynomial(&b, &[1.0, -2.0, 3.0, -4.0, 5.0]),
            Log1p => b.add(&one, MORE, RM).ln(BITS, RM, cc),
            Sin => b.sin(BITS, RM, cc),
            Cos => b.cos(BITS, RM, cc),
            Tan => b.tan(BITS, RM, cc),
            Asin => b.asin(BITS, RM, cc),
            Acos => b.acos(BITS, RM, cc),
            Atan => b.atan(BITS, RM, cc),
            Sinh => c.sinh(BITS, RM, cc),
            Cosh => c.cosh(BITS, RM, cc),
            Tanh => c.tanh(BITS, RM, cc),
            Asinh => b.asinh(BITS, RM, cc),
            Acosh => b.acosh(BITS, RM, cc),
            Atanh => b.atanh(BITS, RM, cc),
            Erf => self.erf(x, BITS),
            Erfc => self.erfc(x),
            Sigmoid => {
                let e = c.neg().exp(MORE, RM, cc);
                one.div(&one.add(&e, MORE, RM), BITS, RM)
            }
            Sqrt => b.sqrt(BITS, RM),
            Rsqrt => one.div(&b.sqrt(MORE, RM), BITS, RM),
            Reciprocal => one.div(&b, BITS, RM),
            _ => return None,
        })
    }

    /// The function at two finite numbers other than 0; `None` for a function that `f64` computes
    /// exactly.
    pub fn binary(&mut self, op: Op, x: f64, y: f64) -> Option<BigFloat> {
        let Op::Binary(op) = op else { return None };
        let (a, b) = (big(x.abs()), big(y.abs()));
        match op {
            BinaryOp::Pow => {
                let t = a.ln(MORE, RM, &mut self.consts).mul(&big(y), MORE, RM);
                // Close to 1, a correctly rounded exponential would iterate for digits that do not
                // exist.
                let near = t.exponent().is_none_or(|e| e < -(BITS as i32));
                let p = if near {
                    t.add(&big(1.0), BITS, RM)
                } else {
                    t.exp(BITS, RM, &mut self.consts)
                };
                Some(if x < 0.0 && y % 2.0 != 0.0 { p.neg() } else { p })
            }
            BinaryOp::Hypot => {
                Some(a.mul(&a, MORE, RM).add(&b.mul(&b, MORE, RM), MORE, RM).sqrt(BITS, RM))
            }
            BinaryOp::Atan2 => {
                let t = a.div(&b, MORE, RM).atan(MORE, RM, &mut self.consts);
                let t = if y < 0.0 { self.consts.pi(MORE, RM).sub(&t, BITS, RM) } else { t };
                Some(if x < 0.0 { t.neg() } else { t })
            }
            _ => None,
        }
    }

    /// The error function by the series `2/sqrt(pi) e^{-x^2} sum 2^n x^{2n+1} / (2n+1)!!`. All its
    /// terms have one sign, so there is no cancellation.
    fn erf(&mut self, x: f64, bits: usize) -> BigFloat {
        if x.abs() > 40.0 {
            return BigFloat::from_f64(1f64.copysign(x), bits);
        }
        let mut b = big(x);
        if b.set_precision(bits, RM).is_err() {
            return BigFloat::nan(None);
        }
        let square = b.mul(&b, bits, RM);
        let twice = square.add(&square, bits, RM);
        let (mut term, mut sum) = (b.clone(), b);
        for n in 1u32.. {
            term = term.mul(&twice, bits, RM).div(
                &BigFloat::from_f64(f64::from(2 * n + 1), 64),
                bits,
                RM,
            );
            sum = sum.add(&term, bits, RM);
            let small = |t: &BigFloat| t.exponent().unwrap_or(0).saturating_add(bits as i32);
            if term.is_zero()
                || (f64::from(n) > x * x && small(&term) < sum.exponent().unwrap_or(0))
            {
                break;
            }
        }
        let pi = self.consts.pi(bits, RM).sqrt(bits, RM);
        let scale = square.neg().exp(bits, RM, &mut self.consts);
        let sum = sum.add(&sum, bits, RM);
        sum.mul(&scale, bits, RM).div(&pi, bits, RM)
    }

    /// `1 - erf(x)`, with additional bits to make up for the cancellation.
    fn erfc(&mut self, x: f64) -> BigFloat {
        if x > 40.0 {
            return BigFloat::new(BITS);
        }
        let cancelled = if x > 0.0 { (x * x * std::f64::consts::LOG2_E) as usize } else { 0 };
        // the relative error of the series is about that of the exponential of -x^2
        let bits = MORE + cancelled + 64;
        BigFloat::from_f64(1.0, bits).sub(&self.erf(x, bits), BITS, RM)
    }
}

/// Converts exactly. `BigFloat::from_f64` misreads subnormal numbers, so these are scaled first.
fn big(x: f64) -> BigFloat {
    if x.is_normal() || x == 0.0 {
        return BigFloat::from_f64(x, BITS);
    }
    let scale = 2f64.powi(100);
    BigFloat::from_f64(x * scale, BITS).div(&BigFloat::from_f64(scale, BITS), BITS, RM)
}

/// `sum x^k / divisors[k-1]`: a truncated power series for a tiny `x`, where the direct formula
/// would cancel.
fn polynomial(x: &BigFloat, divisors: &[f64]) -> BigFloat {
    let mut power = x.clone();
    let mut sum = BigFloat::new(BITS);
    for d in divisors {
        sum = sum.add(&power.div(&BigFloat::from_f64(*d, 64), MORE, RM), MORE, RM);
        power = power.mul(x, MORE, RM);
    }
    sum
}

/// The distance of two numbers of one sign, in ULP of `exact`.
fn distance(got: f64, exact: &BigFloat) -> f64 {
    let limit = big(f64::MAX).add(&big(2f64.powi(970)), BITS, RM);
    let exact = exact.abs().min(&limit);
    let got = if got.is_infinite() { limit } else { big(got.abs()) };
    let difference = got.sub(&exact, BITS, RM).abs();
    // zero has no meaningful exponent; its ULP is that of the subnormal numbers
    let exponent = if exact.is_zero() {
        -1022
    } else {
        exact.exponent().unwrap_or(0).saturating_sub(1).clamp(-1022, 1023)
    };
    match difference.as_raw_parts() {
        Some((words, _, _, e, _)) if !difference.is_zero() => {
            let top = words.last().copied().unwrap_or(0) as f64 / 2f64.powi(64);
            top * 2f64.powi(e.saturating_sub(exponent).saturating_add(52))
        }
        Some(_) => 0.0,
        None => f64::INFINITY,
    }
}
