//! Where the tasks of a [convolution by pixels](PixelConv) read their windows.

use super::frame::Frame;
use super::pixel_frame::PixelFrame;
use super::pixels::PixelConv;
use crate::pointwise::chain::Chained;
use crate::view::Ptr;
use std::ops::Range;

/// Where a task reads its windows.
pub(super) enum Source {
    /// In the images: the distances of lines and of pixels.
    Images([usize; 2]),
    Planes(Frame),
    Pixels(PixelFrame),
}

impl Source {
    /// The elements of a frame.
    pub fn len(&self, channels: usize) -> usize {
        match self {
            Source::Images(_) => 0,
            Source::Planes(frame) => frame.len(channels),
            Source::Pixels(frame) => frame.len(),
        }
    }

    /// The offsets of all steps of a sum from a pixel.
    pub fn offsets(&self, channels: usize) -> Vec<u32> {
        match self {
            Source::Images(_) => Vec::new(),
            Source::Planes(frame) => frame.offsets(channels),
            Source::Pixels(frame) => frame.offsets(),
        }
    }

    /// The distances of lines and of pixels.
    pub fn distances(&self) -> [usize; 2] {
        match self {
            Source::Images(distances) => *distances,
            Source::Planes(frame) => [frame.row(), 1],
            Source::Pixels(frame) => [frame.row(), frame.step()],
        }
    }

    /// Where the windows of some lines of an image begin, in the image or in its frame, which is
    /// written.
    ///
    /// # Safety
    /// The images are in live memory.
    pub unsafe fn start<F: Chained>(
        &self,
        of: &PixelConv<'_, F>,
        image: usize,
        rows: Range<usize>,
        frame: &mut [F],
    ) -> *const F {
        match self {
            Source::Images([line, _]) => {
                return of.x.at(image, 0, 0).wrapping_add(rows.start * line).cast_const();
            }
            Source::Planes(planes) => {
                let [height, width] = of.window.input;
                let len = of.channels * height * width;
                // SAFETY: the caller's promise.
                let x = unsafe { Ptr(of.x.at(image, 0, 0)).slice(0, len) };
                planes.fill(of.isa, x, rows, frame);
            }
            // SAFETY: the caller's promise.
            Source::Pixels(pixels) => unsafe { pixels.fill(&of.x, image, rows, frame) },
        }
        frame.as_ptr()
    }
}
