//! Convolution of planes for groups of few output channels, as in depthwise convolution, over
//! [frames](Frame): no tap is in the padding, so that a vector of outputs takes one multiply-add
//! for each tap.
//!
//! Sums are in registers until they are finished. Rows shorter than a few vectors are computed as
//! one: where the frame has other elements between two rows, the sums are dropped.
//!
//! **Invariant:** the sums have the order of the product with the patch matrix, zeros of the padding
//! included.
//!
//! **Cost:** a copy of the input, and one load for each multiply-add of a vector.

use super::frame::{Frame, PlaneWindow};
use crate::error::Result;
use crate::gemm::Product;
use crate::isa::{Isa, Simd};
use crate::pointwise::ops::{Add, Op2};
use crate::scratch::filled;
use crate::thread_pool;
use crate::view::Ptr;

/// The most bytes of a frame, which stays in the second-level cache.
const FRAME_BYTES: usize = 1 << 20;
/// The most elements of a block of sums, which are in registers.
const BLOCK: usize = 64;
/// Rows of fewer elements are computed as one.
const SHORT: usize = 32;

/// A convolution of groups.
pub(super) struct Planes<'a, T> {
    pub isa: Isa,
    pub window: PlaneWindow,
    pub groups: usize,
    /// The channels of a group: of the input and of the output.
    pub channels: (usize, usize),
    /// Groups of all images, one after another.
    pub x: &'a [T],
    pub weight: &'a [T],
    pub bias: Option<&'a [T]>,
    pub y: Ptr<T>,
}

impl<T: Product> Planes<'_, T>
where
    Add: Op2<T, T>,
{
    /// Computes the convolution. `None`, with nothing written, if frames would be large.
    ///
    /// # Safety
    /// The output is valid for all planes, and nothing else accesses it during the call.
    pub unsafe fn run(&self, items: usize) -> Option<Result<()>> {
        let (ci, co) = self.channels;
        let PlaneWindow { input: [height, width], output: [rows, columns], kernel, .. } =
            self.window;
        let frame = Frame::new(&self.window, ci, rows)?;
        // Short rows are computed with all that is between them, in whole blocks.
        let line = match columns < SHORT {
            true => ((rows.max(1) - 1) * frame.row() + columns).next_multiple_of(BLOCK),
            false => 0,
        };
        let len = frame.len(ci) + 2 * BLOCK;
        if len + line > FRAME_BYTES / size_of::<T>() {
            return None;
        }
        let depth = ci * kernel[0] * kernel[1];
        let offsets = frame.offsets(ci);
        let (input, output) = (ci * height * width, rows * columns);
        let work = items.saturating_mul(co * output).saturating_mul(depth);
        let tasks = match work > thread_pool::GRAIN {
            true => items.min(4 * thread_pool::num_threads()),
            false => 1,
        };
        let each = items.div_ceil(tasks.max(1)).max(1);
        Some(thread_pool::try_for(items.div_ceil(each), tasks > 1, &|task| {
            // Elements of the padding stay zeros.
            let mut memory = filled("conv", T::default(), len + line)?;
            let (framed, line) = memory.split_at_mut(len);
            for item in task * each..items.min((task + 1) * each) {
                frame.fill_inside(self.isa, &self.x[item * input..][..input], 0..rows, framed);
                for channel in 0..co {
                    let of_group = item % self.groups * co + channel;
                    let at = (item * co + channel) * output;
                    self.isa.dispatch(Plane {
                        isa: self.isa,
                        frame: framed,
                        offsets: &offsets,
                        weights: &self.weight[of_group * depth..][..depth],
                        bias: self.bias.map(|bias| bias[of_group]),
                        step: frame.row(),
                        columns,
                        line,
                        // SAFETY: the plane is this task's alone.
                        out: unsafe { self.y.slice_mut(at as i64, output) },
                    });
                }
            }
            Ok(())
        }))
    }
}

/// A plane of the output.
struct Plane<'a, T> {
    isa: Isa,
    frame: &'a [T],
    offsets: &'a [u32],
    weights: &'a [T],
    bias: Option<T>,
    /// The distance of rows in the frame.
    step: usize,
    columns: usize,
    /// Scratch memory for the sums of short rows, with all that is between them.
    line: &'a mut [T],
    out: &'a mut [T],
}

impl<T: Product> Simd for Plane<'_, T>
where
    Add: Op2<T, T>,
{
    type Out = ();
    #[inline(always)]
    fn run(mut self) {
        let (columns, step) = (self.columns, self.step);
        let line = std::mem::take(&mut self.line);
        let out = std::mem::take(&mut self.out);
        if line.is_empty() {
            for (row, out) in out.chunks_mut(columns).enumerate() {
                self.row(row * step, out);
            }
            return;
        }
        self.row(0, line);
        for (from, to) in line.chunks(step).zip(out.chunks_mut(columns)) {
            to.iter_mut().zip(from).for_each(|(to, x)| *to = *x);
        }
    }
}

impl<T: Product> Plane<'_, T>
where
    Add: Op2<T, T>,
{
    /// Computes the sums of neighbours in the frame, from position `at` on.
    #[inline(always)]
    fn row(&self, at: usize, out: &mut [T]) {
        let mut done = 0;
        while done < out.len() {
            let out = &mut out[done..];
            let n = match out.len() {
                49.. => self.block::<BLOCK>(at + done, out),
                17.. => self.block::<32>(at + done, out),
                _ => self.block::<16>(at + done, out),
            };
            done += n;
        }
    }

    /// Computes at most `N` sums, and returns how many.
    #[inline(always)]
    fn block<const N: usize>(&self, at: usize, out: &mut [T]) -> usize {
        let mut sums = [T::default(); N];
        for (&weight, &offset) in self.weights.iter().zip(self.offsets) {
            let Some(x) = self.frame[at + offset as usize..].first_chunk::<N>() else { return N };
            for (sum, x) in sums.iter_mut().zip(x) {
                *sum = T::multiply_add(self.isa, weight, *x, *sum);
            }
        }
        if let Some(bias) = self.bias {
            sums.iter_mut().for_each(|sum| *sum = <Add as Op2<T, T>>::f(*sum, bias));
        }
        sums.iter_mut().for_each(|sum| *sum = sum.one_nan());
        match out.first_chunk_mut::<N>() {
            Some(out) => *out = sums,
            None => out.iter_mut().zip(sums).for_each(|(out, sum)| *out = sum),
        }
        N.min(out.len())
    }
}
