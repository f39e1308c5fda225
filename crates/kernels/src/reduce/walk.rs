//! Walking a reduction: which elements make up each output, by rows or by blocks of columns.

use super::KERNEL;
use super::lanes::{CHUNK, Cascade, LANES, Partial, fold, row, tree};
use crate::copy::{check_dim, same_sizes};
use crate::element::Class;
use crate::error::Result;
use crate::isa::Isa;
use crate::layout::Loops;
use crate::load_store::{Reader, Writer};
use crate::pointwise::ops::{InPlaceOp, Op2};
use crate::thread_pool;
use crate::view::{Dims, View, ViewMut, contiguous};
use std::marker::PhantomData;

/// Outputs computed side by side when rows are not contiguous but columns are: at least, and at
/// most.
const COLUMNS: (usize, usize) = (64, 256);

/// The loops over outputs (operand 0 the output, 1 the input) and over the elements of one.
pub(super) struct Shape {
    isa: Isa,
    kept: Loops,
    reduced: Loops,
    extent: usize,
}

/// What is done to elements before they are combined; it may depend on the output, counted in the
/// order of the loops.
pub(super) trait Map<A>: Sync {
    /// Elements of one output.
    fn row(&self, isa: Isa, out: usize, xs: &mut [A]);
    /// One element of each of several outputs from `first`.
    fn columns(&self, isa: Isa, first: usize, xs: &mut [A]);
}

impl Shape {
    /// Checks the dimensions and the output's sizes.
    pub fn new(isa: Isa, input: &View<'_>, dims: &[usize], out: &ViewMut<'_>) -> Result<Shape> {
        let rank = input.rank();
        let mut is_reduced = vec![false; rank];
        for &d in dims {
            check_dim(KERNEL, d, rank)?;
            if let Some(r) = is_reduced.get_mut(d) {
                *r = true;
            }
        }
        let pick = |reduced: bool, of: &[i64]| -> Dims {
            (0..rank).filter(|d| is_reduced[*d] == reduced).map(|d| of[d]).collect()
        };
        let keepdim = out.rank() == rank;
        let expected: Dims = match keepdim {
            true => (0..rank).map(|d| if is_reduced[d] { 1 } else { input.sizes()[d] }).collect(),
            false => pick(false, input.sizes()),
        };
        same_sizes(KERNEL, "the output", &expected, out.sizes())?;
        let out_strides =
            if keepdim { pick(false, out.strides()) } else { Dims::from_slice(out.strides()) };
        let kept = Loops::new(
            &pick(false, input.sizes()),
            [&out_strides[..], &pick(false, input.strides())],
            true,
        );
        let sizes = pick(true, input.sizes());
        // In logical order, whatever the layout: the order is part of the result.
        let reduced = Loops::new(&sizes, [&pick(true, input.strides())[..]], false);
        Ok(Shape { isa, kept, reduced, extent: crate::view::numel(&sizes) })
    }

    /// How many elements make an output.
    pub fn extent(&self) -> usize {
        self.extent
    }

    /// How many outputs.
    pub fn outputs(&self) -> usize {
        self.kept.numel()
    }

    /// The same into a flat buffer in the order of the loops.
    pub fn flat(&self) -> Shape {
        let mut kept = self.kept.clone();
        kept.strides[0] = contiguous(&kept.sizes);
        Shape { isa: self.isa, kept, reduced: self.reduced.clone(), extent: self.extent }
    }

    /// The input's offset of an output's first element, and the offset in the output.
    pub fn at(&self, out: usize) -> (i64, i64) {
        (self.input_at(out), self.output_at(out))
    }

    /// The input's offset of an output's first element.
    fn input_at(&self, out: usize) -> i64 {
        self.kept.offset(1, out)
    }

    /// The offset of an output.
    fn output_at(&self, out: usize) -> i64 {
        self.kept.offset(0, out)
    }

    /// Calls `f(position, offset, run length)` over an output's elements, in order; and the stride
    /// within runs.
    pub fn elements(&self, from: usize, n: usize, f: impl FnMut(usize, i64, usize)) {
        self.reduced.runs(0, from, n, f);
    }

    pub fn element_stride(&self) -> i64 {
        self.reduced.inner_stride(0)
    }

    /// Whether neighbouring outputs' elements lie closer than one output's.
    fn by_columns(&self) -> bool {
        self.kept.inner_size() >= 8
            && self.kept.inner_stride(1) == 1
            && self.reduced.inner_stride(0) != 1
            && self.extent > 1
    }
}

/// Reduces every output: elements cast to `A`, mapped, combined with `O` from `identity`, then
/// `post`, cast to the output.
pub(super) fn run<A: Class, O: Op2<A, A>>(
    s: &Shape,
    input: &View<'_>,
    out: &mut ViewMut<'_>,
    identity: A,
    map: Option<&dyn Map<A>>,
    post: &(dyn Fn(A) -> A + Sync),
) -> Result<()> {
    let (src, dst) = (Reader::<A>::new(input), Writer::<A>::new(out));
    let columns = s.by_columns();
    let inner = s.kept.inner_size();
    // No bit depends on the width. Wide blocks read memory in long runs; there are to be some for
    // every thread.
    let share = inner / (2 * thread_pool::num_threads());
    let width =
        if columns { share.next_multiple_of(COLUMNS.0).clamp(COLUMNS.0, COLUMNS.1) } else { 1 };
    let (outputs, per_row) = (s.outputs(), inner.div_ceil(width).max(1));
    if outputs == 0 {
        return Ok(());
    }
    let blocks = outputs / inner * per_row;
    let chunks = s.extent.div_ceil(CHUNK);
    let first = |block: usize| (block / per_row) * inner + (block % per_row) * width;
    let widths = |block: usize| width.min(inner - (block % per_row) * width);
    let contiguous = map.is_none() && s.reduced.sizes.len() == 1 && s.element_stride() == 1;

    let partial = |block: usize, chunk: usize, scratch: &mut Vec<A>| -> Partial<A> {
        let (out0, w) = (first(block), widths(block));
        let (base, from) = (s.input_at(out0), chunk * CHUNK);
        let n = CHUNK.min(s.extent - from);
        if columns {
            return s.columns::<A, O>(src, base, (out0, w), (from, n), identity, map);
        }
        if contiguous {
            // SAFETY: the elements are an output's, which lie one after another.
            if let Some(xs) = unsafe { src.in_place(base + from as i64, n) } {
                return Partial::from(fold::<A, O>(s.isa, xs, identity));
            }
        }
        scratch.resize(CHUNK, identity);
        let xs = &mut scratch[..n];
        let stride = s.element_stride();
        // SAFETY: the elements are the output's.
        s.elements(from, n, |pos, at, len| unsafe {
            src.read(s.isa, base + at, stride, &mut xs[pos..pos + len])
        });
        if let Some(map) = map {
            map.row(s.isa, out0, xs);
        }
        Partial::from(fold::<A, O>(s.isa, xs, identity))
    };
    // SAFETY: an output's elements, which lie one after another.
    let whole = |block| unsafe {
        if contiguous && !columns { src.in_place(s.input_at(first(block)), s.extent) } else { None }
    };
    let write = |block: usize, values: &[A]| {
        for (i, v) in values.iter().take(widths(block)).enumerate() {
            // which of two NaNs a sum is, is left to the compiler, and differs between its versions
            // of one loop
            let value = post(*v).one_nan();
            // SAFETY: each output is written by the one task that has its block.
            unsafe { dst.write(s.output_at(first(block) + i), value) }
        }
    };

    let work = outputs.saturating_mul(s.extent);
    if work > thread_pool::GRAIN && blocks < 2 * thread_pool::num_threads() && chunks > 1 {
        let group = (chunks / (4 * thread_pool::num_threads())).next_power_of_two();
        let of_group = |block: usize, g: usize| {
            let (mut cascade, mut scratch) = (Cascade::<A, O>::new(), Vec::new());
            (g * group..chunks.min((g + 1) * group))
                .for_each(|c| cascade.push(partial(block, c, &mut scratch)));
            cascade
        };
        for block in 0..blocks {
            let mut cascade = Cascade::<A, O>::new();
            thread_pool::map(chunks.div_ceil(group), |g| of_group(block, g))
                .into_iter()
                .for_each(|c| cascade.append(c));
            write(block, &cascade.finish());
        }
        return Ok(());
    }
    let grain = (thread_pool::GRAIN / s.extent.max(1) / width).max(1);
    thread_pool::ranges(blocks, grain, 1, &|from, to| {
        let mut scratch = Vec::new();
        for block in from..to {
            match chunks {
                0 => write(block, &vec![identity; width]),
                1 if let Some(xs) = whole(block) => {
                    write(block, &[row::<A, O>(s.isa, xs, identity)])
                }
                1 => {
                    let mut p = partial(block, 0, &mut scratch);
                    tree::<A, O>(&mut p);
                    write(block, &p);
                }
                _ => {
                    let mut cascade = Cascade::<A, O>::new();
                    (0..chunks).for_each(|c| cascade.push(partial(block, c, &mut scratch)));
                    write(block, &cascade.finish());
                }
            }
        }
        Ok(())
    })
}

impl Shape {
    /// One chunk, of `n` elements from `from`, of `w` neighbouring outputs from `out0`.
    fn columns<A: Class, O: Op2<A, A>>(
        &self,
        src: Reader<A>,
        base: i64,
        (out0, w): (usize, usize),
        (from, n): (usize, usize),
        identity: A,
        map: Option<&dyn Map<A>>,
    ) -> Partial<A> {
        let mut acc: Partial<A> = smallvec::smallvec![identity; LANES * w];
        let mut row = [identity; COLUMNS.1];
        let row = &mut row[..w];
        let stride = self.element_stride();
        self.elements(from, n, |pos, at, len| {
            for i in 0..len {
                let (at, lane) = (base + at + i as i64 * stride, (pos + i) % LANES * w);
                // SAFETY: `w` neighbouring outputs' elements, one after another.
                let xs = match unsafe { src.in_place(at, w) } {
                    Some(xs) if map.is_none() => xs,
                    _ => {
                        // SAFETY: as above.
                        unsafe { src.read(self.isa, at, 1, row) }
                        if let Some(map) = map {
                            map.columns(self.isa, out0, row);
                        }
                        &*row
                    }
                };
                self.isa.dispatch(InPlaceOp::<A, O>(&mut acc[lane..lane + w], xs, PhantomData));
            }
        });
        acc
    }
}
