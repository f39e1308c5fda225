//! The microkernels: a tile of C in registers, one chain of fused multiply-adds per element.
//!
//! A tile has a few rows and a few vectors of columns. A step of `k` loads the vectors of a row of
//! B, and multiplies them by one element of each row of A. Rows of A are read where they are. B is
//! a panel: rows of as many vectors as the tile has, one after another or with a stride.
//!
//! A kernel computes one segment of `k` (see the [order](super)). Then it adds the sums of earlier
//! segments, and writes either a partial sum to scratch or the finished tile to C.

mod table;

use super::lanes::Lanes;
use crate::isa::Isa;
use crate::view::Ptr;
pub(super) use table::{kernels_f32, kernels_f64};

/// The factor, the addend and the rounding of NaN that a finished tile gets on its way to C.
#[derive(Clone, Copy)]
pub(super) struct Finish<F> {
    pub alpha: F,
    pub beta: F,
    /// Row 0 of the addend, or null.
    pub addend: Ptr<F>,
    pub addend_stride: isize,
    /// Whether a row of the addend has one element for all columns.
    pub addend_repeats: bool,
}

/// One segment of a tile's sums.
#[derive(Clone, Copy)]
pub(super) struct Tile<F> {
    /// The length of the segment.
    pub k: usize,
    /// The first row of A, contiguous in `k`, and the distance of rows.
    pub a: *const F,
    pub a_stride: isize,
    /// The first row of B and the distance of rows. For the kernels of columns: the first column,
    /// contiguous in `k`, and the distance of columns.
    pub b: *const F,
    pub b_stride: isize,
    /// Receives the rows of B one after another, in kernels that copy.
    pub copy: *mut F,
    /// Sums of earlier segments to add in this order, or null, with rows `sums_stride` apart.
    pub sums: [*const F; 2],
    pub sums_stride: isize,
    /// The destination, and the distance of its rows.
    pub out: *mut F,
    pub out_stride: isize,
    /// The number of valid columns in the last vector of a finished tile.
    pub last_columns: usize,
    /// How to finish the tile; `None` writes whole vectors of partial sums.
    pub finish: Option<Finish<F>>,
    /// Memory to be fetched into the second-level cache: an address, and lines for each step.
    pub fetch: *const F,
    pub fetch_lines: usize,
}

type Kernel<F> = unsafe fn(&Tile<F>);

/// The microkernels of an instruction set.
pub(crate) struct Kernels<F: 'static> {
    pub(super) isa: Isa,
    /// Elements of a vector.
    pub(super) lanes: usize,
    /// By vectors, by rows, less one each.
    tiles: &'static [&'static [Kernel<F>]],
    /// The kernels that also copy B: by vectors, less one, with the most rows.
    copying: &'static [Kernel<F>],
    /// The kernels of one vector of columns of B, by rows, less one.
    columns: &'static [Kernel<F>],
    pack: unsafe fn(*const F, isize, [usize; 3], *mut F),
}

impl<F> Kernels<F> {
    /// The most rows of a tile of some vectors.
    pub(super) fn rows(&self, vectors: usize) -> usize {
        self.tiles[vectors - 1].len()
    }

    /// The most vectors of a tile.
    pub(super) fn vectors(&self) -> usize {
        self.tiles.len()
    }

    /// The most rows of A that the kernels of columns take.
    pub(super) fn rows_of_columns(&self) -> usize {
        self.columns.len()
    }

    /// Computes a tile.
    ///
    /// # Safety
    /// The machine has the instruction set. The tile's addresses are valid for its size, and
    /// nothing else accesses what is written.
    #[inline(always)]
    pub(super) unsafe fn tile(&self, t: &Tile<F>, rows: usize, vectors: usize) {
        // SAFETY: the caller's promise.
        unsafe { self.tiles[vectors - 1][rows - 1](t) }
    }

    /// As [`Kernels::tile`], with the most rows, and copies B to `t.copy`.
    ///
    /// # Safety
    /// As [`Kernels::tile`].
    pub(super) unsafe fn tile_copying(&self, t: &Tile<F>, vectors: usize) {
        // SAFETY: the caller's promise.
        unsafe { self.copying[vectors - 1](t) }
    }

    /// As [`Kernels::tile`], for one vector of columns of B that are contiguous in `k`.
    ///
    /// # Safety
    /// As [`Kernels::tile`].
    pub(super) unsafe fn columns(&self, t: &Tile<F>, rows: usize) {
        // SAFETY: the caller's promise.
        unsafe { self.columns[rows - 1](t) }
    }

    /// Writes `k` rows of `width` elements to `to`: the elements of `n` columns that are contiguous
    /// and `stride` apart, and zeros behind them.
    ///
    /// # Safety
    /// The machine has the instruction set, and the addresses are valid.
    pub(super) unsafe fn pack_columns(
        &self,
        from: *const F,
        stride: isize,
        [k, n, width]: [usize; 3],
        to: *mut F,
    ) {
        // SAFETY: the caller's promise.
        unsafe { (self.pack)(from, stride, [k, n, width], to) }
    }
}

/// How many rows of B ahead the kernels prefetch: to the second-level cache about the latency of
/// memory; to the first-level cache about that of the second.
const AHEAD: isize = 12;
const NEAR: isize = 8;

/// # Safety
/// As [`Kernels::tile`].
#[inline(always)]
unsafe fn tile<V: Lanes, const ROWS: usize, const VECTORS: usize, const COPY: bool>(
    t: &Tile<V::Float>,
) {
    // SAFETY: the caller's promise covers all accesses: `k` columns of the rows of A, `k` rows of
    // B, and the rows of the sums and the destination.
    unsafe {
        let mut sums = [[V::splat(Default::default()); VECTORS]; ROWS];
        let (mut a, mut b, mut copy, mut fetch) = (t.a, t.b, t.copy, t.fetch);
        let (a_stride, b_stride) = (t.a_stride, t.b_stride);
        let line = 64 / size_of::<V::Float>();
        // One step of the loop has enough work; unrolled, the registers do not suffice.
        for _ in 0..t.k {
            let mut row = [V::splat(Default::default()); VECTORS];
            for (j, x) in row.iter_mut().enumerate() {
                *x = V::load(b.add(j * V::N));
                if COPY {
                    x.store(copy.add(j * V::N));
                    V::prefetch(b.wrapping_offset(AHEAD * b_stride).wrapping_add(j * V::N));
                } else {
                    V::prefetch_near(b.wrapping_offset(NEAR * b_stride).wrapping_add(j * V::N));
                }
            }
            for (i, sums) in sums.iter_mut().enumerate() {
                let x = V::splat(*a.offset(i as isize * a_stride));
                for (sum, y) in sums.iter_mut().zip(row) {
                    *sum = x.fma(y, *sum);
                }
            }
            for _ in 0..t.fetch_lines {
                V::prefetch(fetch);
                fetch = fetch.wrapping_add(line);
            }
            a = a.wrapping_add(1);
            b = b.wrapping_offset(b_stride);
            if COPY {
                copy = copy.add(VECTORS * V::N);
            }
        }
        write::<V, ROWS, VECTORS>(t, sums)
    }
}

/// As [`tile`], for one vector of columns of B that are contiguous in `k`: blocks of four steps are
/// transposed in registers.
///
/// # Safety
/// As [`Kernels::tile`].
#[inline(always)]
unsafe fn columns<V: Lanes, const ROWS: usize>(t: &Tile<V::Float>) {
    // SAFETY: the caller's promise covers all accesses.
    unsafe {
        let mut sums = [[V::splat(Default::default()); 1]; ROWS];
        let (mut a, mut b) = (t.a, t.b);
        for _ in 0..t.k / 4 {
            let block = V::columns(b, t.b_stride);
            for (q, row) in block.into_iter().enumerate() {
                for (i, [sum]) in sums.iter_mut().enumerate() {
                    let x = V::splat(*a.offset(i as isize * t.a_stride + q as isize));
                    *sum = x.fma(row, *sum);
                }
            }
            (a, b) = (a.wrapping_add(4), b.wrapping_add(4));
        }
        let mut row = [V::Float::default(); 16];
        for _ in 0..t.k % 4 {
            for (i, x) in row.iter_mut().enumerate().take(V::N) {
                *x = *b.offset(i as isize * t.b_stride);
            }
            let column = V::load(row.as_ptr());
            for (i, [sum]) in sums.iter_mut().enumerate() {
                *sum = V::splat(*a.offset(i as isize * t.a_stride)).fma(column, *sum);
            }
            (a, b) = (a.wrapping_add(1), b.wrapping_add(1));
        }
        write::<V, ROWS, 1>(t, sums)
    }
}

/// See [`Kernels::pack_columns`].
///
/// # Safety
/// As [`Kernels::pack_columns`].
#[inline(always)]
unsafe fn pack<V: Lanes>(
    from: *const V::Float,
    stride: isize,
    [k, n, width]: [usize; 3],
    to: *mut V::Float,
) {
    // SAFETY: the caller's promise.
    unsafe {
        let whole = n / V::N * V::N;
        for column in (0..whole).step_by(V::N) {
            let from = from.offset(column as isize * stride);
            for p in (0..k / 4 * 4).step_by(4) {
                for (q, row) in V::columns(from.add(p), stride).into_iter().enumerate() {
                    row.store(to.add((p + q) * width + column));
                }
            }
            for p in k / 4 * 4..k {
                for i in 0..V::N {
                    *to.add(p * width + column + i) = *from.offset(i as isize * stride).add(p);
                }
            }
        }
        for p in 0..k {
            for column in whole..width {
                *to.add(p * width + column) = match column < n {
                    true => *from.offset(column as isize * stride).add(p),
                    false => Default::default(),
                };
            }
        }
    }
}

/// Adds the sums of earlier segments and writes the tile.
///
/// # Safety
/// As [`Kernels::tile`].
#[inline(always)]
unsafe fn write<V: Lanes, const ROWS: usize, const VECTORS: usize>(
    t: &Tile<V::Float>,
    mut sums: [[V; VECTORS]; ROWS],
) {
    // SAFETY: the caller's promise.
    unsafe {
        for earlier in t.sums.into_iter().filter(|p| !p.is_null()) {
            for (i, row) in sums.iter_mut().enumerate() {
                for (j, sum) in row.iter_mut().enumerate() {
                    let at = i as isize * t.sums_stride + (j * V::N) as isize;
                    *sum = V::load(earlier.offset(at)).add(*sum);
                }
            }
        }
        let out = |i: usize, j: usize| t.out.offset(i as isize * t.out_stride).add(j * V::N);
        let Some(finish) = &t.finish else {
            for (i, row) in sums.into_iter().enumerate() {
                row.into_iter().enumerate().for_each(|(j, sum)| sum.store(out(i, j)));
            }
            return;
        };
        let (alpha, beta) = (V::splat(finish.alpha), V::splat(finish.beta));
        for (i, row) in sums.into_iter().enumerate() {
            let addend = finish.addend.0.wrapping_offset(i as isize * finish.addend_stride);
            for (j, sum) in row.into_iter().enumerate() {
                let is_last = j + 1 == VECTORS && t.last_columns < V::N;
                let mut x = sum.mul(alpha);
                if !finish.addend.0.is_null() {
                    let y = match (finish.addend_repeats, is_last) {
                        (true, _) => V::splat(*addend),
                        (_, true) => V::load_first(addend.add(j * V::N), t.last_columns),
                        _ => V::load(addend.add(j * V::N)),
                    };
                    x = x.add(y.mul(beta));
                }
                let x = x.one_nan();
                match is_last {
                    true => x.store_first(out(i, j), t.last_columns),
                    false => x.store(out(i, j)),
                }
            }
        }
    }
}
