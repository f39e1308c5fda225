//! The kernels of planes: windows of 3 x 3 elements of one channel, as in a depthwise convolution
//! or a pooling.
//!
//! A tile has some rows of outputs, one vector wide. The [taps](LineLoads) of a line are loaded
//! once for all rows that see it, and the weights stay in registers.
//!
//! **Invariant:** an output combines its taps row by row, those of the padding included.

use super::lines::{LineLoads, TAPS, WindowedPlane};
use crate::gemm::lanes::Lanes;
use crate::math::Float;
use std::ops::Range;

/// The rows of a tile: enough chains to hide the latency of a multiply-add.
const ROWS: usize = 4;

/// A plane of outputs.
pub(crate) struct PlaneTile<F> {
    pub plane: WindowedPlane<F>,
    /// The weights, row by row.
    pub weights: *const F,
    /// The number that is added to each sum, or null.
    pub bias: *const F,
    /// The rows of the output to compute, and where the first of them is.
    pub rows: Range<usize>,
    pub columns: usize,
    pub out: *mut F,
}

/// See [`Kernels::plane`](super::Kernels::plane).
///
/// # Safety
/// As [`Kernels::plane`](super::Kernels::plane).
#[inline(always)]
pub(super) unsafe fn plane<V: Lanes, const STEP: usize>(t: &PlaneTile<V::Float>) {
    // SAFETY: the caller's promise covers all accesses: the plane, the weights, and the outputs.
    unsafe {
        let mut weights = [[V::splat(Float::ZERO); TAPS]; TAPS];
        for (i, weights) in weights.iter_mut().enumerate() {
            for (j, weight) in weights.iter_mut().enumerate() {
                *weight = V::splat(*t.weights.add(i * TAPS + j));
            }
        }
        let finish = |sum: V| match t.bias.is_null() {
            true => sum.one_nan(),
            false => sum.add(V::splat(*t.bias)).one_nan(),
        };
        let tap = |i: usize, j: usize, x: V, sum: V| weights[i][j].fma(x, sum);
        windows::<V, STEP>(t, [Float::ZERO; 2], &tap, &finish)
    }
}

/// See [`Kernels::greatest`](super::Kernels::greatest).
///
/// # Safety
/// As [`Kernels::greatest`](super::Kernels::greatest).
#[inline(always)]
pub(super) unsafe fn greatest<V: Lanes, const STEP: usize>(t: &PlaneTile<V::Float>) {
    let least = -V::Float::INFINITY;
    // SAFETY: as above, but that there are no weights.
    unsafe {
        let tap = |_: usize, _: usize, x: V, best: V| x.greater_of(best);
        windows::<V, STEP>(t, [least; 2], &tap, &|best| best)
    }
}

/// Computes all rows: combines the taps of each window from `first` on, and finishes them. The
/// padding has elements `other`.
///
/// # Safety
/// As [`plane`].
#[inline(always)]
unsafe fn windows<V: Lanes, const STEP: usize>(
    t: &PlaneTile<V::Float>,
    [first, other]: [V::Float; 2],
    tap: &impl Fn(usize, usize, V, V) -> V,
    finish: &impl Fn(V) -> V,
) {
    let mut column = 0;
    while column < t.columns {
        // SAFETY: the caller's promise.
        unsafe {
            let loads = LineLoads::<V>::new::<STEP>(&t.plane, column, other);
            let first = V::splat(first);
            let mut row = 0;
            while row < t.rows.len() {
                match t.rows.len().checked_sub(ROWS) {
                    // The last tile begins earlier rather than that it is lower.
                    Some(last) => {
                        row = row.min(last);
                        tile::<V, STEP, ROWS>(t, &loads, [row, column], first, tap, finish);
                        row += ROWS;
                    }
                    None => {
                        tile::<V, STEP, 1>(t, &loads, [row, column], first, tap, finish);
                        row += 1;
                    }
                }
            }
        }
        column += V::N;
    }
}

/// Computes `R` rows of outputs.
///
/// # Safety
/// As [`plane`].
#[inline(always)]
#[allow(clippy::needless_range_loop)]
unsafe fn tile<V: Lanes, const STEP: usize, const R: usize>(
    t: &PlaneTile<V::Float>,
    loads: &LineLoads<V>,
    [row, column]: [usize; 2],
    first: V,
    tap: &impl Fn(usize, usize, V, V) -> V,
    finish: &impl Fn(V) -> V,
) {
    // SAFETY: the caller's promise.
    unsafe {
        let mut sums = [first; R];
        let line = ((t.rows.start + row) * STEP) as isize - t.plane.padding[0] as isize;
        for l in 0..(R - 1) * STEP + TAPS {
            let taps = loads.taps::<STEP>(&t.plane, line + l as isize);
            for r in 0..R {
                // The row of the window that the line is, if the window has it.
                let i = l.wrapping_sub(r * STEP);
                if i < TAPS {
                    for j in 0..TAPS {
                        sums[r] = tap(i, j, taps[j], sums[r]);
                    }
                }
            }
        }
        let n = V::N.min(t.columns - column);
        for r in 0..R {
            let (sum, to) = (finish(sums[r]), t.out.add((row + r) * t.columns + column));
            match n == V::N {
                true => sum.store(to),
                false => sum.store_first(to, n),
            }
        }
    }
}
