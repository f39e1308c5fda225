//! Tasks that pack A, too: its columns are contiguous, as those of a transposed matrix are.
//!
//! A strip has the rows of a tile, step after step of `k`. A task packs the strips of some tiles
//! before their first panel. Meanwhile the tiles before fetch the next rows into the second-level
//! cache: their cache lines are far apart, so the processor does not foresee them.
//!
//! **Cost:** each group of panels packs all of A. In return no thread reads what another one has
//! packed, and the kernels of strips need no registers for the addresses of rows.

use super::blocks::{Blocks, STRIP_ROWS};
use super::kernel::Strips;
use super::{Float, Mat};
use crate::view::Ptr;
use smallvec::SmallVec;
use std::ops::Range;

/// Memory to be fetched during a segment: where it is for the first step of `k`, lines for each
/// step, and the elements from one to the next.
pub(super) type Fetch<F> = (*const F, usize, isize);

/// The tiles of which a task has packed the rows of A.
pub(super) struct PackedStrips<F> {
    /// The first row that is not packed, of those of the task.
    pub end: usize,
    /// The strip of the next tile, and its number.
    next: *const F,
    number: usize,
}

impl<F> PackedStrips<F> {
    /// No strips. The first row to pack is `row`.
    pub fn none(row: usize, next: *mut F) -> PackedStrips<F> {
        PackedStrips { end: row, next, number: 0 }
    }

    /// The strip of the next tile as rows of A, whose first packed column is `first_k`.
    pub fn tile(&self, rows: usize, first_k: usize) -> Mat<F> {
        let start = Ptr(self.next.cast_mut().wrapping_sub(first_k * rows));
        Mat { start, row_stride: 1, column_stride: rows as isize }
    }

    /// Goes on to the next tile, after a strip of this many elements.
    pub fn next_tile(&mut self, elements: usize) {
        self.next = self.next.wrapping_add(elements);
        self.number += 1;
    }
}

impl<F: Float> Blocks<'_, F> {
    /// The elements of scratch memory for strips of this many steps.
    pub(super) fn scratch_of_strips(&self, depth: usize) -> usize {
        match self.in_strips {
            true => (STRIP_ROWS + self.kernels.rows(self.vectors)) * depth,
            false => 0,
        }
    }

    /// Packs the next rows of a task, whose first is `first_row`.
    ///
    /// # Safety
    /// As [`Blocks::block`].
    pub(super) unsafe fn pack_strips(
        &self,
        first_row: usize,
        rows: Range<usize>,
        k: Range<usize>,
        to: *mut F,
    ) -> PackedStrips<F> {
        let mut tiles: SmallVec<[usize; 16]> = SmallVec::new();
        let mut end = rows.start;
        while end < rows.end && end < rows.start + STRIP_ROWS {
            let n = self.rows_of_tile(end, rows.end);
            tiles.push(n);
            end += n;
        }
        let strips = Strips {
            from: self.a.skip_rows(first_row + rows.start).skip_columns(k.start).start.0,
            stride: self.a.column_stride,
            k: k.len(),
            tiles: &tiles,
            to,
        };
        // SAFETY: the rows are those of A, and the scratch memory has room for them.
        unsafe { self.kernels.pack_strips(strips) }
        PackedStrips::none(end, to)
    }

    /// What the next tile fetches of the rows of A that are packed after those of `strips`: a cache
    /// line of each column.
    pub(super) fn fetch_rows(
        &self,
        strips: &PackedStrips<F>,
        of: Range<usize>,
    ) -> Option<Fetch<F>> {
        let line = 64 / size_of::<F>();
        let rows = (of.len() - strips.end).min(STRIP_ROWS);
        let row = strips.number * line;
        // A line more than the rows fill: they may begin within one.
        (rows > 0 && row < rows + line).then(|| {
            let next = self.a.skip_rows(of.start + strips.end + row.min(rows - 1));
            (next.start.0.cast_const(), 1, self.a.column_stride)
        })
    }
}
