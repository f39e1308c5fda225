//! The input of some output rows with its padding, where channels are last.
//!
//! It has whole pixels, so that a window of any stride sees pixels at equal distances. The channels
//! of a pixel end with a cache line that is not used: otherwise, the pixels of a window would take
//! few sets of the first-level cache where a power of two of channels follow each other.
//!
//! **Cost:** one copy of the input, besides the rows that two blocks of output rows share.

use super::frame::PlaneWindow;
use super::images::Images;
use crate::element::Class;
use smallvec::SmallVec;
use std::ops::Range;

/// The layout of a frame: rows, pixels, channels.
#[derive(Clone, Debug)]
pub(super) struct PixelFrame {
    window: PlaneWindow,
    channels: usize,
    /// The elements of a pixel, and the pixels of a row.
    pixel: usize,
    width: usize,
    /// The rows of the frame for one row of the output, and for the first.
    row_step: usize,
    first_rows: usize,
    rows: usize,
}

impl PixelFrame {
    /// The frame of at most `rows` rows of the output. `None` if it is too large.
    pub fn new<F>(window: &PlaneWindow, channels: usize, rows: usize) -> Option<PixelFrame> {
        let [kh, kw] = window.kernel;
        let ([sh, sw], [dh, dw]) = (window.stride, window.dilation);
        let line = 64 / size_of::<F>();
        let pixel = channels.checked_next_multiple_of(line)?.checked_add(line)?;
        let reach = (kw - 1).checked_mul(dw)?.checked_add(1)?;
        let width = window.output[1].saturating_sub(1).checked_mul(sw)?.checked_add(reach)?;
        // The rows between windows of one row are left out.
        let (row_step, first_rows) = if kh == 1 { (1, 1) } else { (sh, (kh - 1) * dh + 1) };
        let lines = rows.max(1).checked_sub(1)?.checked_mul(row_step)?.checked_add(first_rows)?;
        let all = lines.checked_mul(width)?.checked_mul(pixel)?;
        let is_admitted = window.admits(all, pixel);
        let window = *window;
        let frame =
            PixelFrame { window, channels, pixel, width, row_step, first_rows, rows: lines };
        is_admitted.then_some(frame)
    }

    /// The elements of the frame.
    pub fn len(&self) -> usize {
        self.rows * self.width * self.pixel
    }

    /// The distance of the windows of one output row from those of the row before.
    pub fn row(&self) -> usize {
        self.row_step * self.width * self.pixel
    }

    /// The distance of neighbouring windows.
    pub fn step(&self) -> usize {
        self.window.stride[1] * self.pixel
    }

    /// The offsets of all steps of a sum: channels, then taps.
    pub fn offsets(&self) -> Vec<u32> {
        let [kh, kw] = self.window.kernel;
        let [dh, dw] = self.window.dilation;
        let taps = (0..kh).flat_map(|row| (0..kw).map(move |column| (row, column)));
        let at = |(row, column): (usize, usize)| (row * dh * self.width + column * dw) * self.pixel;
        let taps: SmallVec<[usize; 16]> = taps.map(at).collect();
        (0..self.channels).flat_map(|c| taps.iter().map(move |tap| (c + tap) as u32)).collect()
    }

    /// Writes the frame of the output rows `rows` of an image.
    ///
    /// # Safety
    /// The images have channels last and are in live memory.
    pub unsafe fn fill<T: Class>(
        &self,
        images: &Images<T>,
        image: usize,
        rows: Range<usize>,
        frame: &mut [T],
    ) {
        let PlaneWindow { input: [height, width], stride: [sh, _], padding: [ph, pw], .. } =
            self.window;
        let lines = (rows.len().max(1) - 1) * self.row_step + self.first_rows;
        // A window of one row skips the rows between windows.
        let step = if self.window.kernel[0] == 1 { sh } else { 1 };
        let line = (self.width * self.pixel).max(1);
        let inside = pw.min(self.width)..(width + pw).min(self.width);
        for (i, line) in frame.chunks_mut(line).take(lines).enumerate() {
            let at = rows.start * sh + i * step;
            if at < ph || at - ph >= height {
                line.fill(T::default());
                continue;
            }
            let first = (at - ph) * width;
            let (before, rest) = line.split_at_mut(inside.start * self.pixel);
            let (of_image, behind) = rest.split_at_mut(inside.len() * self.pixel);
            before.fill(T::default());
            behind.fill(T::default());
            for (j, to) in of_image.chunks_exact_mut(self.pixel).enumerate() {
                // SAFETY: the pixel is inside the image.
                let from = unsafe {
                    std::slice::from_raw_parts(images.at(image, 0, first + j), self.channels)
                };
                to[..self.channels].copy_from_slice(from);
            }
        }
    }
}
