//! Exponentials by argument reduction: `e^x = 2^n e^r` with `|r| <= ln 2 / 2`. `e^r` is a
//! polynomial: a minimax polynomial in `f32` (0.07 ULP), the Taylor series in `f64`.

use crate::algebra::{Bits, Double, Number, Real, Single};
use crate::polynomial::polynomial;

/// The constants of the exponential for a float format.
pub trait Constants: Sized + 'static {
    /// The polynomial `(e^r - 1 - r) / r^2`, from the highest coefficient.
    const SERIES: &'static [Self];
    /// `1 / ln 2`.
    const LOG2_E: Self;
    /// `ln 2` in two parts (Cody and Waite), so that the reduction is accurate.
    const LN_2: [Self; 2];
    /// The arguments beyond which results are 0 or infinite.
    const RANGE: [Self; 2];
    /// The bias of exponents.
    const BIAS: u64;
    /// Adding this rounds to an integer `n`, which is then in the low bits, with twice the bias of
    /// exponents. A shift to the place of the exponent drops the bits above.
    const MAGIC: Self;
}

impl Constants for f32 {
    const SERIES: &'static [f32] =
        &[1.381_430_9e-3, 8.368_856e-3, 4.166_84e-2, 1.666_652e-1, 4.999_999_4e-1];
    const LOG2_E: f32 = std::f32::consts::LOG2_E;
    const LN_2: [f32; 2] = [0.693_145_75, 1.428_606_8e-6];
    const RANGE: [f32; 2] = [-176.0, 100.0];
    const BIAS: u64 = 127;
    const MAGIC: f32 = 12_582_912.0 + 2.0 * 127.0;
}

impl Constants for f64 {
    const SERIES: &'static [f64] = &[
        1.0 / 6_227_020_800.0,
        1.0 / 479_001_600.0,
        1.0 / 39_916_800.0,
        1.0 / 3_628_800.0,
        1.0 / 362_880.0,
        1.0 / 40320.0,
        1.0 / 5040.0,
        1.0 / 720.0,
        1.0 / 120.0,
        1.0 / 24.0,
        1.0 / 6.0,
        0.5,
    ];
    const LOG2_E: f64 = std::f64::consts::LOG2_E;
    const LN_2: [f64; 2] = [0.693_147_180_369_123_8, 1.908_214_929_270_587_7e-10];
    const RANGE: [f64; 2] = [-1418.0, 720.0];
    const BIAS: u64 = 1023;
    const MAGIC: f64 = 6_755_399_441_055_744.0 + 2.0 * 1023.0;
}

/// Reduces `x` to `(n, r)`, with `n` as [`Constants::MAGIC`] gives it.
#[inline(always)]
fn reduce<F: Real>(x: F) -> (F::Bits, F) {
    let magic = F::constant(F::Number::MAGIC);
    let shifted = x.mul_add(F::constant(F::Number::LOG2_E), magic);
    let n = shifted - magic;
    let [high, low] = F::Number::LN_2.map(|part| -F::constant(part));
    (shifted.to_bits(), n.mul_add(low, n.mul_add(high, x)))
}

/// `(e^r - 1 - r) / r^2`.
#[inline(always)]
fn tail<F: Real>(r: F) -> F {
    polynomial(F::Number::SERIES, r)
}

/// `e^r`.
#[inline(always)]
fn of_remainder<F: Real>(r: F) -> F {
    let one = F::constant(F::Number::ONE);
    tail(r).mul_add(r, one).mul_add(r, one)
}

/// `e^r - 1`.
#[inline(always)]
fn of_remainder_minus_1<F: Real>(r: F) -> F {
    (r * r).mul_add(tail(r), r)
}

/// 2^n for a normal result, of `n` as [`Constants::MAGIC`] gives it.
#[inline(always)]
fn pow2i<F: Real>(n: F::Bits) -> F {
    F::from_bits((n - F::Bits::constant(F::Number::BIAS)).shl(F::Number::FRACTION))
}

/// 2^n y, of `n` as [`Constants::MAGIC`] gives it, in two steps so that results may be subnormal.
#[inline(always)]
fn scale<F: Real>(y: F, n: F::Bits) -> F {
    let half = n.sar(1);
    let rest = n - half;
    y * F::from_bits(half.shl(F::Number::FRACTION)) * F::from_bits(rest.shl(F::Number::FRACTION))
}

/// Clamps `x`. The order of the comparisons lets a NaN pass through.
#[inline(always)]
fn clamp<F: Real>(x: F, [least, greatest]: [F::Number; 2]) -> F {
    let [least, greatest] = [F::constant(least), F::constant(greatest)];
    let x = F::select(x.lt(least), least, x);
    F::select(greatest.lt(x), greatest, x)
}

/// `e^x`.
///
/// At the least number of the range, `n` is the least that `scale` takes, and its factors are 0.
/// A product by 0 is exact. A product that rounds to 0 takes more than a hundred cycles, and masks
/// hide many scores behind `-∞`.
#[inline(always)]
pub fn exp<F: Real>(x: F) -> F {
    let (n, r) = reduce(clamp(x, F::Number::RANGE));
    scale(of_remainder(r), n)
}

/// `2^x` in `f64`.
#[inline(always)]
pub(crate) fn exp2<D: Double>(x: D) -> D {
    let x = clamp(x, [-1100.0, 1100.0]);
    let magic = D::constant(f64::MAGIC);
    let shifted = x + magic;
    let r = (x - (shifted - magic)) * D::constant(std::f64::consts::LN_2);
    scale(D::constant(1.0) + of_remainder_minus_1(r), shifted.to_bits())
}

/// The exponential of an argument whose result is a normal number, or of NaN. The multiplication by
/// 2^n is then exact in one step, too.
#[inline(always)]
pub(crate) fn exp_normal<F: Real>(x: F) -> F {
    let (n, r) = reduce(x);
    of_remainder(r) * pow2i(n)
}

/// `1 / (1 + e^-x)`, computed from `e^-|x|`, which cannot overflow, so that small results are as
/// accurate as large ones.
#[inline(always)]
pub fn sigmoid<F: Real>(x: F) -> F {
    let one = F::constant(F::Number::ONE);
    let e = exp(-x.abs());
    F::select(x.lt(F::constant(F::Number::ZERO)), e, one) / (one + e)
}

/// The hyperbolic tangent in `f32`: near 0 a polynomial in x^2; beyond, `1 - 2 / (e^{2|x|} + 1)`,
/// whose quotient is too small for its error to matter.
#[inline(always)]
pub fn tanh_single<S: Single>(x: S) -> S {
    const NEAR: [f32; 5] =
        [-5.717_043e-3, 2.065_058_6e-2, -5.374_349_7e-2, 1.333_149_1e-1, -3.333_328_4e-1];
    let (one, two) = (S::constant(1.0), S::constant(2.0));
    let a = x.abs();
    let z = x * x;
    let near = (a * z).mul_add(polynomial(&NEAR, z), a);
    let twice = S::select(S::constant(10.0).lt(a), S::constant(20.0), two * a);
    let (n, r) = reduce(twice);
    let s: S = pow2i(n);
    let e = s.mul_add(of_remainder_minus_1(r), s + one);
    S::select(a.lt(S::constant(0.625)), near, one - two / e).copysign(x)
}

/// The hyperbolic tangent in `f64`: `t / (t + 2)` with `t = e^{2|x|} - 1`, which is computed
/// without cancellation.
#[inline(always)]
pub fn tanh_double<D: Double>(x: D) -> D {
    let two = D::constant(2.0);
    let twice = two * x.abs();
    let greatest = D::constant(44.0);
    let (n, r) = reduce(D::select(greatest.lt(twice), greatest, twice));
    let s: D = pow2i(n);
    let t = s.mul_add(of_remainder_minus_1(r), s - D::constant(1.0));
    (t / (t + two)).copysign(x)
}
