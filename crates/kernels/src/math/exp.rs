//! Exponentials by argument reduction: `e^x = 2^n e^r` with `|r| <= ln 2 / 2`. `e^r` is a
//! polynomial: a minimax polynomial in `f32` (0.07 ULP), the Taylor series in `f64`.

macro_rules! exponential {
    ($t:ident, $bits:ident, $int:ident, mantissa $m:literal, bias $bias:literal, magic $magic:expr,
     ln2 $hi:expr, $lo:expr, clamp $min:literal, $max:literal, [$($c:expr),*]) => {
        pub(crate) mod $t {
            /// The polynomial of `tail`, from the highest coefficient.
            pub(in crate::math) const SERIES: &[$t] = &[$($c),*];
            /// `ln 2` in two parts (Cody and Waite), so that the reduction is accurate.
            pub(in crate::math) const LN_2: [$t; 2] = [$hi, $lo];
            /// The arguments beyond which results are 0 or infinite.
            pub(in crate::math) const RANGE: [$t; 2] = [$min, $max];
            /// Adding this rounds to an integer `n`, which is then in the low bits, with twice the
            /// bias of exponents. The bits above are 0 in all that shifts leave of them.
            pub(in crate::math) const MAGIC: $t = $magic + 2.0 * $bias as $t;

            /// Reduces `x` to `(n, n as a float, r)`, with `n` as [`MAGIC`] gives it.
            #[inline(always)]
            pub(super) fn reduce(x: $t) -> ($int, $t, $t) {
                let shifted = x.mul_add(std::$t::consts::LOG2_E, MAGIC);
                let nf = shifted - MAGIC;
                let r = nf.mul_add(-LN_2[1], nf.mul_add(-LN_2[0], x));
                (shifted.to_bits() as $int, nf, r)
            }

            /// `(e^r - 1 - r) / r^2`.
            #[inline(always)]
            pub(super) fn tail(r: $t) -> $t {
                let mut p = SERIES[0];
                for c in &SERIES[1..] {
                    p = p.mul_add(r, *c);
                }
                p
            }

            /// 2^n for a normal result, of `n` as [`MAGIC`] gives it.
            #[inline(always)]
            pub(super) fn pow2i(n: $int) -> $t {
                $t::from_bits((n.wrapping_sub($bias) as $bits) << $m)
            }

            /// 2^n y, of `n` as [`MAGIC`] gives it, in two steps so that results may be subnormal.
            #[inline(always)]
            pub(super) fn scale(y: $t, n: $int) -> $t {
                let half = n >> 1;
                let rest = n.wrapping_sub(half);
                y * $t::from_bits((half as $bits) << $m) * $t::from_bits((rest as $bits) << $m)
            }

            /// Clamps `x`. The order of the comparisons lets a NaN pass through.
            ///
            /// At the least number, `n` is the least that [`scale`] takes, and its factors are 0. A
            /// product by 0 is exact. A product that rounds to 0 takes more than a hundred cycles,
            /// and masks hide many scores behind `-∞`.
            #[inline(always)]
            fn clamp(x: $t) -> $t {
                let x = if x < RANGE[0] { RANGE[0] } else { x };
                if x > RANGE[1] { RANGE[1] } else { x }
            }

            #[inline(always)]
            pub(crate) fn exp(x: $t) -> $t {
                let (n, _, r) = reduce(clamp(x));
                scale(tail(r).mul_add(r, 1.0).mul_add(r, 1.0), n)
            }
        }
    };
}

exponential!(f32, u32, i32, mantissa 23, bias 127, magic 12_582_912.0,
    ln2 0.693_145_75, 1.428_606_8e-6, clamp -176.0, 100.0,
    [1.381_430_9e-3, 8.368_856e-3, 4.166_84e-2, 1.666_652e-1, 4.999_999_4e-1]);

exponential!(f64, u64, i64, mantissa 52, bias 1023, magic 6_755_399_441_055_744.0,
    ln2 0.693_147_180_369_123_8, 1.908_214_929_270_587_7e-10, clamp -1418.0, 720.0,
    [1.0 / 6_227_020_800.0, 1.0 / 479_001_600.0, 1.0 / 39_916_800.0, 1.0 / 3_628_800.0,
     1.0 / 362_880.0, 1.0 / 40320.0, 1.0 / 5040.0, 1.0 / 720.0, 1.0 / 120.0, 1.0 / 24.0,
     1.0 / 6.0, 0.5]);

#[inline(always)]
pub(super) fn exp2_f64(x: f64) -> f64 {
    let x = if x < -1100.0 { -1100.0 } else { x };
    let x = if x > 1100.0 { 1100.0 } else { x };
    let shifted = x + f64::MAGIC;
    let r = (x - (shifted - f64::MAGIC)) * std::f64::consts::LN_2;
    f64::scale(1.0 + (r * r).mul_add(f64::tail(r), r), shifted.to_bits() as i64)
}

/// The exponential of an argument whose result is a normal number, or of NaN. The multiplication by
/// 2^n is then exact in one step, too.
#[inline(always)]
pub(super) fn exp_normal_f32(x: f32) -> f32 {
    let (n, _, r) = f32::reduce(x);
    f32::tail(r).mul_add(r, 1.0).mul_add(r, 1.0) * f32::pow2i(n)
}

/// Near 0 a polynomial in x^2; beyond, `1 - 2 / (e^{2|x|} + 1)`, whose quotient is too small for
/// its error to matter.
#[inline(always)]
pub(super) fn tanh_f32(x: f32) -> f32 {
    const NEAR: [f32; 5] =
        [-5.717_043e-3, 2.065_058_6e-2, -5.374_349_7e-2, 1.333_149_1e-1, -3.333_328_4e-1];
    let a = x.abs();
    let z = x * x;
    let mut p = NEAR[0];
    for c in &NEAR[1..] {
        p = p.mul_add(z, *c);
    }
    let near = (a * z).mul_add(p, a);
    let twice = if a > 10.0 { 20.0 } else { 2.0 * a };
    let (n, _, r) = f32::reduce(twice);
    let s = f32::pow2i(n);
    let e = s.mul_add((r * r).mul_add(f32::tail(r), r), s + 1.0);
    (if a < 0.625 { near } else { 1.0 - 2.0 / e }).copysign(x)
}

/// `t / (t + 2)` with `t = e^{2|x|} - 1`, which is computed without cancellation.
#[inline(always)]
pub(super) fn tanh_f64(x: f64) -> f64 {
    let a = 2.0 * x.abs();
    let a = if a > 44.0 { 44.0 } else { a };
    let (n, _, r) = f64::reduce(a);
    let p = (r * r).mul_add(f64::tail(r), r);
    let s = f64::pow2i(n);
    let t = s.mul_add(p, s - 1.0);
    (t / (t + 2.0)).copysign(x)
}
