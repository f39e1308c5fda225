//! The natural logarithm: `x = 2^e m` with m in [sqrt(1/2), sqrt(2)), and `log m = 2
//! atanh((m-1)/(m+1))` by its series.

use crate::algebra::{Bits, Number, Real};
use crate::exp::Constants as _;
use crate::polynomial::polynomial;

/// The constants of the logarithm for a float format.
pub trait Constants: Sized + 'static {
    /// 2/(2k+1) from the highest, down to 2/3.
    const SERIES: &'static [Self];
    /// The least normal number.
    const LEAST_NORMAL: Self;
    /// A power of two that makes every subnormal number normal, and its exponent.
    const UP: (Self, u64);
    /// The bits of `sqrt(1/2)`.
    const SQRT_HALF: u64;
}

impl Constants for f32 {
    const SERIES: &'static [f32] = &[2.0 / 11.0, 2.0 / 9.0, 2.0 / 7.0, 2.0 / 5.0, 2.0 / 3.0];
    const LEAST_NORMAL: f32 = f32::MIN_POSITIVE;
    const UP: (f32, u64) = (33_554_432.0, 25);
    const SQRT_HALF: u64 = std::f32::consts::FRAC_1_SQRT_2.to_bits() as u64;
}

impl Constants for f64 {
    const SERIES: &'static [f64] = &[
        2.0 / 23.0,
        2.0 / 21.0,
        2.0 / 19.0,
        2.0 / 17.0,
        2.0 / 15.0,
        2.0 / 13.0,
        2.0 / 11.0,
        2.0 / 9.0,
        2.0 / 7.0,
        2.0 / 5.0,
        2.0 / 3.0,
    ];
    const LEAST_NORMAL: f64 = f64::MIN_POSITIVE;
    const UP: (f64, u64) = (18_014_398_509_481_984.0, 54);
    const SQRT_HALF: u64 = std::f64::consts::FRAC_1_SQRT_2.to_bits();
}

/// `log x`.
#[inline(always)]
pub fn log<F: Real>(x: F) -> F {
    let bits = F::Bits::constant;
    let [zero, one, half] = [F::Number::ZERO, F::Number::ONE, F::Number::HALF].map(F::constant);
    let (up, up_exponent) = F::Number::UP;
    let [ln_2, ln_2_rest] = F::Number::LN_2.map(F::constant);

    let tiny = x.lt(F::constant(F::Number::LEAST_NORMAL));
    let y = F::select(tiny, x * F::constant(up), x);
    // The exponent of y / sqrt(1/2), so that m comes out on both sides of 1.
    let offset = bits(F::Number::SQRT_HALF);
    let shifted = y.to_bits() - offset;
    let fraction = bits((1 << F::Number::FRACTION) - 1);
    let m = F::from_bits((shifted & fraction) + offset);
    let e = shifted.sar(F::Number::FRACTION);
    let e = F::from_signed(e - F::Bits::select(tiny, bits(up_exponent), bits(0)));
    let f = m - one;
    let s = f / (f + F::constant(F::Number::TWO));
    let z = s * s;
    let p = polynomial(<F::Number as Constants>::SERIES, z);
    let h = half * f * f;
    let value = e.mul_add(ln_2, f - (h - e.mul_add(ln_2_rest, s * z.mul_add(p, h))));
    let infinity = F::constant(F::Number::INFINITY);
    let value = F::select(x.eq(infinity), x, value);
    let value = F::select(x.eq(zero), F::constant(F::Number::MINUS_INFINITY), value);
    F::select(zero.le(x), value, F::constant(F::Number::NAN))
}
