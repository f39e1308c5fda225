//! The greatest elements of the windows of planes, a vector of windows at a time.
//!
//! Windows of 3 x 3 elements without positions have a [kernel](crate::gemm::PlaneTile), which reads
//! planes where they are. For others, a plane is copied into a [frame](Frame), whose padding is -∞,
//! which is greater than no element. Then neighbouring windows see neighbours at each tap. A lane
//! keeps the greatest element and its tap; it begins with -∞ at the first tap inside the plane,
//! where an element replaces it if it is greater or a NaN.
//!
//! **Cost:** a load, two comparisons and two selections for each tap of a vector of windows; with a
//! frame, a copy of the input.

use crate::conv::{Frame, PlaneWindow};
use crate::error::Result;
use crate::gemm::{Float, PlaneTile, WindowedPlane};
use crate::isa::{Isa, Simd};
use crate::scratch::filled;
use crate::thread_pool;
use crate::view::Ptr;

/// The most bytes of a frame, which stays in the second-level cache.
const FRAME_BYTES: usize = 1 << 20;
/// The windows of a small block.
const LANES: usize = 16;

/// The greatest elements of row-major planes of floats.
pub(super) struct Greatest<'a, T> {
    pub isa: Isa,
    pub window: PlaneWindow,
    pub x: &'a [T],
    pub y: Ptr<T>,
    /// The positions of the elements in their planes.
    pub indices: Option<Ptr<i64>>,
}

impl<T: Float> Greatest<'_, T> {
    /// Computes `planes` planes; `None`, with nothing written, if frames or positions would be
    /// large.
    ///
    /// # Safety
    /// The output and the indices are valid for all windows, and nothing else accesses them during
    /// the call.
    pub unsafe fn run(&self, planes: usize) -> Option<Result<()>> {
        let PlaneWindow { input: [height, width], output: [rows, columns], .. } = self.window;
        let frame = Frame::new(&self.window, 1, rows)?;
        let len = frame.len(1) + 4 * LANES;
        let reach = self.window.kernel[0] * self.window.dilation[0] * width.max(1);
        if len > FRAME_BYTES / size_of::<T>() || reach > i32::MAX as usize / 2 {
            return None;
        }
        let (area, windows) = (height * width, rows * columns);
        // SAFETY: the caller's promise.
        if let Some(done) = unsafe { self.by_kernel(planes) } {
            return Some(done);
        }
        let taps = Taps::new(&self.window, &frame);
        let work = windows * taps.0.len();
        let grain = (thread_pool::GRAIN / work.max(1)).max(1);
        Some(thread_pool::ranges(planes, grain, 1, &|from, to| {
            let mut framed = filled("max_pool", T::cast(f64::NEG_INFINITY), len)?;
            for plane in from..to {
                frame.fill_inside(self.isa, &self.x[plane * area..][..area], 0..rows, &mut framed);
                let at = (plane * windows) as i64;
                let of_plane = Plane {
                    window: &self.window,
                    frame: &framed,
                    step: frame.row(),
                    taps: &taps.0,
                    // SAFETY: the plane is this task's alone.
                    out: unsafe { self.y.slice_mut(at, windows) },
                    // SAFETY: as above.
                    indices: self.indices.as_ref().map(|i| unsafe { i.slice_mut(at, windows) }),
                };
                if of_plane.indices.is_some() {
                    self.isa.dispatch(Blocks::<T, true>(of_plane));
                } else {
                    self.isa.dispatch(Blocks::<T, false>(of_plane));
                }
            }
            Ok(())
        }))
    }

    /// Computes the planes by the kernel of their windows; `None`, with nothing written, if there
    /// is none.
    ///
    /// # Safety
    /// As [`Greatest::run`].
    unsafe fn by_kernel(&self, planes: usize) -> Option<Result<()>> {
        let PlaneWindow { input, output, kernel, stride: [step, across], padding, dilation } =
            self.window;
        let kernels = T::kernels(self.isa);
        let is_dense = kernel == [3; 2] && dilation == [1; 2];
        let has_kernel = is_dense && step == across && step <= kernels.most_steps();
        if !has_kernel || self.indices.is_some() {
            return None;
        }
        let (area, windows) = (input[0] * input[1], output[0] * output[1]);
        let grain = (thread_pool::GRAIN / (windows * 9).max(1)).max(1);
        Some(thread_pool::ranges(planes, grain, 1, &|from, to| {
            for plane in from..to {
                let start = self.x[plane * area..][..area].as_ptr();
                let tile = PlaneTile {
                    plane: WindowedPlane { start, sizes: input, padding },
                    weights: std::ptr::null(),
                    bias: std::ptr::null(),
                    rows: 0..output[0],
                    columns: output[1],
                    out: self.y.at(plane * windows),
                };
                // SAFETY: the caller's promise; the plane is this task's alone.
                unsafe { kernels.greatest(&tile, step) }
            }
            Ok(())
        }))
    }
}

/// The taps of a window: the offset in the frame, and that in the plane.
struct Taps(Vec<(usize, i32)>);

impl Taps {
    fn new(window: &PlaneWindow, frame: &Frame) -> Taps {
        let PlaneWindow { input: [_, width], kernel: [kh, kw], dilation: [dh, dw], .. } = *window;
        let taps = (0..kh).flat_map(|row| (0..kw).map(move |column| (row, column)));
        let offset = |(r, c): (usize, usize)| (frame.tap(r, c), (r * dh * width + c * dw) as i32);
        Taps(taps.map(offset).collect())
    }
}

/// A plane of the output.
struct Plane<'a, T> {
    window: &'a PlaneWindow,
    frame: &'a [T],
    /// The distance of rows in the frame.
    step: usize,
    taps: &'a [(usize, i32)],
    out: &'a mut [T],
    indices: Option<&'a mut [i64]>,
}

/// The first tap of a window that is inside a plane of `size` elements, along one dimension; `None`
/// if all are in the padding.
#[inline(always)]
fn first_tap(window: &PlaneWindow, dim: usize, at: usize) -> Option<usize> {
    let (padding, dilation) = (window.padding[dim], window.dilation[dim]);
    let begin = at * window.stride[dim];
    let tap = padding.saturating_sub(begin).div_ceil(dilation);
    (tap < window.kernel[dim] && begin + tap * dilation < window.input[dim] + padding)
        .then_some(tap)
}

/// The windows of a plane, by blocks, with positions or without.
struct Blocks<'a, T, const INDEXED: bool>(Plane<'a, T>);

impl<T: Float, const INDEXED: bool> Simd for Blocks<'_, T, INDEXED> {
    type Out = ();
    #[inline(always)]
    fn run(self) {
        let mut plane = self.0;
        let [rows, columns] = plane.window.output;
        for row in 0..rows {
            let mut first = 0;
            while first < columns {
                first += match columns - first {
                    33.. => plane.block::<{ 4 * LANES }, INDEXED>(row, first),
                    17..33 => plane.block::<{ 2 * LANES }, INDEXED>(row, first),
                    _ => plane.block::<LANES, INDEXED>(row, first),
                };
            }
        }
    }
}

impl<T: Float> Plane<'_, T> {
    /// Writes at most `N` windows of a row, and returns how many. Several vectors have several
    /// chains of selections.
    #[inline(always)]
    fn block<const N: usize, const INDEXED: bool>(&mut self, row: usize, first: usize) -> usize {
        let PlaneWindow { input: [_, width], output: [_, columns], stride, padding, .. } =
            *self.window;
        let mut best = [T::cast(f64::NEG_INFINITY); N];
        let mut taps = [0i32; N];
        let framed = &self.frame[row * self.step + first..];
        for &(offset, tap) in self.taps {
            let Some(x) = framed[offset..].first_chunk::<N>() else { return N };
            for ((best, taps), &x) in best.iter_mut().zip(&mut taps).zip(x) {
                let is_nan = x.partial_cmp(&x).is_none();
                let replaces = is_nan | (x > *best);
                *best = if replaces { x } else { *best };
                if INDEXED {
                    // A tap is kept with 1 added, so that 0 is none.
                    *taps = if replaces { tap + 1 } else { *taps };
                }
            }
        }
        let (at, n) = (row * columns + first, N.min(columns - first));
        let out = &mut self.out[at..at + n];
        match out.first_chunk_mut::<N>() {
            Some(out) => *out = best,
            None => out.copy_from_slice(&best[..n]),
        }
        let Some(indices) = &mut self.indices else { return n };
        let to = &mut indices[at..at + n];
        let start = (row * stride[0] * width + first * stride[1]) as i64
            - (padding[0] * width + padding[1]) as i64
            - 1;
        let step = stride[1] as i64;
        let position = |lane: usize| start + lane as i64 * step + i64::from(taps[lane]);
        match to.first_chunk_mut::<N>() {
            Some(to) => to.iter_mut().enumerate().for_each(|(lane, to)| *to = position(lane)),
            None => to.iter_mut().enumerate().for_each(|(lane, to)| *to = position(lane)),
        }
        if taps.iter().fold(false, |none, tap| none | (*tap == 0)) {
            self.of_nothing(row, first, &taps[..n]);
        }
        n
    }

    /// Writes the positions of windows in which no element is greater than -∞, which have no tap:
    /// the first inside the plane.
    #[cold]
    fn of_nothing(&mut self, row: usize, first: usize, taps: &[i32]) {
        let PlaneWindow {
            input: [_, width], output: [_, columns], stride, padding, dilation, ..
        } = *self.window;
        let Some(indices) = &mut self.indices else { return };
        for (lane, _) in taps.iter().enumerate().filter(|(_, tap)| **tap == 0) {
            let column = first + lane;
            let [r, c] = [(0, row), (1, column)].map(|(dim, at)| first_tap(self.window, dim, at));
            let at = |dim: usize, at: usize, tap: usize| {
                (at * stride[dim] + tap * dilation[dim]) as i64 - padding[dim] as i64
            };
            indices[row * columns + column] = match (r, c) {
                (Some(r), Some(c)) => at(0, row, r) * width as i64 + at(1, column, c),
                _ => 0,
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Greatest, PlaneWindow};
    use crate::gemm::Float;
    use crate::isa::{Isa, available};
    use crate::view::Ptr;
    use proptest::prelude::*;

    /// The greatest elements of three planes, by the kernel of the windows or by blocks.
    fn greatest<T: Float>(isa: Isa, window: PlaneWindow, x: &[T], by_kernel: bool) -> Vec<T> {
        let n = 3 * window.output[0] * window.output[1];
        let (mut y, mut indices) = (vec![T::ONE; n], vec![0i64; n]);
        let positions = (!by_kernel).then_some(Ptr(indices.as_mut_ptr()));
        let planes = Greatest { isa, window, x, y: Ptr(y.as_mut_ptr()), indices: positions };
        // SAFETY: the results have all windows of the planes.
        unsafe { planes.run(3) }.expect("small frames").expect("pools");
        y
    }

    fn agree<T: Float + std::fmt::Debug>(window: PlaneWindow, seed: usize) {
        let n = 3 * window.input[0] * window.input[1];
        let special = [f64::NAN, f64::NEG_INFINITY, -0.0, 0.0];
        let value = |i: usize| match (i * 7919 + seed * 31) % 41 {
            n @ 0..4 => special[n],
            n => n as f64 - 25.0,
        };
        let x: Vec<T> = (0..n).map(|i| T::from_f64(value(i))).collect();
        for isa in [Isa::Scalar, Isa::Avx2, Isa::Avx512] {
            if available(isa) {
                let [found, expected] =
                    [true, false].map(|by_kernel| greatest(isa, window, &x, by_kernel));
                // The text of a number has all its bits, but for NaN.
                assert_eq!(format!("{found:?}"), format!("{expected:?}"), "{window:?} on {isa:?}");
            }
        }
    }

    proptest! {
        #[test]
        fn kernels_find_what_blocks_find(
            input in [3usize..40, 3usize..70],
            step in 1usize..3,
            padding in [0usize..2, 0usize..2],
            beyond in 0usize..2,
            seed in 0usize..1000,
        ) {
            let size = |d: usize| (input[d] + 2 * padding[d] - 3) / step + 1 + beyond;
            let (output, kernel, stride) = ([size(0), size(1)], [3; 2], [step; 2]);
            let window = PlaneWindow { input, output, kernel, stride, padding, dilation: [1; 2] };
            agree::<f32>(window, seed);
            agree::<f64>(window, seed);
        }
    }
}
