//! The error function of `f32`: near 0 a polynomial in x^2, beyond it `1 - e^-q(|x|)`.

use crate::algebra::Single;
use crate::exp::exp_normal;
use crate::polynomial::polynomial;

/// The coefficients of the polynomial for |x| < 1, from the highest.
pub const NEAR: [f32; 7] = [
    7.875_875e-5,
    -8.016_864_5e-4,
    5.189_087_5e-3,
    -2.685_421_2e-2,
    1.128_359_5e-1,
    -3.761_262_7e-1,
    1.283_791_7e-1,
];
/// The coefficients of q, from the highest.
pub const FAR: [f32; 9] = [
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
pub const LAST: f32 = 4.0;

/// The error function.
#[inline(always)]
pub fn erf<S: Single>(x: S) -> S {
    let (one, last) = (S::constant(1.0), S::constant(LAST));
    let a = x.abs();
    let near = x.mul_add(polynomial(&NEAR, x * x), x);
    let q = polynomial(&FAR, S::select(last.lt(a), last, a));
    let far = (one - exp_normal(-q)).copysign(x);
    S::select(a.lt(one), near, far)
}
