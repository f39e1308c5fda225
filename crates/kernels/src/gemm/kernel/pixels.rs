//! The kernels of pixels: the rows of A are at equal distances in memory, and a table gives the
//! place of each step of `k`.
//!
//! So a convolution reads its windows where they are: a step is a channel and a tap. Where channels
//! are planes, the pixels of a tile see it at consecutive addresses, and one address serves them
//! all. Where channels are last, pixels are some elements apart. The columns are output channels,
//! whose weights are packed.

#[cfg(doc)]
use super::Kernels;
use super::NEAR;
use super::affine::Affine;
use crate::gemm::lanes::{Lanes, launder};

/// How many pixels ahead the kernel prefetches. Each step reads from another channel, of which the
/// processor would follow a few alone.
const PIXELS_AHEAD: usize = 32;

/// How many channels ahead it prefetches where they are last: of one pixel after another.
const CHANNELS_AHEAD: usize = 16;

/// One segment of the sums of some pixels and channels.
pub(in crate::gemm) struct PixelTile<F> {
    /// The length of the segment.
    pub k: usize,
    /// The first pixel where the offset of a step is 0.
    pub a: *const F,
    /// The offset of each step.
    pub offsets: *const u32,
    /// The weights: rows of whole vectors, one after another.
    pub b: *const F,
    /// Sums of earlier segments to add in this order, or null. Rows are like those of `out`.
    pub sums: [*const F; 2],
    /// The destination: a row for each pixel.
    pub out: *mut F,
    /// The distance of pixels, for the kernels whose pixels are no neighbours.
    pub pixel: usize,
    /// Whether the sums are complete. Otherwise rows are whole vectors, one after another.
    pub complete: Option<Complete>,
    /// What follows complete sums of whole vectors, instead of the destination. There is no
    /// residual, and each channel has a scale and a shift.
    pub then: Option<Affine<F>>,
    /// Memory to be fetched into the second-level cache, a line for each step.
    pub fetch: *const F,
}

/// Sums of pixels that are complete.
#[derive(Clone, Copy)]
pub(in crate::gemm) struct Complete {
    /// The elements of the last vector of a row.
    pub last: usize,
    /// The distance of rows of the destination.
    pub row: usize,
}

/// See [`Kernels::pixels`].
///
/// # Safety
/// As [`Kernels::pixels`].
#[inline(always)]
#[allow(clippy::needless_range_loop)]
pub(super) unsafe fn pixels<
    V: Lanes,
    const ROWS: usize,
    const VECTORS: usize,
    const APART: bool,
>(
    t: &PixelTile<V::Float>,
) {
    // SAFETY: the caller's promise covers all accesses: the pixels at `k` offsets, `k` rows of
    // weights, and the rows of the sums and the destination.
    unsafe {
        let mut sums = [[V::splat(Default::default()); VECTORS]; ROWS];
        let (mut b, mut fetch) = (t.b, t.fetch);
        let line = 64 / size_of::<V::Float>();
        for p in 0..t.k {
            let mut a = t.a.add(*t.offsets.add(p) as usize);
            match APART {
                true => V::prefetch_near(a.wrapping_add(p % line * t.pixel + CHANNELS_AHEAD)),
                false => V::prefetch_near(a.wrapping_add(PIXELS_AHEAD)),
            }
            let mut row = [V::splat(Default::default()); VECTORS];
            for (j, y) in row.iter_mut().enumerate() {
                *y = V::load(b.add(j * V::N));
                V::prefetch_near(b.wrapping_add((NEAR as usize * VECTORS + j) * V::N));
            }
            V::prefetch(fetch);
            for (i, sums) in sums.iter_mut().enumerate() {
                let x = V::splat(if APART { *a } else { *a.add(i) });
                for (sum, y) in sums.iter_mut().zip(row) {
                    *sum = x.fma(y, *sum);
                }
                // Each address follows from the last one: all at once would take the registers.
                if APART {
                    a = a.wrapping_add(t.pixel);
                }
            }
            b = b.add(VECTORS * V::N);
            fetch = fetch.wrapping_add(line);
        }
        for earlier in t.sums {
            if earlier.is_null() {
                continue;
            }
            for i in 0..ROWS {
                for j in 0..VECTORS {
                    let at = (i * VECTORS + j) * V::N;
                    sums[i][j] = V::load(earlier.add(at)).add(sums[i][j]);
                }
            }
        }
        if let Some(then) = &t.then {
            follow::<V, ROWS, VECTORS>(then, sums);
            return;
        }
        let Some(complete) = &t.complete else {
            for i in 0..ROWS {
                for j in 0..VECTORS {
                    sums[i][j].store(t.out.add((i * VECTORS + j) * V::N));
                }
            }
            return;
        };
        let (last, is_whole) = (complete.last, complete.last == V::N);
        let store = |x: V, j: usize, to: *mut V::Float| match j + 1 == VECTORS && !is_whole {
            true => x.store_first(to, last),
            false => x.store(to),
        };
        for i in 0..ROWS {
            for j in 0..VECTORS {
                let to = t.out.add(i * complete.row + j * V::N);
                store(sums[i][j].one_nan(), j, to);
            }
        }
    }
}

/// Writes what follows sums of whole vectors.
///
/// The sums take almost all registers. So the numbers of the channels are operands in memory.
///
/// # Safety
/// As [`Kernels::pixels`].
#[inline(always)]
unsafe fn follow<V: Lanes, const ROWS: usize, const VECTORS: usize>(
    then: &Affine<V::Float>,
    sums: [[V; VECTORS]; ROWS],
) {
    const { assert!(ROWS <= 14) }
    // SAFETY: the caller's promise.
    unsafe {
        let bounds = [V::splat(then.least), V::splat(then.most)];
        // The compiler does not unroll so long a loop, and would store the sums for it.
        macro_rules! each {
            ($($i:literal)*) => { $(if $i < ROWS { follow_row(then, $i, sums[$i], bounds) })* };
        }
        each!(0 1 2 3 4 5 6 7 8 9 10 11 12 13);
    }
}

/// Writes what follows the sums of pixel `i`.
///
/// # Safety
/// As [`Kernels::pixels`].
#[inline(always)]
unsafe fn follow_row<V: Lanes, const VECTORS: usize>(
    then: &Affine<V::Float>,
    i: usize,
    sums: [V; VECTORS],
    [least, most]: [V; 2],
) {
    // SAFETY: the caller's promise.
    unsafe {
        for (j, sum) in sums.into_iter().enumerate() {
            let number = |p: *const V::Float| V::load(launder(p.add(j * V::N)));
            let x = sum.one_nan().mul(number(then.scale)).add(number(then.shift));
            let to = then.out.add(i * then.out_pixel + j * V::N);
            x.at_least(least).at_most(most).store(to);
        }
    }
}

/// See [`Kernels::finish_pixels`].
///
/// # Safety
/// As [`Kernels::finish_pixels`].
#[inline(always)]
pub(super) unsafe fn finish<V: Lanes>(
    sums: *const V::Float,
    [rows, columns, width]: [usize; 3],
    bias: *const V::Float,
    out: *mut V::Float,
    stride: usize,
) {
    // SAFETY: the caller's promise. Rows after the last are those of the scratch memory.
    unsafe {
        for row in (0..rows).step_by(V::N) {
            let n = V::N.min(rows - row);
            for column in (0..columns).step_by(4) {
                let four = V::columns(sums.add(row * width + column), width as isize);
                for (column, mut x) in (column..columns).zip(four) {
                    if !bias.is_null() {
                        x = x.add(V::splat(*bias.add(column)));
                    }
                    let to = out.add(column * stride + row);
                    match n == V::N {
                        true => x.one_nan().store(to),
                        false => x.one_nan().store_first(to, n),
                    }
                }
            }
        }
    }
}
