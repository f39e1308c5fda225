//! A product as blocks, tasks and tiles.
//!
//! The loops are those of Goto and van de Geijn ("Anatomy of high-performance matrix
//! multiplication", 2008), with the blocks of B in the second-level cache: a task takes some panels
//! of B and some rows of A. For each block of `k` it goes through its rows, a tile high at a time,
//! and for each of these through its panels. The first tiles of a panel read B in place and pack it
//! by the way, if its rows are contiguous; otherwise the panel is packed before. Few rows read B
//! where it is: at most two tiles if its rows are contiguous, at most four rows if its columns are.
//! Sums of finished segments wait in scratch for the next block of `k`.
//!
//! A [visitor](super::visitor) gets finished parts of the result while they are in a near cache:
//! all panels of a task for some rows where tiles go along a row of panels, all rows of a task for
//! some panels where they go down a panel.

use super::epilogue::{COLUMNS, Output};
use super::kernel::{Finish, Kernels};
use super::pack::{Right, panel_vectors};
use super::tiles::{Sums, TaskScratch};
use super::visitor::{ALIGN, VisitedParts};
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
/// The most bytes of B that a task packs. They stay in a second-level cache of 2 MB.
const PACKED_BYTES: usize = 1280 << 10;
/// The most partial sums of a task.
const PARTIAL_SUMS: usize = 256 << 10;
/// The most tiles of rows that read a row-major B in place.
pub(super) const TILES_IN_PLACE: usize = 2;
/// Tasks with packed weights and at most this many rows go through their panels one after another,
/// so that each is read from memory once and the next is fetched meanwhile. With more rows, a group
/// of panels stays in the second-level cache, as panels do that are packed by the way.
const FEW_ROWS: usize = 256;

/// The elements of a part that a visitor gets, where tiles go along a row of panels. Parts of the
/// sums and of what a visitor makes of them share the first cache.
const ROWS_VISITED: usize = 4 << 10;
/// The same where tiles go down a panel.
const PANELS_VISITED: usize = 64 << 10;
/// The columns that a task has if it can, where parts are visited: long rows cost a visitor less.
const LONG_ROWS: usize = 768;
/// The same where tasks pack B: tasks with fewer columns pack less of it over again.
const LONG_ROWS_TO_PACK: usize = 512;
/// The rows of a task that are worth packing its panels for, though other tasks pack them, too.
const ROWS_TO_PACK_FOR: usize = 128;

/// The rows of A that a task packs together, if they are not contiguous in `k`: some cache lines of
/// each column.
pub(super) const STRIP_ROWS: usize = 48;
/// The least rows of an A that tasks pack into strips. One copy of fewer takes less time.
pub(super) const ROWS_IN_STRIPS: usize = 384;

/// One product. The rows of A are contiguous in `k`, or its columns are contiguous.
#[derive(Clone, Copy)]
pub(super) struct Blocks<'a, F: 'static> {
    pub(super) kernels: &'static Kernels<F>,
    /// m, n and k.
    pub(super) sizes: [usize; 3],
    pub(super) a: Mat<F>,
    /// Whether tasks pack A, whose columns are contiguous, into strips as high as tiles.
    pub(super) in_strips: bool,
    pub(super) b: Right<'a, F>,
    pub(super) out: Output<F>,
    /// The epilogue, if the kernels can do all of it.
    pub(super) finish: Option<Finish<F>>,
    /// The vectors of a panel, and its columns.
    pub(super) vectors: usize,
    pub(super) width: usize,
    pub(super) panels: usize,
    /// The segments of `k`, and of a block of it.
    pub(super) segments: usize,
    pub(super) block_segments: usize,
    pub(super) visited: Option<VisitedParts<'a>>,
}

/// How a product is divided among tasks: rows of each, and panels of each.
#[derive(Clone, Copy, Debug)]
pub(super) struct Split {
    pub rows: usize,
    pub panels: usize,
    /// Segments of each task, if these are divided, too.
    pub segments: Option<usize>,
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
            // Few rows read columns in place, all segments of some columns after another.
            Right::InPlace(b)
                if b.row_stride == 1
                    && b.column_stride != 1
                    && sizes[0] <= F::kernels(isa).rows_of_columns() =>
            {
                (F::kernels(isa), F::kernels(isa).vectors_of_columns())
            }
            _ => (F::kernels(isa), panel_vectors(F::kernels(isa), sizes[1])),
        };
        let segments = sizes[2].div_ceil(SEGMENT).max(1);
        // Few rows read B in place: its pages are few if a block is one segment.
        let is_in_place = matches!(b, Right::InPlace(b) if b.column_stride == 1)
            && sizes[0] <= TILES_IN_PLACE * kernels.rows(vectors);
        let blocks = if is_in_place { segments } else { segments.div_ceil(BLOCK_SEGMENTS) };
        let width = vectors * kernels.lanes;
        let block_segments = segments.div_ceil(blocks);
        Blocks {
            kernels,
            sizes,
            a,
            in_strips: a.column_stride != 1 && sizes[2] > 1,
            b,
            out,
            finish: out.in_kernel(),
            vectors,
            width,
            panels: sizes[1].div_ceil(width),
            segments,
            block_segments,
            visited: None,
        }
    }

    /// The columns of a panel, and its vectors.
    pub(super) fn panel(&self, p: usize) -> (Range<usize>, usize) {
        let columns = p * self.width..self.sizes[1].min((p + 1) * self.width);
        // The division is left out where it can be: this is done for every tile.
        let vectors = match columns.len() == self.width {
            true => self.vectors,
            false => columns.len().div_ceil(self.kernels.lanes),
        };
        (columns, vectors)
    }

    /// The multiply-adds.
    pub fn work(&self) -> usize {
        self.sizes.iter().fold(1, |work, size| work.saturating_mul(*size))
    }

    /// Divides the product among threads. `work` is that of the job: of the product alone, or of
    /// all that it has in common with others.
    pub fn split(&self, threads: usize, work: usize) -> Split {
        let [m, n, k] = self.sizes;
        let panels = self.panels;
        let depth = k.min(self.block_segments * SEGMENT).max(1);
        let fitting = (PACKED_BYTES / (depth * self.width * size_of::<F>())).max(1);
        let mut groups = panels.div_ceil(fitting);
        let (mut rows, tile) = (m, self.kernels.rows(self.vectors));
        if threads > 1 && work > SMALL {
            let long = match self.b {
                Right::Packed(_) => LONG_ROWS,
                _ => LONG_ROWS_TO_PACK,
            };
            let few = groups.max((n / long).clamp(1, panels));
            let chunks = (2 * threads).div_ceil(few);
            let rows_of_chunk = match self.b {
                Right::Packed(_) => 2 * tile,
                _ => ROWS_TO_PACK_FOR,
            };
            if self.visited.is_some() && chunks > 1 && m >= chunks * rows_of_chunk {
                // Rows are divided rather than panels.
                groups = few;
                rows = rows.min(m.div_ceil(chunks).next_multiple_of(tile));
            } else {
                // Two tasks for each thread. Where panels are packed by the way, the tasks read as
                // little as they can; otherwise rows are divided if there are too few panels.
                let is_row_major = matches!(self.b, Right::InPlace(b) if b.column_stride == 1);
                groups = match self.in_strips || is_row_major {
                    true => groups.max(self.groups_of_fewest_reads(2 * threads)),
                    false => groups.max(panels.min(2 * threads)).next_multiple_of(threads),
                };
                groups = groups.min(panels);
                let chunks = (2 * threads).div_ceil(groups).min(m.div_ceil(4 * tile));
                if groups < 2 * threads {
                    rows = rows.min(m.div_ceil(chunks.max(1)).next_multiple_of(tile));
                }
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

    /// The groups of panels with which so many tasks read the fewest elements: each group reads all
    /// of A, and each part of the rows all of B.
    fn groups_of_fewest_reads(&self, tasks: usize) -> usize {
        let [m, n, _] = self.sizes;
        let reads = |groups: &usize| {
            groups.saturating_mul(m).saturating_add(tasks.div_ceil(*groups).saturating_mul(n))
        };
        (1..=tasks).filter(|groups| tasks.is_multiple_of(*groups)).min_by_key(reads).unwrap_or(1)
    }

    /// Divides the product for its own work, and computes it.
    ///
    /// # Safety
    /// The matrices are in live memory, and nothing else accesses C during the call, except that
    /// the addend and the residual may be C itself.
    pub unsafe fn run(&self, threads: usize) -> Result<()> {
        let split = self.split(threads, self.work());
        if let Some(each) = split.segments {
            // SAFETY: the caller's promise.
            return unsafe { self.run_apart(split, each) };
        }
        thread_pool::try_for(self.tasks(split), threads > 1, &|t| {
            let (rows, panels) = self.part(split, t);
            // SAFETY: the caller's promise; tasks write their own rows and panels of C.
            unsafe { self.task(rows, panels) }
        })
    }

    /// The number of tasks.
    pub fn tasks(&self, split: Split) -> usize {
        self.sizes[0].div_ceil(split.rows) * self.panels.div_ceil(split.panels)
    }

    /// The rows and the panels of task `t`.
    pub fn part(&self, split: Split, t: usize) -> (Range<usize>, Range<usize>) {
        let (m, panels) = (self.sizes[0], self.panels);
        let groups = panels.div_ceil(split.panels);
        let (chunk, group) = (t / groups, t % groups);
        let rows = chunk * split.rows..m.min((chunk + 1) * split.rows);
        (rows, group * split.panels..panels.min((group + 1) * split.panels))
    }

    /// The rows and panels of one task.
    ///
    /// # Safety
    /// As [`Blocks::run`].
    pub unsafe fn task(&self, rows: Range<usize>, panels: Range<usize>) -> Result<()> {
        let is_packed = matches!(self.b, Right::Packed(_));
        let each = if is_packed && rows.len() <= FEW_ROWS { 1 } else { panels.len() };
        let depth = self.sizes[2].min(self.block_segments * SEGMENT);
        let packed = if is_packed { 0 } else { each * self.width * depth };
        let height = self.kernels.rows(self.vectors);
        let strips = self.scratch_of_strips(depth);
        let sums = match self.segments.div_ceil(self.block_segments) {
            1 => height * self.width,
            _ => rows.len() * each * self.width,
        };
        // The panels and the rows of a part that is visited.
        let (mut unit, mut window) = (panels.len(), rows.len().max(1));
        if self.visited.is_some() && each < panels.len() {
            unit = (PANELS_VISITED / (window * self.width)).clamp(1, panels.len());
        } else if self.visited.is_some() && !self.is_read_in_place(rows.len()) {
            // Fewer rows than are packed together would read cache lines of A several times.
            let least = if self.in_strips { STRIP_ROWS / height } else { 1 };
            let tiles = (ROWS_VISITED / (unit * self.width * height)).max(least);
            window = window.min(tiles * height);
        }
        let part = unit * self.width * window;
        let [sums_of_part, of_visitor] = self.visited.map_or([0; 2], |v| v.scratch::<F>(part));
        let [packed, sums, tile, strips] =
            [packed, sums, height * self.width, strips].map(|n| n.next_multiple_of(ALIGN));
        let scratch = packed + 2 * sums + tile + strips + sums_of_part + of_visitor;
        with_scratch(KERNEL, scratch, |scratch: &mut [F]| {
            let base = scratch.as_mut_ptr();
            let (group, total) = (base.wrapping_add(packed), base.wrapping_add(packed + sums));
            let tile_sums = base.wrapping_add(packed + 2 * sums);
            let of_strips = tile_sums.wrapping_add(tile);
            let own = of_strips.wrapping_add(strips);
            let scratch = TaskScratch { packed: base, strips: of_strips, tile: tile_sums };
            for first_of_unit in panels.clone().step_by(unit) {
                let unit = first_of_unit..panels.end.min(first_of_unit + unit);
                let columns = unit.start * self.width..self.sizes[1].min(unit.end * self.width);
                let visit = |rows: Range<usize>| match self.visited {
                    // SAFETY: the sums of the part are finished, and this task's alone.
                    Some(v) => unsafe { v.visit(&self.out, rows, columns.clone(), own) },
                    None => Ok(()),
                };
                for from in unit.clone().step_by(each) {
                    let part = from..unit.end.min(from + each);
                    for first in (0..self.segments).step_by(self.block_segments) {
                        let segments = first..self.segments.min(first + self.block_segments);
                        let is_last = segments.end == self.segments;
                        for first_row in rows.clone().step_by(window) {
                            let some = first_row..rows.end.min(first_row + window);
                            let mut blocks = *self;
                            if let Some(v) = self.visited {
                                blocks.out = v.out(self.out, first_row, columns.clone(), own);
                            }
                            let of = [some.clone(), part.clone(), segments.clone()];
                            let sums = Sums::InOrder([group, total]);
                            // SAFETY: the parts of the scratch memory; the caller's promise.
                            unsafe { blocks.block(of, rows.clone(), scratch, sums) }
                            if is_last && part == unit {
                                visit(some)?;
                            }
                        }
                    }
                }
                if each < unit.len() {
                    visit(rows.clone())?;
                }
            }
            Ok(())
        })?
    }

    /// Sums segments on several threads, then adds them in the defined order.
    ///
    /// # Safety
    /// As [`Blocks::run`].
    unsafe fn run_apart(&self, split: Split, each: usize) -> Result<()> {
        let (m, columns) = (self.sizes[0], self.panels * self.width);
        let mut sums = Scratch::<F>::new(KERNEL, self.segments * m * columns)?;
        let sums = Ptr(sums.get().as_mut_ptr());
        let pieces = self.segments.div_ceil(each);
        thread_pool::try_for(self.tasks(split) * pieces, true, &|t| {
            let (rows, panels) = self.part(split, t / pieces);
            let segments = t % pieces * each..self.segments.min((t % pieces + 1) * each);
            let depth = SEGMENT * segments.len().min(self.block_segments);
            let packed = panels.len() * self.width * depth;
            let strips = self.scratch_of_strips(depth);
            with_scratch(KERNEL, packed + strips, |scratch: &mut [F]| {
                let base = scratch.as_mut_ptr();
                let tile = std::ptr::null_mut();
                let scratch = TaskScratch { packed: base, strips: base.wrapping_add(packed), tile };
                for first in segments.clone().step_by(self.block_segments) {
                    let segments = first..segments.end.min(first + self.block_segments);
                    let part = [rows.clone(), panels.clone(), segments];
                    // SAFETY: tasks write their own part of the sums.
                    let sums = Sums::Apart(sums.at(0));
                    unsafe { self.block(part, rows.clone(), scratch, sums) }
                }
            })
        })?;
        let is_parallel = m * columns * self.segments > thread_pool::GRAIN;
        let [sums_of_row, of_visitor] =
            self.visited.map_or([0; 2], |v| v.scratch::<F>(self.sizes[1]));
        let row = |row: usize, own: *mut F| {
            let all = 0..self.sizes[1];
            let out = match self.visited {
                Some(v) => v.out(self.out, row, all.clone(), own),
                None => self.out,
            };
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
                unsafe { out.row(self.kernels.isa, row, first, &mut total[..n]) }
            }
            match self.visited {
                // SAFETY: as above.
                Some(v) => unsafe { v.visit(&self.out, row..row + 1, all, own) },
                None => Ok(()),
            }
        };
        thread_pool::try_for(m, is_parallel, &|i| {
            with_scratch(KERNEL, sums_of_row + of_visitor, |own: &mut [F]| {
                row(i, own.as_mut_ptr())
            })?
        })
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
