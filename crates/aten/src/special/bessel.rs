//! Bessel functions of orders 0 and 1, and the Airy function Ai. Equation numbers are those of the
//! Digital Library of Mathematical Functions (DLMF).
//!
//! `I`: the power series (10.25.2) up to 20, the asymptotic series (10.40.1) above. `K`: the
//! ascending series (10.31.1, 10.31.2) below 2, and Steed's continued fraction with Temme's sum
//! above, as in Numerical Recipes' `bessik`. `Ai`: by `K` of order 1/3 above 2 (9.6.2), by Taylor
//! series from 0 down to -10, and by the asymptotic series (9.7.9) below.

use super::gamma::EULER_GAMMA;
use std::f64::consts::{FRAC_2_SQRT_PI, FRAC_PI_4, PI};

/// A Bessel function of the first or second kind. As in PyTorch, it is NaN at the infinities.
pub(super) fn finite(f: fn(f64) -> f64, x: f64) -> f64 {
    if x.is_infinite() { f64::NAN } else { f(x) }
}

/// `sin(x) / x`.
pub(super) fn spherical_j0(x: f64) -> f64 {
    if x == 0.0 {
        1.0
    } else if x.is_infinite() {
        0.0
    } else {
        libm::sin(x) / x
    }
}

/// `exp(-|x|) I(order, x)`, for order 0 or 1.
pub(super) fn scaled_i(order: i32, x: f64) -> f64 {
    let size = x.abs();
    let sign = if order == 1 && x.is_sign_negative() { -1.0 } else { 1.0 };
    let order = f64::from(order);
    if size <= 20.0 {
        let quarter = 0.25 * x * x;
        let (mut term, mut sum, mut k) = (1.0, 1.0, 1.0);
        while term > f64::EPSILON * 0.1 * sum {
            term *= quarter / (k * (k + order));
            sum += term;
            k += 1.0;
        }
        let lead = if order == 0.0 { 1.0 } else { 0.5 * size };
        return sign * lead * libm::exp(-size) * sum;
    }
    let (mut term, mut sum, mut k) = (1.0f64, 1.0f64, 1.0);
    while term.abs() > f64::EPSILON * 0.1 * sum.abs() && k < 40.0 {
        let odd = 2.0 * k - 1.0;
        term *= -(4.0 * order - odd * odd) / (8.0 * k * size);
        sum += term;
        k += 1.0;
    }
    sign * sum / (2.0 * PI * size).sqrt()
}

/// `I(order, x)`, for order 0 or 1. As in PyTorch, it is NaN at the infinities.
pub(super) fn i(order: i32, x: f64) -> f64 {
    let root = libm::exp(0.5 * x.abs());
    root * (scaled_i(order, x) * root)
}

/// `exp(x) K(order, x)`, for order 0 or 1: infinite at 0, NaN for negative `x`.
pub(super) fn scaled_k(order: i32, x: f64) -> f64 {
    if x < 0.0 || x.is_nan() {
        f64::NAN
    } else if x == 0.0 {
        f64::INFINITY
    } else if x < 2.0 {
        libm::exp(x) * small_k(order, x)
    } else {
        let (k0, k1) = fraction_k(0.0, x);
        if order == 0 { k0 } else { k1 }
    }
}

/// `K(order, x)`, for order 0 or 1: infinite at 0, NaN for negative `x`.
pub(super) fn k(order: i32, x: f64) -> f64 {
    if (0.0..2.0).contains(&x) && x != 0.0 {
        small_k(order, x)
    } else {
        scaled_k(order, x) * libm::exp(-x)
    }
}

/// `K` by its ascending series, for `0 < x < 2`.
fn small_k(order: i32, x: f64) -> f64 {
    let (quarter, log) = (0.25 * x * x, libm::log(0.5 * x));
    // `term` is (x/2)^2k / (k! (k + order)!), `psi` is psi(k + 1) + psi(k + order + 1).
    let o = f64::from(order);
    let (mut term, mut psi, mut sum, mut k) = (1.0, o - 2.0 * EULER_GAMMA, 0.0, 0.0);
    while term > f64::EPSILON * 1e-3 {
        sum += term * (0.5 * psi - log);
        k += 1.0;
        term *= quarter / (k * (k + o));
        psi += 1.0 / k + 1.0 / (k + o);
    }
    if order == 0 { sum } else { 1.0 / x - 0.5 * x * sum }
}

/// `exp(x) K(nu, x)` and `exp(x) K(nu + 1, x)` by Steed's continued fraction with Temme's sum, for
/// `|nu| <= 1/2`. Convergence is slow for `x` far below 2.
fn fraction_k(nu: f64, x: f64) -> (f64, f64) {
    if x.is_infinite() {
        return (0.0, 0.0);
    }
    let first = 0.25 - nu * nu;
    let mut b = 2.0 * (1.0 + x);
    let mut d = 1.0 / b;
    let (mut step, mut h) = (d, d);
    let (mut q1, mut q2, mut q, mut c, mut a) = (0.0, 1.0, first, first, -first);
    let mut sum = 1.0 + q * step;
    for i in 2..10_000 {
        let i = f64::from(i);
        a -= 2.0 * (i - 1.0);
        c = -a * c / i;
        let next = (q1 - b * q2) / a;
        (q1, q2) = (q2, next);
        q += c * next;
        b += 2.0;
        d = 1.0 / (b + a * d);
        step *= b * d - 1.0;
        h += step;
        let term = q * step;
        sum += term;
        if (term / sum).abs() < f64::EPSILON * 0.5 {
            break;
        }
    }
    let k = (PI / (2.0 * x)).sqrt() / sum;
    (k, k * (nu + x + 0.5 - first * h) / x)
}

/// The Airy function Ai. As in PyTorch, it is NaN at the infinities.
pub(super) fn airy_ai(x: f64) -> f64 {
    if !x.is_finite() {
        f64::NAN
    } else if x > 103.892 {
        0.0
    } else if x > 2.0 {
        let arg = 2.0 / 3.0 * x * x.sqrt();
        (x / 3.0).sqrt() / PI * fraction_k(1.0 / 3.0, arg).0 * libm::exp(-arg)
    } else if x >= -10.0 {
        airy_by_steps(x)
    } else {
        airy_far_left(-x)
    }
}

/// Solves `y'' = x y` with the values of Ai at 0, by Taylor series in steps of at most 1/2.
fn airy_by_steps(x: f64) -> f64 {
    const TERMS: usize = 26;
    let (mut at, mut y, mut slope) = (0.0, 0.355_028_053_887_817_2, -0.258_819_403_792_806_8);
    let steps = (2.0 * x.abs()).ceil();
    let h = if steps > 0.0 { x / steps } else { 0.0 };
    for _ in 0..steps as u32 {
        // (n + 1)(n + 2) c[n + 2] = at c[n] + c[n - 1], where each coefficient is multiplied by
        // h^n.
        let (mut before, mut c0, mut c1) = (0.0, y, slope * h);
        let (mut value, mut derivative) = (c0 + c1, c1);
        for n in 0..TERMS {
            let n = n as f64;
            let next = (at * c0 * h * h + before * h * h * h) / ((n + 1.0) * (n + 2.0));
            (before, c0, c1) = (c0, c1, next);
            value += next;
            derivative += next * (n + 2.0);
        }
        (y, slope, at) = (value, derivative / h, at + h);
    }
    y
}

/// `Ai(-z)` by its asymptotic series.
fn airy_far_left(z: f64) -> f64 {
    let arg = 2.0 / 3.0 * z * z.sqrt();
    let (mut even, mut odd, mut u) = (0.0, 0.0, 1.0f64);
    for k in 0..24 {
        let sign = if k / 2 % 2 == 0 { 1.0 } else { -1.0 };
        *(if k % 2 == 0 { &mut even } else { &mut odd }) += sign * u;
        let k = f64::from(k + 1);
        u *= (6.0 * k - 5.0) * (6.0 * k - 3.0) * (6.0 * k - 1.0)
            / (216.0 * k * (2.0 * k - 1.0) * arg);
        if u < f64::EPSILON * 0.1 {
            break;
        }
    }
    let phase = arg - FRAC_PI_4;
    0.5 * FRAC_2_SQRT_PI / z.sqrt().sqrt() * (libm::cos(phase) * even + libm::sin(phase) * odd)
}
