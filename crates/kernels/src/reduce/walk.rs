//! Traversal of a reduction: the elements of each output, and the division of work among threads.
//!
//! The kept dimensions of the input index the outputs, the reduced dimensions index the elements of
//! one output. Outputs are computed in blocks, of one of two forms:
//!
//! - A row is one output. Its elements are read in order and folded into the lanes of a chunk.
//! - Columns are up to [`MAX_COLUMNS`] outputs that are neighbours in memory, while the elements of
//!   one output are not. A step combines one element of each output, so that reads are contiguous.
//!
//! Threads take whole blocks. If there are too few, they take groups of chunks of one block.
//!
//! Invariant: the elements of an output are combined in their logical order by the scheme of
//! [`lanes`](super::lanes). Layout, form of blocks and number of threads change no bit.

use super::columns::{FoldRows, Lanes};
use super::lanes::{CHUNK, Cascade, LANES, Partial, fold, row};
use super::rows::push_chunks;
use super::shape::Shape;
use crate::element::Class;
use crate::error::Result;
use crate::isa::Isa;
use crate::load_store::{Reader, Writer};
use crate::pointwise::ops::{InPlaceOp, Op2};
use crate::thread_pool;
use crate::view::{View, ViewMut};
use std::marker::PhantomData;
use std::ops::Range;

/// The least number of outputs in a block of columns.
const MIN_COLUMNS: usize = 64;
/// The greatest number of outputs in a block of columns.
const MAX_COLUMNS: usize = 256;

/// A function of elements that is applied before they are combined. It may depend on the output,
/// which is numbered in the order of the loops.
pub(super) trait Map<A>: Sync {
    /// Maps elements of one output.
    fn row(&self, isa: Isa, out: usize, xs: &mut [A]);
    /// Maps one element of each of several neighbouring outputs, the first of which is `first`.
    fn columns(&self, isa: Isa, first: usize, xs: &mut [A]);
}

/// The partition of the outputs into blocks. A block is a range of the innermost kept dimension.
struct Blocks {
    /// The size of the innermost kept dimension.
    inner: usize,
    /// The number of outputs of a block; the last block of each line may have fewer.
    width: usize,
    /// The number of blocks along the innermost kept dimension.
    per_line: usize,
    /// The number of blocks.
    count: usize,
    /// Whether blocks are columns; otherwise they are rows of `width` 1.
    by_columns: bool,
}

impl Blocks {
    fn new(shape: &Shape) -> Blocks {
        let (inner, by_columns) = (shape.kept.inner_size(), shape.by_columns());
        let width = if by_columns {
            // Wide blocks read memory in long runs, narrow ones leave some for every thread.
            let share = inner / thread_pool::num_threads();
            share.next_multiple_of(MIN_COLUMNS).clamp(MIN_COLUMNS, MAX_COLUMNS)
        } else {
            1
        };
        let per_line = inner.div_ceil(width).max(1);
        let count = shape.outputs() / inner.max(1) * per_line;
        Blocks { inner, width, per_line, count, by_columns }
    }

    /// The first output of a block.
    #[inline]
    fn first(&self, block: usize) -> usize {
        (block / self.per_line) * self.inner + (block % self.per_line) * self.width
    }

    /// The number of outputs of a block.
    #[inline]
    fn len(&self, block: usize) -> usize {
        self.width.min(self.inner - (block % self.per_line) * self.width)
    }
}

/// A reduction of elements cast to `A`, by the operation `O`.
struct Reduction<'a, A, O> {
    shape: &'a Shape,
    blocks: Blocks,
    input: Reader<A>,
    output: Writer<A>,
    identity: A,
    map: Option<&'a dyn Map<A>>,
    post: &'a (dyn Fn(A) -> A + Sync),
    /// Whether the elements of each output are contiguous and are combined unmapped. Blocks are
    /// rows in this case.
    contiguous: bool,
    op: PhantomData<fn() -> O>,
}

/// Reduces every output: casts its elements to `A`, maps them, combines them with `O` starting from
/// `identity`, applies `post`, and casts to the output's dtype.
pub(super) fn run<A: Class, O: Op2<A, A>>(
    shape: &Shape,
    input: &View<'_>,
    out: &mut ViewMut<'_>,
    identity: A,
    map: Option<&dyn Map<A>>,
    post: &(dyn Fn(A) -> A + Sync),
) -> Result<()> {
    let reduction = Reduction::<A, O> {
        shape,
        blocks: Blocks::new(shape),
        input: Reader::new(input),
        output: Writer::new(out),
        identity,
        map,
        post,
        contiguous: map.is_none() && shape.reduced.sizes.len() == 1 && shape.element_stride() == 1,
        op: PhantomData,
    };
    let work = shape.outputs().saturating_mul(shape.extent());
    let is_large = work > thread_pool::GRAIN;
    // There is a block of columns for each thread; of rows, as few could not be divided evenly.
    let enough = thread_pool::num_threads() * if reduction.blocks.by_columns { 1 } else { 2 };
    if is_large && reduction.blocks.count < enough && shape.extent() > CHUNK {
        reduction.parallel_chunks();
        Ok(())
    } else {
        reduction.parallel_blocks()
    }
}

impl<A: Class, O: Op2<A, A>> Reduction<'_, A, O> {
    /// The number of chunks of one output.
    fn chunks(&self) -> usize {
        self.shape.extent().div_ceil(CHUNK)
    }

    /// Divides the blocks among threads.
    fn parallel_blocks(&self) -> Result<()> {
        let grain = thread_pool::GRAIN / self.shape.extent().max(1) / self.blocks.width;
        thread_pool::ranges(self.blocks.count, grain.max(1), 1, &|from, to| {
            let mut scratch = Vec::new();
            (from..to).for_each(|block| self.reduce_block(block, &mut scratch));
            Ok(())
        })
    }

    /// Divides the chunks of each block among threads, for few outputs of many elements.
    fn parallel_chunks(&self) {
        let chunks = self.chunks();
        // A power of two, as `Cascade::append` requires, for at most four groups per thread.
        let group = (chunks / (4 * thread_pool::num_threads())).next_power_of_two();
        for block in 0..self.blocks.count {
            let mut cascade = Cascade::<A, O>::new();
            thread_pool::map(chunks.div_ceil(group), |g| {
                self.combine_chunks(block, g * group..chunks.min((g + 1) * group), &mut Vec::new())
            })
            .into_iter()
            .for_each(|part| cascade.append(part));
            self.write(block, &cascade.finish());
        }
    }

    /// Computes the outputs of one block.
    #[inline]
    fn reduce_block(&self, block: usize, scratch: &mut Vec<A>) {
        match self.chunks() {
            0 => self.write(block, &vec![self.identity; self.blocks.width]),
            1 if let Some(xs) = self.row_in_place(block) => {
                self.write(block, &[row::<A, O>(self.shape.isa, xs, self.identity)])
            }
            1 => {
                let mut lanes = self.chunk(block, 0, scratch);
                let width = if self.blocks.by_columns { self.blocks.len(block) } else { 1 };
                self.shape.isa.dispatch(Lanes::<A, O>(&mut lanes, width, PhantomData));
                self.write(block, &lanes);
            }
            chunks => {
                self.write(block, &self.combine_chunks(block, 0..chunks, scratch).finish());
            }
        }
    }

    /// Folds chunks of one block and combines them in order.
    fn combine_chunks(
        &self,
        block: usize,
        chunks: Range<usize>,
        scratch: &mut Vec<A>,
    ) -> Cascade<A, O> {
        let mut cascade = Cascade::new();
        match self.row_in_place(block) {
            Some(xs) => {
                let elements = chunks.start * CHUNK..xs.len().min(chunks.end * CHUNK);
                push_chunks(self.shape.isa, &xs[elements], self.identity, &mut cascade);
            }
            None => chunks.for_each(|chunk| cascade.push(self.chunk(block, chunk, scratch))),
        }
        cascade
    }

    /// The accumulators of one chunk of one block.
    #[inline]
    fn chunk(&self, block: usize, chunk: usize, scratch: &mut Vec<A>) -> Partial<A> {
        let from = chunk * CHUNK;
        let n = CHUNK.min(self.shape.extent() - from);
        if self.blocks.by_columns {
            self.chunk_of_columns(block, from, n)
        } else {
            self.chunk_of_row(self.blocks.first(block), from, n, scratch)
        }
    }

    /// The accumulators of `n` elements of output `out` from position `from`.
    #[inline]
    fn chunk_of_row(&self, out: usize, from: usize, n: usize, scratch: &mut Vec<A>) -> Partial<A> {
        let (isa, base) = (self.shape.isa, self.shape.input_at(out));
        scratch.resize(CHUNK, self.identity);
        let xs = &mut scratch[..n];
        let stride = self.shape.element_stride();
        // SAFETY: these are elements of the output.
        self.shape.elements(from, n, |pos, at, len| unsafe {
            self.input.read(isa, base + at, stride, &mut xs[pos..pos + len])
        });
        if let Some(map) = self.map {
            map.row(isa, out, xs);
        }
        Partial::from(fold::<A, O>(isa, xs, self.identity))
    }

    /// The accumulators of `n` elements from position `from`, of each output of a block of columns.
    fn chunk_of_columns(&self, block: usize, from: usize, n: usize) -> Partial<A> {
        let (isa, stride) = (self.shape.isa, self.shape.element_stride());
        let (first, width) = (self.blocks.first(block), self.blocks.len(block));
        let base = self.shape.input_at(first);
        // Lanes that no element reaches change no bit, and are left out if there is no other chunk.
        let is_only = self.shape.extent() <= LANES;
        let lanes = if is_only { n.next_power_of_two() } else { LANES };
        let mut acc: Partial<A> = smallvec::smallvec![self.identity; lanes * width];
        let mut row = [self.identity; MAX_COLUMNS];
        let row = &mut row[..width];
        self.shape.elements(from, n, |pos, at, len| {
            let at = base + at;
            let in_place = self.input.address(at).filter(|_| self.map.is_none());
            if let Some(first) = in_place {
                let (rows, acc) = ((first, stride as isize, len), &mut acc[..]);
                // SAFETY: one element of each of `width` neighbouring outputs, which are
                // contiguous. The input is not written.
                let fold = unsafe { FoldRows::<A, O>::new(rows, pos, acc, width) };
                return isa.dispatch(fold);
            }
            for i in 0..len {
                let (at, lane) = (at + i as i64 * stride, (pos + i) % LANES * width);
                // SAFETY: as above.
                unsafe { self.input.read(isa, at, 1, row) }
                if let Some(map) = self.map {
                    map.columns(isa, first, row);
                }
                isa.dispatch(InPlaceOp::<A, O>(&mut acc[lane..lane + width], row, PhantomData));
            }
        });
        acc
    }

    /// All elements of a block's output, if they can be used in place.
    #[inline]
    fn row_in_place(&self, block: usize) -> Option<&[A]> {
        if !self.contiguous {
            return None;
        }
        let at = self.shape.input_at(self.blocks.first(block));
        // SAFETY: these are the elements of one output, which are contiguous.
        unsafe { self.input.in_place(at, self.shape.extent()) }
    }

    /// Writes the outputs of a block from the front of `values`.
    #[inline]
    fn write(&self, block: usize, values: &[A]) {
        let first = self.blocks.first(block);
        for (i, value) in values.iter().take(self.blocks.len(block)).enumerate() {
            // The sum of two different NaNs is one of them. The compiler is free to choose which,
            // and chooses differently per instruction set, so every NaN is replaced by one value.
            let value = (self.post)(*value).one_nan();
            // SAFETY: the output belongs to this block, and a block belongs to one task.
            unsafe { self.output.write(self.shape.output_at(first + i), value) }
        }
    }
}
