//! The microkernels: a tile of C in registers, one chain of fused multiply-adds per element.
//!
//! A tile has a few rows and a few vectors of columns. A step of `k` loads the vectors of a row of
//! B, and multiplies them by one element of each row of A. Rows of A are read where they are, or in
//! `strips`. B is a panel: rows of as many vectors as the tile has, one after another or with a
//! stride.
//!
//! A kernel computes one segment of `k` (see the [order](super)). Then it adds the sums of earlier
//! segments, and writes either a partial sum to scratch or the finished tile to C.

mod affine;
mod channels;
mod columns;
mod few;
mod lines;
mod pixels;
mod planes;
mod strips;
mod table;

use super::lanes::Lanes;
use crate::isa::Isa;
use crate::math::Float;
use crate::view::Ptr;
pub(crate) use affine::Affine;
pub(crate) use channels::{ChannelTile, Taps};
pub(crate) use lines::WindowedPlane;
pub(super) use pixels::{Complete, PixelTile};
pub(crate) use planes::PlaneTile;
pub(super) use strips::Strips;
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
    /// The first row of A, contiguous in `k`, and the distance of rows. For the kernels of strips:
    /// the elements of all rows for the first step, which those for the next follow.
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
    /// Memory to be fetched into the second-level cache: an address, and lines for each step. For
    /// the kernels of columns: what is read after the segment, in place of its first column.
    pub fetch: *const F,
    pub fetch_lines: usize,
    /// For the kernels of strips, which fetch a line for each step: the elements from one to the
    /// next. The others fetch lines that follow each other.
    pub fetch_stride: isize,
}

type Kernel<F> = unsafe fn(&Tile<F>);
type PixelKernel<F> = unsafe fn(&PixelTile<F>);
type ChannelKernel<F> = unsafe fn(&ChannelTile<'_, F>);
type PlaneKernel<F> = unsafe fn(&PlaneTile<F>);

/// The microkernels of an instruction set.
pub(crate) struct Kernels<F: 'static> {
    pub(super) isa: Isa,
    /// Elements of a vector.
    pub(super) lanes: usize,
    /// By vectors, by rows, less one each.
    tiles: &'static [&'static [Kernel<F>]],
    /// The kernels that also copy B: by vectors, less one, with the most rows.
    copying: &'static [Kernel<F>],
    /// The same for strips of A.
    strips: &'static [&'static [Kernel<F>]],
    copying_strips: &'static [Kernel<F>],
    /// The kernels of a few elements: by vectors, by rows, less one each.
    few: &'static [&'static [Kernel<F>]],
    /// The kernels of vectors of columns of B: by vectors, by rows, less one each.
    columns: &'static [&'static [Kernel<F>]],
    /// The kernels of pixels: by vectors, by rows, less one each.
    pixels: &'static [&'static [PixelKernel<F>]],
    /// The same for pixels that are no neighbours.
    pixels_apart: &'static [&'static [PixelKernel<F>]],
    affine: unsafe fn(*const F, usize, &Affine<F>, [usize; 2]),
    /// The kernels of channels: of sums, and of greatest elements.
    channels: [ChannelKernel<F>; 2],
    finish_pixels: unsafe fn(*const F, [usize; 3], *const F, *mut F, usize),
    /// The kernels of planes: by the step between windows, less one.
    planes: [PlaneKernel<F>; 2],
    /// The same for the greatest element of each window.
    greatest: [PlaneKernel<F>; 2],
    dots: unsafe fn(*const F, *const F, usize, *mut F),
    pack: unsafe fn(*const F, isize, [usize; 3], *mut F),
    pack_strips: unsafe fn(Strips<'_, F>),
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
        self.columns[0].len()
    }

    /// The most vectors of columns that the kernels of columns take.
    pub(super) fn vectors_of_columns(&self) -> usize {
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

    /// The most rows of a tile of a few elements, of some vectors.
    pub(super) fn rows_of_few(&self, vectors: usize) -> usize {
        self.few[vectors - 1].len()
    }

    /// The most vectors of a tile of a few elements.
    pub(super) fn vectors_of_few(&self) -> usize {
        self.few.len()
    }

    /// As [`Kernels::tile`]. The last vector of a row of B has `last_columns` elements, too, and
    /// nothing is fetched ahead.
    ///
    /// # Safety
    /// As [`Kernels::tile`].
    #[inline(always)]
    pub(super) unsafe fn few(&self, t: &Tile<F>, rows: usize, vectors: usize) {
        // SAFETY: the caller's promise.
        unsafe { self.few[vectors - 1][rows - 1](t) }
    }

    /// The most pixels of a tile.
    pub(super) fn most_pixels(&self) -> usize {
        self.pixels[0].len()
    }

    /// The most vectors of channels of a tile of pixels.
    pub(super) fn vectors_of_pixels(&self) -> usize {
        self.pixels.len()
    }

    /// Sums a segment of a tile of pixels.
    ///
    /// # Safety
    /// As [`Kernels::tile`].
    #[inline(always)]
    pub(super) unsafe fn pixels(&self, t: &PixelTile<F>, rows: usize, vectors: usize) {
        let kernels = if t.pixel == 1 { self.pixels } else { self.pixels_apart };
        // SAFETY: the caller's promise.
        unsafe { kernels[vectors - 1][rows - 1](t) }
    }

    /// Writes `columns` rows of `rows` elements to `out`: the transpose of sums with rows of
    /// `width` elements, each with its column's bias, unless that is null, and with one NaN.
    ///
    /// # Safety
    /// As [`Kernels::tile`]. The sums have whole vectors of rows and of columns.
    pub(super) unsafe fn finish_pixels(
        &self,
        sums: *const F,
        sizes: [usize; 3],
        bias: *const F,
        out: *mut F,
        stride: usize,
    ) {
        // SAFETY: the caller's promise.
        unsafe { (self.finish_pixels)(sums, sizes, bias, out, stride) }
    }

    /// Computes what follows the sums of some pixels and channels. The sums of a pixel have whole
    /// vectors, and `width` elements.
    ///
    /// # Safety
    /// As [`Kernels::tile`].
    pub(super) unsafe fn affine(
        &self,
        sums: *const F,
        width: usize,
        of: &Affine<F>,
        [pixels, channels]: [usize; 2],
    ) {
        // SAFETY: the caller's promise.
        unsafe { (self.affine)(sums, width, of, [pixels, channels]) }
    }

    /// Computes some neighbours in a row of a depthwise convolution whose channels are last.
    ///
    /// # Safety
    /// As [`Kernels::tile`].
    pub(crate) unsafe fn channels(&self, t: &ChannelTile<'_, F>) {
        // SAFETY: the caller's promise.
        unsafe { (self.channels[0])(t) }
    }

    /// As [`Kernels::channels`], of the greatest element of each window, or of its last NaN.
    ///
    /// # Safety
    /// As [`Kernels::tile`].
    pub(crate) unsafe fn greatest_channels(&self, t: &ChannelTile<'_, F>) {
        // SAFETY: the caller's promise.
        unsafe { (self.channels[1])(t) }
    }

    /// The most elements between two windows of a plane.
    pub(crate) fn most_steps(&self) -> usize {
        self.planes.len()
    }

    /// Computes some rows of a plane of windows of 3 x 3 elements, which begin `step` elements
    /// after each other, in columns as in rows.
    ///
    /// # Safety
    /// As [`Kernels::tile`].
    pub(crate) unsafe fn plane(&self, t: &PlaneTile<F>, step: usize) {
        // SAFETY: the caller's promise.
        unsafe { self.planes[step - 1](t) }
    }

    /// As [`Kernels::plane`], of the greatest element of each window, or of its last NaN. A window
    /// in the padding has -∞. There are no weights.
    ///
    /// # Safety
    /// As [`Kernels::tile`].
    pub(crate) unsafe fn greatest(&self, t: &PlaneTile<F>, step: usize) {
        // SAFETY: the caller's promise.
        unsafe { self.greatest[step - 1](t) }
    }
}

/// How many rows of B ahead the kernels prefetch: to the second-level cache about the latency of
/// memory; to the first-level cache about that of the second.
const AHEAD: isize = 12;
const NEAR: isize = 8;
/// The least steps of a tile that prefetches its destination. With fewer, that costs more than it
/// saves.
const FETCH_OUT: usize = 256;

/// # Safety
/// As [`Kernels::tile`].
#[inline(always)]
unsafe fn tile<
    V: Lanes,
    const ROWS: usize,
    const VECTORS: usize,
    const COPY: bool,
    const STRIPS: bool,
>(
    t: &Tile<V::Float>,
) {
    // SAFETY: the caller's promise covers all accesses: `k` columns of the rows of A, `k` rows of
    // B, and the rows of the sums and the destination.
    unsafe {
        let mut sums = [[V::splat(Default::default()); VECTORS]; ROWS];
        let (mut a, mut b, mut copy, mut fetch) = (t.a, t.b, t.copy, t.fetch);
        // In a strip, the addresses of rows need no registers.
        let (a_stride, a_step) = if STRIPS { (1, ROWS) } else { (t.a_stride, 1) };
        let b_stride = t.b_stride;
        let line = 64 / size_of::<V::Float>();
        if t.finish.is_some() && t.k >= FETCH_OUT {
            for i in 0..ROWS {
                for j in 0..VECTORS {
                    V::prefetch_near(out_of(t, i, j * V::N));
                }
            }
        }
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
            if STRIPS {
                V::prefetch(fetch);
                fetch = fetch.wrapping_offset(t.fetch_stride);
            } else {
                for _ in 0..t.fetch_lines {
                    V::prefetch(fetch);
                    fetch = fetch.wrapping_add(line);
                }
            }
            a = a.wrapping_add(a_step);
            b = b.wrapping_offset(b_stride);
            if COPY {
                copy = copy.add(VECTORS * V::N);
            }
        }
        write::<V, ROWS, VECTORS>(t, sums)
    }
}

/// The address of an element of the destination.
#[inline(always)]
fn out_of<F>(t: &Tile<F>, row: usize, column: usize) -> *mut F {
    t.out.wrapping_offset(row as isize * t.out_stride).wrapping_add(column)
}

/// Adds the sums of earlier segments and writes the tile.
///
/// The loops count to constants, so that they are unrolled and the sums stay in registers.
///
/// # Safety
/// As [`Kernels::tile`].
#[inline(always)]
#[allow(clippy::needless_range_loop)]
unsafe fn write<V: Lanes, const ROWS: usize, const VECTORS: usize>(
    t: &Tile<V::Float>,
    mut sums: [[V; VECTORS]; ROWS],
) {
    let out = |i: usize, j: usize| out_of(t, i, j * V::N);
    // SAFETY: the caller's promise.
    unsafe {
        for earlier in t.sums {
            if earlier.is_null() {
                continue;
            }
            for i in 0..ROWS {
                for j in 0..VECTORS {
                    let at = i as isize * t.sums_stride + (j * V::N) as isize;
                    sums[i][j] = V::load(earlier.offset(at)).add(sums[i][j]);
                }
            }
        }
        let Some(finish) = &t.finish else {
            for i in 0..ROWS {
                for j in 0..VECTORS {
                    sums[i][j].store(out(i, j));
                }
            }
            return;
        };
        if finish.alpha != Float::ONE {
            let alpha = V::splat(finish.alpha);
            for i in 0..ROWS {
                for j in 0..VECTORS {
                    sums[i][j] = sums[i][j].mul(alpha);
                }
            }
        }
        if !finish.addend.0.is_null() {
            add::<V, ROWS, VECTORS>(finish, &mut sums, t.last_columns);
        }
        let whole = if t.last_columns < V::N { VECTORS - 1 } else { VECTORS };
        for i in 0..ROWS {
            for j in 0..VECTORS {
                let x = sums[i][j].one_nan();
                match j < whole {
                    true => x.store(out(i, j)),
                    false => x.store_first(out(i, j), t.last_columns),
                }
            }
        }
    }
}

/// Adds the addend times its factor. The last vector of a row has `last_columns` elements.
///
/// # Safety
/// As [`Kernels::tile`].
#[inline(always)]
unsafe fn add<V: Lanes, const ROWS: usize, const VECTORS: usize>(
    finish: &Finish<V::Float>,
    sums: &mut [[V; VECTORS]; ROWS],
    last_columns: usize,
) {
    for (i, row) in sums.iter_mut().enumerate() {
        let addend = finish.addend.0.wrapping_offset(i as isize * finish.addend_stride);
        for (j, sum) in row.iter_mut().enumerate() {
            let is_last = j + 1 == VECTORS && last_columns < V::N;
            // SAFETY: the caller's promise.
            unsafe {
                let y = match (finish.addend_repeats, is_last) {
                    (true, _) => V::splat(*addend),
                    (_, true) => V::load_first(addend.add(j * V::N), last_columns),
                    _ => V::load(addend.add(j * V::N)),
                };
                *sum = sum.add(y.mul(V::splat(finish.beta)));
            }
        }
    }
}
