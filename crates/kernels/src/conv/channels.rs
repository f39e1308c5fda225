//! Depthwise convolution and pooling of images whose channels are last in memory.
//!
//! A task takes some rows of an image, or all rows of some channels. A [tile](ChannelTile) has some
//! neighbouring outputs. Where it touches the padding, it gets the address of each element, as in
//! the indirect convolution of Dukhan (2019): those of the padding are zeros, or -∞ for a pooling.
//!
//! **Invariant:** the sums have the order of the product with the patch matrix, with the zeros of
//! the padding. The greatest element of a window is its last NaN, if it has one.
//!
//! **Cost:** that of the kernel. Nothing is copied.

use super::frame::PlaneWindow;
use super::images::Images;
use super::visitor::{Following, ImageVisitor};
use crate::error::Result;
use crate::gemm::{Affine, ChannelTile, PixelWeights, Taps};
use crate::isa::Isa;
use crate::pointwise::chain::Chained;
use crate::scratch::with_scratch;
use crate::thread_pool;
use crate::view::Ptr;
use smallvec::SmallVec;
use std::ops::Range;

/// The elements of a rectangle that is visited while it is in a near cache, unless a tile has more.
const VISITED: usize = 4 << 10;
/// Tasks share out channels in multiples of this, so that no vector and no cache line has channels
/// of two tasks.
const CHANNELS: usize = 16;
/// Threads share out rows if each of them has at least so many.
const LEAST_ROWS: usize = 7;
/// The blocks of rows of each thread, so that none waits long for another one.
const BLOCKS: usize = 14;

/// What a window is reduced to.
#[derive(Clone, Copy)]
pub(crate) enum WindowReduction<'a, F> {
    /// Its sum with weights [of channels](PixelWeights::of_channels).
    Sum(&'a PixelWeights<F>),
    /// Its greatest element.
    Greatest,
}

/// A depthwise convolution, or a pooling.
pub(crate) struct ChannelConv<'a, F> {
    pub isa: Isa,
    pub threads: usize,
    pub window: PlaneWindow,
    pub images: usize,
    pub channels: usize,
    /// The images, whose channels are last.
    pub x: Images<F>,
    pub of: WindowReduction<'a, F>,
    /// The result, if it is wanted beside what a visitor makes of it. Its channels are last.
    pub out: Option<Images<F>>,
    pub visitor: Option<&'a dyn ImageVisitor<F>>,
}

impl<F: Chained> ChannelConv<'_, F> {
    /// Computes the convolution. `None`, with nothing written, if the weights are packed otherwise.
    ///
    /// # Errors
    /// There is not enough memory, or that of the visitor.
    ///
    /// # Safety
    /// The input and the output are in live memory of these sizes, and nothing else accesses the
    /// output during the call.
    pub unsafe fn run(&self) -> Option<Result<()>> {
        if let WindowReduction::Sum(weights) = self.of {
            weights.of_channel_vectors()?;
        }
        let outside = match self.of {
            WindowReduction::Sum(_) => F::ZERO,
            WindowReduction::Greatest => -F::INFINITY,
        };
        let [rows, columns] = self.window.output;
        let taps = self.taps();
        if self.images * self.channels * rows * columns == 0 {
            return Some(Ok(()));
        }
        let work = (self.images * rows * columns).saturating_mul(self.channels * taps.len());
        let is_parallel = self.threads > 1 && work > thread_pool::GRAIN;
        let wanted = if is_parallel { self.threads.div_ceil(self.images.max(1)) } else { 1 };
        let by_rows = rows >= LEAST_ROWS * wanted;
        let blocks = if wanted > 1 && by_rows { (BLOCKS * wanted).min(rows) } else { 1 };
        let parts = if by_rows { 1 } else { wanted };
        let of_block = rows.div_ceil(blocks);
        let of_part = self.channels.div_ceil(parts).next_multiple_of(CHANNELS);
        let (blocks, parts) = (rows.div_ceil(of_block), self.channels.div_ceil(of_part));
        // The channels of a rectangle, which has a row or as many pixels as fit.
        let tile = ChannelTile::<F>::MOST;
        let fitting = VISITED / columns.clamp(1, VISITED / CHANNELS) / CHANNELS * CHANNELS;
        let part = of_part.min(fitting.min(VISITED / tile / CHANNELS * CHANNELS)).max(CHANNELS);
        let pixels = ((VISITED / part / tile).max(1) * tile).min(columns.max(1));
        let elements = part * pixels;
        let of_padding = part.next_multiple_of(CHANNELS);
        let of_sums = if self.out.is_none() { elements.next_multiple_of(CHANNELS) } else { 0 };
        let of_visitor = self.visitor.map_or(0, |v| v.scratch(elements).div_ceil(size_of::<F>()));
        let scratch = of_padding + of_sums + of_visitor;
        let per_image = blocks * parts;
        Some(thread_pool::try_for(self.images * per_image, is_parallel, &|task| {
            let (image, task) = (task / per_image, task % per_image);
            let first = task % blocks * of_block;
            let own_rows = first..rows.min(first + of_block);
            let first = task / blocks * of_part;
            let channels = first..self.channels.min(first + of_part);
            with_scratch("conv", scratch, |scratch: &mut [F]| {
                let (padding, rest) = scratch.split_at_mut(of_padding);
                padding.fill(outside);
                let (sums, own) = rest.split_at_mut(of_sums);
                let own = Ptr(own.as_mut_ptr().cast::<u8>());
                let sums = sums.as_mut_ptr();
                for row in own_rows {
                    for from in (0..columns).step_by(pixels) {
                        let some = from..columns.min(from + pixels);
                        for first in channels.clone().step_by(part) {
                            let channels = first..channels.end.min(first + part);
                            let first = row * columns + some.start;
                            let (start, pixel) = match &self.out {
                                Some(out) => (out.at(image, channels.start, first), out.pixel),
                                None => (sums, channels.len()),
                            };
                            let of = Segment { image, row, columns: some.clone(), channels };
                            let chain = self.visitor.filter(|_| self.out.is_none());
                            let chain =
                                chain.and_then(|v| v.pixels(image, of.channels.start, first));
                            // SAFETY: the caller's promise; the rectangle is this task's alone.
                            unsafe {
                                let at = (start, pixel);
                                if let Some(Following::Affine(then)) = chain {
                                    self.segment(&of, (&taps, padding), at, (None, Some(then)));
                                    continue;
                                }
                                if let Some(Following::Chain(mut chain)) = chain {
                                    let n = of.channels.len();
                                    let mut after = |outputs: usize| {
                                        let step = pixel as isize;
                                        chain.run(self.isa, [outputs, n], Ptr(start), step);
                                    };
                                    let after: After<'_> = Some(&mut after);
                                    self.segment(&of, (&taps, padding), at, (after, None));
                                    continue;
                                }
                                self.segment(&of, (&taps, padding), at, (None, None));
                                if let Some(visitor) = self.visitor {
                                    let of_row = first..first + some.len();
                                    let sums = (Ptr(start.cast()), [1, pixel as i64]);
                                    visitor.visit(image, of.channels, of_row, sums, own)?;
                                }
                            }
                        }
                    }
                }
                Ok(())
            })?
        }))
    }

    /// The taps of a window: row, column, and their offset in the image.
    fn taps(&self) -> SmallVec<[(usize, usize, usize); 9]> {
        let PlaneWindow { kernel: [kh, kw], dilation: [dh, dw], input: [_, width], .. } =
            self.window;
        let at = |(row, column): (usize, usize)| {
            let (row, column) = (row * dh, column * dw);
            (row, column, (row * width + column) * self.x.pixel)
        };
        (0..kh).flat_map(|row| (0..kw).map(move |column| (row, column))).map(at).collect()
    }

    /// Computes the sums of a segment, and what follows them. With `after`, which gets the number
    /// of outputs, each tile is written where the last one was.
    ///
    /// # Safety
    /// As [`ChannelConv::run`]. The padding has as many elements as channels.
    unsafe fn segment(
        &self,
        of: &Segment,
        (taps, padding): (&[(usize, usize, usize)], &[F]),
        (out, pixel): (*mut F, usize),
        (mut after, then): (After<'_>, Option<Affine<F>>),
    ) {
        let kernels = F::kernels(match self.of {
            WindowReduction::Sum(weights) => weights.isa(),
            WindowReduction::Greatest => self.isa,
        });
        let PlaneWindow { input: [height, width], stride: [sh, sw], padding: [ph, pw], .. } =
            self.window;
        let (offsets, reach) = {
            let offsets: SmallVec<[usize; 9]> = taps.iter().map(|(_, _, at)| *at).collect();
            (offsets, taps.last().map_or((0, 0), |(row, column, _)| (*row, *column)))
        };
        let weights = match self.of {
            WindowReduction::Sum(weights) => weights.of_channel_vectors(),
            WindowReduction::Greatest => None,
        };
        let start = of.channels.start * taps.len();
        let weights = weights.map_or(std::ptr::null(), |weights| weights.wrapping_add(start));
        let first_row = of.row * sh;
        let has_rows = first_row >= ph && first_row + reach.0 - ph < height;
        let image = self.x.at(of.image, of.channels.start, 0).cast_const();
        let mut table: SmallVec<[*const F; 64]> = SmallVec::new();
        let outside = padding.as_ptr();
        let mut column = of.columns.start;
        while column < of.columns.end {
            let outputs = (of.columns.end - column).min(ChannelTile::<F>::MOST);
            let first = column * sw;
            let last = first + (outputs - 1) * sw + reach.1;
            let taps = if has_rows && first >= pw && last - pw < width {
                let at = (first_row - ph) * width + first - pw;
                let start = image.wrapping_add(at * self.x.pixel);
                Taps::Inside { start, taps: &offsets, step: sw * self.x.pixel }
            } else {
                table.resize(taps.len() * outputs, outside);
                for ((row, tap, _), at) in taps.iter().zip(table.chunks_exact_mut(outputs)) {
                    let row = (first_row + row).wrapping_sub(ph);
                    if row >= height {
                        at.fill(outside);
                        continue;
                    }
                    let start = image.wrapping_add(row * width * self.x.pixel);
                    for (i, at) in at.iter_mut().enumerate() {
                        let column = (first + i * sw + tap).wrapping_sub(pw);
                        let inside = start.wrapping_add(column.wrapping_mul(self.x.pixel));
                        *at = if column < width { inside } else { outside };
                    }
                }
                Taps::Table(&table)
            };
            let at = if after.is_some() { 0 } else { column - of.columns.start };
            let out = out.wrapping_add(at * pixel);
            let channels = of.channels.len();
            let then = then.map(|then| then.at(0, column - of.columns.start));
            let rest = of.columns.end - column - outputs;
            let fetches = after.is_none() && rest >= outputs;
            let tile = ChannelTile { outputs, taps, weights, channels, out, pixel, then, fetches };
            // SAFETY: the caller's promise.
            unsafe {
                match self.of {
                    WindowReduction::Sum(_) => kernels.channels(&tile),
                    WindowReduction::Greatest => kernels.greatest_channels(&tile),
                }
            }
            if let Some(after) = &mut after {
                after(outputs);
            }
            column += outputs;
        }
    }
}

/// What is called after each tile, with the number of its outputs.
type After<'a> = Option<&'a mut dyn FnMut(usize)>;

/// Some outputs of a row.
struct Segment {
    image: usize,
    row: usize,
    columns: Range<usize>,
    channels: Range<usize>,
}
