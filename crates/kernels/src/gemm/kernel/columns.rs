//! The kernels of columns that are contiguous in `k`: blocks of four steps are transposed in
//! registers.

use super::super::lanes::Lanes;
use super::{Kernels, Tile, write};

/// The cache lines between a step and what it prefetches.
const LINES_AHEAD: usize = 8;

impl<F> Kernels<F> {
    /// As [`Kernels::tile`], for columns of B that are contiguous in `k`.
    ///
    /// # Safety
    /// As [`Kernels::tile`].
    pub(in crate::gemm) unsafe fn columns(&self, t: &Tile<F>, rows: usize, vectors: usize) {
        // SAFETY: the caller's promise.
        unsafe { self.columns[vectors - 1][rows - 1](t) }
    }

    /// Writes the dot products of as many pairs of vectors as a register has lanes. They have `k`
    /// elements, a multiple of 4; those of `a` follow each other in memory, and so do those of `b`.
    ///
    /// # Safety
    /// The machine has the instruction set, and the addresses are valid.
    pub(in crate::gemm) unsafe fn dots(&self, a: *const F, b: *const F, k: usize, out: *mut F) {
        // SAFETY: the caller's promise.
        unsafe { (self.dots)(a, b, k, out) }
    }

    /// Writes `k` rows of `width` elements to `to`: the elements of `n` columns that are contiguous
    /// and `stride` apart, and zeros after them.
    ///
    /// # Safety
    /// The machine has the instruction set, and the addresses are valid.
    pub(in crate::gemm) unsafe fn pack_columns(
        &self,
        from: *const F,
        stride: isize,
        [k, n, width]: [usize; 3],
        to: *mut F,
    ) {
        // SAFETY: the caller's promise.
        unsafe { (self.pack)(from, stride, [k, n, width], to) }
    }
}

/// As [`Kernels::tile`], for columns of B that are contiguous in `k`.
///
/// A step takes a whole cache line of every column: the columns may be a multiple of 4 KiB apart,
/// and then a first-level cache cannot hold a line of each until the next step.
///
/// # Safety
/// As [`Kernels::tile`].
#[inline(always)]
pub(super) unsafe fn columns<V: Lanes, const ROWS: usize, const VECTORS: usize>(
    t: &Tile<V::Float>,
) {
    // SAFETY: the caller's promise covers all accesses.
    unsafe {
        let mut sums = [[V::splat(Default::default()); VECTORS]; ROWS];
        let vector = |j: usize| (j * V::N) as isize * t.b_stride;
        let line = 64 / size_of::<V::Float>();
        let mut p = 0;
        while p + line <= t.k {
            let ahead = p + LINES_AHEAD * line;
            let fetch = match ahead.checked_sub(t.k) {
                None => t.b.wrapping_add(ahead),
                Some(behind) => t.fetch.wrapping_add(behind),
            };
            for i in 0..VECTORS * V::N {
                V::prefetch_near(fetch.wrapping_offset(i as isize * t.b_stride));
            }
            for j in 0..VECTORS {
                for q in (0..line).step_by(4) {
                    four_steps::<V, ROWS, VECTORS>(t, p + q, j, &mut sums);
                }
            }
            p += line;
        }
        while p + 4 <= t.k {
            for j in 0..VECTORS {
                four_steps::<V, ROWS, VECTORS>(t, p, j, &mut sums);
            }
            p += 4;
        }
        for p in p..t.k {
            for j in 0..VECTORS {
                let column = column::<V>(t.b.offset(vector(j)).add(p), t.b_stride);
                for (i, sums) in sums.iter_mut().enumerate() {
                    let x = V::splat(*t.a.offset(i as isize * t.a_stride).add(p));
                    sums[j] = x.fma(column, sums[j]);
                }
            }
        }
        write::<V, ROWS, VECTORS>(t, sums)
    }
}

/// Four steps of vector `j` of the columns.
///
/// # Safety
/// As [`Kernels::tile`].
#[inline(always)]
unsafe fn four_steps<V: Lanes, const ROWS: usize, const VECTORS: usize>(
    t: &Tile<V::Float>,
    p: usize,
    j: usize,
    sums: &mut [[V; VECTORS]; ROWS],
) {
    // SAFETY: the caller's promise.
    unsafe {
        let block = V::columns(t.b.offset((j * V::N) as isize * t.b_stride).add(p), t.b_stride);
        for (q, row) in block.iter().enumerate() {
            for (i, sums) in sums.iter_mut().enumerate() {
                let x = V::splat(*t.a.offset(i as isize * t.a_stride).add(p + q));
                sums[j] = x.fma(*row, sums[j]);
            }
        }
    }
}

/// A vector of elements that are `stride` apart.
///
/// # Safety
/// The machine has the instruction set, and the elements are valid.
#[inline(always)]
unsafe fn column<V: Lanes>(p: *const V::Float, stride: isize) -> V {
    let mut column = [V::Float::default(); 16];
    for (i, x) in column.iter_mut().enumerate().take(V::N) {
        // SAFETY: the caller's promise.
        *x = unsafe { *p.offset(i as isize * stride) };
    }
    // SAFETY: a vector has 16 elements at most.
    unsafe { V::load(column.as_ptr()) }
}

/// See [`Kernels::dots`]: both factors are transposed in registers.
///
/// # Safety
/// As [`Kernels::dots`].
#[inline(always)]
pub(super) unsafe fn dots<V: Lanes>(
    a: *const V::Float,
    b: *const V::Float,
    k: usize,
    out: *mut V::Float,
) {
    // SAFETY: the caller's promise.
    unsafe {
        let (mut sum, stride) = (V::splat(Default::default()), k as isize);
        for p in (0..k).step_by(4) {
            let (x, y) = (V::columns(a.add(p), stride), V::columns(b.add(p), stride));
            for (x, y) in x.into_iter().zip(y) {
                sum = x.fma(y, sum);
            }
        }
        sum.store(out)
    }
}

/// See [`Kernels::pack_columns`].
///
/// # Safety
/// As [`Kernels::pack_columns`].
#[inline(always)]
pub(super) unsafe fn pack<V: Lanes>(
    from: *const V::Float,
    stride: isize,
    [k, n, width]: [usize; 3],
    to: *mut V::Float,
) {
    // SAFETY: the caller's promise.
    unsafe {
        let whole = n / V::N * V::N;
        for column in (0..whole).step_by(V::N) {
            let from = from.offset(column as isize * stride);
            for p in (0..k / 4 * 4).step_by(4) {
                for (q, row) in V::columns(from.add(p), stride).into_iter().enumerate() {
                    row.store(to.add((p + q) * width + column));
                }
            }
            for p in k / 4 * 4..k {
                for i in 0..V::N {
                    *to.add(p * width + column + i) = *from.offset(i as isize * stride).add(p);
                }
            }
        }
        for p in 0..k {
            for column in whole..width {
                *to.add(p * width + column) = match column < n {
                    true => *from.offset(column as isize * stride).add(p),
                    false => Default::default(),
                };
            }
        }
    }
}
