//! Inverse and scaled forms of the error function. Inverses start from an approximation and are
//! refined by Halley's method, which converges cubically.

use std::f64::consts::{FRAC_1_SQRT_2, FRAC_2_SQRT_PI, PI, SQRT_2};

/// Halley's method for a function whose derivative is `slope e^(-z^2)`, from the start `z`.
fn refine(mut z: f64, slope: f64, residual: impl Fn(f64) -> f64) -> f64 {
    for _ in 0..4 {
        let u = residual(z) / (slope * libm::exp(-z * z));
        z -= u / (1.0 + z * u);
    }
    z
}

/// The `z >= 0` with `erfc(z) = q`, for `0 < q <= 1`.
fn erfc_inverse(q: f64) -> f64 {
    // The start is Hastings' rational approximation of the normal quantile (Abramowitz and Stegun
    // 26.2.23), with an error of at most 4.5e-4.
    let t = (-2.0 * libm::log(0.5 * q)).sqrt();
    let (above, below) = (
        2.515_517 + t * (0.802_853 + t * 0.010_328),
        1.0 + t * (1.432_788 + t * (0.189_269 + t * 0.001_308)),
    );
    refine((t - above / below) * FRAC_1_SQRT_2, -FRAC_2_SQRT_PI, |z| libm::erfc(z) - q)
}

/// The inverse of `erf`: infinite at -1 and 1, NaN outside.
pub(super) fn erfinv(y: f64) -> f64 {
    let size = y.abs();
    if size > 1.0 || size.is_nan() {
        f64::NAN
    } else if size == 1.0 {
        f64::INFINITY.copysign(y)
    } else if size > 0.5 {
        erfc_inverse(1.0 - size).copysign(y)
    } else {
        refine(y / FRAC_2_SQRT_PI * (1.0 + PI / 12.0 * y * y), FRAC_2_SQRT_PI, |z| libm::erf(z) - y)
    }
}

/// The quantile function of the normal distribution. NaN outside [0, 1].
pub(super) fn ndtri(p: f64) -> f64 {
    if p == 0.0 {
        f64::NEG_INFINITY
    } else if p == 1.0 {
        f64::INFINITY
    } else if !(0.0..1.0).contains(&p) {
        f64::NAN
    } else if p == 0.5 {
        0.0
    } else if p > 0.5 {
        SQRT_2 * erfc_inverse(2.0 * (1.0 - p))
    } else {
        -SQRT_2 * erfc_inverse(2.0 * p)
    }
}

/// `exp(x^2) erfc(x)`, by the asymptotic series for large `x`.
pub(super) fn erfcx(x: f64) -> f64 {
    if x > 25.0 {
        let z = 0.5 / (x * x);
        return 0.5 * FRAC_2_SQRT_PI / x
            * (1.0 - z * (1.0 - 3.0 * z * (1.0 - 5.0 * z * (1.0 - 7.0 * z * (1.0 - 9.0 * z)))));
    }
    // Here the exponential overflows, and the rounding error of the square may exceed 1.
    if x < -27.0 {
        return f64::INFINITY;
    }
    let square = x * x;
    // The rounding error of the square.
    let lost = libm::fma(x, x, -square);
    libm::exp(square) * (1.0 + lost) * libm::erfc(x)
}

/// The logarithm of the normal distribution function. For negative `x`, `erfcx` avoids underflow.
pub(super) fn log_ndtr(x: f64) -> f64 {
    let z = x * FRAC_1_SQRT_2;
    if x < -1.0 { libm::log(0.5 * erfcx(-z)) - z * z } else { libm::log1p(-0.5 * libm::erfc(z)) }
}
