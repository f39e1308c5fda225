//! Sine and cosine of `f32`, computed in `f64`: argument reduction by pi/2 in two fused steps (Cody
//! and Waite), then the Taylor series.

use std::f64::consts::{FRAC_2_PI, FRAC_PI_2};

/// pi/2 minus its nearest `f64`.
const PIO2_LO: f64 = 6.123_233_995_736_766e-17;
/// Adding this rounds to an integer, which is then in the low bits.
const MAGIC: f64 = 6_755_399_441_055_744.0;

/// The quadrant, and the remainder in [-pi/4, pi/4], for |x| up to [`LIMIT`].
#[inline(always)]
fn reduce(x: f32) -> (u64, f64) {
    let x = f64::from(x);
    let shifted = x.mul_add(FRAC_2_PI, MAGIC);
    let n = shifted - MAGIC;
    (shifted.to_bits(), n.mul_add(-PIO2_LO, n.mul_add(-FRAC_PI_2, x)))
}

/// For larger arguments the quadrant does not fit in the mantissa, so rounding by `MAGIC` fails.
const LIMIT: f32 = 1.0e14;

pub(super) mod is_slow {
    #[inline(always)]
    pub(crate) fn f32(x: f32) -> bool {
        x.abs() > super::LIMIT
    }
    #[inline(always)]
    pub(crate) fn f64(_: f64) -> bool {
        false
    }
}

/// `sin(r + quadrant pi/2)`.
#[inline(always)]
fn quadrant(q: u64, r: f64) -> f32 {
    let z = r * r;
    let sin =
        z.mul_add(z.mul_add(z.mul_add(1.0 / 362_880.0, -1.0 / 5040.0), 1.0 / 120.0), -1.0 / 6.0);
    let sin = r.mul_add(z * sin, r);
    let cos = z.mul_add(z.mul_add(-1.0 / 3_628_800.0, 1.0 / 40320.0), -1.0 / 720.0);
    let cos = z.mul_add(z.mul_add(z.mul_add(cos, 1.0 / 24.0), -0.5), 1.0);
    let value = if q & 1 == 0 { sin } else { cos };
    (if q & 2 == 0 { value } else { -value }) as f32
}

#[inline(always)]
pub(super) fn sin_f32(x: f32) -> f32 {
    let (q, r) = reduce(x);
    // The sum in the reduction loses the sign of zero.
    if x == 0.0 { x } else { quadrant(q, r) }
}

#[inline(always)]
pub(super) fn cos_f32(x: f32) -> f32 {
    let (q, r) = reduce(x);
    quadrant(q.wrapping_add(1), r)
}
