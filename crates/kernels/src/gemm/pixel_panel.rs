//! Lines of pixels for the channels of one panel.
//!
//! A line is divided into tiles of about the same number of pixels. Where a panel of weights does
//! not stay in a near cache, some tiles take each segment of it after one another.
//!
//! **Cost:** for short sums, what is done for each tile counts as much as its multiply-adds. So all
//! that a panel has in common is found once.

use super::kernel::{Affine, Complete, Kernels, PixelTile};
use super::lanes::fetch_to_write;
use super::pixels::{PixelLines, PixelOutput, TOGETHER, WeightsAhead};
use super::{Float, GROUP, SEGMENT};
use smallvec::SmallVec;

/// What is called behind each tile, with the number of its pixels.
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
                let in_kernel = match &then {
                    Some(then) if then.residual.is_null() && last == kernels.lanes => {
                        Some(with_all_numbers(then))
                    }
                    _ => None,
                };
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
                unsafe { kernels.pixels(&t, tile.pixels, self.vectors) }
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
