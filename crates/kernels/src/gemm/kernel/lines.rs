//! Lines of a plane as windows of three elements see them: a vector for each tap, which has the
//! elements under that tap of neighbouring windows.
//!
//! The plane is read where it is. Masks leave out what is in the padding, so that nothing is copied
//! and no line needs elements after it. Of windows that move by two, two vectors have the elements
//! of the first two taps, and are unzipped. The third tap of a window is the first one of the next.

use crate::gemm::lanes::Lanes;

/// The taps of a line.
pub(super) const TAPS: usize = 3;

/// A row-major plane, and how windows of 3 x 3 elements lie over it.
#[derive(Clone, Copy)]
pub(crate) struct WindowedPlane<F> {
    pub start: *const F,
    pub sizes: [usize; 2],
    /// The rows and columns of padding before the first element.
    pub padding: [usize; 2],
}

/// The loads of some neighbouring windows, the same for each line.
pub(super) struct LineLoads<V: Lanes> {
    /// The first element of each vector, from the line's first one, and which are inside. Windows
    /// that move by two need the first two vectors only.
    loads: [(isize, V::Mask); TAPS],
    /// Of windows that move by two, the third tap of the last one, if it is inside.
    last: Option<isize>,
    /// An element of the padding, and a vector of such elements.
    other: V::Float,
    others: V,
}

impl<V: Lanes> LineLoads<V> {
    /// The loads of the windows from `column` on, which move by `STEP`. The padding has elements
    /// `other`.
    ///
    /// # Safety
    /// The machine has the vector's instruction set.
    #[inline(always)]
    pub unsafe fn new<const STEP: usize>(
        plane: &WindowedPlane<V::Float>,
        column: usize,
        other: V::Float,
    ) -> LineLoads<V> {
        let first = (column * STEP) as isize - plane.padding[1] as isize;
        let after = match STEP {
            1 => [0, 1, 2],
            _ => [0, V::N as isize, 0],
        };
        let width = plane.sizes[1] as isize;
        // SAFETY: the caller's promise.
        let loads = after.map(|after| unsafe {
            let at = first + after;
            let to = (width - at).clamp(0, V::N as isize);
            (at, V::mask((-at).clamp(0, to) as usize, to as usize))
        });
        let last = first + 2 * V::N as isize;
        let last = (0..width).contains(&last).then_some(last);
        // SAFETY: as above.
        LineLoads { loads, last, other, others: unsafe { V::splat(other) } }
    }

    /// The elements of a line under each tap. A line outside the plane is all padding.
    ///
    /// # Safety
    /// The machine has the vector's instruction set, and the plane is valid.
    #[inline(always)]
    pub unsafe fn taps<const STEP: usize>(
        &self,
        plane: &WindowedPlane<V::Float>,
        line: isize,
    ) -> [V; TAPS] {
        if !(0..plane.sizes[0] as isize).contains(&line) {
            return [self.others; TAPS];
        }
        let start = plane.start.wrapping_offset(line * plane.sizes[1] as isize);
        // SAFETY: masks leave out what is outside the line.
        let load = |i: usize| unsafe {
            let (at, mask) = self.loads[i];
            V::load_masked(start.wrapping_offset(at), mask, self.others)
        };
        match STEP {
            1 => [load(0), load(1), load(2)],
            // SAFETY: the caller's promise.
            _ => unsafe {
                let [first, second] = load(0).unzip(load(1));
                let last = self.last.map_or(self.other, |at| *start.wrapping_offset(at));
                [first, second, first.following(last)]
            },
        }
    }
}
