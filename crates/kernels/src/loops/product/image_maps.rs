//! What the convolutions of [`Windows`] need where no kernel knows of their windows, and what
//! follows them.

use super::chain::InChains;
use super::windows::Windows;
use super::{ProductPlan, Visitor};
use crate::conv::{Following, ImageVisitor, Images};
use crate::error::Result;
use crate::gemm::{EpilogueVisitor, Float};
use crate::loops::stage::PanelContext;
use crate::pointwise::frame::Failure;
use crate::view::Ptr;
use smallvec::SmallVec;
use std::ops::Range;

impl Windows {
    /// Writes the patch matrix of some channels of an image, the first of some, whatever the
    /// numbers are.
    ///
    /// # Safety
    /// The image has these channels.
    pub unsafe fn unfold<F: Float>(
        &self,
        numbers: &[SmallVec<[i64; 2]>; 3],
        x: Images<F>,
        to: &mut [F],
    ) {
        let [height, width] = self.input;
        let from = 2 - self.positions.len();
        let number = |of: usize, dim: usize| match dim.checked_sub(from) {
            Some(at) => numbers[of].get(at).copied().unwrap_or(0),
            None => i64::from(of == 0),
        };
        // The arithmetic of `i64` wraps.
        let at = |dim: usize, position: i64, tap: i64| {
            let [stride, padding, dilation] = [0, 1, 2].map(|of| number(of, dim));
            let within = tap.wrapping_mul(dilation);
            position.wrapping_mul(stride).wrapping_add(within).wrapping_sub(padding)
        };
        let taps = (0..self.kernel[0]).flat_map(|r| (0..self.kernel[1]).map(move |c| (r, c)));
        let rows = (0..).flat_map(|channel| taps.clone().map(move |tap| (channel, tap)));
        let area = (self.output[0] * self.output[1]) as usize;
        // Without taps there are no rows, and no chunks: these end first.
        for (to, (channel, (r, c))) in to.chunks_mut(area.max(1)).zip(rows) {
            let positions =
                (0..self.output[0]).flat_map(|y| (0..self.output[1]).map(move |x| (y, x)));
            for ((row, column), to) in positions.zip(to) {
                let (row, column) = (at(0, row, r), at(1, column, c));
                let is_inside = (0..height).contains(&row) && (0..width).contains(&column);
                let index = || (row * width + column) as usize;
                // SAFETY: the caller's promise; the pixel is inside the image.
                *to = if is_inside { unsafe { *x.at(0, channel, index()) } } else { F::ZERO };
            }
        }
    }
}

/// The epilogue of a convolution.
pub(super) struct ImageMaps<'a> {
    pub plan: &'a ProductPlan,
    pub cx: &'a PanelContext<'a>,
    pub failed: &'a (dyn Fn(usize, Failure) + Sync),
}

impl<F: InChains> ImageVisitor<F> for ImageMaps<'_> {
    fn scratch(&self, elements: usize) -> usize {
        self.plan.epilogue.scratch(elements)
    }

    fn wants_channels_last(&self) -> bool {
        self.plan.epilogue.wants_columns()
    }

    fn pixels(&self, image: usize, channel: usize, pixel: usize) -> Option<Following<F>> {
        self.plan.epilogue.columns(self.cx, &[image as i64], [channel, pixel])
    }

    unsafe fn visit(
        &self,
        image: usize,
        channels: Range<usize>,
        pixels: Range<usize>,
        sums: (Ptr<u8>, [i64; 2]),
        scratch: Ptr<u8>,
    ) -> Result<()> {
        let coords = [image as i64];
        let ImageMaps { plan, cx, failed } = *self;
        let visitor = Visitor { plan, cx, coords: &coords, first_row: 0, failed };
        // SAFETY: the caller's promise.
        unsafe { visitor.visit(channels, pixels, sums, scratch) }
    }
}
