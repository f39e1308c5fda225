//! Packing of B into panels: a panel has some vectors of columns, row after row, with zeros after
//! the last column.

use super::epilogue::{COLUMNS, Operand};
use super::kernel::Kernels;
use super::{Float, Mat};
use crate::error::Result;
use crate::isa::Isa;
use crate::pages::{Lifetime, PackedElements};
use crate::thread_pool;
use crate::view::Ptr;
use std::ops::Range;

/// A factor B that is not in memory as a matrix, but can write parts of itself into panels.
///
/// # Safety
/// `pack` writes `rows.len()` rows of `width` elements to `to`: those of `columns`, and zeros
/// after them.
pub(crate) unsafe trait PackColumns<F>: Sync {
    /// Writes the rows `rows` of the columns `columns`.
    ///
    /// # Safety
    /// The ranges are within B, `width` is at least the number of columns and at most 64, and `to`
    /// is valid for the elements written.
    unsafe fn pack(
        &self,
        isa: Isa,
        rows: Range<usize>,
        columns: Range<usize>,
        width: usize,
        to: *mut F,
    );
}

/// The factor B.
#[derive(Clone, Copy)]
pub(crate) enum Right<'a, F> {
    /// In memory, with any strides.
    InPlace(Mat<F>),
    /// Packed as a whole.
    Packed(&'a Panels<F>),
    /// Packed by parts during the product.
    Source(&'a dyn PackColumns<F>),
}

/// A whole matrix in panels.
pub(crate) struct Panels<F> {
    pub rows: usize,
    pub columns: usize,
    /// The vectors of a panel.
    pub vectors: usize,
    pub isa: Isa,
    /// Panels one after another. The last panel has only the vectors that it needs.
    elements: PackedElements<F>,
}

// SAFETY: the elements are not changed after packing.
unsafe impl<F: Send> Send for Panels<F> {}
// SAFETY: as above.
unsafe impl<F: Sync> Sync for Panels<F> {}

impl<F: Float> Panels<F> {
    /// Packs a matrix of any strides and dtype, on the thread pool.
    pub(super) fn new(
        kernel: &'static str,
        isa: Isa,
        b: Operand<F>,
        [k, n]: [usize; 2],
    ) -> Result<Panels<F>> {
        let vectors = panel_vectors(F::kernels(isa), n);
        Panels::of_vectors(kernel, isa, b, [k, n], vectors, Lifetime::Cached)
    }

    /// As [`Panels::new`], in panels of this many vectors.
    pub(super) fn of_vectors(
        kernel: &'static str,
        isa: Isa,
        b: Operand<F>,
        [k, n]: [usize; 2],
        vectors: usize,
        lifetime: Lifetime,
    ) -> Result<Panels<F>> {
        let kernels = F::kernels(isa);
        let padded = n.next_multiple_of(kernels.lanes);
        let mut elements = PackedElements::new(kernel, padded.saturating_mul(k), lifetime)?;
        let to = Ptr(elements.get().as_mut_ptr());
        let width = vectors * kernels.lanes;
        let factor = Factor { kernels, b };
        // A view of no rows may have more columns than can be counted to.
        let panels = if k == 0 { 0 } else { n.div_ceil(width) };
        thread_pool::try_for(panels, k * n > thread_pool::GRAIN, &|p| {
            let columns = p * width..n.min((p + 1) * width);
            let wide = columns.len().next_multiple_of(kernels.lanes);
            // SAFETY: the panel is within the matrix, and this task's alone.
            unsafe { factor.pack(isa, 0..k, columns, wide, to.at(p * width * k)) }
            Ok(())
        })?;
        Ok(Panels { rows: k, columns: n, vectors, isa: kernels.isa, elements })
    }

    /// The bytes of the panels.
    pub fn bytes(&self) -> usize {
        self.columns.next_multiple_of(F::kernels(self.isa).lanes) * self.rows * size_of::<F>()
    }

    /// The address of panel `p`, whose first column is `column`.
    pub fn panel(&self, column: usize) -> *const F {
        self.elements.as_ptr().wrapping_add(column * self.rows)
    }
}

/// The vectors of a panel for `n` columns: three or four, whichever leaves fewer behind.
pub(super) fn panel_vectors<F>(kernels: &Kernels<F>, n: usize) -> usize {
    let (most, needed) = (kernels.vectors(), n.div_ceil(kernels.lanes));
    match most {
        4 if needed % 3 != 0 && needed.is_multiple_of(4) => 4,
        4 => 3.min(needed.max(1)),
        _ => most.min(needed.max(1)),
    }
}

/// A matrix in memory as a source of panels.
pub(super) struct Factor<F: 'static> {
    pub kernels: &'static Kernels<F>,
    pub b: Operand<F>,
}

impl<F: Float> Factor<F> {
    /// The factor as products read it: where it is, or packed from its dtype.
    pub fn right(&self) -> Right<'_, F> {
        self.b.mat().map_or(Right::Source(self), Right::InPlace)
    }
}

// SAFETY: all cases of `pack` write whole rows.
unsafe impl<F: Float> PackColumns<F> for Factor<F> {
    unsafe fn pack(
        &self,
        isa: Isa,
        rows: Range<usize>,
        columns: Range<usize>,
        width: usize,
        to: *mut F,
    ) {
        let b = &self.b;
        // SAFETY: the caller's promise.
        unsafe {
            match b.strides {
                [1, stride] if columns.len() > 1 => match b.mat() {
                    Some(mat) => {
                        let from = mat.skip_rows(rows.start).skip_columns(columns.start);
                        let from = from.start.0.cast_const();
                        let sizes = [rows.len(), columns.len(), width];
                        self.kernels.pack_columns(from, stride as isize, sizes, to)
                    }
                    None => self.pack_narrow_columns(isa, rows, columns, width, to),
                },
                _ => {
                    for (i, row) in rows.enumerate() {
                        let to = Ptr(to).slice_mut((i * width) as i64, width);
                        let (found, padding) = to.split_at_mut(columns.len());
                        b.read_row(isa, row, columns.start, found);
                        padding.fill(F::ZERO);
                    }
                }
            }
        }
    }
}

impl<F: Float> Factor<F> {
    /// Packs columns that are contiguous, but of another dtype: blocks of rows are widened, then
    /// transposed.
    ///
    /// # Safety
    /// As [`PackColumns::pack`].
    unsafe fn pack_narrow_columns(
        &self,
        isa: Isa,
        rows: Range<usize>,
        columns: Range<usize>,
        width: usize,
        to: *mut F,
    ) {
        const BLOCK: usize = 32;
        let mut block = [F::ZERO; BLOCK * COLUMNS];
        for first in rows.clone().step_by(BLOCK) {
            let n = BLOCK.min(rows.end - first);
            // SAFETY: the caller's promise; there are at most `COLUMNS` columns.
            unsafe {
                for (i, column) in columns.clone().enumerate() {
                    let wide = &mut block[i * BLOCK..][..n];
                    self.b.transposed().read_row(isa, column, first, wide);
                }
                let to = to.add((first - rows.start) * width);
                let sizes = [n, columns.len(), width];
                self.kernels.pack_columns(block.as_ptr(), BLOCK as isize, sizes, to)
            }
        }
    }
}
