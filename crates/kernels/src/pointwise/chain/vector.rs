//! The operations of chains on the vectors of the accumulator.
//!
//! **Invariant:** an operation gives the bits of the scalar one of [`ops`](super::super::ops), of
//! two NaNs either.

use crate::gemm::{Array, Float, Lanes};
use crate::pointwise::ops::{self, Op2};

/// A vector with the operations of chains.
///
/// # Safety
/// As for [`Lanes`].
pub(super) trait Vector: Lanes {
    unsafe fn neg(self) -> Self;
    unsafe fn abs(self) -> Self;
    unsafe fn sqrt(self) -> Self;
    unsafe fn sub(self, by: Self) -> Self;
    unsafe fn div(self, by: Self) -> Self;
    unsafe fn min(self, with: Self) -> Self;
    unsafe fn max(self, with: Self) -> Self;
    /// As [`Vector::min`], of a vector without NaN with another one.
    unsafe fn min_of_numbers(self, with: Self) -> Self;
    /// As [`Vector::max`], of a vector without NaN with another one.
    unsafe fn max_of_numbers(self, with: Self) -> Self;
    /// As [`Vector::min`], with a vector without NaN.
    unsafe fn min_with_numbers(self, with: Self) -> Self;
    /// As [`Vector::max`], with a vector without NaN.
    unsafe fn max_with_numbers(self, with: Self) -> Self;
    /// Replaces vectors by their exponentials.
    unsafe fn exp(all: &mut [Self]);
    /// Replaces vectors by the error function of them.
    unsafe fn erf(all: &mut [Self]);
}

#[inline(always)]
fn map<T: Float, const N: usize>(x: Array<T, N>, f: impl Fn(T) -> T) -> Array<T, N> {
    Array(std::array::from_fn(|i| f(x.0[i])))
}

/// Applies a long function to each element. The compiler unrolls a loop of a known length before it
/// looks for vectors, and then finds none; so it does not know the length.
#[inline(always)]
fn each<T: Float, const N: usize>(all: &mut [Array<T, N>], f: impl Fn(T) -> T) {
    let n = std::hint::black_box(all.len() * N).min(all.len() * N);
    // SAFETY: an array is `N` elements, and there are at most as many as those of all.
    let xs = unsafe { std::slice::from_raw_parts_mut(all.as_mut_ptr().cast::<T>(), n) };
    for x in xs {
        *x = f(*x);
    }
}

#[inline(always)]
fn with<O: Op2<T, T>, T: Float, const N: usize>(x: Array<T, N>, y: Array<T, N>) -> Array<T, N> {
    Array(std::array::from_fn(|i| O::f(x.0[i], y.0[i])))
}

impl<T: Float, const N: usize> Vector for Array<T, N> {
    #[inline(always)]
    unsafe fn neg(self) -> Self {
        map(self, |x| -x)
    }
    #[inline(always)]
    unsafe fn abs(self) -> Self {
        map(self, T::abs)
    }
    #[inline(always)]
    unsafe fn sqrt(self) -> Self {
        map(self, T::sqrt)
    }
    #[inline(always)]
    unsafe fn exp(all: &mut [Self]) {
        each(all, T::exp);
    }
    #[inline(always)]
    unsafe fn erf(all: &mut [Self]) {
        each(all, T::erf);
    }
    #[inline(always)]
    unsafe fn sub(self, by: Self) -> Self {
        with::<ops::Sub, T, N>(self, by)
    }
    #[inline(always)]
    unsafe fn div(self, by: Self) -> Self {
        with::<ops::Div, T, N>(self, by)
    }
    #[inline(always)]
    unsafe fn min(self, other: Self) -> Self {
        with::<ops::Min, T, N>(self, other)
    }
    #[inline(always)]
    unsafe fn max(self, other: Self) -> Self {
        with::<ops::Max, T, N>(self, other)
    }
    #[inline(always)]
    unsafe fn min_of_numbers(self, other: Self) -> Self {
        with::<ops::Min, T, N>(self, other)
    }
    #[inline(always)]
    unsafe fn max_of_numbers(self, other: Self) -> Self {
        with::<ops::Max, T, N>(self, other)
    }
    #[inline(always)]
    unsafe fn min_with_numbers(self, other: Self) -> Self {
        with::<ops::Min, T, N>(self, other)
    }
    #[inline(always)]
    unsafe fn max_with_numbers(self, other: Self) -> Self {
        with::<ops::Max, T, N>(self, other)
    }
}

/// Implements [`Vector`] by intrinsics.
#[cfg(target_arch = "x86_64")]
macro_rules! register {
    (
        $vector:ident: $splat:ident, $xor:ident, $andnot:ident, $sqrt:ident, $sub:ident, $div:ident,
        $min:ident, $max:ident, $compare:ident, $blend:ident, $exp:path, $erf:path
    ) => {
        // SAFETY, for every function: the caller's machine has the instruction set.
        impl Vector for $vector {
            #[inline(always)]
            unsafe fn neg(self) -> Self {
                // SAFETY: see above.
                unsafe { $xor(self, $splat(-0.0)) }
            }
            #[inline(always)]
            unsafe fn abs(self) -> Self {
                // SAFETY: see above.
                unsafe { $andnot($splat(-0.0), self) }
            }
            #[inline(always)]
            unsafe fn sqrt(self) -> Self {
                // SAFETY: see above.
                unsafe { $sqrt(self) }
            }
            #[inline(always)]
            unsafe fn exp(all: &mut [Self]) {
                // SAFETY: see above.
                unsafe { $exp(all) }
            }
            #[inline(always)]
            unsafe fn erf(all: &mut [Self]) {
                // SAFETY: see above.
                unsafe { $erf(all) }
            }
            #[inline(always)]
            unsafe fn sub(self, by: Self) -> Self {
                // SAFETY: see above.
                unsafe { $sub(self, by) }
            }
            #[inline(always)]
            unsafe fn div(self, by: Self) -> Self {
                // SAFETY: see above.
                unsafe { $div(self, by) }
            }
            // Of two zeros, and with a NaN, the instruction gives its right operand.
            #[inline(always)]
            unsafe fn min(self, with: Self) -> Self {
                // SAFETY: see above.
                unsafe { $blend($compare::<_CMP_UNORD_Q>(self, self), $min(self, with), self) }
            }
            #[inline(always)]
            unsafe fn max(self, with: Self) -> Self {
                // SAFETY: see above.
                unsafe { $blend($compare::<_CMP_UNORD_Q>(self, self), $max(self, with), self) }
            }
            #[inline(always)]
            unsafe fn min_of_numbers(self, with: Self) -> Self {
                // SAFETY: see above.
                unsafe { $min(self, with) }
            }
            #[inline(always)]
            unsafe fn max_of_numbers(self, with: Self) -> Self {
                // SAFETY: see above.
                unsafe { $max(self, with) }
            }
            // What is not greater or equal is less or NaN.
            #[inline(always)]
            unsafe fn min_with_numbers(self, with: Self) -> Self {
                // SAFETY: see above.
                unsafe { $blend($compare::<_CMP_NGE_UQ>(self, with), with, self) }
            }
            #[inline(always)]
            unsafe fn max_with_numbers(self, with: Self) -> Self {
                // SAFETY: see above.
                unsafe { $blend($compare::<_CMP_NLE_UQ>(self, with), with, self) }
            }
        }
    };
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use super::Vector;
    use crate::math::avx512;
    use std::arch::x86_64::*;

    /// No chain has these functions of `f64`, which are computed one element after another.
    unsafe fn none(_: &mut [__m512d]) {}

    register!(
        __m512: _mm512_set1_ps, _mm512_xor_ps, _mm512_andnot_ps, _mm512_sqrt_ps, _mm512_sub_ps,
        _mm512_div_ps, _mm512_min_ps, _mm512_max_ps, _mm512_cmp_ps_mask, _mm512_mask_blend_ps,
        avx512::exp, avx512::erf
    );
    register!(
        __m512d: _mm512_set1_pd, _mm512_xor_pd, _mm512_andnot_pd, _mm512_sqrt_pd, _mm512_sub_pd,
        _mm512_div_pd, _mm512_min_pd, _mm512_max_pd, _mm512_cmp_pd_mask, _mm512_mask_blend_pd,
        none, none
    );
}
