//! Products whose left rows are pixels of an image.
//!
//! `out[channel, pixel] = sum over k of image[pixel + offset(k)] weights[k, channel]`, in the
//! [order](super) of every product. Tiles have output channels along their vectors, and as rows a
//! few pixels at equal distances in memory. A tile sums all of `k` at once: the sums of its
//! segments wait in scratch memory of 4 KiB. Where a panel of weights is large, eight tiles take
//! one segment of it after the other together. Where the channels of the result are planes, a
//! finished tile is transposed in registers.
//!
//! **Invariant:** the bits are those of [`product`](super::product()) with the matrix of windows.
//!
//! **Cost:** a step loads a few vectors of weights and one element for each pixel. A transpose
//! takes about two cycles for each vector of sums.

use super::epilogue::Operand;
use super::kernel::Affine;
use super::pack::Panels;
use super::pixel_panel::PixelPanel;
use super::{Float, Mat, SEGMENT};
use crate::error::Result;
use crate::isa::Isa;
use crate::pages::Lifetime;
use crate::view::Ptr;
use std::ops::Range;

/// The bytes of a panel of weights that the second-level cache does not keep from one tile to the
/// next, beside the input and the next panel.
const FAR_BYTES: usize = 384 << 10;
/// The tiles that share a segment of such a panel while it is in a near cache.
pub(super) const TOGETHER: usize = 8;

/// Weights for products of pixels.
pub(crate) struct PixelWeights<F> {
    panels: Panels<F>,
}

impl<F: Float> PixelWeights<F> {
    /// Packs the weights of `channels` outputs, each with its `k` elements one after another.
    ///
    /// # Errors
    /// There is not enough memory.
    ///
    /// # Safety
    /// The matrix is in live memory.
    pub unsafe fn new(
        kernel: &'static str,
        isa: Isa,
        weight: Ptr<F>,
        sizes: [usize; 2],
        lifetime: Lifetime,
    ) -> Result<PixelWeights<F>> {
        let vectors = panel_vectors::<F>(isa, sizes[0]);
        // SAFETY: the caller's promise.
        unsafe { PixelWeights::of_vectors(kernel, isa, weight, sizes, vectors, lifetime) }
    }

    /// As [`PixelWeights::new`], for [kernels of channels](super::ChannelTile): a vector of outputs
    /// after another.
    ///
    /// # Errors
    /// There is not enough memory.
    ///
    /// # Safety
    /// The matrix is in live memory.
    pub unsafe fn of_channels(
        kernel: &'static str,
        isa: Isa,
        weight: Ptr<F>,
        sizes: [usize; 2],
        lifetime: Lifetime,
    ) -> Result<PixelWeights<F>> {
        // SAFETY: the caller's promise.
        unsafe { PixelWeights::of_vectors(kernel, isa, weight, sizes, 1, lifetime) }
    }

    /// As [`PixelWeights::new`], in panels of so many vectors.
    ///
    /// # Safety
    /// The matrix is in live memory.
    unsafe fn of_vectors(
        kernel: &'static str,
        isa: Isa,
        weight: Ptr<F>,
        [channels, k]: [usize; 2],
        vectors: usize,
        lifetime: Lifetime,
    ) -> Result<PixelWeights<F>> {
        let weights = Operand::of_mat(Mat::row_major(weight, k).transposed());
        let panels = Panels::of_vectors(kernel, isa, weights, [k, channels], vectors, lifetime)?;
        Ok(PixelWeights { panels })
    }

    /// The instruction set whose kernels read them.
    pub fn isa(&self) -> Isa {
        self.panels.isa
    }

    /// The weights of a vector of outputs after another, if they are [of
    /// channels](PixelWeights::of_channels).
    pub fn of_channel_vectors(&self) -> Option<*const F> {
        (self.panels.vectors == 1).then(|| self.panels.panel(0))
    }

    /// The outputs, and the elements of each.
    pub fn sizes(&self) -> [i64; 2] {
        [self.panels.columns as i64, self.panels.rows as i64]
    }

    /// The bytes of memory that they take.
    pub fn bytes(&self) -> usize {
        self.panels.bytes()
    }
}

/// The vectors of a panel of weights.
fn panel_vectors<F: Float>(isa: Isa, channels: usize) -> usize {
    let kernels = F::kernels(isa);
    kernels.vectors_of_pixels().min(channels.div_ceil(kernels.lanes).max(1))
}

/// A product of pixels.
#[derive(Clone, Copy)]
pub(crate) struct PixelProduct<'a, F> {
    panels: &'a Panels<F>,
    /// The offset of each step of `k` from a pixel.
    offsets: &'a [u32],
    /// Whether the steps follow one another in memory.
    is_rows: bool,
}

/// Lines of pixels at equal distances in memory.
pub(crate) struct PixelLines<F> {
    /// The first pixel, and the distances of lines and of pixels.
    pub start: *const F,
    pub step: usize,
    pub pixel: usize,
    /// The pixels of each line but the last, and of all lines.
    pub length: usize,
    pub pixels: usize,
}

/// Where the channels of a panel are written.
pub(crate) struct PixelOutput<F> {
    /// The first pixel of the panel's first channel, and the distances of channels and of pixels,
    /// of which one is 1.
    pub start: *mut F,
    pub channel: usize,
    pub pixel: usize,
    /// The biases of the panel's channels, or null. There are none where channels are neighbours.
    pub bias: *const F,
    /// What follows the sums from the first pixel and channel on, instead of a destination.
    pub then: Option<Affine<F>>,
}

/// The weights that a task reads next, which are fetched into the second-level cache while it
/// computes other sums. Lines are spread over the segments of the tiles.
pub(crate) struct WeightsAhead<F> {
    start: *const F,
    /// The cache lines of the weights, and those that were fetched.
    lines: usize,
    fetched: usize,
    /// The segments during which they are fetched, and those that are computed.
    segments: usize,
    done: usize,
}

impl<F> Default for WeightsAhead<F> {
    /// Nothing to fetch.
    fn default() -> WeightsAhead<F> {
        WeightsAhead { start: std::ptr::null(), lines: 0, fetched: 0, segments: 0, done: 0 }
    }
}

impl<F> WeightsAhead<F> {
    /// What a segment of some steps fetches, one line a step.
    #[inline]
    pub(super) fn next(&mut self, steps: usize) -> Option<*const F> {
        self.done += 1;
        if self.fetched >= self.lines {
            return None;
        }
        let due = self.lines * self.done / self.segments.max(1);
        (due > self.fetched).then(|| {
            let from = self.fetched * (64 / size_of::<F>());
            self.fetched += steps;
            self.start.wrapping_add(from)
        })
    }
}

impl<'a, F: Float> PixelProduct<'a, F> {
    /// The weights of the panel after one of which lines of so many pixels are computed.
    pub fn ahead(&self, panel: usize, lines: usize, pixels: usize) -> WeightsAhead<F> {
        let next = if panel + 1 < self.panels() { panel + 1 } else { panel };
        let channels = self.channels(next);
        let bytes =
            if next == panel { 0 } else { self.offsets.len() * self.width() * size_of::<F>() };
        let tiles = lines * pixels.div_ceil(Self::most_pixels(self.panels.isa));
        WeightsAhead {
            start: self.panels.panel(channels.start),
            lines: bytes.div_ceil(64),
            fetched: 0,
            segments: tiles * self.segments(),
            done: 0,
        }
    }

    fn segments(&self) -> usize {
        self.offsets.len().div_ceil(SEGMENT).max(1)
    }

    pub fn new(weights: &'a PixelWeights<F>, offsets: &'a [u32]) -> PixelProduct<'a, F> {
        let follows = |(offset, step): (&u32, u32)| *offset == step;
        let is_rows = !offsets.is_empty() && offsets.iter().zip(0..).all(follows);
        PixelProduct { panels: &weights.panels, offsets, is_rows }
    }

    /// The number of panels of channels.
    pub fn panels(&self) -> usize {
        self.panels.columns.div_ceil(self.width())
    }

    /// The channels of a panel.
    pub fn channels(&self, panel: usize) -> Range<usize> {
        let width = self.width();
        panel * width..self.panels.columns.min((panel + 1) * width)
    }

    fn width(&self) -> usize {
        self.panels.vectors * F::kernels(self.panels.isa).lanes
    }

    /// The most pixels of a tile.
    pub fn most_pixels(isa: Isa) -> usize {
        F::kernels(isa).most_pixels()
    }

    /// The elements of scratch memory for [`PixelProduct::lines`].
    pub fn scratch(&self) -> usize {
        2 * self.together() * self.tile_size()
    }

    fn tile_size(&self) -> usize {
        let kernels = F::kernels(self.panels.isa);
        kernels.most_pixels().next_multiple_of(kernels.lanes) * self.width()
    }

    /// The tiles that take each segment of the weights after one another.
    fn together(&self) -> usize {
        let bytes = self.offsets.len() * self.width() * size_of::<F>();
        if bytes > FAR_BYTES { TOGETHER } else { 1 }
    }

    /// Computes lines of pixels for the channels of a panel. Their results follow one another. With
    /// `after`, which gets the number of pixels of a tile, each tile is written where the last one
    /// was, with its channels as neighbours.
    ///
    /// # Safety
    /// The pixels are valid at all offsets, the destination is valid for all pixels and channels of
    /// the panel, and nothing else accesses it or the scratch memory.
    pub unsafe fn lines(
        &self,
        panel: usize,
        of: &PixelLines<F>,
        out: &PixelOutput<F>,
        scratch: *mut F,
        ahead: &mut WeightsAhead<F>,
        after: Option<&mut dyn FnMut(usize)>,
    ) {
        let kernels = F::kernels(self.panels.isa);
        let channels = self.channels(panel);
        let panel = PixelPanel {
            kernels,
            offsets: self.offsets,
            is_rows: self.is_rows,
            weights: self.panels.panel(channels.start),
            channels: channels.len(),
            vectors: channels.len().div_ceil(kernels.lanes),
            together: self.together(),
            tile_size: self.tile_size(),
            out,
            scratch,
        };
        // SAFETY: the caller's promise.
        unsafe { panel.lines(of, ahead, after) }
    }
}
