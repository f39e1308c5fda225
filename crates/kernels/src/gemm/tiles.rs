//! The tiles of a block: where each reads B, and where its sums go.

use super::blocks::{Blocks, TILES_IN_PLACE};
use super::epilogue::Operand;
use super::kernel::Tile;
use super::pack::{Factor, PackColumns, Right};
use super::strips::{Fetch, PackedStrips};
use super::{Float, GROUP, Mat, SEGMENT};
use crate::view::Ptr;
use std::ops::Range;

/// Where a panel's columns of B are during one pass over the rows.
#[derive(Clone, Copy)]
enum PanelPlace<F> {
    /// Rows of the panel, and their distance.
    Rows(*const F, isize),
    /// As `Rows`, to be copied to scratch by the first tiles.
    Copied(*const F, isize, *mut F),
    /// Columns, contiguous in `k`, and their distance.
    Columns(*const F, isize),
}

/// What becomes of the sums of one segment.
#[derive(Clone, Copy)]
pub(super) enum Sums<F> {
    /// They are added to those before, in the defined order: the sums of the group and of all
    /// groups, by panel, row and column.
    InOrder([*mut F; 2]),
    /// They are written one segment after another, as matrices.
    Apart(*mut F),
}

/// The scratch memory of a task.
#[derive(Clone, Copy)]
pub(super) struct TaskScratch<F> {
    /// Panels of B.
    pub packed: *mut F,
    /// Strips of A.
    pub strips: *mut F,
    /// The sums of a tile.
    pub tile: *mut F,
}

impl<F: Float> Blocks<'_, F> {
    /// Sums some segments of some rows and panels, for which the scratch memory has room. The rows
    /// are the next of those `of` a task, which have the panels in common.
    ///
    /// # Safety
    /// As [`Blocks::run`]; the scratch memory is this task's alone.
    pub(super) unsafe fn block(
        &self,
        [rows, panels, segments]: [Range<usize>; 3],
        of: Range<usize>,
        scratch: TaskScratch<F>,
        sums: Sums<F>,
    ) {
        let packed = scratch.packed;
        let first_column = panels.start * self.width;
        let (from, end) = (segments.start * SEGMENT, self.sizes[2].min(segments.end * SEGMENT));
        let height = self.kernels.rows(self.vectors);
        let all = of.len();
        if panels.len() > 1 && all > height && self.is_read_in_place(all) {
            // The second tile of a panel finds it in the second-level cache.
            for p in panels {
                let before = self.panel(p).0.start - first_column;
                let sums = match sums {
                    Sums::InOrder(sums) if self.segments > self.block_segments => {
                        Sums::InOrder(sums.map(|sum| sum.wrapping_add(before * all)))
                    }
                    sums => sums,
                };
                let packed = packed.wrapping_add(before * (end - from));
                // SAFETY: the caller's promise.
                unsafe {
                    let part = [rows.clone(), p..p + 1, segments.clone()];
                    self.block(part, of.clone(), TaskScratch { packed, ..scratch }, sums)
                }
            }
            return;
        }
        let (tiles, last) = (all.div_ceil(height), rows.end - of.start);
        let mut done = rows.start - of.start;
        let mut tiles_done = done / height;
        let mut strips = PackedStrips::none(done, scratch.strips);
        while done < last {
            let n = self.rows_of_tile(done, last);
            let row = of.start + done;
            if self.in_strips && done == strips.end {
                let to = scratch.strips;
                // SAFETY: the caller's promise.
                strips = unsafe { self.pack_strips(of.start, done..last, from..end, to) };
            }
            let a = if self.in_strips { strips.tile(n, from) } else { self.a.skip_rows(row) };
            for p in panels.clone() {
                let (columns, vectors) = self.panel(p);
                let packed = packed.wrapping_add((columns.start - first_column) * (end - from));
                let panel = (columns.clone(), vectors);
                // SAFETY: the caller's promise.
                unsafe {
                    let place = self.place(panel, from..end, all, done == 0, packed);
                    let fetch = match self.in_strips {
                        true if p == panels.start => self.fetch_rows(&strips, of.clone()),
                        _ if all < 4 => None,
                        _ => self.fetch(p, tiles_done, tiles),
                    };
                    for s in segments.clone() {
                        let fetch = match place {
                            PanelPlace::Columns(start, stride) => {
                                let width = columns.len() as isize;
                                // The panel's next segment, or the first of the next panel.
                                let next = match (s + 1 < segments.end, p + 1 < panels.end) {
                                    (true, _) => start.wrapping_add((s + 1) * SEGMENT - from),
                                    (_, true) => start.wrapping_offset(width * stride),
                                    _ => start,
                                };
                                Some((next, 0, 0))
                            }
                            _ => fetch,
                        };
                        let at = [row, columns.start, done, columns.start - first_column];
                        let part = (at, [n, vectors, columns.len()], all);
                        self.segment(s, from, (a, part), place, fetch, sums, scratch.tile);
                    }
                }
            }
            done += n;
            tiles_done += 1;
            strips.next_tile(n * (end - from));
        }
    }

    /// The rows of the tile that begins with row `done` of those of a task, up to `last`. Tiles are
    /// even. The first is as high as can be, if it copies B.
    pub(super) fn rows_of_tile(&self, done: usize, last: usize) -> usize {
        let (height, left) = (self.kernels.rows(self.vectors), last - done);
        let may_copy = done == 0 && matches!(self.b, Right::InPlace(_));
        if may_copy { left.min(height) } else { left.div_ceil(left.div_ceil(height)) }
    }

    /// Whether B is read where it is: there are so few rows that a copy is not worth its time.
    pub(super) fn is_read_in_place(&self, rows: usize) -> bool {
        matches!(self.b, Right::InPlace(b) if b.column_stride == 1)
            && rows <= TILES_IN_PLACE * self.kernels.rows(self.vectors)
    }

    /// Whether so few rows read columns of B that are contiguous in `k` where they are.
    fn reads_columns(&self, rows: usize) -> bool {
        rows <= self.kernels.rows_of_columns() && !self.in_strips
    }

    /// Where to read a panel; packs it, if that is to be done before the first rows.
    ///
    /// # Safety
    /// As [`Blocks::block`].
    unsafe fn place(
        &self,
        (columns, vectors): (Range<usize>, usize),
        k: Range<usize>,
        rows: usize,
        is_first: bool,
        packed: *mut F,
    ) -> PanelPlace<F> {
        let width = vectors * self.kernels.lanes;
        let in_scratch = PanelPlace::Rows(packed, width as isize);
        let pack = |source: &dyn PackColumns<F>| {
            if is_first {
                // SAFETY: the panel is within B, and the scratch memory has room for it.
                unsafe { source.pack(self.kernels.isa, k.clone(), columns.clone(), width, packed) }
            }
            in_scratch
        };
        match self.b {
            Right::Packed(panels) => {
                let panel = panels.panel(columns.start).wrapping_add(k.start * width);
                PanelPlace::Rows(panel, width as isize)
            }
            Right::Source(source) => pack(source),
            Right::InPlace(b) => {
                let start = b.skip_rows(k.start).skip_columns(columns.start).start.0.cast_const();
                let is_whole = columns.len() == width;
                let is_near = b.row_stride.unsigned_abs() <= 2 * width;
                let is_in_place = self.is_read_in_place(rows) || is_near;
                if is_whole && b.column_stride == 1 && is_in_place {
                    PanelPlace::Rows(start, b.row_stride)
                } else if is_whole && b.column_stride == 1 && vectors == self.vectors {
                    match is_first {
                        true => PanelPlace::Copied(start, b.row_stride, packed),
                        false => in_scratch,
                    }
                } else if is_whole && b.row_stride == 1 && self.reads_columns(rows) {
                    PanelPlace::Columns(start, b.column_stride)
                } else {
                    pack(&Factor { kernels: self.kernels, b: Operand::of_mat(b) })
                }
            }
        }
    }

    /// The memory that a tile prefetches: a share of the panel that follows in a packed matrix, and
    /// the lines of each step. Each tile of the rows fetches a part.
    fn fetch(&self, p: usize, tiles_done: usize, tiles: usize) -> Option<Fetch<F>> {
        let Right::Packed(panels) = self.b else { return None };
        if p + 1 >= self.panels {
            return None;
        }
        let (columns, vectors) = self.panel(p + 1);
        let line = 64 / size_of::<F>();
        let lines_of_step = (vectors * self.kernels.lanes).div_ceil(line);
        let lines = if tiles < lines_of_step { lines_of_step.div_ceil(tiles) } else { 1 };
        let before = tiles_done * lines;
        (before < lines_of_step).then(|| {
            let start = panels.panel(columns.start);
            (start.wrapping_add(before * self.sizes[2] * line), lines, line as isize)
        })
    }

    /// Sums one segment of one tile.
    ///
    /// # Safety
    /// As [`Blocks::block`].
    #[inline]
    #[allow(clippy::too_many_arguments)]
    unsafe fn segment(
        &self,
        s: usize,
        first_k: usize,
        (a, (at, [n, vectors, columns], rows)): (Mat<F>, ([usize; 4], [usize; 3], usize)),
        place: PanelPlace<F>,
        fetch: Option<Fetch<F>>,
        sums: Sums<F>,
        tile: *mut F,
    ) {
        let [row, column, row_of_task, column_of_task] = at;
        let k0 = s * SEGMENT;
        let (k, lanes) = (SEGMENT.min(self.sizes[2] - k0), self.kernels.lanes);
        let width = vectors * lanes;
        let step = (k0 - first_k) as isize;
        // The kernels of strips always fetch.
        let nothing = (self.a.start.0.cast_const(), 0, 0);
        let (fetch, fetch_lines, fetch_stride) = fetch.unwrap_or(nothing);
        let mut t = Tile {
            k,
            a: a.skip_columns(k0).start.0,
            a_stride: a.row_stride,
            b: std::ptr::null(),
            b_stride: 0,
            copy: std::ptr::null_mut(),
            sums: [std::ptr::null(); 2],
            sums_stride: width as isize,
            out: tile,
            out_stride: width as isize,
            last_columns: columns - (vectors - 1) * lanes,
            finish: None,
            fetch: fetch.wrapping_offset((k0 * fetch_lines) as isize * fetch_stride),
            fetch_lines,
            fetch_stride,
        };
        let mut is_finished = false;
        match sums {
            Sums::Apart(base) => {
                let stride = self.panels * self.width;
                let at = (s * self.sizes[0] + row) * stride + column;
                (t.out, t.out_stride) = (base.wrapping_add(at), stride as isize);
            }
            Sums::InOrder(sums) => {
                let is_last = s + 1 == self.segments;
                let ends_group = is_last || s % GROUP == GROUP - 1;
                // Rows of a panel follow each other. If one block has all of k, tiles share it.
                let at = match self.segments <= self.block_segments {
                    true => 0,
                    false => column_of_task * rows + row_of_task * width,
                };
                let [group, total] = sums.map(|p| p.wrapping_add(at));
                if !s.is_multiple_of(GROUP) {
                    t.sums[0] = group;
                }
                if ends_group && s >= GROUP {
                    t.sums[1] = total;
                }
                is_finished = is_last;
                if is_last {
                    t.finish = self.finish;
                    if t.finish.is_some() {
                        t.out = self.out.address(row, column);
                        t.out_stride = self.out.strides[0] as isize;
                    }
                    if let Some(finish) = &mut t.finish
                        && !finish.addend.0.is_null()
                    {
                        let columns = if finish.addend_repeats { 0 } else { column };
                        let at = row as isize * finish.addend_stride + columns as isize;
                        finish.addend = Ptr(finish.addend.0.wrapping_offset(at));
                    }
                } else {
                    t.out = if ends_group { total } else { group };
                }
            }
        }
        // SAFETY: the caller's promise: the tile's rows and columns of A, B and C, and the scratch
        // memory of its sums.
        unsafe {
            match place {
                PanelPlace::Rows(b, stride) => {
                    (t.b, t.b_stride) = (b.wrapping_offset(step * stride), stride);
                    match self.in_strips {
                        true => self.kernels.strip(&t, n, vectors),
                        false => self.kernels.tile(&t, n, vectors),
                    }
                }
                PanelPlace::Copied(b, stride, copy) => {
                    (t.b, t.b_stride) = (b.wrapping_offset(step * stride), stride);
                    t.copy = copy.wrapping_add(step as usize * width);
                    match self.in_strips {
                        true => self.kernels.strip_copying(&t, vectors),
                        false => self.kernels.tile_copying(&t, vectors),
                    }
                }
                PanelPlace::Columns(b, stride) => {
                    self.columns(t, b.wrapping_offset(step), stride, n, vectors)
                }
            }
            if is_finished && t.finish.is_none() {
                for i in 0..n {
                    let sums = Ptr(tile).slice_mut((i * width) as i64, columns);
                    self.out.row(self.kernels.isa, row + i, column, sums);
                }
            }
        }
    }

    /// A tile from columns of B, a few vectors of them after others.
    ///
    /// # Safety
    /// As [`Blocks::block`].
    unsafe fn columns(
        &self,
        mut t: Tile<F>,
        b: *const F,
        stride: isize,
        rows: usize,
        vectors: usize,
    ) {
        let most = self.kernels.vectors_of_columns();
        t.last_columns = self.kernels.lanes;
        t.b_stride = stride;
        for first in (0..vectors).step_by(most) {
            let n = most.min(vectors - first);
            let columns = n * self.kernels.lanes;
            t.b = b.wrapping_offset((first * self.kernels.lanes) as isize * stride);
            // SAFETY: the caller's promise.
            unsafe { self.kernels.columns(&t, rows, n) }
            t.sums = t.sums.map(|p| if p.is_null() { p } else { p.wrapping_add(columns) });
            t.out = t.out.wrapping_add(columns);
            if let Some(finish) = &mut t.finish
                && !finish.addend.0.is_null()
                && !finish.addend_repeats
            {
                finish.addend = Ptr(finish.addend.at(columns));
            }
        }
    }
}
