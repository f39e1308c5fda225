//! Lines of pixels for the channels of one panel.
//!
//! A line is divided into tiles of about the same number of pixels. Where a panel of weights does
//! not stay in a near cache, some tiles take each segment of it after one another.
//!
//! **Cost:** for short sums, what is done for each tile counts as much as its multiply-adds. So all
//! that a panel has in common is found once.

use super::kernel::{Affine, Complete, Finish, Kernels, PixelTile, Tile as RowTile};
use super::lanes::fetch_to_write;
use super::pixels::{PixelLines, PixelOutput, TOGETHER, WeightsAhead};
use super::{Float, GROUP, SEGMENT};
use crate::view::Ptr;
use smallvec::SmallVec;

/// With so many steps, the kernel of rows saves more than it costs to write the sums for what
/// follows.
const LONG_ROWS: usize = 96;

/// What is called after each tile, with the number of its pixels.
type After<'a> = Option<&'a mut dyn FnMut(usize)>;

/// Pixels that are summed at once: the first of them, the number of the first, and how many they
/// are.
struct Tile<F> {
    a: *const F,
    at: usize,
    pixels: usize,
}

/// A panel of weights, and where its sums go.
pub(super) struct PixelPanel<'a, F: 'static> {
    pub kernels: &'static Kernels<F>,
    /// The offset of each step of `k` from a pixel.
    pub offsets: &'a [u32],
    /// Whether the steps follow one another in memory, as those of a window of one pixel do where
    /// channels are last: then pixels are rows of a matrix.
    pub is_rows: bool,
    pub weights: *const F,
    pub channels: usize,
    /// The vectors that these channels take.
    pub vectors: usize,
    /// The tiles that take each segment of the weights after one another.
    pub together: usize,
    /// The most elements of a tile.
    pub tile_size: usize,
    pub out: &'a PixelOutput<F>,
    pub scratch: *mut F,
}

impl<F: Float> PixelPanel<'_, F> {
    /// See [`PixelProduct::lines`](super::PixelProduct::lines).
    ///
    /// # Safety
    /// As there.
    pub unsafe fn lines(
        &self,
        of: &PixelLines<F>,
        ahead: &mut WeightsAhead<F>,
        mut after: After<'_>,
    ) {
        if self.offsets.len() <= SEGMENT {
            // SAFETY: the caller's promise.
            return unsafe { self.lines_of_one_segment(of, ahead, after) };
        }
        let most = self.kernels.most_pixels();
        let mut tiles: SmallVec<[Tile<F>; TOGETHER]> = SmallVec::new();
        for (i, first) in (0..of.pixels).step_by(of.length.max(1)).enumerate() {
            let (start, end) =
                (of.start.wrapping_add(i * of.step), of.pixels.min(first + of.length));
            let mut at = first;
            while at < end {
                let left = end - at;
                let pixels = left.div_ceil(left.div_ceil(most));
                let a = start.wrapping_add((at - first) * of.pixel);
                tiles.push(Tile { a, at, pixels });
                at += pixels;
                if tiles.len() == self.together || at == of.pixels {
                    // SAFETY: the caller's promise.
                    unsafe { self.tiles(&tiles, of.pixel, ahead, &mut after) }
                    tiles.clear();
                }
            }
        }
    }

    /// As [`PixelPanel::lines`], if a sum is one segment. From tile to tile, little more than
    /// addresses changes.
    ///
    /// # Safety
    /// As [`PixelPanel::lines`].
    unsafe fn lines_of_one_segment(
        &self,
        of: &PixelLines<F>,
        ahead: &mut WeightsAhead<F>,
        mut after: After<'_>,
    ) {
        let (kernels, out, k) = (self.kernels, self.out, self.offsets.len());
        let width = self.vectors * kernels.lanes;
        let last = self.channels + kernels.lanes - width;
        let completes = out.pixel != 1 && out.then.is_none();
        let in_kernel = out.then.as_ref().and_then(|then| self.in_kernel(then, k, last));
        let mut t = PixelTile {
            k,
            a: of.start,
            offsets: self.offsets.as_ptr(),
            b: self.weights,
            sums: [std::ptr::null(); 2],
            out: if completes { out.start } else { self.scratch },
            pixel: of.pixel,
            complete: completes.then_some(Complete { last, row: out.pixel }),
            then: in_kernel,
            fetch: self.weights,
        };
        let most = kernels.most_pixels();
        for (i, first) in (0..of.pixels).step_by(of.length.max(1)).enumerate() {
            let end = of.pixels.min(first + of.length);
            t.a = of.start.wrapping_add(i * of.step);
            let mut at = first;
            for tiles in (1..=(end - first).div_ceil(most)).rev() {
                let pixels = (end - at).div_ceil(tiles);
                t.fetch = ahead.next(k).unwrap_or(self.weights);
                if completes && after.is_none() {
                    t.out = out.start.wrapping_add(at * out.pixel);
                }
                if let (Some(then), Some(first)) = (&mut t.then, &in_kernel) {
                    then.out = first.out.wrapping_add(at * first.out_pixel);
                }
                if after.is_none() {
                    match &out.then {
                        Some(then) => {
                            let start = then.out.wrapping_add(at * then.out_pixel);
                            self.fetch_results(start, then.out_pixel, pixels);
                        }
                        None if completes => self.fetch_results(t.out, out.pixel, pixels),
                        None => {}
                    }
                }
                let sizes = [pixels, self.channels];
                // SAFETY: the caller's promise.
                unsafe {
                    self.sums(&t, pixels);
                    match (&out.then, &in_kernel) {
                        (Some(then), None) => {
                            kernels.affine(self.scratch, width, &then.at(0, at), sizes);
                        }
                        (None, _) if !completes => {
                            let (to, sizes) =
                                (out.start.wrapping_add(at), [pixels, sizes[1], width]);
                            kernels.finish_pixels(self.scratch, sizes, out.bias, to, out.channel);
                        }
                        _ => {}
                    }
                }
                if let (Some(after), true) = (&mut after, completes) {
                    after(pixels);
                }
                at += pixels;
                t.a = t.a.wrapping_add(pixels * of.pixel);
            }
        }
    }

    /// What follows whole vectors of sums in registers, if it is better there than the kernel of
    /// rows is for `k` steps.
    #[inline]
    fn in_kernel(&self, then: &Affine<F>, k: usize, last: usize) -> Option<Affine<F>> {
        let is_whole = then.residual.is_null() && last == self.kernels.lanes;
        (is_whole && !(self.is_rows && k >= LONG_ROWS)).then(|| with_all_numbers(then))
    }

    /// Computes a tile of so many pixels. Pixels that are rows have the kernel of rows, which needs
    /// no table, unless it cannot compute what follows.
    ///
    /// # Safety
    /// As [`PixelPanel::lines`].
    #[inline]
    unsafe fn sums(&self, t: &PixelTile<F>, pixels: usize) {
        let (kernels, vectors) = (self.kernels, self.vectors);
        if !self.is_rows || t.then.is_some() || pixels > kernels.rows(vectors) {
            // SAFETY: the caller's promise.
            return unsafe { kernels.pixels(t, pixels, vectors) };
        }
        let width = vectors * kernels.lanes;
        let nothing = Finish {
            alpha: F::ONE,
            beta: F::ZERO,
            addend: Ptr(std::ptr::null_mut()),
            addend_stride: 0,
            addend_repeats: false,
        };
        let (row, last) = t.complete.map_or((width, kernels.lanes), |c| (c.row, c.last));
        // SAFETY: the segment has a first step.
        let first = unsafe { *t.offsets } as usize;
        let rows = RowTile {
            k: t.k,
            a: t.a.wrapping_add(first),
            a_stride: t.pixel as isize,
            b: t.b,
            b_stride: width as isize,
            copy: std::ptr::null_mut(),
            sums: t.sums,
            sums_stride: width as isize,
            out: t.out,
            out_stride: row as isize,
            last_columns: last,
            finish: t.complete.map(|_| nothing),
            fetch: t.fetch,
            fetch_lines: 1,
            fetch_stride: 0,
        };
        // SAFETY: the caller's promise.
        unsafe { kernels.tile(&rows, pixels, vectors) }
    }

    /// Computes some tiles, whose pixels are so far apart, segment by segment.
    ///
    /// # Safety
    /// As [`PixelPanel::lines`].
    #[inline]
    unsafe fn tiles(
        &self,
        tiles: &[Tile<F>],
        pixel: usize,
        ahead: &mut WeightsAhead<F>,
        after: &mut After<'_>,
    ) {
        let (kernels, out, null) = (self.kernels, self.out, std::ptr::null());
        let width = self.vectors * kernels.lanes;
        // The elements of the last vector.
        let last = self.channels + kernels.lanes - width;
        // The sums of a group of segments, in the end of all, and those of the groups before.
        let sums = |tile: usize| {
            [0, 1].map(|i| self.scratch.wrapping_add((2 * tile + i) * self.tile_size))
        };
        let segments = self.offsets.len().div_ceil(SEGMENT).max(1);
        for s in 0..segments {
            let from = s * SEGMENT;
            let is_last = s + 1 == segments;
            let ends_group = is_last || s % GROUP == GROUP - 1;
            let k = SEGMENT.min(self.offsets.len() - from);
            let completes = is_last && out.pixel != 1 && out.then.is_none();
            for (i, tile) in tiles.iter().enumerate() {
                let [group, total] = sums(i);
                let then = out.then.filter(|_| is_last).map(|then| then.at(0, tile.at));
                let in_kernel = then.as_ref().and_then(|then| self.in_kernel(then, k, last));
                let b = self.weights.wrapping_add(from * width);
                let t = PixelTile {
                    k,
                    a: tile.a,
                    offsets: self.offsets.as_ptr().wrapping_add(from),
                    b,
                    sums: [
                        if s.is_multiple_of(GROUP) { null } else { group.cast_const() },
                        if ends_group && s >= GROUP { total.cast_const() } else { null },
                    ],
                    out: match completes {
                        true if after.is_some() => out.start,
                        true => out.start.wrapping_add(tile.at * out.pixel),
                        false if ends_group && !is_last => total,
                        false => group,
                    },
                    pixel,
                    complete: completes.then_some(Complete { last, row: out.pixel }),
                    then: in_kernel,
                    // An address that is in no page would be looked up again and again.
                    fetch: ahead.next(k).unwrap_or(b),
                };
                if is_last && after.is_none() {
                    match &then {
                        Some(then) => self.fetch_results(then.out, then.out_pixel, tile.pixels),
                        None if out.pixel != 1 => self.fetch_results(t.out, out.pixel, tile.pixels),
                        None => {}
                    }
                }
                // SAFETY: the caller's promise.
                unsafe { self.sums(&t, tile.pixels) }
                if let (Some(after), true) = (&mut *after, completes) {
                    after(tile.pixels);
                }
                if let (Some(then), None) = (&then, in_kernel) {
                    let sizes = [tile.pixels, self.channels];
                    // SAFETY: as above.
                    unsafe { kernels.affine(group, width, then, sizes) }
                }
            }
        }
        if out.pixel != 1 || out.then.is_some() {
            return;
        }
        for (i, tile) in tiles.iter().enumerate() {
            let (sizes, to) =
                ([tile.pixels, self.channels, width], out.start.wrapping_add(tile.at));
            // SAFETY: as above.
            unsafe { kernels.finish_pixels(sums(i)[0], sizes, out.bias, to, out.channel) }
        }
    }

    /// Fetches the lines of results of a tile into the nearest cache, which writes them while the
    /// sums are computed.
    #[inline]
    fn fetch_results(&self, start: *mut F, pixel: usize, pixels: usize) {
        let line = 64 / size_of::<F>();
        let mut row = start;
        for _ in 0..pixels {
            let mut channel = 0;
            while channel < self.channels {
                fetch_to_write(row.wrapping_add(channel));
                channel += line;
            }
            row = row.wrapping_add(pixel);
        }
    }
}

/// The same, with numbers that change nothing for those that are missing.
#[inline]
fn with_all_numbers<F: Float>(then: &Affine<F>) -> Affine<F> {
    let [ones, zeros] = F::UNCHANGING;
    Affine {
        scale: if then.scale.is_null() { ones.as_ptr() } else { then.scale },
        shift: if then.shift.is_null() { zeros.as_ptr() } else { then.shift },
        ..*then
    }
}
