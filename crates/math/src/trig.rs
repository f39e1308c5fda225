//! Sine and cosine of `f32`, computed in `f64`: argument reduction by pi/2 in two fused steps (Cody
//! and Waite), then the Taylor series.

use crate::algebra::{Bits, Double, Real, Single};
use crate::polynomial::polynomial;
use std::f64::consts::{FRAC_2_PI, FRAC_PI_2};

/// pi/2 minus its nearest `f64`.
const PIO2_LO: f64 = 6.123_233_995_736_766e-17;
/// Adding this rounds to an integer, which is then in the low bits.
const MAGIC: f64 = 6_755_399_441_055_744.0;
/// For larger arguments the quadrant does not fit in the mantissa, so rounding by `MAGIC` fails.
const LIMIT: f32 = 1.0e14;

/// The quadrant, and the remainder in [-pi/4, pi/4], for |x| up to [`LIMIT`].
#[inline(always)]
fn reduce<D: Double>(x: D) -> (D::Bits, D) {
    let magic = D::constant(MAGIC);
    let shifted = x.mul_add(D::constant(FRAC_2_PI), magic);
    let n = shifted - magic;
    let [high, low] = [-FRAC_PI_2, -PIO2_LO].map(D::constant);
    (shifted.to_bits(), n.mul_add(low, n.mul_add(high, x)))
}

/// Whether the argument is beyond 1e14 in magnitude, where the fast sine and cosine are inaccurate.
#[inline(always)]
pub fn is_slow<S: Single>(x: S) -> S::Flag {
    S::constant(LIMIT).lt(x.abs())
}

/// `sin(r + quadrant pi/2)`.
#[inline(always)]
fn quadrant<D: Double>(q: D::Bits, r: D) -> D::Narrow {
    const SIN: [f64; 4] = [1.0 / 362_880.0, -1.0 / 5040.0, 1.0 / 120.0, -1.0 / 6.0];
    const COS: [f64; 6] = [-1.0 / 3_628_800.0, 1.0 / 40320.0, -1.0 / 720.0, 1.0 / 24.0, -0.5, 1.0];
    let z = r * r;
    let sin = r.mul_add(z * polynomial(&SIN, z), r);
    let cos = polynomial(&COS, z);
    let is_set = |bit| !(q & D::Bits::constant(bit)).is_zero();
    let value = D::select(is_set(1), cos, sin);
    D::select(is_set(2), -value, value).narrow()
}

/// The sine of an argument that is not [slow](is_slow).
#[inline(always)]
pub fn sin<S: Single>(x: S) -> S {
    let (q, r) = reduce(x.widen());
    // The sum in the reduction loses the sign of zero.
    S::select(x.eq(S::constant(0.0)), x, quadrant(q, r))
}

/// The cosine of an argument that is not [slow](is_slow).
#[inline(always)]
pub fn cos<S: Single>(x: S) -> S {
    let (q, r) = reduce(x.widen());
    quadrant(q + <S::Wide as Real>::Bits::constant(1), r)
}
