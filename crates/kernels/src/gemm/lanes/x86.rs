//! AVX-512 and AVX2 registers as [`Lanes`].
//!
//! Safety of this module: a function with an intrinsic has the contract of [`Lanes`]: the machine
//! has the instruction set, and the elements are valid.

use super::Lanes;
use std::arch::x86_64::*;
pub(crate) use std::arch::x86_64::{__m256, __m256d, __m512, __m512d};

register!(
    __m512 of 16 f32:
    _mm512_set1_ps, _mm512_loadu_ps, _mm512_storeu_ps,
    _mm512_fmadd_ps, _mm512_mul_ps, _mm512_add_ps;
    first_ps512, keep_ps512, columns_ps512, one_nan_ps512;
    __mmask16, mask_ps512, masked_ps512, unzip_ps512, following_ps512, greater_ps512, least_ps512,
    _mm512_min_ps
);
register!(
    __m512d of 8 f64:
    _mm512_set1_pd, _mm512_loadu_pd, _mm512_storeu_pd,
    _mm512_fmadd_pd, _mm512_mul_pd, _mm512_add_pd;
    first_pd512, keep_pd512, columns_pd512, one_nan_pd512;
    __mmask8, mask_pd512, masked_pd512, unzip_pd512, following_pd512, greater_pd512, least_pd512,
    _mm512_min_pd
);
register!(
    __m256 of 8 f32:
    _mm256_set1_ps, _mm256_loadu_ps, _mm256_storeu_ps,
    _mm256_fmadd_ps, _mm256_mul_ps, _mm256_add_ps;
    first_ps256, keep_ps256, columns_ps256, one_nan_ps256;
    __m256i, mask_ps256, masked_ps256, unzip_ps256, following_ps256, greater_ps256, least_ps256,
    _mm256_min_ps
);
register!(
    __m256d of 4 f64:
    _mm256_set1_pd, _mm256_loadu_pd, _mm256_storeu_pd,
    _mm256_fmadd_pd, _mm256_mul_pd, _mm256_add_pd;
    first_pd256, keep_pd256, columns_pd256, one_nan_pd256;
    __m256i, mask_pd256, masked_pd256, unzip_pd256, following_pd256, greater_pd256, least_pd256,
    _mm256_min_pd
);

#[inline(always)]
unsafe fn first_ps512(p: *const f32, n: usize) -> __m512 {
    // SAFETY: see the module's comment; masked elements are not accessed.
    unsafe { _mm512_maskz_loadu_ps(((1u32 << n) - 1) as u16, p) }
}

#[inline(always)]
unsafe fn keep_ps512(p: *mut f32, n: usize, x: __m512) {
    // SAFETY: as above.
    unsafe { _mm512_mask_storeu_ps(p, ((1u32 << n) - 1) as u16, x) }
}

#[inline(always)]
unsafe fn first_pd512(p: *const f64, n: usize) -> __m512d {
    // SAFETY: as above.
    unsafe { _mm512_maskz_loadu_pd(((1u32 << n) - 1) as u8, p) }
}

#[inline(always)]
unsafe fn keep_pd512(p: *mut f64, n: usize, x: __m512d) {
    // SAFETY: as above.
    unsafe { _mm512_mask_storeu_pd(p, ((1u32 << n) - 1) as u8, x) }
}

/// The bits `from..to` of at most 16.
#[inline(always)]
fn bits(from: usize, to: usize) -> u32 {
    ((1u32 << to) - 1) & !((1u32 << from) - 1)
}

#[inline(always)]
unsafe fn mask_ps512(from: usize, to: usize) -> __mmask16 {
    bits(from, to) as __mmask16
}

#[inline(always)]
unsafe fn mask_pd512(from: usize, to: usize) -> __mmask8 {
    bits(from, to) as __mmask8
}

#[inline(always)]
unsafe fn masked_ps512(p: *const f32, mask: __mmask16, others: __m512) -> __m512 {
    // SAFETY: as above.
    unsafe { _mm512_mask_loadu_ps(others, mask, p) }
}

#[inline(always)]
unsafe fn masked_pd512(p: *const f64, mask: __mmask8, others: __m512d) -> __m512d {
    // SAFETY: as above.
    unsafe { _mm512_mask_loadu_pd(others, mask, p) }
}

#[inline(always)]
unsafe fn unzip_ps512(x: __m512, y: __m512) -> [__m512; 2] {
    // SAFETY: as above.
    unsafe {
        let even = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
        let odd = _mm512_add_epi32(even, _mm512_set1_epi32(1));
        [even, odd].map(|at| _mm512_permutex2var_ps(x, at, y))
    }
}

#[inline(always)]
unsafe fn unzip_pd512(x: __m512d, y: __m512d) -> [__m512d; 2] {
    // SAFETY: as above.
    unsafe {
        let even = _mm512_setr_epi64(0, 2, 4, 6, 8, 10, 12, 14);
        let odd = _mm512_add_epi64(even, _mm512_set1_epi64(1));
        [even, odd].map(|at| _mm512_permutex2var_pd(x, at, y))
    }
}

#[inline(always)]
unsafe fn following_ps512(x: __m512, last: __m512) -> __m512 {
    // SAFETY: as above.
    unsafe {
        let [x, last] = [x, last].map(|x| _mm512_castps_si512(x));
        _mm512_castsi512_ps(_mm512_alignr_epi32::<1>(last, x))
    }
}

#[inline(always)]
unsafe fn following_pd512(x: __m512d, last: __m512d) -> __m512d {
    // SAFETY: as above.
    unsafe {
        let [x, last] = [x, last].map(|x| _mm512_castpd_si512(x));
        _mm512_castsi512_pd(_mm512_alignr_epi64::<1>(last, x))
    }
}

/// What is not less or equal is greater or NaN.
#[inline(always)]
unsafe fn least_ps512(x: __m512, number: __m512) -> __m512 {
    // SAFETY: as above.
    unsafe {
        let is_kept = _mm512_cmp_ps_mask::<_CMP_NLE_UQ>(x, number);
        _mm512_mask_blend_ps(is_kept, number, x)
    }
}

/// Of a NaN or two zeros, the instruction returns the second operand.
#[inline(always)]
unsafe fn greater_ps512(x: __m512, other: __m512) -> __m512 {
    // SAFETY: as above.
    unsafe {
        let is_nan = _mm512_cmp_ps_mask::<_CMP_UNORD_Q>(x, x);
        _mm512_mask_blend_ps(is_nan, _mm512_max_ps(x, other), x)
    }
}

/// What is not less or equal is greater or NaN.
#[inline(always)]
unsafe fn least_pd512(x: __m512d, number: __m512d) -> __m512d {
    // SAFETY: as above.
    unsafe {
        let is_kept = _mm512_cmp_pd_mask::<_CMP_NLE_UQ>(x, number);
        _mm512_mask_blend_pd(is_kept, number, x)
    }
}

/// Of a NaN or two zeros, the instruction returns the second operand.
#[inline(always)]
unsafe fn greater_pd512(x: __m512d, other: __m512d) -> __m512d {
    // SAFETY: as above.
    unsafe {
        let is_nan = _mm512_cmp_pd_mask::<_CMP_UNORD_Q>(x, x);
        _mm512_mask_blend_pd(is_nan, _mm512_max_pd(x, other), x)
    }
}

/// A table of `vfixupimm`: four bits for each class of numbers, of which the first two are NaNs. 0
/// chooses the first operand and 1 the second.
const NUMBERS_AS_THEY_ARE: i32 = 0x1111_1100;

#[inline(always)]
unsafe fn one_nan_ps512(x: __m512) -> __m512 {
    // SAFETY: as above.
    unsafe {
        let table = _mm512_set1_epi32(NUMBERS_AS_THEY_ARE);
        _mm512_fixupimm_ps::<0>(_mm512_set1_ps(f32::NAN), x, table)
    }
}

#[inline(always)]
unsafe fn one_nan_pd512(x: __m512d) -> __m512d {
    // SAFETY: as above.
    unsafe {
        let table = _mm512_set1_epi64(NUMBERS_AS_THEY_ARE as i64);
        _mm512_fixupimm_pd::<0>(_mm512_set1_pd(f64::NAN), x, table)
    }
}

/// Row `4 l + e` of sixteen goes to 128-bit lane `l` of vector `e`; then each lane is transposed.
#[inline(always)]
unsafe fn columns_ps512(p: *const f32, stride: isize) -> [__m512; 4] {
    // SAFETY: as above.
    unsafe {
        let row = |i: isize| _mm_loadu_ps(p.offset(i * stride));
        let quads = |e: isize| {
            let x = _mm512_castps128_ps512(row(e));
            let x = _mm512_insertf32x4::<1>(x, row(4 + e));
            let x = _mm512_insertf32x4::<2>(x, row(8 + e));
            _mm512_insertf32x4::<3>(x, row(12 + e))
        };
        let [a, b, c, d] = [quads(0), quads(1), quads(2), quads(3)];
        let (ab, cd) = (_mm512_unpacklo_ps(a, b), _mm512_unpacklo_ps(c, d));
        let (ba, dc) = (_mm512_unpackhi_ps(a, b), _mm512_unpackhi_ps(c, d));
        let pairs = |x, y| {
            let (x, y) = (_mm512_castps_pd(x), _mm512_castps_pd(y));
            let (low, high) = (_mm512_unpacklo_pd(x, y), _mm512_unpackhi_pd(x, y));
            [_mm512_castpd_ps(low), _mm512_castpd_ps(high)]
        };
        let ([x, y], [z, w]) = (pairs(ab, cd), pairs(ba, dc));
        [x, y, z, w]
    }
}

#[inline(always)]
unsafe fn columns_pd512(p: *const f64, stride: isize) -> [__m512d; 4] {
    // SAFETY: as above.
    unsafe {
        let pairs = |e: isize, q: isize| {
            let row = |i: isize| _mm_loadu_pd(p.offset(i * stride + q));
            let x = _mm512_castpd128_pd512(row(e));
            let x = _mm512_insertf64x2::<1>(x, row(2 + e));
            let x = _mm512_insertf64x2::<2>(x, row(4 + e));
            _mm512_insertf64x2::<3>(x, row(6 + e))
        };
        let ([a, b], [c, d]) = ([pairs(0, 0), pairs(1, 0)], [pairs(0, 2), pairs(1, 2)]);
        [
            _mm512_unpacklo_pd(a, b),
            _mm512_unpackhi_pd(a, b),
            _mm512_unpacklo_pd(c, d),
            _mm512_unpackhi_pd(c, d),
        ]
    }
}

/// All bits of the first `n` of eight 32-bit elements.
#[inline(always)]
unsafe fn mask256(n: usize) -> __m256i {
    // SAFETY: as above.
    unsafe {
        let index = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
        _mm256_cmpgt_epi32(_mm256_set1_epi32(n as i32), index)
    }
}

#[inline(always)]
unsafe fn mask_ps256(from: usize, to: usize) -> __m256i {
    // SAFETY: as above.
    unsafe { _mm256_andnot_si256(mask256(from), mask256(to)) }
}

#[inline(always)]
unsafe fn mask_pd256(from: usize, to: usize) -> __m256i {
    // SAFETY: as above.
    unsafe { mask_ps256(2 * from, 2 * to) }
}

#[inline(always)]
unsafe fn masked_ps256(p: *const f32, mask: __m256i, others: __m256) -> __m256 {
    // SAFETY: as above; masked elements are not accessed.
    unsafe { _mm256_blendv_ps(others, _mm256_maskload_ps(p, mask), _mm256_castsi256_ps(mask)) }
}

#[inline(always)]
unsafe fn masked_pd256(p: *const f64, mask: __m256i, others: __m256d) -> __m256d {
    // SAFETY: as above.
    unsafe { _mm256_blendv_pd(others, _mm256_maskload_pd(p, mask), _mm256_castsi256_pd(mask)) }
}

#[inline(always)]
unsafe fn unzip_ps256(x: __m256, y: __m256) -> [__m256; 2] {
    // SAFETY: as above.
    unsafe {
        let halves = [_mm256_shuffle_ps::<0x88>(x, y), _mm256_shuffle_ps::<0xdd>(x, y)];
        halves.map(|x| _mm256_castpd_ps(_mm256_permute4x64_pd::<0xd8>(_mm256_castps_pd(x))))
    }
}

#[inline(always)]
unsafe fn unzip_pd256(x: __m256d, y: __m256d) -> [__m256d; 2] {
    // SAFETY: as above.
    unsafe {
        let halves = [_mm256_unpacklo_pd(x, y), _mm256_unpackhi_pd(x, y)];
        halves.map(|x| _mm256_permute4x64_pd::<0xd8>(x))
    }
}

#[inline(always)]
unsafe fn following_ps256(x: __m256, last: __m256) -> __m256 {
    // SAFETY: as above.
    unsafe {
        let next = _mm256_permutevar8x32_ps(x, _mm256_setr_epi32(1, 2, 3, 4, 5, 6, 7, 0));
        _mm256_blend_ps::<0x80>(next, last)
    }
}

#[inline(always)]
unsafe fn following_pd256(x: __m256d, last: __m256d) -> __m256d {
    // SAFETY: as above.
    unsafe { _mm256_blend_pd::<0x8>(_mm256_permute4x64_pd::<0x39>(x), last) }
}

#[inline(always)]
unsafe fn least_ps256(x: __m256, number: __m256) -> __m256 {
    // SAFETY: as above.
    unsafe { _mm256_blendv_ps(number, x, _mm256_cmp_ps::<_CMP_NLE_UQ>(x, number)) }
}

/// Of a NaN or two zeros, the instruction returns the second operand.
#[inline(always)]
unsafe fn greater_ps256(x: __m256, other: __m256) -> __m256 {
    // SAFETY: as above.
    unsafe {
        let is_nan = _mm256_cmp_ps::<_CMP_UNORD_Q>(x, x);
        _mm256_blendv_ps(_mm256_max_ps(x, other), x, is_nan)
    }
}

#[inline(always)]
unsafe fn least_pd256(x: __m256d, number: __m256d) -> __m256d {
    // SAFETY: as above.
    unsafe { _mm256_blendv_pd(number, x, _mm256_cmp_pd::<_CMP_NLE_UQ>(x, number)) }
}

/// Of a NaN or two zeros, the instruction returns the second operand.
#[inline(always)]
unsafe fn greater_pd256(x: __m256d, other: __m256d) -> __m256d {
    // SAFETY: as above.
    unsafe {
        let is_nan = _mm256_cmp_pd::<_CMP_UNORD_Q>(x, x);
        _mm256_blendv_pd(_mm256_max_pd(x, other), x, is_nan)
    }
}

#[inline(always)]
unsafe fn first_ps256(p: *const f32, n: usize) -> __m256 {
    // SAFETY: as above; masked elements are not accessed.
    unsafe { _mm256_maskload_ps(p, mask256(n)) }
}

#[inline(always)]
unsafe fn keep_ps256(p: *mut f32, n: usize, x: __m256) {
    // SAFETY: as above.
    unsafe { _mm256_maskstore_ps(p, mask256(n), x) }
}

#[inline(always)]
unsafe fn first_pd256(p: *const f64, n: usize) -> __m256d {
    // SAFETY: as above.
    unsafe { _mm256_maskload_pd(p, mask256(2 * n)) }
}

#[inline(always)]
unsafe fn keep_pd256(p: *mut f64, n: usize, x: __m256d) {
    // SAFETY: as above.
    unsafe { _mm256_maskstore_pd(p, mask256(2 * n), x) }
}

#[inline(always)]
unsafe fn one_nan_ps256(x: __m256) -> __m256 {
    // SAFETY: as above.
    unsafe {
        let is_nan = _mm256_cmp_ps::<_CMP_UNORD_Q>(x, x);
        _mm256_blendv_ps(x, _mm256_set1_ps(f32::NAN), is_nan)
    }
}

#[inline(always)]
unsafe fn one_nan_pd256(x: __m256d) -> __m256d {
    // SAFETY: as above.
    unsafe {
        let is_nan = _mm256_cmp_pd::<_CMP_UNORD_Q>(x, x);
        _mm256_blendv_pd(x, _mm256_set1_pd(f64::NAN), is_nan)
    }
}

/// Row `4 l + e` of eight goes to 128-bit lane `l` of vector `e`; then each lane is transposed.
#[inline(always)]
unsafe fn columns_ps256(p: *const f32, stride: isize) -> [__m256; 4] {
    // SAFETY: as above.
    unsafe {
        let row = |i: isize| _mm_loadu_ps(p.offset(i * stride));
        let quads =
            |e: isize| _mm256_insertf128_ps::<1>(_mm256_castps128_ps256(row(e)), row(4 + e));
        let [a, b, c, d] = [quads(0), quads(1), quads(2), quads(3)];
        let (ab, cd) = (_mm256_unpacklo_ps(a, b), _mm256_unpacklo_ps(c, d));
        let (ba, dc) = (_mm256_unpackhi_ps(a, b), _mm256_unpackhi_ps(c, d));
        let pairs = |x, y| {
            let (x, y) = (_mm256_castps_pd(x), _mm256_castps_pd(y));
            let (low, high) = (_mm256_unpacklo_pd(x, y), _mm256_unpackhi_pd(x, y));
            [_mm256_castpd_ps(low), _mm256_castpd_ps(high)]
        };
        let ([x, y], [z, w]) = (pairs(ab, cd), pairs(ba, dc));
        [x, y, z, w]
    }
}

#[inline(always)]
unsafe fn columns_pd256(p: *const f64, stride: isize) -> [__m256d; 4] {
    // SAFETY: as above.
    unsafe {
        let pairs = |e: isize, q: isize| {
            let row = |i: isize| _mm_loadu_pd(p.offset(i * stride + q));
            _mm256_insertf128_pd::<1>(_mm256_castpd128_pd256(row(e)), row(2 + e))
        };
        let ([a, b], [c, d]) = ([pairs(0, 0), pairs(1, 0)], [pairs(0, 2), pairs(1, 2)]);
        [
            _mm256_unpacklo_pd(a, b),
            _mm256_unpackhi_pd(a, b),
            _mm256_unpacklo_pd(c, d),
            _mm256_unpackhi_pd(c, d),
        ]
    }
}
