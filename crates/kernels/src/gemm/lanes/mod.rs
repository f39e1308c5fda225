//! Vectors of the microkernels: AVX-512 and AVX2 registers, and plain arrays.
//!
//! Every operation is correctly rounded, so that a kernel has the same bits with each of them. The
//! functions are inlined into kernels that enable the instruction set (see `kernel`).

#[cfg(target_arch = "x86_64")]
pub(in crate::gemm) use x86::{__m256, __m256d, __m512, __m512d};

/// A vector of floats.
///
/// # Safety
/// A caller must run on a machine with the vector's instruction set. Pointers must be valid for the
/// named elements; they need no alignment.
pub(crate) trait Lanes: Copy {
    /// The type of an element.
    type Float: super::Float;
    /// The number of elements.
    const N: usize;
    /// Some of the elements.
    type Mask: Copy;
    /// The elements `from..to`, of which `to` is at most `N`.
    unsafe fn mask(from: usize, to: usize) -> Self::Mask;
    /// The elements of a mask from `p`, and those of `others` beside them, which are not accessed.
    unsafe fn load_masked(p: *const Self::Float, mask: Self::Mask, others: Self) -> Self;
    /// The elements of two vectors at even places, and those at odd ones.
    unsafe fn unzip(self, next: Self) -> [Self; 2];
    /// The elements from the second one on, and a number after them.
    unsafe fn following(self, last: Self::Float) -> Self;
    /// The elements of this vector that are greater than those of another, or NaN, and its others.
    unsafe fn greater_of(self, other: Self) -> Self;
    /// The greater of each element and a number that is no NaN; of two zeros, the number. A NaN
    /// stays.
    unsafe fn at_least(self, number: Self) -> Self;
    /// The lesser of each element and a number that is neither NaN nor zero. A NaN stays.
    unsafe fn at_most(self, number: Self) -> Self;
    /// A vector of copies of one number.
    unsafe fn splat(x: Self::Float) -> Self;
    /// The `N` elements from `p`.
    unsafe fn load(p: *const Self::Float) -> Self;
    /// The first `n` elements from `p`, with zeros after them.
    unsafe fn load_first(p: *const Self::Float, n: usize) -> Self;
    /// Writes `N` elements.
    unsafe fn store(self, p: *mut Self::Float);
    /// Writes the first `n` elements.
    unsafe fn store_first(self, p: *mut Self::Float, n: usize);
    /// `self * by + to`, rounded once.
    unsafe fn fma(self, by: Self, to: Self) -> Self;
    /// `self * by`.
    unsafe fn mul(self, by: Self) -> Self;
    /// `self + by`.
    unsafe fn add(self, by: Self) -> Self;
    /// The vector with every NaN replaced by one NaN.
    unsafe fn one_nan(self) -> Self;
    /// Transposes: vector `q` has element `q` of each of `N` rows, which begin `stride` apart.
    /// Reads four elements of each row.
    unsafe fn columns(p: *const Self::Float, stride: isize) -> [Self; 4];
    /// Asks for the cache line of an address to be loaded into the second-level cache. The address
    /// need not be valid.
    #[inline(always)]
    fn prefetch(p: *const Self::Float) {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: SSE is part of the target; a prefetch accesses no memory.
        unsafe {
            use std::arch::x86_64::{_MM_HINT_T1, _mm_prefetch};
            _mm_prefetch::<_MM_HINT_T1>(p.cast())
        }
        #[cfg(not(target_arch = "x86_64"))]
        let _ = p;
    }
    /// As [`Lanes::prefetch`], into the first-level cache.
    #[inline(always)]
    fn prefetch_near(p: *const Self::Float) {
        crate::isa::prefetch_near(p.cast());
    }
}

/// A vector as an array, for any target.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub(crate) struct Array<T, const N: usize>(pub [T; N]);

impl<T: super::Float, const N: usize> Lanes for Array<T, N> {
    type Float = T;
    const N: usize = N;
    type Mask = (usize, usize);
    #[inline(always)]
    unsafe fn mask(from: usize, to: usize) -> (usize, usize) {
        (from, to)
    }
    #[inline(always)]
    unsafe fn load_masked(p: *const T, (from, to): (usize, usize), others: Self) -> Self {
        let mut out = others.0;
        for (i, x) in out.iter_mut().enumerate().take(to).skip(from) {
            // SAFETY: the caller's promise.
            *x = unsafe { *p.wrapping_add(i) };
        }
        Array(out)
    }
    #[inline(always)]
    unsafe fn unzip(self, next: Self) -> [Self; 2] {
        let at = |i: usize| if i < N { self.0[i] } else { next.0[i - N] };
        [0, 1].map(|odd| Array(std::array::from_fn(|i| at(2 * i + odd))))
    }
    #[inline(always)]
    unsafe fn following(self, last: T) -> Self {
        Array(std::array::from_fn(|i| if i + 1 < N { self.0[i + 1] } else { last }))
    }
    #[inline(always)]
    unsafe fn greater_of(self, other: Self) -> Self {
        let greater = |x: T, y: T| if x > y || x.partial_cmp(&x).is_none() { x } else { y };
        Array(std::array::from_fn(|i| greater(self.0[i], other.0[i])))
    }
    #[inline(always)]
    unsafe fn at_least(self, number: Self) -> Self {
        // SAFETY: it has no requirements.
        unsafe { self.greater_of(number) }
    }
    #[inline(always)]
    unsafe fn at_most(self, number: Self) -> Self {
        let lesser = |x: T, y: T| if x < y || x.partial_cmp(&x).is_none() { x } else { y };
        Array(std::array::from_fn(|i| lesser(self.0[i], number.0[i])))
    }
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
        let mut out = [T::default(); N];
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
    unsafe fn fma(self, by: Self, to: Self) -> Self {
        Array(std::array::from_fn(|i| T::fma(self.0[i], by.0[i], to.0[i])))
    }
    #[inline(always)]
    unsafe fn mul(self, by: Self) -> Self {
        Array(std::array::from_fn(|i| self.0[i] * by.0[i]))
    }
    #[inline(always)]
    unsafe fn add(self, by: Self) -> Self {
        Array(std::array::from_fn(|i| self.0[i] + by.0[i]))
    }
    #[inline(always)]
    unsafe fn one_nan(self) -> Self {
        Array(self.0.map(T::one_nan))
    }
    #[inline(always)]
    unsafe fn columns(p: *const T, stride: isize) -> [Self; 4] {
        std::array::from_fn(|q| {
            // SAFETY: the caller's promise.
            Array(std::array::from_fn(|i| unsafe { *p.offset(i as isize * stride + q as isize) }))
        })
    }
}

/// Returns the same pointer, and hides from the optimizer that it is the same. So a load is an
/// operand in memory of each instruction, and takes no register from one to the next.
#[cfg_attr(
    all(target_arch = "x86_64", not(miri)),
    expect(clippy::pointers_in_nomem_asm_block, reason = "the block has no instruction")
)]
#[inline(always)]
pub(super) fn launder<F>(p: *const F) -> *const F {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    let p = {
        let mut p = p;
        // SAFETY: no instruction.
        unsafe {
            std::arch::asm!("/* {} */", inout(reg) p, options(nomem, nostack, preserves_flags));
        }
        p
    };
    p
}

/// Fetches a line into the nearest cache to write it. Where another core has it, the write would
/// wait for that core otherwise, and every write after it, too. A processor without the
/// instruction does nothing.
#[inline(always)]
pub(super) fn fetch_to_write<F>(p: *const F) {
    // SAFETY: it accesses nothing, whatever the address is.
    #[cfg(target_arch = "x86_64")]
    unsafe {
        std::arch::asm!("prefetchw [{}]", in(reg) p, options(nostack, preserves_flags, readonly));
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = p;
}

/// Implements [`Lanes`] by intrinsics. `$load_first` and `$store_first` are functions of a pointer
/// and a count.
#[cfg(target_arch = "x86_64")]
macro_rules! register {
    (
        $vector:ident of $n:literal $float:ty:
        $splat:ident, $load:ident, $store:ident, $fma:ident, $mul:ident, $add:ident;
        $first:ident, $keep:ident, $columns:ident, $is_nan:ident;
        $mask:ty, $make:ident, $masked:ident, $unzip:ident, $following:ident,
        $greater:ident, $least:ident, $min:ident
    ) => {
        impl Lanes for $vector {
            type Float = $float;
            const N: usize = $n;
            type Mask = $mask;
            #[inline(always)]
            unsafe fn splat(x: $float) -> Self {
                // SAFETY: the caller's machine has the instruction set.
                unsafe { $splat(x) }
            }
            #[inline(always)]
            unsafe fn mask(from: usize, to: usize) -> $mask {
                // SAFETY: as above.
                unsafe { $make(from, to) }
            }
            #[inline(always)]
            unsafe fn load_masked(p: *const $float, mask: $mask, others: Self) -> Self {
                // SAFETY: as above; masked elements are not accessed.
                unsafe { $masked(p, mask, others) }
            }
            #[inline(always)]
            unsafe fn unzip(self, next: Self) -> [Self; 2] {
                // SAFETY: as above.
                unsafe { $unzip(self, next) }
            }
            #[inline(always)]
            unsafe fn following(self, last: $float) -> Self {
                // SAFETY: as above.
                unsafe { $following(self, $splat(last)) }
            }
            #[inline(always)]
            unsafe fn greater_of(self, other: Self) -> Self {
                // SAFETY: as above.
                unsafe { $greater(self, other) }
            }
            #[inline(always)]
            unsafe fn at_least(self, number: Self) -> Self {
                // SAFETY: as above.
                unsafe { $least(self, number) }
            }
            // With a NaN, the instruction gives its right operand.
            #[inline(always)]
            unsafe fn at_most(self, number: Self) -> Self {
                // SAFETY: as above.
                unsafe { $min(number, self) }
            }
            #[inline(always)]
            unsafe fn load(p: *const $float) -> Self {
                // SAFETY: as above; the elements are valid.
                unsafe { $load(p) }
            }
            #[inline(always)]
            unsafe fn load_first(p: *const $float, n: usize) -> Self {
                // SAFETY: as above.
                unsafe { $first(p, n) }
            }
            #[inline(always)]
            unsafe fn store(self, p: *mut $float) {
                // SAFETY: as above.
                unsafe { $store(p, self) }
            }
            #[inline(always)]
            unsafe fn store_first(self, p: *mut $float, n: usize) {
                // SAFETY: as above.
                unsafe { $keep(p, n, self) }
            }
            #[inline(always)]
            unsafe fn fma(self, by: Self, to: Self) -> Self {
                // SAFETY: as above.
                unsafe { $fma(self, by, to) }
            }
            #[inline(always)]
            unsafe fn mul(self, by: Self) -> Self {
                // SAFETY: as above.
                unsafe { $mul(self, by) }
            }
            #[inline(always)]
            unsafe fn add(self, by: Self) -> Self {
                // SAFETY: as above.
                unsafe { $add(self, by) }
            }
            #[inline(always)]
            unsafe fn one_nan(self) -> Self {
                // SAFETY: as above.
                unsafe { $is_nan(self) }
            }
            #[inline(always)]
            unsafe fn columns(p: *const $float, stride: isize) -> [Self; 4] {
                // SAFETY: as above.
                unsafe { $columns(p, stride) }
            }
        }
    };
}

#[cfg(target_arch = "x86_64")]
mod x86;
