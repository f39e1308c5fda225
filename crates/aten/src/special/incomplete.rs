//! The regularized incomplete gamma functions: lower `P(a, x)` and upper `Q(a, x) = 1 - P(a, x)`
//! (DLMF 8.2).
//!
//! The regions are those of the Cephes library. The smaller of `P` and `Q` is computed, by a power
//! series or a continued fraction, and the other one is its complement, so that nothing cancels.
//! Near `x = a` with large `a` these converge slowly, and Temme's uniform asymptotic expansion
//! (DLMF 8.12) is used.

use super::gamma::{EULER_GAMMA, horner, lgamma};
use std::f64::consts::PI;

/// Above this `a`, and near `x = a`, the uniform expansion is exact to the last digits, and much
/// shorter than a series.
const LARGE: f64 = 1e5;

/// The limit on the terms of a series: enough for any `a` up to [`LARGE`].
const TERMS: usize = 100_000;

/// The lower function `P(a, x)`. NaN for negative operands.
pub(super) fn lower(a: f64, x: f64) -> f64 {
    if let Some(at_edge) = edge(a, x) {
        return at_edge;
    }
    if is_uniform(a, x) {
        uniform(a, x, -1.0)
    } else if x > 1.0 && x > a {
        1.0 - upper(a, x)
    } else {
        lower_series(a, x)
    }
}

/// The upper function `Q(a, x)`. NaN for negative operands.
pub(super) fn upper(a: f64, x: f64) -> f64 {
    if let Some(p) = edge(a, x) {
        return 1.0 - p;
    }
    // If `P` is small, `1 - P` does not cancel.
    let lower_is_small = if x > 1.1 {
        x < a
    } else if x <= 0.5 {
        -0.4 / libm::log(x) < a
    } else {
        x * 1.1 < a
    };
    if is_uniform(a, x) {
        uniform(a, x, 1.0)
    } else if lower_is_small {
        1.0 - lower_series(a, x)
    } else if x > 1.1 {
        upper_fraction(a, x)
    } else {
        upper_series(a, x)
    }
}

/// The limit of `P` at 0 and at the infinities, and NaN for invalid operands.
fn edge(a: f64, x: f64) -> Option<f64> {
    if x < 0.0 || a < 0.0 {
        Some(f64::NAN)
    } else if a == 0.0 {
        Some(if x > 0.0 { 1.0 } else { f64::NAN })
    } else if x == 0.0 {
        Some(0.0)
    } else if a.is_infinite() {
        Some(if x.is_infinite() { f64::NAN } else { 0.0 })
    } else if x.is_infinite() {
        Some(1.0)
    } else if a.is_nan() || x.is_nan() {
        Some(f64::NAN)
    } else {
        None
    }
}

/// `log(1 + x) - x`, without cancellation.
fn log1p_less(x: f64) -> f64 {
    if x.abs() > 0.5 {
        return libm::log1p(x) - x;
    }
    // log(1 + x) = 2 atanh(r), whose series converges quickly
    let r = x / (2.0 + x);
    let (square, mut power, mut sum, mut k) = (r * r, r * r, 0.0, 3.0);
    while power > f64::EPSILON * 1e-3 {
        sum += power / k;
        power *= square;
        k += 2.0;
    }
    r * (2.0 * sum - x)
}

/// The common factor `x^a e^-x / gamma(a)`.
fn front(a: f64, x: f64) -> f64 {
    // B(2k) / (2k (2k - 1)), the coefficients of Stirling's series
    const STIRLING: [f64; 6] =
        [1.0 / 12.0, -1.0 / 360.0, 1.0 / 1260.0, -1.0 / 1680.0, 1.0 / 1188.0, -691.0 / 360_360.0];
    if a < 10.0 {
        return libm::exp(a * libm::log(x) - x - lgamma(a));
    }
    let correction = horner(1.0 / (a * a), &STIRLING) / a;
    (a / (2.0 * PI)).sqrt() * libm::exp(a * log1p_less((x - a) / a) - correction)
}

fn lower_series(a: f64, x: f64) -> f64 {
    let (mut n, mut term, mut sum) = (a, 1.0, 1.0);
    for _ in 0..TERMS {
        n += 1.0;
        term *= x / n;
        sum += term;
        if term < f64::EPSILON * 0.1 * sum {
            break;
        }
    }
    if a < 10.0 {
        libm::exp(a * libm::log(x) - x - lgamma(a + 1.0)) * sum
    } else {
        front(a, x) / a * sum
    }
}

/// The continued fraction of `Q`, by Lentz's method.
fn upper_fraction(a: f64, x: f64) -> f64 {
    const TINY: f64 = 1e-290;
    let mut b = x + 1.0 - a;
    let (mut c, mut d) = (1.0 / TINY, 1.0 / b);
    let mut h = d;
    for i in 1..TERMS {
        let i = i as f64;
        let an = i * (a - i);
        b += 2.0;
        let away = |v: f64| if v.abs() < TINY { TINY } else { v };
        d = 1.0 / away(an * d + b);
        c = away(b + an / c);
        let step = c * d;
        h *= step;
        if (step - 1.0).abs() < f64::EPSILON {
            break;
        }
    }
    front(a, x) * h
}

/// `Q` by a power series, for small operands, where `1 - P` would cancel.
fn upper_series(a: f64, x: f64) -> f64 {
    let (mut factor, mut sum) = (1.0, 0.0);
    for n in 1..TERMS {
        let n = n as f64;
        factor *= -x / n;
        let term = factor / (a + n);
        sum += term;
        if term.abs() <= f64::EPSILON * 0.1 * sum.abs() {
            break;
        }
    }
    // log gamma(1 + a), accurate also if 1 + a rounds to 1
    let lgamma1p = if a < 1e-5 { a * (a * PI * PI / 12.0 - EULER_GAMMA) } else { lgamma(1.0 + a) };
    let log = a * libm::log(x) - lgamma1p;
    -libm::expm1(log) - libm::exp(log) * a * sum
}

fn is_uniform(a: f64, x: f64) -> bool {
    a > LARGE && (x - a).abs() < 0.3 * a
}

/// Temme's uniform expansion: `Q` if `side` is 1, `P` if it is -1.
fn uniform(a: f64, x: f64, side: f64) -> f64 {
    const C0: [f64; 10] = [
        -1.0 / 3.0,
        1.0 / 12.0,
        -2.0 / 135.0,
        1.0 / 864.0,
        1.0 / 2835.0,
        -139.0 / 777_600.0,
        1.0 / 25515.0,
        -2.185_448_510_679_992e-6,
        -1.854_062_210_715_16e-6,
        8.296_711_340_953_086e-7,
    ];
    const C1: [f64; 6] = [
        -1.0 / 540.0,
        -1.0 / 288.0,
        1.0 / 378.0,
        -9.902_263_374_485_597e-4,
        2.057_613_168_724_28e-4,
        -4.018_775_720_164_609e-7,
    ];
    let excess = (x - a) / a;
    let half_square = -log1p_less(excess);
    let eta = (2.0 * half_square).sqrt().copysign(excess);
    let rest = libm::exp(-a * half_square) / (2.0 * PI * a).sqrt()
        * (horner(eta, &C0) + horner(eta, &C1) / a);
    0.5 * libm::erfc(side * eta * (0.5 * a).sqrt()) + side * rest
}
