//! A product as blocks, tasks and tiles.
//!
//! The loops are those of Goto and van de Geijn ("Anatomy of high-performance matrix
//! multiplication", 2008), with the blocks of B in the second-level cache: a task takes some panels
//! of B and some rows of A. For each block of `k` it goes through its rows, a tile high at a time,
//! and for each of these through its panels. The first tiles of a panel read B in place and pack it
//! by the way, if its rows are contiguous; otherwise the panel is packed before. Sums of finished
//! segments wait in scratch for the next block of `k`.

use super::epilogue::{COLUMNS, Operand, Output};
use super::kernel::{Kernels, Tile};
use super::pack::{Factor, PackColumns, Right, panel_vectors};
use super::{Float, GROUP, KERNEL, Mat, SEGMENT};
use crate::error::Result;
use crate::isa::Isa;
use crate::scratch::{Scratch, with_scratch};
use crate::thread_pool;
use crate::view::Ptr;
use std::ops::Range;

/// Products of at most this many multiply-adds stay on the caller's thread.
pub(super) const SMALL: usize = 64 * 64 * 64;
/// The segments of a block of `k`.
const BLOCK_SEGMENTS: usize = 4;
/// The most bytes of B that a task packs: half of a second-level cache.
const PACKED_BYTES: usize = 768 << 10;
/// The most partial sums of a task.
const PARTIAL_SUMS: usize = 256 << 10;
/// The bytes of A that a task with packed weights reads: they stay in the second-level cache.
const ROWS_BYTES: usize = 384 << 10;

/// One product, with A's rows contiguous in `k`.
pub(super) struct Blocks<'a, F: 'static> {
    kernels: &'static Kernels<F>,
    /// m, n and k.
    sizes: [usize; 3],
    a: Mat<F>,
    b: Right<'a, F>,
    out: Output<F>,
    /// The vectors of a panel, and its columns.
    vectors: usize,
    width: usize,
    /// The length of a segment, their number, and their number in a block of `k`.
    segment: usize,
    segments: usize,
    block_segments: usize,
}

/// How a product is divided among tasks: rows of each, and panels of each.
#[derive(Clone, Copy, Debug)]
pub(super) struct Split {
    pub rows: usize,
    pub panels: usize,
    /// Segments of each task, if these are divided, too.
    pub segments: Option<usize>,
}

/// Where a panel's columns of B are during one pass over the rows.
#[derive(Clone, Copy)]
enum Place<F> {
    /// Rows of the panel, and their distance.
    Rows(*const F, isize),
    /// As `Rows`, to be copied to scratch by the first tiles.
    Copied(*const F, isize, *mut F),
    /// Columns, contiguous in `k`, and their distance.
    Columns(*const F, isize),
}

/// What becomes of the sums of one segment.
#[derive(Clone, Copy)]
enum Sums<F> {
    /// They are added to those before, in the defined order: the sums of the group and of all
    /// groups, by panel, row and column.
    InOrder([*mut F; 2]),
    /// They are written one segment after another, as matrices.
    Apart(*mut F),
}

impl<'a, F: Float> Blocks<'a, F> {
    pub fn new(
        isa: Isa,
        sizes: [usize; 3],
        a: Mat<F>,
        b: Right<'a, F>,
        out: Output<F>,
    ) -> Blocks<'a, F> {
        let (kernels, vectors) = match b {
            Right::Packed(panels) => (F::kernels(panels.isa), panels.vectors),
            _ => (F::kernels(isa), panel_vectors(F::kernels(isa), sizes[1])),
        };
        let segment = SEGMENT;
        let segments = sizes[2].div_ceil(segment).max(1);
        let blocks = segments.div_ceil(BLOCK_SEGMENTS);
        let width = vectors * kernels.lanes;
        let block_segments = segments.div_ceil(blocks);
        Blocks { kernels, sizes, a, b, out, vectors, width, segment, segments, block_segments }
    }

    /// The same product with shorter segments.
    pub fn with_segment(self, segment: usize) -> Self {
        let segments = self.sizes[2].div_ceil(segment).max(1);
        let block_segments = segments.min(BLOCK_SEGMENTS);
        Blocks { segment, segments, block_segments, ..self }
    }

    fn panels(&self) -> usize {
        self.sizes[1].div_ceil(self.width)
    }

    /// The columns of a panel, and its vectors.
    fn panel(&self, p: usize) -> (Range<usize>, usize) {
        let columns = p * self.width..self.sizes[1].min((p + 1) * self.width);
        let vectors = columns.len().div_ceil(self.kernels.lanes);
        (columns, vectors)
    }

    /// Divides the product among threads.
    pub fn split(&self, threads: usize) -> Split {
        let [m, n, k] = self.sizes;
        let panels = self.panels();
        let depth = k.min(self.block_segments * self.segment).max(1);
        let fitting = (PACKED_BYTES / (depth * self.width * size_of::<F>())).max(1);
        let mut groups = panels.div_ceil(fitting);
        let (mut rows, tile) = (m, self.kernels.rows(self.vectors));
        let work = m.saturating_mul(n).saturating_mul(k);
        if matches!(self.b, Right::Packed(_)) {
            rows = rows.min((ROWS_BYTES / (depth * size_of::<F>())).max(4 * tile));
        }
        if threads > 1 && work > SMALL {
            // Four tasks for each thread, if there are so many panels; otherwise rows are divided.
            groups = groups.max(panels.min(4 * threads)).next_multiple_of(threads).min(panels);
            let chunks = (2 * threads).div_ceil(groups).min(m.div_ceil(4 * tile));
            if groups < 2 * threads {
                rows = rows.min(m.div_ceil(chunks.max(1)).next_multiple_of(tile));
            }
        }
        let panels_each = panels.div_ceil(groups.max(1));
        if self.segments > self.block_segments {
            rows = rows.min((PARTIAL_SUMS / (panels_each * self.width)).max(tile));
        }
        let tasks = m.div_ceil(rows) * panels.div_ceil(panels_each);
        let sums = self.segments.saturating_mul(m).saturating_mul(panels * self.width);
        let is_long = threads > tasks && work > SMALL && sums <= 16 * PARTIAL_SUMS;
        let segments = (is_long && self.segments >= 2 * threads)
            .then(|| self.segments.div_ceil(4 * threads).max(1));
        Split { rows, panels: panels_each, segments }
    }

    /// Computes the product.
    ///
    /// # Safety
    /// The matrices are in live memory, and nothing else accesses C during the call, except that
    /// the addend and the residual may be C itself.
    pub unsafe fn run(&self, split: Split, parallel: bool) -> Result<()> {
        let (m, panels) = (self.sizes[0], self.panels());
        let groups = panels.div_ceil(split.panels);
        let chunks = m.div_ceil(split.rows);
        let part = |t: usize| {
            let (group, chunk) = (t / chunks, t % chunks);
            let rows = chunk * split.rows..m.min((chunk + 1) * split.rows);
            (rows, group * split.panels..panels.min((group + 1) * split.panels))
        };
        if let Some(each) = split.segments {
            // SAFETY: the caller's promise.
            return unsafe { self.run_apart(groups * chunks, each, &part) };
        }
        thread_pool::try_for(groups * chunks, parallel, &|t| {
            let (rows, panels) = part(t);
            // SAFETY: the caller's promise; tasks write their own rows and panels of C.
            unsafe { self.task(rows, panels) }
        })
    }

    /// The rows and panels of one task.
    ///
    /// # Safety
    /// As [`Blocks::run`].
    unsafe fn task(&self, rows: Range<usize>, panels: Range<usize>) -> Result<()> {
        let is_packed = matches!(self.b, Right::Packed(_));
        let each = if is_packed { 1 } else { panels.len() };
        let depth = self.sizes[2].min(self.block_segments * self.segment);
        let packed = if is_packed { 0 } else { each * self.width * depth };
        let height = self.kernels.rows(self.vectors);
        let sums = match self.segments.div_ceil(self.block_segments) {
            1 => height * self.width,
            _ => rows.len() * each * self.width,
        };
        with_scratch(KERNEL, packed + 2 * sums + height * self.width, |scratch: &mut [F]| {
            let base = scratch.as_mut_ptr();
            // SAFETY: the parts of the scratch memory; the caller's promise.
            unsafe {
                let (group, total) = (base.add(packed), base.add(packed + sums));
                let tile = base.add(packed + 2 * sums);
                for from in panels.clone().step_by(each) {
                    for first in (0..self.segments).step_by(self.block_segments) {
                        let segments = first..self.segments.min(first + self.block_segments);
                        let part = [rows.clone(), from..panels.end.min(from + each), segments];
                        self.block(part, base, Sums::InOrder([group, total]), tile);
                    }
                }
            }
        })
    }

    /// Sums segments on several threads, then adds them in the defined order.
    ///
    /// # Safety
    /// As [`Blocks::run`].
    unsafe fn run_apart(
        &self,
        tasks: usize,
        each: usize,
        part: &(dyn Fn(usize) -> (Range<usize>, Range<usize>) + Sync),
    ) -> Result<()> {
        let (m, columns) = (self.sizes[0], self.panels() * self.width);
        let mut sums = Scratch::<F>::new(KERNEL, self.segments * m * columns)?;
        let sums = Ptr(sums.get().as_mut_ptr());
        let pieces = self.segments.div_ceil(each);
        thread_pool::try_for(tasks * pieces, true, &|t| {
            let (rows, panels) = part(t / pieces);
            let segments = t % pieces * each..self.segments.min((t % pieces + 1) * each);
            let depth = self.segment * segments.len().min(self.block_segments);
            with_scratch(KERNEL, panels.len() * self.width * depth, |scratch: &mut [F]| {
                let packed = scratch.as_mut_ptr();
                for first in segments.clone().step_by(self.block_segments) {
                    let segments = first..segments.end.min(first + self.block_segments);
                    let part = [rows.clone(), panels.clone(), segments];
                    let unused = std::ptr::null_mut();
                    // SAFETY: tasks write their own part of the sums.
                    unsafe { self.block(part, packed, Sums::Apart(sums.at(0)), unused) }
                }
            })
        })?;
        thread_pool::try_for(m, m * columns * self.segments > thread_pool::GRAIN, &|row| {
            for first in (0..self.sizes[1]).step_by(COLUMNS) {
                let n = COLUMNS.min(self.sizes[1] - first);
                let (mut group, mut total) = ([F::ZERO; COLUMNS], [F::ZERO; COLUMNS]);
                for s in 0..self.segments {
                    let at = ((s * m + row) * columns + first) as i64;
                    // SAFETY: the sums of a row, written above.
                    let found = unsafe { sums.slice(at, n) };
                    accumulate(s, self.segments, found, &mut group[..n], &mut total[..n]);
                }
                // SAFETY: the row is this task's alone.
                unsafe { self.out.row(self.kernels.isa, row, first, &mut total[..n]) }
            }
            Ok(())
        })
    }

    /// Sums some segments of some rows and panels. `packed` has room for the panels.
    ///
    /// # Safety
    /// As [`Blocks::run`]; the scratch memory is this task's alone.
    unsafe fn block(
        &self,
        [rows, panels, segments]: [Range<usize>; 3],
        packed: *mut F,
        sums: Sums<F>,
        tile: *mut F,
    ) {
        let first_column = panels.start * self.width;
        let (from, to) =
            (segments.start * self.segment, self.sizes[2].min(segments.end * self.segment));
        let height = self.kernels.rows(self.vectors);
        let mut done = 0;
        while done < rows.len() {
            // The first tile is as high as can be, because it copies B; the others are even.
            let left = rows.len() - done;
            let tiles = left.div_ceil(height);
            let n = if done == 0 { left.min(height) } else { left.div_ceil(tiles) };
            let row = rows.start + done;
            for p in panels.clone() {
                let (columns, vectors) = self.panel(p);
                let packed = packed.wrapping_add((columns.start - first_column) * (to - from));
                // SAFETY: the caller's promise.
                unsafe {
                    let place = self.place(p, from..to, rows.len(), done == 0, packed);
                    let fetch = self.fetch(p, done, rows.len());
                    for s in segments.clone() {
                        let at = [row, columns.start, done, columns.start - first_column];
                        let part = (at, [n, vectors, columns.len()], rows.len());
                        self.segment(s, from, part, place, fetch, sums, tile);
                    }
                }
            }
            done += n;
        }
    }

    /// Where to read a panel; packs it, if that is to be done before the first rows.
    ///
    /// # Safety
    /// As [`Blocks::block`].
    unsafe fn place(
        &self,
        p: usize,
        k: Range<usize>,
        rows: usize,
        is_first: bool,
        packed: *mut F,
    ) -> Place<F> {
        let (columns, vectors) = self.panel(p);
        let width = vectors * self.kernels.lanes;
        let in_scratch = Place::Rows(packed, width as isize);
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
                Place::Rows(panel, width as isize)
            }
            Right::Source(source) => pack(source),
            Right::InPlace(b) => {
                let start = b.skip_rows(k.start).skip_columns(columns.start).start.0.cast_const();
                let is_whole = columns.len() == width;
                let is_near = b.row_stride.unsigned_abs() <= 2 * width;
                let height = self.kernels.rows(self.vectors);
                if is_whole && b.column_stride == 1 && (rows <= height || is_near) {
                    Place::Rows(start, b.row_stride)
                } else if is_whole && b.column_stride == 1 && vectors == self.vectors {
                    match is_first {
                        true => Place::Copied(start, b.row_stride, packed),
                        false => in_scratch,
                    }
                } else if is_whole && b.row_stride == 1 && rows <= self.kernels.rows_of_columns() {
                    Place::Columns(start, b.column_stride)
                } else {
                    pack(&Factor { kernels: self.kernels, b: Operand::of_mat(b) })
                }
            }
        }
    }

    /// The memory that tiles prefetch: the panel that follows in a packed matrix.
    fn fetch(&self, p: usize, done: usize, rows: usize) -> (*const F, usize) {
        let Right::Packed(panels) = self.b else { return (std::ptr::null(), 0) };
        if p + 1 >= self.panels() || rows < 4 {
            return (std::ptr::null(), 0);
        }
        let (height, k) = (self.kernels.rows(self.vectors), self.sizes[2]);
        let (columns, vectors) = self.panel(p + 1);
        let line = 64 / size_of::<F>();
        let lines_of_step = (vectors * self.kernels.lanes).div_ceil(line);
        let lines = lines_of_step.div_ceil(rows.div_ceil(height));
        let before = done.div_ceil(height) * lines;
        if before >= lines_of_step {
            return (std::ptr::null(), 0);
        }
        (panels.panel(columns.start).wrapping_add(before * k * line), lines)
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
        (at, [n, vectors, columns], rows): ([usize; 4], [usize; 3], usize),
        place: Place<F>,
        fetch: (*const F, usize),
        sums: Sums<F>,
        tile: *mut F,
    ) {
        let [row, column, row_of_task, column_of_task] = at;
        let k0 = s * self.segment;
        let (k, lanes) = (self.segment.min(self.sizes[2] - k0), self.kernels.lanes);
        let width = vectors * lanes;
        let step = (k0 - first_k) as isize;
        let mut t = Tile {
            k,
            a: self.a.skip_rows(row).skip_columns(k0).start.0,
            a_stride: self.a.row_stride,
            b: std::ptr::null(),
            b_stride: 0,
            copy: std::ptr::null_mut(),
            sums: [std::ptr::null(); 2],
            sums_stride: width as isize,
            out: tile,
            out_stride: width as isize,
            last_columns: columns - (vectors - 1) * lanes,
            finish: None,
            fetch: fetch.0.wrapping_add(k0 * (fetch.1 * 64 / size_of::<F>())),
            fetch_lines: fetch.1,
        };
        let mut is_finished = false;
        match sums {
            Sums::Apart(base) => {
                let stride = self.panels() * self.width;
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
                    t.finish = self.out.in_kernel();
                    if t.finish.is_some() {
                        t.out = self.out.address(row, column);
                        t.out_stride = self.out.strides[0] as isize;
                    }
                    if let Some(finish) = &mut t.finish
                        && !finish.addend.is_null()
                    {
                        let columns = if finish.addend_repeats { 0 } else { column };
                        let at = row as isize * finish.addend_stride + columns as isize;
                        finish.addend = finish.addend.wrapping_offset(at);
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
                Place::Rows(b, stride) => {
                    (t.b, t.b_stride) = (b.wrapping_offset(step * stride), stride);
                    self.kernels.tile(&t, n, vectors);
                }
                Place::Copied(b, stride, copy) => {
                    (t.b, t.b_stride) = (b.wrapping_offset(step * stride), stride);
                    t.copy = copy.wrapping_add(step as usize * width);
                    self.kernels.tile_copying(&t, vectors);
                }
                Place::Columns(b, stride) => {
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

    /// A tile from columns of B, one vector of them after another.
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
        let lanes = self.kernels.lanes;
        t.last_columns = lanes;
        for v in 0..vectors {
            t.b = b.wrapping_offset((v * lanes) as isize * stride);
            t.b_stride = stride;
            // SAFETY: the caller's promise.
            unsafe { self.kernels.columns(&t, rows) }
            t.sums = t.sums.map(|p| if p.is_null() { p } else { p.wrapping_add(lanes) });
            t.out = t.out.wrapping_add(lanes);
            if let Some(finish) = &mut t.finish
                && !finish.addend.is_null()
                && !finish.addend_repeats
            {
                finish.addend = finish.addend.wrapping_add(lanes);
            }
        }
    }
}

/// Adds the sums of segment `s` of `segments` to those before, in the defined order. After the last
/// segment, `total` has the sums.
pub(super) fn accumulate<F: Float>(
    s: usize,
    segments: usize,
    found: &[F],
    group: &mut [F],
    total: &mut [F],
) {
    for (x, group) in found.iter().zip(&mut *group) {
        *group = if s.is_multiple_of(GROUP) { *x } else { *group + *x };
    }
    if s % GROUP == GROUP - 1 || s + 1 == segments {
        for (group, total) in group.iter().zip(total) {
            *total = if s < GROUP { *group } else { *total + *group };
        }
    }
}
