//! Orthogonal polynomials, of a degree that is a number of its own for each element.
//!
//! The degree is rounded toward zero; a negative one, or one that is no number, gives 0. Each step is rounded to the operands' precision,
//! so that recurrences overflow where PyTorch's do.

use super::elementwise::round_to;
use maquette_ir::DType;

/// A polynomial of a point and a whole degree, in the precision of a dtype.
pub(super) type Polynomial = fn(f64, i64, DType) -> f64;

/// The polynomial of degree `n`, a float, at `x`.
pub(super) fn at(p: Polynomial, x: f64, n: f64, dtype: DType) -> f64 {
    // as a conversion to i64 that has no value beyond its range
    if n.is_nan() || n.abs() >= 9.2e18 || n <= -1.0 { 0.0 } else { p(x, n as i64, dtype) }
}

/// `p[0] = 1`, `p[1] = first`, `p[k + 1] = step(k, p[k], p[k - 1])`, until `n` or NaN.
fn recur(n: i64, first: f64, dtype: DType, step: impl Fn(f64, f64, f64) -> f64) -> f64 {
    if n == 0 {
        return 1.0;
    }
    let round = round_to(dtype);
    let (mut before, mut p) = (1.0, first);
    for k in 1..n {
        if p.is_nan() {
            break;
        }
        (before, p) = (p, round(step(k as f64, p, before)));
    }
    p
}

fn parity(n: i64) -> f64 {
    if n % 2 == 0 { 1.0 } else { -1.0 }
}

/// What the Chebyshev polynomials share: values at 1 and -1, a trigonometric form inside for high degrees, and one recurrence.
fn chebyshev(x: f64, n: i64, dtype: DType, ends: (f64, f64), high: i64, inside: impl Fn(f64, f64) -> f64, first: f64) -> f64 {
    if x == 1.0 {
        ends.0
    } else if x == -1.0 {
        ends.1
    } else if n > high && x.abs() < 1.0 {
        inside(libm::acos(x), n as f64)
    } else {
        recur(n, first, dtype, |_, p, before| 2.0 * x * p - before)
    }
}

/// First kind.
pub(super) fn chebyshev_t(x: f64, n: i64, dtype: DType) -> f64 {
    chebyshev(x, n, dtype, (1.0, parity(n)), 6, |angle, n| libm::cos(n * angle), x)
}

/// Second kind.
pub(super) fn chebyshev_u(x: f64, n: i64, dtype: DType) -> f64 {
    let end = n as f64 + 1.0;
    chebyshev(x, n, dtype, (end, parity(n) * end), 8, |angle, n| libm::sin((n + 1.0) * angle) / libm::sin(angle), 2.0 * x)
}

/// Third kind.
pub(super) fn chebyshev_v(x: f64, n: i64, dtype: DType) -> f64 {
    let end = 2.0 * n as f64 + 1.0;
    let inside = |angle: f64, n: f64| libm::cos((n + 0.5) * angle) / libm::cos(0.5 * angle);
    chebyshev(x, n, dtype, (1.0, parity(n) * end), 8, inside, 2.0 * x - 1.0)
}

/// Fourth kind.
pub(super) fn chebyshev_w(x: f64, n: i64, dtype: DType) -> f64 {
    let end = 2.0 * n as f64 + 1.0;
    let inside = |angle: f64, n: f64| libm::sin((n + 0.5) * angle) / libm::sin(0.5 * angle);
    chebyshev(x, n, dtype, (end, parity(n)), 8, inside, 2.0 * x + 1.0)
}

/// The first kind on [0, 1].
pub(super) fn shifted_chebyshev_t(x: f64, n: i64, dtype: DType) -> f64 {
    chebyshev_t(x + x - 1.0, n, dtype)
}

/// The second kind on [0, 1].
pub(super) fn shifted_chebyshev_u(x: f64, n: i64, dtype: DType) -> f64 {
    chebyshev_u(x + x - 1.0, n, dtype)
}

/// The third kind on [0, 1].
pub(super) fn shifted_chebyshev_v(x: f64, n: i64, dtype: DType) -> f64 {
    chebyshev_v(x + x - 1.0, n, dtype)
}

/// The fourth kind on [0, 1].
pub(super) fn shifted_chebyshev_w(x: f64, n: i64, dtype: DType) -> f64 {
    chebyshev_w(x + x - 1.0, n, dtype)
}

/// The degree above which PyTorch gives NaN for Hermite polynomials, which grow as factorials.
fn highest_hermite(dtype: DType) -> i64 {
    if dtype == DType::F64 { 512 } else { 128 }
}

/// Hermite's, as physicists write them.
pub(super) fn hermite_h(x: f64, n: i64, dtype: DType) -> f64 {
    if n > highest_hermite(dtype) {
        return f64::NAN;
    }
    recur(n, 2.0 * x, dtype, |k, p, before| 2.0 * x * p - 2.0 * k * before)
}

/// Hermite's, as probabilists write them.
pub(super) fn hermite_he(x: f64, n: i64, dtype: DType) -> f64 {
    if n > highest_hermite(dtype) {
        return f64::NAN;
    }
    recur(n, x, dtype, |k, p, before| x * p - k * before)
}

/// Laguerre's.
pub(super) fn laguerre_l(x: f64, n: i64, dtype: DType) -> f64 {
    if x == 0.0 {
        return 1.0;
    }
    recur(n, 1.0 - x, dtype, |k, p, before| ((2.0 * k + 1.0 - x) * p - k * before) / (k + 1.0))
}

/// Legendre's.
pub(super) fn legendre_p(x: f64, n: i64, dtype: DType) -> f64 {
    if x == 1.0 {
        1.0
    } else if x == -1.0 {
        parity(n)
    } else {
        recur(n, x, dtype, |k, p, before| ((2.0 * k + 1.0) * x * p - k * before) / (k + 1.0))
    }
}
