//! Strips of A: the rows of a tile, step after step of `k`. They are packed from columns that are
//! contiguous.

use super::super::lanes::Lanes;
use super::{Kernels, Tile};

/// How many columns ahead are prefetched. Columns may be a multiple of 4 KiB apart, and then a
/// first-level cache holds few more of their lines.
const AHEAD: isize = 8;

/// Rows of A to pack. Strips follow each other: `k` steps of each tile.
#[derive(Clone, Copy)]
pub(in crate::gemm) struct Strips<'a, F> {
    /// The first element, and the distance of columns.
    pub from: *const F,
    pub stride: isize,
    /// The number of columns.
    pub k: usize,
    /// The rows of each tile.
    pub tiles: &'a [usize],
    /// Receives the strips.
    pub to: *mut F,
}

impl<F> Kernels<F> {
    /// As [`Kernels::tile`], for a strip of A.
    ///
    /// # Safety
    /// As [`Kernels::tile`].
    pub(in crate::gemm) unsafe fn strip(&self, t: &Tile<F>, rows: usize, vectors: usize) {
        // SAFETY: the caller's promise.
        unsafe { self.strips[vectors - 1][rows - 1](t) }
    }

    /// As [`Kernels::tile_copying`], for a strip of A.
    ///
    /// # Safety
    /// As [`Kernels::tile`].
    pub(in crate::gemm) unsafe fn strip_copying(&self, t: &Tile<F>, vectors: usize) {
        // SAFETY: the caller's promise.
        unsafe { self.copying_strips[vectors - 1](t) }
    }

    /// Packs rows of A into strips.
    ///
    /// # Safety
    /// The machine has the instruction set, and the addresses are valid.
    pub(in crate::gemm) unsafe fn pack_strips(&self, strips: Strips<'_, F>) {
        // SAFETY: the caller's promise.
        unsafe { (self.pack_strips)(strips) }
    }
}

/// See [`Kernels::pack_strips`].
///
/// The strips of several tiles are packed together, so that a cache line of a column is read once.
///
/// # Safety
/// As [`Kernels::pack_strips`].
#[inline(always)]
pub(super) unsafe fn pack<V: Lanes>(strips: Strips<'_, V::Float>) {
    let Strips { from, stride, k, tiles, to } = strips;
    let line = 64 / size_of::<V::Float>();
    let rows: usize = tiles.iter().sum();
    for p in 0..k {
        let mut column = from.wrapping_offset(p as isize * stride);
        let ahead = column.wrapping_offset(AHEAD * stride);
        for row in (0..rows).step_by(line) {
            V::prefetch_near(ahead.wrapping_add(row));
        }
        let mut strip = to;
        for &n in tiles {
            for first in (0..n).step_by(V::N) {
                let count = V::N.min(n - first);
                // SAFETY: the caller's promise.
                unsafe {
                    let x = V::load_first(column.wrapping_add(first), count);
                    x.store_first(strip.wrapping_add(p * n + first), count);
                }
            }
            column = column.wrapping_add(n);
            strip = strip.wrapping_add(n * k);
        }
    }
}
