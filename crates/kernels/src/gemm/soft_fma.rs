//! Fused multiply-add for the baseline of a target without such an instruction. The functions are
//! slow and have the bits of the instruction.

/// The fused multiply-add `a * b + c` of `f32`.
///
/// The product of two `f32` is exact in `f64`. The sum is computed in `f64` with rounding to odd
/// (Boldo and Melquiond, "Emulation of FMA and correctly rounded sums", 2008): a result that is not
/// exact gets an odd last bit. `f64` has more than twice the digits of `f32` and two more, so that
/// the final rounding to `f32` is the only one that counts.
#[inline(always)]
pub(super) fn fma_f32(a: f32, b: f32, c: f32) -> f32 {
    let (product, addend) = (f64::from(a) * f64::from(b), f64::from(c));
    let sum = product + addend;
    // The error of the sum, by Knuth's TwoSum. It is NaN if the sum is not finite.
    let shadow = sum - product;
    let error = (product - (sum - shadow)) + (addend - shadow);
    let bits = sum.to_bits();
    let is_inexact = error.abs() > 0.0;
    let is_even = bits & 1 == 0;
    let is_away = (error > 0.0) == (sum > 0.0);
    let odd = if is_away { bits.wrapping_add(1) } else { bits.wrapping_sub(1) };
    f64::from_bits(if is_inexact && is_even { odd } else { bits }) as f32
}

#[cfg(test)]
mod tests {
    use super::fma_f32;
    use proptest::prelude::*;

    #[test]
    fn rounds_once_at_the_edges() {
        let edges = [
            0.0,
            -0.0,
            1.0,
            -1.0,
            f32::from_bits(1),
            -f32::from_bits(1),
            f32::MIN_POSITIVE,
            f32::EPSILON,
            1.0 + f32::EPSILON,
            1.0 - f32::EPSILON / 2.0,
            f32::MAX,
            -f32::MAX,
            f32::INFINITY,
            f32::NEG_INFINITY,
            1e-30,
            -3e-39,
            16777216.0,
        ];
        for a in edges {
            for b in edges {
                for c in edges {
                    let (found, expected) = (fma_f32(a, b, c), a.mul_add(b, c));
                    assert!(
                        found.to_bits() == expected.to_bits()
                            || found.is_nan() && expected.is_nan(),
                        "{a:e} {b:e} {c:e}: {found:e}, not {expected:e}"
                    );
                }
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(20_000))]
        #[test]
        fn has_the_bits_of_the_instruction(
            a in any::<u32>(),
            b in any::<u32>(),
            c in any::<u32>(),
            near in -40i32..40,
            is_near in any::<bool>(),
        ) {
            let (a, b) = (f32::from_bits(a), f32::from_bits(b));
            // An addend of about the product's size tests the rounding.
            let c = f32::from_bits(c);
            let scaled = (c.to_bits() & 0x807f_ffff) | 0x3f80_0000;
            let c = if is_near {
                (f64::from(a) * f64::from(b) * 2f64.powi(near)) as f32 * f32::from_bits(scaled)
            } else {
                c
            };
            let (found, expected) = (fma_f32(a, b, c), a.mul_add(b, c));
            prop_assert!(
                found.to_bits() == expected.to_bits() || found.is_nan() && expected.is_nan(),
                "{a:e} {b:e} {c:e}: {found:e}, not {expected:e}"
            );
        }
    }
}
