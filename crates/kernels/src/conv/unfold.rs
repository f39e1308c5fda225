//! Unfolding of windows into the columns of a patch matrix (im2col), and its transpose (col2im).

use crate::error::Result;
use crate::gemm::{PackColumns, Product};
use crate::isa::{Isa, Simd};
use crate::thread_pool;
use crate::view::{Dims, Ptr, contiguous, numel};
use crate::window::Window;
use smallvec::SmallVec;
use std::ops::Range;

/// The unfolding (im2col) of a plane: row (channel, tap) and column (window) of the patch matrix
/// hold the input element under that tap of that window. A tap is a position in the window's
/// kernel.
pub(super) struct Unfold<'w> {
    pub w: &'w Window,
    /// The sizes of the plane that the windows move over.
    pub plane: Dims,
    /// The number of windows along each dimension.
    pub windows: Dims,
}

impl Unfold<'_> {
    pub fn taps(&self) -> usize {
        numel(&self.w.kernel)
    }

    /// Calls `f(column, plane offset, length, step)` for each run of windows among `columns` whose
    /// tap `tap` lies inside the plane, not in the padding.
    pub fn runs(
        &self,
        tap: usize,
        columns: Range<usize>,
        mut f: impl FnMut(usize, i64, usize, i64),
    ) {
        let w = self.w;
        let spatial = self.plane.len();
        let (mut rest, mut first, mut within) = (
            tap as i64,
            Dims::from_elem(0, spatial),
            SmallVec::<[Range<i64>; 6]>::from_elem(0..0, spatial),
        );
        for d in (0..spatial).rev() {
            // `first` is the plane coordinate of window 0's tap; `within` is the range of windows
            // whose tap lies inside the plane.
            first[d] = rest % w.kernel[d] * w.dilation[d] - w.padding[d];
            rest /= w.kernel[d];
            let s = w.stride[d];
            let lo = if first[d] < 0 { (-first[d] + s - 1) / s } else { 0 };
            let end =
                if self.plane[d] > first[d] { (self.plane[d] - first[d] + s - 1) / s } else { 0 };
            within[d] = lo..end.min(self.windows[d]);
        }
        let (plane, inner) = (contiguous(&self.plane), spatial - 1);
        let (m, from, to) = (self.windows[inner], columns.start as i64, columns.end as i64);
        if m == 0 || from >= to {
            return;
        }
        for row in from / m..(to - 1) / m + 1 {
            let (mut rest, mut at, mut inside) = (row, 0, true);
            for d in (0..inner).rev() {
                let i = rest % self.windows[d];
                rest /= self.windows[d];
                inside &= within[d].contains(&i);
                at += (first[d] + i * w.stride[d]) * plane[d];
            }
            let (lo, hi) =
                (within[inner].start.max(from - row * m), within[inner].end.min(to - row * m));
            if inside && lo < hi {
                let s = w.stride[inner];
                f((row * m + lo) as usize, at + first[inner] + lo * s, (hi - lo) as usize, s);
            }
        }
    }

    /// Adds the rows of a patch matrix onto the planes (col2im), one tap after another.
    pub fn fold<T: Product>(
        &self,
        patches: &[T],
        planes: &mut [T],
        add: impl Fn(T, T) -> T + Sync,
    ) -> Result<()> {
        let (taps, columns, plane) = (self.taps(), numel(&self.windows), numel(&self.plane));
        let out = Ptr(planes.as_mut_ptr());
        thread_pool::ranges(planes.len() / plane.max(1), 1, 1, &|from, to| {
            for c in from..to {
                // SAFETY: plane `c` belongs to one task.
                let dst = unsafe { out.slice_mut((c * plane) as i64, plane) };
                for tap in 0..taps {
                    let src = &patches[(c * taps + tap) * columns..][..columns];
                    self.runs(tap, 0..columns, |col, at, n, step| {
                        for (i, x) in src[col..col + n].iter().enumerate() {
                            let o = &mut dst[at as usize + i * step as usize];
                            *o = add(*o, *x);
                        }
                    });
                }
            }
            Ok(())
        })
    }
}

/// The patch matrix of some channels: row (channel, tap), column (window).
pub(super) struct Patches<'a, T> {
    pub unfold: &'a Unfold<'a>,
    pub planes: &'a [T],
}

// SAFETY: `pack` fills every row.
unsafe impl<T: Product> PackColumns<T> for Patches<'_, T> {
    unsafe fn pack(
        &self,
        isa: Isa,
        rows: Range<usize>,
        columns: Range<usize>,
        width: usize,
        to: *mut T,
    ) {
        let (taps, plane) = (self.unfold.taps(), numel(&self.unfold.plane));
        // SAFETY: the caller's promise.
        let panel = unsafe { std::slice::from_raw_parts_mut(to, rows.len() * width) };
        let mut runs = SmallVec::<[(usize, usize, usize, usize); 16]>::new();
        for tap in 0..taps {
            runs.clear();
            self.unfold.runs(tap, columns.clone(), |c, at, n, step| {
                runs.push((c - columns.start, at as usize, n, step as usize))
            });
            // The first channel whose row of this tap is wanted.
            let first = rows.start.saturating_sub(tap).div_ceil(taps);
            let channels = first..(rows.end + taps - 1 - tap) / taps;
            isa.dispatch(UnfoldTap {
                planes: &self.planes[(first * plane).min(self.planes.len())..],
                plane,
                runs: &runs,
                count: channels.len(),
                panel: panel.get_mut((first * taps + tap).wrapping_sub(rows.start) * width..),
                width,
                step: taps * width,
            });
        }
    }
}

/// Writes the rows of one tap, one for each channel.
struct UnfoldTap<'a, T> {
    planes: &'a [T],
    plane: usize,
    /// Runs of windows: first column, offset in the plane, length, step.
    runs: &'a [(usize, usize, usize, usize)],
    /// The number of channels.
    count: usize,
    /// The panel from the first row on; rows are `step` apart.
    panel: Option<&'a mut [T]>,
    width: usize,
    step: usize,
}

impl<T: Product> Simd for UnfoldTap<'_, T> {
    type Out = ();
    #[inline(always)]
    fn run(self) {
        let Some(panel) = self.panel else { return };
        let is_padded = self.runs.iter().map(|r| r.2).sum::<usize>() < self.width;
        for c in 0..self.count {
            let (row, plane) =
                (&mut panel[c * self.step..][..self.width], &self.planes[c * self.plane..]);
            if is_padded {
                row.fill(T::default());
            }
            for &(column, at, n, step) in self.runs {
                let row = &mut row[column..column + n];
                match step {
                    1 => row.iter_mut().zip(&plane[at..at + n]).for_each(|(o, x)| *o = *x),
                    _ => row
                        .iter_mut()
                        .zip(plane[at..].iter().step_by(step))
                        .for_each(|(o, x)| *o = *x),
                }
            }
        }
    }
}
