//! Convolutions as [products of pixels](crate::gemm::PixelProduct), which read windows where they
//! are.
//!
//! A task takes some output rows of an image, or some pixels where windows are elements, and some
//! panels of output channels. It copies its input into a frame ([`Frame`], or [`PixelFrame`] where
//! channels are last), which stays in the second-level cache, and computes one panel after another,
//! whose weights are there, too. Without padding and stride, windows of one element are read in the
//! input itself; where channels are last, those with a stride, too.
//!
//! **Invariant:** the bits are those of the product with the patch matrix: a step of a sum is a
//! channel and a tap, in this order, and an element of the padding is a zero that is multiplied.
//!
//! **Cost:** a copy of the input for each task. The weights are read once for each block of rows.

use super::frame::{Frame, PlaneWindow};
use super::images::Images;
use super::pixel_frame::PixelFrame;
use super::source::Source;
use super::visitor::{Following, ImageVisitor};
use crate::error::Result;
use crate::gemm::{PixelLines, PixelOutput, PixelProduct, PixelWeights, WeightsAhead};
use crate::isa::Isa;
use crate::pages::Lifetime;
use crate::pointwise::chain::Chained;
use crate::scratch::with_scratch;
use crate::thread_pool;
use crate::view::Ptr;
use std::borrow::Cow;
use std::ops::Range;

/// The most bytes of a frame, beside which the second-level cache has room for a panel of weights.
const FRAME_BYTES: usize = 640 << 10;
/// The most tiles of a line where windows are elements, and the least if it has whole rows.
const LINE_TILES: usize = 16;
const LEAST_TILES: usize = 4;
/// Threads divide the panels of an image of fewer pixels, if there are more channels than in the
/// input.
const FEW_PIXELS: usize = 700;
/// They divide its pixels alone if there are at least so many, and otherwise both.
const MANY_PIXELS: usize = 3000;
/// The elements of a rectangle that is visited while it is in a near cache, unless a row has more:
/// where channels are planes, and where they are last.
const VISITED: [usize; 2] = [16 << 10, 4 << 10];
/// Weights of at most so many bytes stay in a near cache, so that all panels of some pixels follow
/// each other where channels are last.
const NEAR_BYTES: usize = 32 << 10;
/// The tasks of each thread, so that none waits long for another one.
const TASKS: usize = 4;
/// The offsets of channels that are neighbours.
const NEIGHBOURS: &[u32] = &{
    let mut offsets = [0; 4096];
    let mut at = 0;
    while at < offsets.len() {
        offsets[at] = at as u32;
        at += 1;
    }
    offsets
};
/// Convolutions of fewer multiply-adds stay on the caller's thread.
const SMALL: usize = 64 * 64 * 64;

/// A convolution of images whose channels are row-major planes, or last.
pub(crate) struct PixelConv<'a, F> {
    pub isa: Isa,
    pub threads: usize,
    pub window: PlaneWindow,
    pub images: usize,
    pub channels: usize,
    pub x: Images<F>,
    pub weights: &'a PixelWeights<F>,
    /// The biases, where the channels of the result are planes.
    pub bias: Option<&'a [F]>,
    /// The result, if it is wanted beside what a visitor makes of it.
    pub out: Option<Images<F>>,
    pub visitor: Option<&'a dyn ImageVisitor<F>>,
}

/// A convolution of row-major operands, whose weights are not packed.
pub(crate) struct Pixels<'a, T> {
    pub isa: Isa,
    pub threads: usize,
    pub window: PlaneWindow,
    pub images: usize,
    /// The channels of the input and of the output.
    pub channels: (usize, usize),
    /// The products of a sum.
    pub depth: usize,
    pub x: Ptr<T>,
    pub weight: Ptr<T>,
    pub bias: Option<&'a [T]>,
    pub y: Ptr<T>,
    /// The pixels of an output channel.
    pub windows: usize,
}

impl<F: Chained> Pixels<'_, F> {
    /// Computes the convolution, if it is worth packing the weights.
    ///
    /// # Safety
    /// As [`PixelConv::run`].
    pub unsafe fn run(self) -> Option<Result<()>> {
        let Pixels { isa, threads, window, images, channels: (ci, co), depth, .. } = self;
        let [height, width] = window.input;
        let lifetime = Lifetime::Call;
        // SAFETY: the caller's promise.
        let weights = unsafe { PixelWeights::new("conv", isa, self.weight, [co, depth], lifetime) };
        let weights = match weights {
            Ok(weights) => weights,
            Err(e) => return Some(Err(e)),
        };
        let planes = |start: Ptr<F>, channels: usize, plane: usize| Images {
            start,
            image: channels * plane,
            channel: plane,
            pixel: 1,
        };
        let conv = PixelConv {
            isa,
            threads,
            window,
            images,
            channels: ci,
            x: planes(self.x, ci, height * width),
            weights: &weights,
            bias: self.bias,
            out: Some(planes(self.y, co, self.windows)),
            visitor: None,
        };
        // SAFETY: the caller's promise.
        unsafe { conv.run() }
    }
}

/// How a convolution is divided: output rows and panels of a task.
struct Blocks {
    rows: usize,
    panels: usize,
}

impl<F: Chained> PixelConv<'_, F> {
    /// Computes the convolution. `None`, with nothing written, if a frame would be too large.
    ///
    /// # Errors
    /// There is not enough memory, or that of the visitor.
    ///
    /// # Safety
    /// The input, the weights and the output are in live memory of these sizes, and nothing else
    /// accesses the output during the call.
    pub unsafe fn run(&self) -> Option<Result<()>> {
        let (window, ci) = (&self.window, self.channels);
        let [rows, columns] = window.output;
        let pixels = rows * columns;
        if self.reads_in_place() {
            let offsets = match NEIGHBOURS.get(..ci).filter(|_| self.x.channel == 1) {
                Some(neighbours) => Cow::Borrowed(neighbours),
                None => {
                    let offsets = (0..ci).map(|c| u32::try_from(c * self.x.channel).ok());
                    Cow::Owned(offsets.collect::<Option<Vec<u32>>>()?)
                }
            };
            let product = PixelProduct::new(self.weights, &offsets);
            let pixel = self.x.pixel;
            let (lines, blocks, distances) = if window.is_plain() {
                let (length, blocks) = self.blocks_of_elements(&product);
                let lines = (pixels.div_ceil(length), length, pixels);
                (lines, blocks, [length * pixel, pixel])
            } else {
                let [of_rows, of_columns] = window.stride;
                let distances = [of_rows * window.input[1] * pixel, of_columns * pixel];
                ((rows, columns, pixels), self.blocks(&product, rows, rows), distances)
            };
            // SAFETY: the caller's promise.
            return Some(unsafe {
                self.tasks(&product, &blocks, lines, &Source::Images(distances))
            });
        }
        let frame = |rows: usize| match self.x.has_planes() {
            true => Frame::new(window, ci, rows).map(Source::Planes),
            false => PixelFrame::new::<F>(window, ci, rows).map(Source::Pixels),
        };
        let any = frame(1)?;
        let of_row = frame(2)?.len(ci) - any.len(ci);
        let fitting = FRAME_BYTES / (of_row * size_of::<F>()).max(1);
        let offsets = any.offsets(ci);
        let blocks = self.blocks(&PixelProduct::new(self.weights, &offsets), rows, fitting.max(1));
        let source = frame(blocks.rows)?;
        let offsets = source.offsets(ci);
        let product = PixelProduct::new(self.weights, &offsets);
        let lines = (rows, columns, pixels);
        // SAFETY: the caller's promise.
        Some(unsafe { self.tasks(&product, &blocks, lines, &source) })
    }

    /// Whether windows are one element each, inside the image and at equal distances.
    fn reads_in_place(&self) -> bool {
        let PlaneWindow { input, output, kernel, stride, padding, .. } = self.window;
        let reaches = |d: usize| output[d].saturating_sub(1).saturating_mul(stride[d]) < input[d];
        let is_inside = kernel == [1; 2] && padding == [0; 2] && reaches(0) && reaches(1);
        self.window.is_plain() || self.x.has_channels_last() && is_inside
    }

    /// Whether the channels of the result are neighbours.
    fn gives_channels_last(&self) -> bool {
        match (&self.out, self.visitor) {
            (Some(out), _) => !out.has_planes(),
            (None, Some(visitor)) => visitor.wants_channels_last(),
            (None, None) => false,
        }
    }

    /// The blocks of an image that give each thread some tasks.
    fn wanted(&self) -> usize {
        let tasks = if self.threads > 1 { TASKS * self.threads } else { 1 };
        tasks.div_ceil(self.images.max(1))
    }

    /// The number of blocks of so many rows, if these divide evenly enough.
    fn blocks_of_rows(&self, rows: usize) -> Option<usize> {
        let wanted = self.wanted();
        let is_even = rows >= 4 * wanted || rows.is_multiple_of(self.threads);
        let is_divided = is_even && rows >= 2 * self.threads;
        is_divided.then_some(if rows >= 4 * wanted { wanted } else { self.threads })
    }

    /// Divides rows and panels, so that there are some tasks for each thread, which take about the
    /// same time. Where rows do not divide evenly, panels do; where neither does, both are divided.
    fn blocks(&self, product: &PixelProduct<'_, F>, rows: usize, fitting: usize) -> Blocks {
        let (panels, wanted) = (product.panels(), self.wanted());
        let mut blocks = rows.div_ceil(fitting.min(rows).max(1)).max(1);
        let mut panels_each = panels.max(1);
        if blocks < wanted {
            match self.blocks_of_rows(rows) {
                Some(n) => blocks = blocks.max(n),
                None => {
                    let mut of_thread = panels / self.threads;
                    if !panels.is_multiple_of(self.threads) {
                        (of_thread, blocks) = (panels, blocks.max(self.threads.min(rows)));
                    }
                    let most = (panels * blocks).div_ceil(wanted);
                    let divides = |n: &usize| of_thread.is_multiple_of(*n);
                    panels_each = (1..=most).rev().find(divides).unwrap_or(1);
                }
            }
        }
        Blocks { rows: rows.div_ceil(blocks).max(1), panels: panels_each }
    }

    /// The length of a line where windows are elements, and the division of lines: by rows of the
    /// image, for an even number of pixels.
    ///
    /// Where channels are planes, the next convolution often reads channel by channel, and its
    /// threads divide the channels. So panels are divided, too, where there are more channels than
    /// in the input. Each thread then reads the whole input, which must not be large.
    fn blocks_of_elements(&self, product: &PixelProduct<'_, F>) -> (usize, Blocks) {
        let [rows, columns] = self.window.output;
        let pixels = rows * columns;
        let tile = PixelProduct::<F>::most_pixels(self.isa);
        let most = LINE_TILES * tile;
        let expands =
            self.weights.sizes()[0] as usize > self.channels && !self.gives_channels_last();
        let of_rows = || {
            let is_shared = self.wanted() > 1 && !(expands && pixels < FEW_PIXELS);
            let of_block = rows.div_ceil(self.blocks_of_rows(rows).filter(|_| is_shared)?);
            // The longest lines that make up a block.
            let longest = of_block.min(most / columns.max(1));
            let of_line = (1..=longest).rev().find(|n| of_block.is_multiple_of(*n))?;
            (of_line * columns >= LEAST_TILES * tile).then_some((of_line, of_block))
        };
        let Some((of_line, of_block)) = of_rows() else {
            // If threads cannot share the panels evenly, they share the pixels, too.
            let is_even = self.wanted() == 1 || product.panels().is_multiple_of(self.threads);
            let lines = pixels.div_ceil(most).max(if is_even { 1 } else { self.threads });
            let length = pixels.div_ceil(lines).max(1);
            let length = if is_even { length.next_multiple_of(tile) } else { length };
            return (length, self.blocks(product, lines, lines));
        };
        let panels = if expands && pixels < MANY_PIXELS { 1 } else { product.panels().max(1) };
        (of_line * columns, Blocks { rows: of_block / of_line, panels })
    }

    /// Computes all tasks. Lines have some pixels each, `pixels` in all.
    ///
    /// # Safety
    /// As [`PixelConv::run`].
    unsafe fn tasks(
        &self,
        product: &PixelProduct<'_, F>,
        blocks: &Blocks,
        (lines, length, pixels): (usize, usize, usize),
        source: &Source,
    ) -> Result<()> {
        let of_rows = lines.div_ceil(blocks.rows);
        let per_image = of_rows * product.panels().div_ceil(blocks.panels);
        let [kh, kw] = self.window.kernel;
        let depth = self.channels * kh * kw;
        let work = (self.images * pixels).saturating_mul(depth * product.channels(0).len());
        let is_parallel = self.threads > 1 && work.saturating_mul(product.panels()) > SMALL;
        let is_last = self.gives_channels_last();
        let by_pixels = is_last && self.weights.bytes() <= NEAR_BYTES;
        let width = product.channels(0).len() * length;
        let most = blocks.rows.min(lines).max(1);
        let part = match self.visitor {
            Some(_) => (VISITED[usize::from(is_last)] / width.max(1)).clamp(1, most),
            None => most,
        };
        let elements = width * part;
        let of_frame = source.len(self.channels).next_multiple_of(16);
        let [line, pixel] = source.distances();
        let of_tile = product.scratch().next_multiple_of(16);
        let of_sums = if self.out.is_none() { elements.next_multiple_of(16) } else { 0 };
        let of_visitor = self.visitor.map_or(0, |v| v.scratch(elements).div_ceil(size_of::<F>()));
        let scratch = of_frame + of_tile + of_sums + of_visitor;
        thread_pool::try_for(self.images * per_image, is_parallel, &|task| {
            let (image, task) = (task / per_image, task % per_image);
            let rows = task % of_rows * blocks.rows;
            let rows = rows..lines.min(rows + blocks.rows);
            let panels = task / of_rows * blocks.panels;
            let panels = panels..product.panels().min(panels + blocks.panels);
            with_scratch("conv", scratch, |scratch: &mut [F]| {
                let (of_input, rest) = scratch.split_at_mut(of_frame);
                let tile = rest.as_mut_ptr();
                let own = [tile.wrapping_add(of_tile), tile.wrapping_add(of_tile + of_sums)];
                let len = source.len(self.channels);
                // SAFETY: the caller's promise.
                let start =
                    unsafe { source.start(self, image, rows.clone(), &mut of_input[..len]) };
                let compute = |first: usize, panel: usize, ahead: &mut WeightsAhead<F>| {
                    let own_rows = first..rows.end.min(first + part);
                    let at = start.wrapping_add((first - rows.start) * line);
                    let of = (image, own_rows, panel);
                    let (input, scratch) = ((at, [line, pixel]), (tile, own));
                    // SAFETY: the caller's promise; rows and panels are this task's alone.
                    unsafe { self.panel(product, of, (length, pixels), input, scratch, ahead) }
                };
                if by_pixels {
                    for first in rows.clone().step_by(part) {
                        for panel in panels.clone() {
                            compute(first, panel, &mut WeightsAhead::default())?;
                        }
                    }
                    return Ok(());
                }
                for panel in panels {
                    let mut ahead = product.ahead(panel, rows.len(), length);
                    for first in rows.clone().step_by(part) {
                        compute(first, panel, &mut ahead)?;
                    }
                }
                Ok(())
            })?
        })
    }

    /// Computes some lines of a panel of channels.
    ///
    /// # Safety
    /// As [`PixelConv::run`], with the scratch memory of a task.
    unsafe fn panel(
        &self,
        product: &PixelProduct<'_, F>,
        (image, rows, panel): (usize, Range<usize>, usize),
        (length, all): (usize, usize),
        (input, [step, pixel]): (*const F, [usize; 2]),
        (tile, [sums, scratch]): (*mut F, [*mut F; 2]),
        ahead: &mut WeightsAhead<F>,
    ) -> Result<()> {
        let channels = product.channels(panel);
        let pixels = rows.start * length..all.min(rows.end * length);
        let (start, [channel, of_pixel]) = match &self.out {
            Some(out) => (out.at(image, channels.start, pixels.start), [out.channel, out.pixel]),
            None if self.gives_channels_last() && channels.len() > 1 => (sums, [1, channels.len()]),
            None => (sums, [pixels.len(), 1]),
        };
        let bias = self.bias.map_or(std::ptr::null(), |b| b[channels.start..].as_ptr());
        let lines = PixelLines { start: input, step, pixel, length, pixels: pixels.len() };
        let mut out = PixelOutput { start, channel, pixel: of_pixel, bias, then: None };
        let follows = self.visitor.filter(|_| self.out.is_none() && of_pixel != 1);
        let follows = follows.and_then(|v| v.pixels(image, channels.start, pixels.start));
        if let Some(Following::Affine(then)) = follows {
            out.then = Some(then);
            // SAFETY: the caller's promise.
            unsafe { product.lines(panel, &lines, &out, tile, ahead, None) }
            return Ok(());
        }
        if let Some(Following::Chain(mut chain)) = follows {
            let (n, step) = (channels.len(), of_pixel as isize);
            // SAFETY: the caller's promise; the sums of a tile are finished.
            unsafe {
                let mut after = |pixels: usize| chain.run(self.isa, [pixels, n], Ptr(start), step);
                let after: Option<&mut dyn FnMut(usize)> = Some(&mut after);
                product.lines(panel, &lines, &out, tile, ahead, after)
            }
            return Ok(());
        }
        // SAFETY: the caller's promise.
        unsafe { product.lines(panel, &lines, &out, tile, ahead, None) }
        match self.visitor {
            None => Ok(()),
            Some(visitor) => {
                let sums = (Ptr(start.cast()), [channel as i64, of_pixel as i64]);
                // SAFETY: the sums are finished, and this task's alone.
                unsafe { visitor.visit(image, channels, pixels, sums, Ptr(scratch.cast())) }
            }
        }
    }
}
