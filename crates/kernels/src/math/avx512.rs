//! Functions of `f32` on vectors of 16, for loops that keep their values in registers.
//!
//! Each operation is done for a group of vectors before the next one. A function of one vector is a
//! long chain of operations, each of which waits for the one before, and the processor looks ahead
//! at the operations of about two vectors.
//!
//! **Invariant:** the bits are those of the function of one element: the operations and their order
//! are the same, but for those of which this module says why they change no bit.

use maquette_math::erf::{FAR, LAST, NEAR};
use maquette_math::exp::Constants;
use std::arch::x86_64::*;
use std::f32::consts::LOG2_E;

const LN_2: [f32; 2] = f32::LN_2;
const MAGIC: f32 = f32::MAGIC;
const RANGE: [f32; 2] = f32::RANGE;
const SERIES: &[f32] = f32::SERIES;

/// The vectors of a group.
const GROUP: usize = 4;

/// A function of a group of vectors, and of the vectors that are left.
macro_rules! in_groups {
    ($(#[$doc:meta])* $name:ident: $of:ident) => {
        $(#[$doc])*
        #[target_feature(enable = "avx512f,avx512dq")]
        pub(crate) fn $name(xs: &mut [__m512]) {
            let (groups, rest) = xs.as_chunks_mut::<GROUP>();
            groups.iter_mut().for_each(|group| *group = $of(*group));
            rest.iter_mut().for_each(|x| [*x] = $of([*x]));
        }
    };
}

in_groups! {
    /// The exponential of each element.
    exp: exp_of
}
in_groups! {
    /// The error function of each element.
    erf: erf_of
}

/// A polynomial of each vector, from the highest coefficient.
#[inline]
#[target_feature(enable = "avx512f")]
fn polynomial<const N: usize>(coefficients: &[f32], x: [__m512; N]) -> [__m512; N] {
    let mut p = [_mm512_set1_ps(coefficients[0]); N];
    for c in &coefficients[1..] {
        let c = _mm512_set1_ps(*c);
        for i in 0..N {
            p[i] = _mm512_fmadd_ps(p[i], x[i], c);
        }
    }
    p
}

/// The exponential of arguments in the range. The instruction that scales by 2^n rounds once, as
/// the two multiplications do.
#[inline]
#[target_feature(enable = "avx512f")]
fn exp_in_range<const N: usize>(x: [__m512; N]) -> [__m512; N] {
    let (magic, one) = (_mm512_set1_ps(MAGIC), _mm512_set1_ps(1.0));
    let n = x.map(|x| _mm512_fmadd_ps(x, _mm512_set1_ps(LOG2_E), magic));
    let n = n.map(|n| _mm512_sub_ps(n, magic));
    let mut r = x;
    for ln_2 in LN_2 {
        for i in 0..N {
            r[i] = _mm512_fnmadd_ps(n[i], _mm512_set1_ps(ln_2), r[i]);
        }
    }
    let mut y = polynomial(SERIES, r);
    for _ in 0..2 {
        for i in 0..N {
            y[i] = _mm512_fmadd_ps(y[i], r[i], one);
        }
    }
    for i in 0..N {
        y[i] = _mm512_scalef_ps(y[i], n[i]);
    }
    y
}

#[inline]
#[target_feature(enable = "avx512f")]
fn exp_of<const N: usize>(x: [__m512; N]) -> [__m512; N] {
    // With a NaN, the instructions give their right operand, as the comparisons do.
    let [least, greatest] = RANGE.map(|bound| _mm512_set1_ps(bound));
    exp_in_range(x.map(|x| _mm512_min_ps(greatest, _mm512_max_ps(least, x))))
}

#[inline]
#[target_feature(enable = "avx512f,avx512dq")]
fn erf_of<const N: usize>(x: [__m512; N]) -> [__m512; N] {
    let (one, sign) = (_mm512_set1_ps(1.0), _mm512_set1_ps(-0.0));
    let a = x.map(|x| _mm512_andnot_ps(sign, x));
    // With a NaN, the instruction gives its right operand, as the comparison does.
    let q = polynomial(&FAR, a.map(|a| _mm512_min_ps(_mm512_set1_ps(LAST), a)));
    let p = polynomial(&NEAR, x.map(|x| _mm512_mul_ps(x, x)));
    let mut y = exp_in_range(q.map(|q| _mm512_xor_ps(sign, q)));
    for i in 0..N {
        let far = _mm512_sub_ps(one, y[i]);
        // Bits of `x` where the mask has them, and of `far` elsewhere.
        let bits = [sign, x[i], far].map(|v| _mm512_castps_si512(v));
        let far = _mm512_ternarylogic_epi32::<0xCA>(bits[0], bits[1], bits[2]);
        let near = _mm512_fmadd_ps(x[i], p[i], x[i]);
        let is_near = _mm512_cmp_ps_mask::<_CMP_LT_OQ>(a[i], one);
        y[i] = _mm512_mask_blend_ps(is_near, _mm512_castsi512_ps(far), near);
    }
    y
}
