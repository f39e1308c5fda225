//! Functions of `f32` computed by the `f64` exponential and logarithm, and the error function.

use super::{exp, log};

/// `e^x - 1`; the Taylor series near 0, where the subtraction would cancel.
#[inline(always)]
pub(super) fn expm1_f32(x: f32) -> f32 {
    let w = f64::from(x);
    let series = w.mul_add(w * w.mul_add(w.mul_add(1.0 / 24.0, 1.0 / 6.0), 0.5), w);
    let direct = exp::f64::exp(w) - 1.0;
    let value = (if w.abs() < 1e-3 { series } else { direct }) as f32;
    if x == 0.0 { x } else { value }
}

/// `log(u) x / (u - 1)` with `u` the rounded `1 + x`: the quotient cancels the rounding error of
/// `u` (Kahan).
#[inline(always)]
pub(super) fn log1p_f32(x: f32) -> f32 {
    let w = f64::from(x);
    let u = 1.0 + w;
    let d = u - 1.0;
    let corrected = log::f64::log(u) * (w / d);
    let value = if d == 0.0 { w } else { corrected };
    let value = (if w == f64::INFINITY || w <= -1.0 { log::f64::log(u) } else { value }) as f32;
    // A product of two NaNs is either of them.
    if x.is_nan() { x } else { value }
}

/// `libm`'s acosh, with NaN for arguments below 1, where `libm` does not always return NaN.
#[inline(always)]
pub(super) fn acosh(x: f64) -> f64 {
    if x < 1.0 { f64::NAN } else { libm::acosh(x) }
}

/// The error function: near 0 a polynomial in x^2, beyond it `1 - e^-q(|x|)`.
pub(crate) mod erf {
    use super::exp;

    /// The coefficients of the polynomial for |x| < 1, from the highest.
    pub(crate) const NEAR: [f32; 7] = [
        7.875_875e-5,
        -8.016_864_5e-4,
        5.189_087_5e-3,
        -2.685_421_2e-2,
        1.128_359_5e-1,
        -3.761_262_7e-1,
        1.283_791_7e-1,
    ];
    /// The coefficients of q, from the highest.
    pub(crate) const FAR: [f32; 9] = [
        -1.637_151_4e-6,
        4.605_804_4e-5,
        -5.968_056_4e-4,
        4.759_596e-3,
        -2.642_113_6e-2,
        1.100_800_85e-1,
        6.318_260_4e-1,
        1.130_233_4,
        -3.201_380_2e-4,
    ];
    /// From here on the result is 1.
    pub(crate) const LAST: f32 = 4.0;

    #[inline(always)]
    pub(crate) fn f32(x: f32) -> f32 {
        let a = x.abs();
        let z = x * x;
        let mut p = NEAR[0];
        for c in &NEAR[1..] {
            p = p.mul_add(z, *c);
        }
        let near = x.mul_add(p, x);
        let t = if a > LAST { LAST } else { a };
        let mut q = FAR[0];
        for c in &FAR[1..] {
            q = q.mul_add(t, *c);
        }
        let far = (1.0 - exp::exp_normal_f32(-q)).copysign(x);
        if a < 1.0 { near } else { far }
    }
}

pub(super) mod pow {
    use super::{exp, log};

    /// `e^{y log|x|}` in `f64`, then the sign and the special cases of IEEE 754.
    #[inline(always)]
    pub(crate) fn f32(x: f32, y: f32) -> f32 {
        let (xw, yw) = (f64::from(x), f64::from(y));
        let magnitude = exp::f64::exp(yw * log::f64::log(xw.abs())) as f32;
        let whole = yw.trunc() == yw;
        let half = yw * 0.5;
        let odd = whole & (half.trunc() != half);
        // x < 0 with a fractional y; infinities count as even integers.
        let invalid = (x < 0.0) & !whole & x.is_finite();
        let signed = if odd { magnitude.copysign(x) } else { magnitude };
        let value = if invalid { f32::NAN } else { signed };
        let value = if (xw.abs() == 1.0) & y.is_infinite() { 1.0 } else { value };
        // A product of two NaNs is either of them.
        let value = if y.is_nan() { y } else { value };
        let value = if x.is_nan() { x } else { value };
        if (x == 1.0) | (y == 0.0) { 1.0 } else { value }
    }

    #[inline(always)]
    pub(crate) fn f64(x: f64, y: f64) -> f64 {
        libm::pow(x, y)
    }
}
