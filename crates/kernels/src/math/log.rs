//! The natural logarithm: `x = 2^e m` with m in [sqrt(1/2), sqrt(2)), and `log m = 2
//! atanh((m-1)/(m+1))` by its series.

macro_rules! logarithm {
    (
        $t:ident, $bits:ident, $int:ident, mantissa $m:literal, sqrt_half $half:expr,
        up $up:expr, $up_log:literal, ln2 $hi:expr, $lo:expr, [$($c:expr),*]
    ) => {
        pub(crate) mod $t {
            /// 2/(2k+1) from the highest, down to 2/3.
            const SERIES: &[$t] = &[$($c),*];

            #[inline(always)]
            pub(crate) fn log(x: $t) -> $t {
                let tiny = x < $t::MIN_POSITIVE;
                let y = if tiny { x * $up } else { x };
                // The exponent of y / sqrt(1/2), so that m comes out on both sides of 1.
                let offset = $t::to_bits($half);
                let shifted = y.to_bits().wrapping_sub(offset);
                let e = (shifted as $int) >> $m;
                let m = $t::from_bits((shifted & ((1 << $m) - 1)).wrapping_add(offset));
                let ef = (e - if tiny { $up_log } else { 0 }) as $t;
                let f = m - 1.0;
                let s = f / (f + 2.0);
                let z = s * s;
                let mut p = SERIES[0];
                for c in &SERIES[1..] {
                    p = p.mul_add(z, *c);
                }
                let half = 0.5 * f * f;
                let value = ef.mul_add($hi, f - (half - ef.mul_add($lo, s * z.mul_add(p, half))));
                let value = if x == $t::INFINITY { x } else { value };
                let value = if x == 0.0 { $t::NEG_INFINITY } else { value };
                if x >= 0.0 { value } else { $t::NAN }
            }
        }
    };
}

logarithm!(f32, u32, i32, mantissa 23, sqrt_half std::f32::consts::FRAC_1_SQRT_2,
    up 33_554_432.0, 25, ln2 0.693_145_75, 1.428_606_8e-6,
    [2.0 / 11.0, 2.0 / 9.0, 2.0 / 7.0, 2.0 / 5.0, 2.0 / 3.0]);

logarithm!(f64, u64, i64, mantissa 52, sqrt_half std::f64::consts::FRAC_1_SQRT_2,
    up 18_014_398_509_481_984.0, 54, ln2 0.693_147_180_369_123_8, 1.908_214_929_270_587_7e-10,
    [2.0 / 23.0, 2.0 / 21.0, 2.0 / 19.0, 2.0 / 17.0, 2.0 / 15.0, 2.0 / 13.0,
     2.0 / 11.0, 2.0 / 9.0, 2.0 / 7.0, 2.0 / 5.0, 2.0 / 3.0]);
