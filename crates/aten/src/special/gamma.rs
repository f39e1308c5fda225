//! The logarithm of the gamma function, its derivatives (`digamma`, `polygamma`), and the Hurwitz
//! zeta function.
//!
//! `digamma` and `trigamma` use the reflection formula for negative or small operands, recurrence
//! up to 10, and the asymptotic series beyond (DLMF 5.5, 5.11). Higher derivatives are multiples of
//! the zeta function. `zeta` adds terms up to 9 and uses the Euler–Maclaurin formula for the rest,
//! as in the Cephes library.

use std::f64::consts::PI;

/// Euler's constant, which is `-digamma(1)`.
pub(super) const EULER_GAMMA: f64 = 0.577_215_664_901_532_9;

/// The relative precision at which series stop.
const EPS: f64 = f64::EPSILON / 2.0;

/// Horner's method: `c[0] + x (c[1] + x (c[2] + …))`.
pub(super) fn horner(x: f64, c: &[f64]) -> f64 {
    c.iter().rev().fold(0.0, |sum, c| sum * x + c)
}

/// `log |gamma(x)|`, infinite at the poles.
pub(super) fn lgamma(x: f64) -> f64 {
    libm::lgamma(x)
}

/// The derivative of [`lgamma`]. It is NaN at the negative poles, and infinite at 0, with the sign
/// opposite to that of 0.
pub(super) fn digamma(x: f64) -> f64 {
    // B(2k) / 2k, where B are the Bernoulli numbers
    const ASYMPTOTIC: [f64; 7] = [
        1.0 / 12.0,
        -1.0 / 120.0,
        1.0 / 252.0,
        -1.0 / 240.0,
        1.0 / 132.0,
        -691.0 / 32760.0,
        1.0 / 12.0,
    ];
    if x == 0.0 {
        return f64::INFINITY.copysign(-x);
    }
    if x < 0.0 {
        if x == x.trunc() {
            return f64::NAN;
        }
        return digamma(1.0 - x) - PI / libm::tan(PI * x.fract());
    }
    let (mut x, mut below) = (x, 0.0);
    while x < 10.0 {
        below += 1.0 / x;
        x += 1.0;
    }
    let z = 1.0 / (x * x);
    libm::log(x) - 0.5 / x - z * horner(z, &ASYMPTOTIC) - below
}

/// The derivative of [`digamma`]. `pi_times` multiplies by pi in the operand's precision, which
/// decides the value at the negative poles.
fn trigamma(x: f64, pi_times: fn(f64) -> f64) -> f64 {
    // B(2k)
    const ASYMPTOTIC: [f64; 7] =
        [1.0 / 6.0, -1.0 / 30.0, 1.0 / 42.0, -1.0 / 30.0, 5.0 / 66.0, -691.0 / 2730.0, 7.0 / 6.0];
    if x < 0.5 {
        let s = libm::sin(pi_times(x));
        return PI * PI / (s * s) - trigamma(1.0 - x, pi_times);
    }
    let (mut x, mut below) = (x, 0.0);
    while x < 10.0 {
        below += 1.0 / (x * x);
        x += 1.0;
    }
    let z = 1.0 / (x * x);
    below + (1.0 + 0.5 / x + z * horner(z, &ASYMPTOTIC)) / x
}

/// The `n`-th derivative of [`digamma`]. `narrow` says that the operand has at most the precision
/// of `f32`.
pub(super) fn polygamma(n: i64, x: f64, narrow: bool) -> f64 {
    match n {
        0 => digamma(x),
        1 => trigamma(
            x,
            if narrow { |x| f64::from(x as f32 * std::f32::consts::PI) } else { |x| x * PI },
        ),
        _ => {
            let size = libm::exp(lgamma(n as f64 + 1.0)) * zeta(n as f64 + 1.0, x);
            if n % 2 == 0 { -size } else { size }
        }
    }
}

/// The Hurwitz zeta function: the sum of `(q + k)^-x` over all `k >= 0`. NaN for `x < 1`, and for
/// negative `q` unless `x` is an integer. Infinite at the poles.
pub(super) fn zeta(x: f64, q: f64) -> f64 {
    // (2k)! / B(2k)
    const EULER_MACLAURIN: [f64; 12] = [
        12.0,
        -720.0,
        30240.0,
        -1_209_600.0,
        47_900_160.0,
        -1_307_674_368_000.0 / 691.0,
        74_724_249_600.0,
        -10_670_622_842_880_000.0 / 3617.0,
        5_109_094_217_170_944_000.0 / 43867.0,
        -802_857_662_698_291_200_000.0 / 174_611.0,
        14_101_100_039_391_805_440_000.0 / 77683.0,
        -1_693_824_136_731_743_669_452_800_000.0 / 236_364_091.0,
    ];
    if x == 1.0 {
        return f64::INFINITY;
    }
    if x < 1.0 {
        return f64::NAN;
    }
    if q <= 0.0 {
        if q == q.floor() {
            return f64::INFINITY;
        }
        if x != x.floor() {
            return f64::NAN;
        }
        if q < -1000.0 {
            // For very negative `q`, the series would have too many terms. The sum over all
            // integers depends only on the fraction of `q`.
            let f = q - q.floor();
            let sign = if x % 2.0 == 0.0 { 1.0 } else { -1.0 };
            return zeta(x, f) + sign * (zeta(x, 1.0 - f) - zeta(x, 1.0 - q));
        }
    }
    let (mut a, mut sum, mut term, mut steps) = (q, libm::pow(q, -x), 0.0, 0);
    while steps < 9 || a <= 9.0 {
        steps += 1;
        a += 1.0;
        term = libm::pow(a, -x);
        sum += term;
        if -EPS * sum < term && term < EPS * sum {
            return sum;
        }
    }
    sum += term * a / (x - 1.0) - 0.5 * term;
    let (mut rising, mut k) = (1.0, 0.0);
    for c in EULER_MACLAURIN {
        rising *= x + k;
        term /= a;
        let t = rising * term / c;
        sum += t;
        if (t / sum).abs() < EPS {
            break;
        }
        rising *= x + k + 1.0;
        term /= a;
        k += 2.0;
    }
    sum
}

/// The logarithm of the multivariate gamma function of dimension `p`. `round` rounds each step to
/// the operand's precision, as in PyTorch.
pub(super) fn mvlgamma(x: f64, p: i64, round: fn(f64) -> f64) -> f64 {
    let sum: f64 = (0..p).map(|i| round(lgamma(round(x - 0.5 * i as f64)))).sum();
    let p = p as f64;
    round(sum) + p * (p - 1.0) * 0.25 * libm::log(PI)
}
