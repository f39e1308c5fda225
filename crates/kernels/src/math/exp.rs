//! Exponentials: `e^x = 2^n e^r` with `|r| <= ln 2 / 2`, and `e^r` by its Taylor series, long enough for the type.

macro_rules! exponential {
    ($t:ident, $bits:ident, $int:ident, mantissa $m:literal, bias $bias:literal, magic $magic:expr,
     ln2 $hi:expr, $lo:expr, clamp $min:literal, $max:literal, one $big:literal, [$($c:expr),*]) => {
        pub(crate) mod $t {
            /// 1/k! from the highest, down to 1/2!.
            const SERIES: &[$t] = &[$($c),*];
            /// Adding this rounds to an integer, which is then in the low bits.
            const MAGIC: $t = $magic;

            /// `(n, r)`, n also as a float.
            #[inline(always)]
            fn reduce(x: $t) -> ($int, $t, $t) {
                let shifted = x.mul_add(std::$t::consts::LOG2_E, MAGIC);
                let n = (shifted.to_bits() as $int).wrapping_sub(MAGIC.to_bits() as $int);
                let nf = shifted - MAGIC;
                let r = nf.mul_add(-$lo, nf.mul_add(-$hi, x));
                (n, nf, r)
            }

            /// `(e^r - 1 - r) / r^2`.
            #[inline(always)]
            fn tail(r: $t) -> $t {
                let mut p = SERIES[0];
                for c in &SERIES[1..] {
                    p = p.mul_add(r, *c);
                }
                p
            }

            /// 2^n for a normal result.
            #[inline(always)]
            fn pow2i(n: $int) -> $t {
                $t::from_bits((n.wrapping_add($bias) as $bits) << $m)
            }

            /// 2^n y, in two steps so that results may be subnormal.
            #[inline(always)]
            fn scale(y: $t, n: $int) -> $t {
                let half = n >> 1;
                y * pow2i(half) * pow2i(n.wrapping_sub(half))
            }

            /// Comparisons so arranged that a NaN passes through.
            #[inline(always)]
            fn clamp(x: $t) -> $t {
                let x = if x < $min { $min } else { x };
                if x > $max { $max } else { x }
            }

            #[inline(always)]
            pub(crate) fn exp(x: $t) -> $t {
                let (n, _, r) = reduce(clamp(x));
                scale(1.0 + (r * r).mul_add(tail(r), r), n)
            }

            #[inline(always)]
            #[allow(dead_code)] // f64's exp2 is used for both
            pub(crate) fn exp2(x: $t) -> $t {
                let x = if x < -1100.0 { -1100.0 } else { x };
                let x = if x > 1100.0 { 1100.0 } else { x };
                let shifted = x + MAGIC;
                let n = (shifted.to_bits() as $int).wrapping_sub(MAGIC.to_bits() as $int);
                let r = (x - (shifted - MAGIC)) * std::$t::consts::LN_2;
                scale(1.0 + (r * r).mul_add(tail(r), r), n)
            }

            /// `t / (t + 2)` with `t = e^{2|x|} - 1`, which is computed without cancellation.
            #[inline(always)]
            pub(crate) fn tanh(x: $t) -> $t {
                let a = 2.0 * x.abs();
                let a = if a > $big { $big } else { a };
                let (n, _, r) = reduce(a);
                let p = (r * r).mul_add(tail(r), r);
                let s = pow2i(n);
                let t = s.mul_add(p, s - 1.0);
                (t / (t + 2.0)).copysign(x)
            }
        }
    };
}

exponential!(f32, u32, i32, mantissa 23, bias 127, magic 12_582_912.0,
    ln2 0.693_145_75, 1.428_606_8e-6, clamp -110.0, 100.0, one 20.0,
    [1.0 / 5040.0, 1.0 / 720.0, 1.0 / 120.0, 1.0 / 24.0, 1.0 / 6.0, 0.5]);

exponential!(f64, u64, i64, mantissa 52, bias 1023, magic 6_755_399_441_055_744.0,
    ln2 0.693_147_180_369_123_8, 1.908_214_929_270_587_7e-10, clamp -760.0, 720.0, one 44.0,
    [1.0 / 6_227_020_800.0, 1.0 / 479_001_600.0, 1.0 / 39_916_800.0, 1.0 / 3_628_800.0, 1.0 / 362_880.0, 1.0 / 40320.0,
     1.0 / 5040.0, 1.0 / 720.0, 1.0 / 120.0, 1.0 / 24.0, 1.0 / 6.0, 0.5]);
