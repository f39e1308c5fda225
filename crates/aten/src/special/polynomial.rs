//! Orthogonal polynomials, by their three-term recurrences. Each element has its own degree.
//!
//! The degree is rounded toward zero. A negative degree or NaN gives 0. The arithmetic is in the
//! operands' precision, with fused multiply-add as in PyTorch: the recurrences amplify rounding
//! errors, and must overflow where PyTorch's do. The cost is linear in the degree.

use maquette_ir::DType;
use std::ops::{Add, Div, Mul, Neg, Sub};

/// The precision of the computation: `f32` or `f64`.
pub(super) trait Real:
    Copy
    + PartialOrd
    + Add<Output = Self>
    + Sub<Output = Self>
    + Mul<Output = Self>
    + Div<Output = Self>
    + Neg<Output = Self>
{
    /// Rounds to this precision.
    fn of(x: f64) -> Self;
    /// Converts to `f64`, exactly.
    fn wide(self) -> f64;
    /// `self * a + b`, rounded once.
    fn times_plus(self, a: Self, b: Self) -> Self;
    /// Hermite polynomials of higher degrees give NaN, as in PyTorch.
    const HIGHEST_HERMITE: i64;
}

macro_rules! real {
    ($t:ty, $highest:literal) => {
        impl Real for $t {
            const HIGHEST_HERMITE: i64 = $highest;
            fn of(x: f64) -> $t {
                x as $t
            }
            fn wide(self) -> f64 {
                self.into()
            }
            fn times_plus(self, a: $t, b: $t) -> $t {
                self.mul_add(a, b)
            }
        }
    };
}
real!(f32, 128);
real!(f64, 512);

/// The polynomial of degree `n` at `x`, in the precision of the dtype.
pub(super) fn at(
    dtype: DType,
    x: f64,
    n: f64,
    narrow: fn(f32, i64) -> f32,
    wide: fn(f64, i64) -> f64,
) -> f64 {
    // Degrees outside the range of i64 give 0, as negative ones do.
    if n.is_nan() || n.abs() >= 9.2e18 || n <= -1.0 {
        0.0
    } else if dtype == DType::F64 {
        wide(x, n as i64)
    } else {
        narrow(x as f32, n as i64).wide()
    }
}

/// The recurrence `p[0] = 1`, `p[1] = first`, `p[k + 1] = step(k, p[k], p[k - 1])`, up to `n` or to
/// the first NaN.
fn recur<T: Real>(n: i64, first: T, step: impl Fn(T, T, T) -> T) -> T {
    let (mut before, mut p) = (T::of(1.0), first);
    if n == 0 {
        return before;
    }
    for k in 1..n {
        if p.wide().is_nan() {
            break;
        }
        (before, p) = (p, step(T::of(k as f64), p, before));
    }
    p
}

fn parity(n: i64) -> f64 {
    if n % 2 == 0 { 1.0 } else { -1.0 }
}

/// A family of Chebyshev polynomials. The families share a recurrence, and have closed forms: the
/// values at 1 and -1, and trigonometric functions of multiples of the angle inside, which are used
/// for degrees above `high`.
struct Chebyshev<T> {
    ends: (f64, f64),
    high: i64,
    inside: fn(f64) -> f64,
    /// The closed form is `inside((n + shift) angle) / inside(below angle)`. Without `below` the
    /// denominator is 1.
    shift: f64,
    below: Option<f64>,
    first: T,
}

impl<T: Real> Chebyshev<T> {
    fn at(self, x: T, n: i64) -> T {
        let one = T::of(1.0);
        if x == one {
            return T::of(self.ends.0);
        }
        if x == T::of(-1.0) {
            return T::of(self.ends.1);
        }
        if n > self.high && x.wide().abs() < 1.0 {
            let angle = T::of(libm::acos(x.wide()));
            let of_multiple = |m: f64| T::of((self.inside)((T::of(m) * angle).wide()));
            let above = of_multiple(n as f64 + self.shift);
            return self.below.map_or(above, |m| above / of_multiple(m));
        }
        recur(n, self.first, |_, p, before| (x + x).times_plus(p, -before))
    }
}

/// Chebyshev polynomials of the first kind.
pub(super) fn chebyshev_t<T: Real>(x: T, n: i64) -> T {
    Chebyshev {
        ends: (1.0, parity(n)),
        high: 6,
        inside: libm::cos,
        shift: 0.0,
        below: None,
        first: x,
    }
    .at(x, n)
}

/// Chebyshev polynomials of the second kind.
pub(super) fn chebyshev_u<T: Real>(x: T, n: i64) -> T {
    let end = n as f64 + 1.0;
    Chebyshev {
        ends: (end, parity(n) * end),
        high: 8,
        inside: libm::sin,
        shift: 1.0,
        below: Some(1.0),
        first: x + x,
    }
    .at(x, n)
}

/// Chebyshev polynomials of the third kind.
pub(super) fn chebyshev_v<T: Real>(x: T, n: i64) -> T {
    let end = 2.0 * n as f64 + 1.0;
    let first = x + x - T::of(1.0);
    Chebyshev {
        ends: (1.0, parity(n) * end),
        high: 8,
        inside: libm::cos,
        shift: 0.5,
        below: Some(0.5),
        first,
    }
    .at(x, n)
}

/// Chebyshev polynomials of the fourth kind.
pub(super) fn chebyshev_w<T: Real>(x: T, n: i64) -> T {
    let end = 2.0 * n as f64 + 1.0;
    let first = x + x + T::of(1.0);
    Chebyshev {
        ends: (end, parity(n)),
        high: 8,
        inside: libm::sin,
        shift: 0.5,
        below: Some(0.5),
        first,
    }
    .at(x, n)
}

/// Maps [0, 1] to [-1, 1].
fn shifted<T: Real>(x: T) -> T {
    x + x - T::of(1.0)
}

/// Shifted Chebyshev polynomials of the first kind, on [0, 1].
pub(super) fn shifted_chebyshev_t<T: Real>(x: T, n: i64) -> T {
    chebyshev_t(shifted(x), n)
}

/// Shifted Chebyshev polynomials of the second kind, on [0, 1].
pub(super) fn shifted_chebyshev_u<T: Real>(x: T, n: i64) -> T {
    chebyshev_u(shifted(x), n)
}

/// Shifted Chebyshev polynomials of the third kind, on [0, 1].
pub(super) fn shifted_chebyshev_v<T: Real>(x: T, n: i64) -> T {
    chebyshev_v(shifted(x), n)
}

/// Shifted Chebyshev polynomials of the fourth kind, on [0, 1].
pub(super) fn shifted_chebyshev_w<T: Real>(x: T, n: i64) -> T {
    chebyshev_w(shifted(x), n)
}

/// Physicists' Hermite polynomials.
pub(super) fn hermite_h<T: Real>(x: T, n: i64) -> T {
    if n > T::HIGHEST_HERMITE {
        return T::of(f64::NAN);
    }
    recur(n, x + x, |k, p, before| (x + x).times_plus(p, -((k + k) * before)))
}

/// Probabilists' Hermite polynomials.
pub(super) fn hermite_he<T: Real>(x: T, n: i64) -> T {
    if n > T::HIGHEST_HERMITE {
        return T::of(f64::NAN);
    }
    recur(n, x, |k, p, before| x.times_plus(p, -(k * before)))
}

/// Laguerre polynomials.
pub(super) fn laguerre_l<T: Real>(x: T, n: i64) -> T {
    let one = T::of(1.0);
    if x == T::of(0.0) {
        return one;
    }
    recur(n, one - x, |k, p, before| (k + k + (one - x)).times_plus(p, -(k * before)) / (k + one))
}

/// Legendre polynomials.
pub(super) fn legendre_p<T: Real>(x: T, n: i64) -> T {
    let one = T::of(1.0);
    if x == one {
        return one;
    }
    if x == T::of(-1.0) {
        return T::of(parity(n));
    }
    recur(n, x, |k, p, before| ((k + k + one) * x).times_plus(p, -(k * before)) / (k + one))
}
