//! Vectors of the accumulator: AVX-512 registers, and plain arrays.
//!
//! **Invariant:** an operation gives the bits of the scalar one of [`ops`](super::super::ops), of
//! two NaNs either.

use crate::math::Float;
use crate::pointwise::ops::{self, Op2};

/// A vector of floats.
///
/// # Safety
/// A caller must run on a machine with the vector's instruction set. Pointers must be valid for the
/// named elements; they need no alignment.
pub(super) trait Vector: Copy {
    /// The type of an element.
    type Float: Float;
    /// The number of elements.
    const N: usize;
    unsafe fn splat(x: Self::Float) -> Self;
    /// The `N` elements from `p`.
    unsafe fn load(p: *const Self::Float) -> Self;
    /// The first `n` elements from `p`, with zeros behind them.
    unsafe fn load_first(p: *const Self::Float, n: usize) -> Self;
    /// Writes `N` elements.
    unsafe fn store(self, p: *mut Self::Float);
    /// Writes the first `n` elements.
    unsafe fn store_first(self, p: *mut Self::Float, n: usize);
    unsafe fn neg(self) -> Self;
    unsafe fn abs(self) -> Self;
    unsafe fn sqrt(self) -> Self;
    unsafe fn add(self, by: Self) -> Self;
    unsafe fn sub(self, by: Self) -> Self;
    unsafe fn mul(self, by: Self) -> Self;
    unsafe fn div(self, by: Self) -> Self;
    unsafe fn min(self, with: Self) -> Self;
    unsafe fn max(self, with: Self) -> Self;
}

/// A vector as an array, for any target.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub(super) struct Array<T, const N: usize>([T; N]);

impl<T: Float, const N: usize> Array<T, N> {
    #[inline(always)]
    fn map(self, f: impl Fn(T) -> T) -> Self {
        Array(std::array::from_fn(|i| f(self.0[i])))
    }

    #[inline(always)]
    fn with<O: Op2<T, T>>(self, by: Self) -> Self {
        Array(std::array::from_fn(|i| O::f(self.0[i], by.0[i])))
    }
}

impl<T: Float, const N: usize> Vector for Array<T, N> {
    type Float = T;
    const N: usize = N;
    #[inline(always)]
    unsafe fn splat(x: T) -> Self {
        Array([x; N])
    }
    #[inline(always)]
    unsafe fn load(p: *const T) -> Self {
        // SAFETY: the caller's promise.
        Array(unsafe { p.cast::<[T; N]>().read_unaligned() })
    }
    #[inline(always)]
    unsafe fn load_first(p: *const T, n: usize) -> Self {
        let mut out = [T::ZERO; N];
        for (i, x) in out.iter_mut().enumerate().take(n) {
            // SAFETY: the caller's promise.
            *x = unsafe { *p.add(i) };
        }
        Array(out)
    }
    #[inline(always)]
    unsafe fn store(self, p: *mut T) {
        // SAFETY: the caller's promise.
        unsafe { p.cast::<[T; N]>().write_unaligned(self.0) }
    }
    #[inline(always)]
    unsafe fn store_first(self, p: *mut T, n: usize) {
        for (i, x) in self.0.iter().enumerate().take(n) {
            // SAFETY: the caller's promise.
            unsafe { *p.add(i) = *x }
        }
    }
    #[inline(always)]
    unsafe fn neg(self) -> Self {
        self.map(|x| -x)
    }
    #[inline(always)]
    unsafe fn abs(self) -> Self {
        self.map(T::abs)
    }
    #[inline(always)]
    unsafe fn sqrt(self) -> Self {
        self.map(T::sqrt)
    }
    #[inline(always)]
    unsafe fn add(self, by: Self) -> Self {
        self.with::<ops::Add>(by)
    }
    #[inline(always)]
    unsafe fn sub(self, by: Self) -> Self {
        self.with::<ops::Sub>(by)
    }
    #[inline(always)]
    unsafe fn mul(self, by: Self) -> Self {
        self.with::<ops::Mul>(by)
    }
    #[inline(always)]
    unsafe fn div(self, by: Self) -> Self {
        self.with::<ops::Div>(by)
    }
    #[inline(always)]
    unsafe fn min(self, with: Self) -> Self {
        self.with::<ops::Min>(with)
    }
    #[inline(always)]
    unsafe fn max(self, with: Self) -> Self {
        self.with::<ops::Max>(with)
    }
}

/// Implements [`Vector`] by intrinsics; `$mask` is the type of a mask, and `$unordered` compares.
#[cfg(target_arch = "x86_64")]
macro_rules! register {
    (
        $vector:ident of $n:literal $float:ty, $mask:ty:
        $splat:ident, $load:ident, $load_first:ident, $store:ident, $store_first:ident,
        $xor:ident, $andnot:ident, $sqrt:ident, $add:ident, $sub:ident, $mul:ident, $div:ident,
        $min:ident, $max:ident, $compare:ident, $blend:ident
    ) => {
        // SAFETY, for every function: the caller's machine has the instruction set, and the
        // elements are valid. Elements that a mask leaves out are not accessed.
        impl Vector for $vector {
            type Float = $float;
            const N: usize = $n;
            #[inline(always)]
            unsafe fn splat(x: $float) -> Self {
                // SAFETY: see above.
                unsafe { $splat(x) }
            }
            #[inline(always)]
            unsafe fn load(p: *const $float) -> Self {
                // SAFETY: see above.
                unsafe { $load(p) }
            }
            #[inline(always)]
            unsafe fn load_first(p: *const $float, n: usize) -> Self {
                // SAFETY: see above.
                unsafe { $load_first(((1u32 << n) - 1) as $mask, p) }
            }
            #[inline(always)]
            unsafe fn store(self, p: *mut $float) {
                // SAFETY: see above.
                unsafe { $store(p, self) }
            }
            #[inline(always)]
            unsafe fn store_first(self, p: *mut $float, n: usize) {
                // SAFETY: see above.
                unsafe { $store_first(p, ((1u32 << n) - 1) as $mask, self) }
            }
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
            unsafe fn add(self, by: Self) -> Self {
                // SAFETY: see above.
                unsafe { $add(self, by) }
            }
            #[inline(always)]
            unsafe fn sub(self, by: Self) -> Self {
                // SAFETY: see above.
                unsafe { $sub(self, by) }
            }
            #[inline(always)]
            unsafe fn mul(self, by: Self) -> Self {
                // SAFETY: see above.
                unsafe { $mul(self, by) }
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
        }
    };
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use super::Vector;
    use std::arch::x86_64::*;

    register!(
        __m512 of 16 f32, u16:
        _mm512_set1_ps, _mm512_loadu_ps, _mm512_maskz_loadu_ps, _mm512_storeu_ps,
        _mm512_mask_storeu_ps, _mm512_xor_ps, _mm512_andnot_ps, _mm512_sqrt_ps, _mm512_add_ps,
        _mm512_sub_ps, _mm512_mul_ps, _mm512_div_ps, _mm512_min_ps, _mm512_max_ps,
        _mm512_cmp_ps_mask, _mm512_mask_blend_ps
    );
    register!(
        __m512d of 8 f64, u8:
        _mm512_set1_pd, _mm512_loadu_pd, _mm512_maskz_loadu_pd, _mm512_storeu_pd,
        _mm512_mask_storeu_pd, _mm512_xor_pd, _mm512_andnot_pd, _mm512_sqrt_pd, _mm512_add_pd,
        _mm512_sub_pd, _mm512_mul_pd, _mm512_div_pd, _mm512_min_pd, _mm512_max_pd,
        _mm512_cmp_pd_mask, _mm512_mask_blend_pd
    );
}
