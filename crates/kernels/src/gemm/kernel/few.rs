//! The kernels of a few elements: without copies, and with nothing to fetch ahead.

use super::super::lanes::Lanes;
#[cfg(doc)]
use super::Kernels;
use super::{Tile, write};

/// See [`Kernels::few`].
///
/// # Safety
/// As [`Kernels::few`].
#[inline(always)]
pub(super) unsafe fn few<V: Lanes, const ROWS: usize, const VECTORS: usize>(t: &Tile<V::Float>) {
    // SAFETY: the caller's promise covers all accesses: `k` columns of the rows of A, `k` rows of
    // B, of whose last vector `last_columns` elements are read, and the rows of the destination.
    unsafe {
        let mut sums = [[V::splat(Default::default()); VECTORS]; ROWS];
        let (mut a, mut b) = (t.a, t.b);
        for _ in 0..t.k {
            let mut row = [V::splat(Default::default()); VECTORS];
            for (j, x) in row.iter_mut().enumerate() {
                *x = match j + 1 == VECTORS && t.last_columns < V::N {
                    true => V::load_first(b.add(j * V::N), t.last_columns),
                    false => V::load(b.add(j * V::N)),
                };
            }
            for (i, sums) in sums.iter_mut().enumerate() {
                let x = V::splat(*a.offset(i as isize * t.a_stride));
                for (sum, y) in sums.iter_mut().zip(row) {
                    *sum = x.fma(y, *sum);
                }
            }
            a = a.wrapping_add(1);
            b = b.wrapping_offset(t.b_stride);
        }
        write::<V, ROWS, VECTORS>(t, sums)
    }
}
