//! The input of some output rows with its padding, so that every window lies inside.
//!
//! A window of stride `s` sees every `s`-th element of a row. A frame has the elements of a row by
//! their position modulo `s` (a polyphase decomposition): then the windows of neighbouring outputs
//! see neighbours, and a tap is an offset.
//!
//! **Cost:** one copy of the input, besides the rows that two blocks of output rows share.

use crate::element::Class;
use crate::isa::{Isa, Simd};
use smallvec::SmallVec;
use std::ops::Range;

/// How a window moves over a plane: entries are of rows and of columns.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PlaneWindow {
    /// The sizes of the input and of the output.
    pub input: [usize; 2],
    pub output: [usize; 2],
    pub kernel: [usize; 2],
    pub stride: [usize; 2],
    pub padding: [usize; 2],
    pub dilation: [usize; 2],
}

/// The most elements of a frame, whose offsets are 32-bit numbers.
const MOST: usize = 1 << 31;
/// A frame of at most this many elements is admitted, however few the outputs.
const FEW: usize = 1 << 20;

impl PlaneWindow {
    /// The window along one or two dimensions; `None` if it has others, or a number that no
    /// convolution of this size has.
    pub fn new(
        sizes: [&[i64]; 3],
        [stride, padding, dilation]: [&[i64]; 3],
    ) -> Option<PlaneWindow> {
        let [input, output, kernel] = sizes;
        let spatial = input.len();
        if !(1..=2).contains(&spatial) {
            return None;
        }
        let two = |of: &[i64], missing: usize, least: i64| -> Option<[usize; 2]> {
            let number = |n: i64| (least..=i64::from(i32::MAX)).contains(&n).then_some(n as usize);
            match *of {
                [n] => Some([missing, number(n)?]),
                [rows, columns] => Some([number(rows)?, number(columns)?]),
                _ => None,
            }
        };
        Some(PlaneWindow {
            input: two(input, 1, 0)?,
            output: two(output, 1, 0)?,
            kernel: two(kernel, 1, 1)?,
            stride: two(stride, 1, 1)?,
            padding: two(padding, 0, 0)?,
            dilation: two(dilation, 1, 1)?,
        })
    }

    /// Whether a frame of this many elements is worth its memory: it is not larger than the patches
    /// of all outputs (im2col). A great dilation makes frames of padding that no output reads.
    pub fn admits(&self, elements: usize, channels: usize) -> bool {
        let factors = [self.kernel, self.output].concat();
        let patches = factors.iter().fold(channels, |n, factor| n.saturating_mul(*factor));
        elements < MOST && elements <= patches.max(FEW)
    }

    /// Whether each window is one element, and each element a window.
    pub fn is_plain(&self) -> bool {
        let moves_by_1 = self.stride == [1; 2] && self.padding == [0; 2];
        self.kernel == [1; 2] && moves_by_1 && self.input == self.output
    }
}

/// The layout of a frame: channels, rows, phases, positions.
#[derive(Clone, Debug)]
pub(crate) struct Frame {
    window: PlaneWindow,
    /// The phases of columns that a tap sees.
    phases: SmallVec<[usize; 4]>,
    /// The positions of a phase.
    width: usize,
    /// The rows of the frame for one row of the output, and for the first.
    row_step: usize,
    first_rows: usize,
    /// The elements of a channel.
    plane: usize,
}

impl Frame {
    /// The frame of at most `rows` rows of the output. `None` if it is too large.
    pub fn new(window: &PlaneWindow, channels: usize, rows: usize) -> Option<Frame> {
        let [kh, kw] = window.kernel;
        let ([sh, sw], [dh, dw]) = (window.stride, window.dilation);
        // They repeat from tap `sw` on.
        let mut phases: SmallVec<[usize; 4]> = (0..kw.min(sw)).map(|tap| tap * dw % sw).collect();
        phases.sort_unstable();
        phases.dedup();
        let width = window.output[1].checked_add((kw - 1) * dw / sw)?;
        // The rows between windows of one row are left out.
        let (row_step, first_rows) = if kh == 1 { (1, 1) } else { (sh, (kh - 1) * dh + 1) };
        let lines = rows.max(1).checked_sub(1)?.checked_mul(row_step)?.checked_add(first_rows)?;
        let plane = lines.checked_mul(width)?.checked_mul(phases.len())?;
        let all = plane.checked_mul(channels)?;
        let is_admitted = window.admits(all, channels);
        let window = *window;
        is_admitted.then_some(Frame { window, phases, width, row_step, first_rows, plane })
    }

    /// The elements of the frame of this many channels.
    pub fn len(&self, channels: usize) -> usize {
        channels * self.plane
    }

    /// The distance of the windows of one output row from those of the row before.
    pub fn row(&self) -> usize {
        self.row_step * self.line()
    }

    /// The elements of a line: those of all phases.
    pub fn line(&self) -> usize {
        self.phases.len() * self.width
    }

    /// The offset of a tap from its window.
    pub fn tap(&self, row: usize, column: usize) -> usize {
        let [dh, dw] = self.window.dilation;
        let (phase, at) =
            (column * dw % self.window.stride[1], column * dw / self.window.stride[1]);
        let phase = self.phases.iter().position(|p| *p == phase).unwrap_or(0);
        row * dh * self.line() + phase * self.width + at
    }

    /// The offsets of all steps of a sum: channels, then taps.
    pub fn offsets(&self, channels: usize) -> Vec<u32> {
        let [kh, kw] = self.window.kernel;
        let taps = (0..kh).flat_map(|row| (0..kw).map(move |column| (row, column)));
        let taps: SmallVec<[usize; 16]> = taps.map(|(r, c)| self.tap(r, c)).collect();
        let of_channel = |c: usize| taps.iter().map(move |tap| (c * self.plane + tap) as u32);
        (0..channels).flat_map(of_channel).collect()
    }

    /// Writes the frame of the output rows `rows`, from the channels of an image.
    pub fn fill<T: Class>(&self, isa: Isa, image: &[T], rows: Range<usize>, frame: &mut [T]) {
        isa.dispatch(Fill { frame: self, image, rows, has_padding: false, to: frame });
    }

    /// As [`Frame::fill`], where the elements of the padding are zeros already.
    pub fn fill_inside<T: Class>(
        &self,
        isa: Isa,
        image: &[T],
        rows: Range<usize>,
        frame: &mut [T],
    ) {
        isa.dispatch(Fill { frame: self, image, rows, has_padding: true, to: frame });
    }
}

struct Fill<'a, T> {
    frame: &'a Frame,
    image: &'a [T],
    rows: Range<usize>,
    /// Whether the padding is there.
    has_padding: bool,
    to: &'a mut [T],
}

impl<T: Class> Simd for Fill<'_, T> {
    type Out = ();
    #[inline(always)]
    fn run(self) {
        let Fill { frame, image, rows, has_padding, to } = self;
        let PlaneWindow { input: [height, width], stride: [sh, sw], padding: [ph, pw], .. } =
            frame.window;
        let lines = (rows.len().max(1) - 1) * frame.row_step + frame.first_rows;
        // A window of one row skips the rows between windows.
        let step = if frame.window.kernel[0] == 1 { sh } else { 1 };
        let (line, area) = (frame.line().max(1), height * width);
        if area == 0 && !has_padding {
            to.fill(T::default());
        }
        // Position `j` of a phase has the element `j * sw + phase - pw` of the row.
        let inside = |&phase: &usize| {
            let first = pw.saturating_sub(phase).div_ceil(sw).min(frame.width);
            let end = (width + pw).saturating_sub(phase).div_ceil(sw).clamp(first, frame.width);
            (first..end, if first < end { first * sw + phase - pw } else { 0 })
        };
        let phases: SmallVec<[(Range<usize>, usize); 4]> =
            frame.phases.iter().map(inside).collect();
        let planes = to.chunks_mut(frame.plane.max(1)).zip(image.chunks(area.max(1)));
        for (plane, image) in planes {
            for (i, line) in plane.chunks_mut(line).take(lines).enumerate() {
                let at = rows.start * sh + i * step;
                if at < ph || at - ph >= height {
                    if !has_padding {
                        line.fill(T::default());
                    }
                    continue;
                }
                let row = &image[(at - ph) * width..][..width];
                for (to, (inside, from)) in line.chunks_mut(frame.width).zip(&phases) {
                    if !has_padding {
                        to[..inside.start].fill(T::default());
                        to[inside.end..].fill(T::default());
                    }
                    let (inside, from) = (&mut to[inside.clone()], &row[*from..]);
                    match sw {
                        1 => inside.copy_from_slice(&from[..inside.len()]),
                        2 => pairs(inside, from),
                        _ => inside
                            .iter_mut()
                            .zip(from.iter().step_by(sw))
                            .for_each(|(to, x)| *to = *x),
                    }
                }
            }
        }
    }
}

/// Copies every second element.
#[inline(always)]
fn pairs<T: Copy>(to: &mut [T], from: &[T]) {
    let whole = to.len().min(from.len() / 2);
    let (first, last) = to.split_at_mut(whole);
    for (to, pair) in first.iter_mut().zip(from.chunks_exact(2)) {
        *to = pair[0];
    }
    for (to, x) in last.iter_mut().zip(from.iter().skip(2 * whole)) {
        *to = *x;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(input: i64, output: i64, padding: i64, dilation: i64) -> Option<usize> {
        let sizes = [&[input, input][..], &[output, output], &[3, 3]];
        let window = PlaneWindow::new(sizes, [&[1; 2], &[padding; 2], &[dilation; 2]])?;
        Some(Frame::new(&window, 2, 1)?.len(2))
    }

    /// Three outputs read 54 elements, and a frame of theirs has the padding between the taps.
    #[test]
    fn a_frame_is_no_larger_than_the_patches() {
        assert_eq!(frame(100, 100, 64, 64), Some(2 * 129 * 228));
        assert_eq!(frame(3, 3, 1 << 10, 1 << 10), None);
        assert_eq!(frame(3, 3, 1 << 27, 1 << 27), None);
    }
}
