//! The kernels of planes: windows of 3 x 3 elements of one channel, as in a depthwise convolution.
//!
//! The windows are those of a [frame](crate::conv::Frame), so that a tap of neighbouring outputs is
//! in neighbouring elements. A tile has some rows of outputs, one vector wide: a line of the frame
//! is loaded once for all rows that see it, and the weights stay in registers.
//!
//! **Invariant:** the sum of an output has the order of its taps, row by row.

use crate::gemm::lanes::Lanes;

/// The rows and columns of a window.
const TAPS: usize = 3;
/// The rows of a tile: enough chains to hide the latency of a multiply-add.
const ROWS: usize = 4;

/// A plane of outputs.
pub(crate) struct PlaneTile<F> {
    /// The first window in the frame, and the distance of lines.
    pub frame: *const F,
    pub line: usize,
    /// The offsets of the taps of a row.
    pub taps: [usize; TAPS],
    /// The weights, row by row.
    pub weights: *const F,
    /// The number that is added to each sum, or null.
    pub bias: *const F,
    /// The outputs, row-major.
    pub out: *mut F,
    pub rows: usize,
    pub columns: usize,
}

/// See [`Kernels::plane`](super::Kernels::plane).
///
/// # Safety
/// As [`Kernels::plane`](super::Kernels::plane).
#[inline(always)]
pub(super) unsafe fn plane<V: Lanes, const STEP: usize>(t: &PlaneTile<V::Float>) {
    // SAFETY: the caller's promise covers all accesses: the lines of all rows, with a vector behind
    // the last, the weights, and the outputs.
    unsafe {
        let mut weights = [[V::splat(Default::default()); TAPS]; TAPS];
        for (i, weights) in weights.iter_mut().enumerate() {
            for (j, weight) in weights.iter_mut().enumerate() {
                *weight = V::splat(*t.weights.add(i * TAPS + j));
            }
        }
        let mut row = 0;
        while row < t.rows {
            match t.rows.checked_sub(ROWS) {
                // The last tile begins earlier rather than that it is lower.
                Some(last) => {
                    row = row.min(last);
                    tile::<V, STEP, ROWS>(t, &weights, row);
                    row += ROWS;
                }
                None => {
                    tile::<V, STEP, 1>(t, &weights, row);
                    row += 1;
                }
            }
        }
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
    weights: &[[V; TAPS]; TAPS],
    row: usize,
) {
    // SAFETY: the caller's promise.
    unsafe {
        let (from, to) = (t.frame.add(row * STEP * t.line), t.out.add(row * t.columns));
        let mut column = 0;
        while column < t.columns {
            let mut sums = [V::splat(Default::default()); R];
            for i in 0..TAPS {
                for j in 0..TAPS {
                    for r in 0..R {
                        let line = from.add((r * STEP + i) * t.line);
                        let x = V::load(line.add(t.taps[j] + column));
                        sums[r] = weights[i][j].fma(x, sums[r]);
                    }
                }
            }
            let n = V::N.min(t.columns - column);
            for r in 0..R {
                let mut sum = sums[r];
                if !t.bias.is_null() {
                    sum = sum.add(V::splat(*t.bias));
                }
                let to = to.add(r * t.columns + column);
                match n == V::N {
                    true => sum.one_nan().store(to),
                    false => sum.one_nan().store_first(to, n),
                }
            }
            column += V::N;
        }
    }
}
