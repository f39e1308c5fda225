//! Index operations whose indices select whole blocks: `index_select`, embeddings and advanced
//! indexing. A block is the sub-tensor over the dimensions that are not indexed.

use super::{Add, Combine, Negative, Replace, checked};
use crate::copy::{same_dtype, same_sizes};
use crate::element::{Element, dispatch};
use crate::error::{KernelError, Result};
use crate::layout::{Loops, offset};
use crate::scratch::filled;
use crate::thread_pool;
use crate::view::{Dims, Ptr, View, ViewMut, numel};

/// The blocks that indices select. Of the two tensors, one is indexed and the other is the source
/// or destination of the blocks.
struct Blocks {
    /// The offset in the indexed tensor of each block, in row-major order of the indices.
    starts: Vec<i64>,
    /// The shape of the indices, and the strides of the other tensor over it.
    positions: (Dims, Dims),
    /// Over the elements of a block: operand 0 is the indexed tensor, operand 1 the other.
    block: Loops,
    /// The sizes that the other tensor must have.
    sizes: Dims,
}

impl Blocks {
    /// `indices[d]`, if present, indexes dimension `d`; all indices have the same shape. As in
    /// PyTorch, that shape replaces the indexed dimensions if these are adjacent, and comes first
    /// otherwise.
    fn new(
        kernel: &'static str,
        of: &View<'_>,
        indices: &[Option<View<'_>>],
        negative: Negative,
        other: &View<'_>,
    ) -> Result<Blocks> {
        let rank = of.rank();
        if indices.len() > rank {
            return Err(KernelError::Count {
                kernel,
                what: "indices",
                expected: rank,
                found: indices.len(),
            });
        }
        let indexed = |d: usize| indices.get(d).is_some_and(Option::is_some);
        let dims: Vec<usize> = (0..rank).filter(|d| indexed(*d)).collect();
        let Some((&first, &last)) = dims.first().zip(dims.last()) else {
            return Err(KernelError::argument(kernel, "takes at least one index"));
        };
        let shape: Dims =
            indices[first].as_ref().map(|v| Dims::from_slice(v.sizes())).unwrap_or_default();
        let mut starts = filled(kernel, 0i64, numel(&shape))?;
        for &d in &dims {
            let Some(index) = &indices[d] else { continue };
            same_sizes(kernel, "an index", &shape, index.sizes())?;
            let stride = of.strides()[d];
            for (s, i) in starts.iter_mut().zip(checked(kernel, index, of.sizes()[d], d, negative)?)
            {
                *s = s.wrapping_add(i.wrapping_mul(stride));
            }
        }
        let front = if last - first + 1 == dims.len() { first } else { 0 };
        let kept: Vec<usize> = (0..rank).filter(|d| !indexed(*d)).collect();
        let mut sizes: Dims = kept.iter().map(|d| of.sizes()[*d]).collect();
        sizes.insert_many(front, shape.iter().copied());
        same_sizes(kernel, "the other tensor", &sizes, other.sizes())?;
        let mut rest = Dims::from_slice(other.strides());
        let at: Dims = rest.drain(front..front + shape.len()).collect();
        let of_strides: Dims = kept.iter().map(|d| of.strides()[*d]).collect();
        let kept_sizes: Dims = kept.iter().map(|d| of.sizes()[*d]).collect();
        let block = Loops::new(&kept_sizes, [&of_strides[..], &rest[..]], true);
        Ok(Blocks { starts, positions: (shape, at), block, sizes })
    }

    fn other_start(&self, position: usize) -> i64 {
        offset(&self.positions.0, &self.positions.1, position)
    }

    /// Calls `f(offset in the indexed tensor, offset in the other, length)` for every run of a
    /// block.
    fn runs(&self, position: usize, mut f: impl FnMut(i64, i64, usize)) {
        let (a, b) = (self.starts[position], self.other_start(position));
        match (self.block.sizes.len(), self.block.numel()) {
            // The block is empty, so the offsets may be out of bounds.
            (_, 0) => {}
            (1, n) => f(a, b, n),
            (_, n) => self
                .block
                .runs(0, 0, n, |pos, at, len| f(a + at, b + self.block.offset(1, pos), len)),
        }
    }
}

/// Computes `out = input[indices]`. `indices[d]`, if present, indexes dimension `d`. All indices
/// have the same shape; the caller has broadcast them. Negative indices count from the end.
pub fn index(input: &View<'_>, indices: &[Option<View<'_>>], out: &mut ViewMut<'_>) -> Result<()> {
    blocks("index", input, indices, Negative::Wraps, out)
}

pub(super) fn blocks(
    kernel: &'static str,
    input: &View<'_>,
    indices: &[Option<View<'_>>],
    negative: Negative,
    out: &mut ViewMut<'_>,
) -> Result<()> {
    same_dtype(kernel, "the output", input.dtype(), out.dtype())?;
    let blocks = Blocks::new(kernel, input, indices, negative, out)?;
    debug_assert_eq!(&blocks.sizes[..], out.sizes());
    let (si, so) = (blocks.block.inner_stride(0), blocks.block.inner_stride(1));
    dispatch!(size input.dtype(), T => {
        let src: Ptr<T> = Ptr(input.as_ptr().cast_mut().cast());
        let dst: Ptr<T> = Ptr(out.as_ptr().cast_mut().cast());
        let grain = (thread_pool::GRAIN / blocks.block.numel().max(1)).max(1);
        thread_pool::ranges(blocks.starts.len(), grain, 1, &|from, to| {
            for p in from..to {
                blocks.runs(p, |a, b, len| {
                    // SAFETY: the indices were checked, and each position writes its own block. The
                    // type has the elements' size.
                    unsafe {
                        match (si, so) {
                            (1, 1) => dst.slice_mut(b, len).copy_from_slice(src.slice(a, len)),
                            _ => (0..len as i64)
                                .for_each(|i| dst.set(b + i * so, src.get(a + i * si))),
                        }
                    }
                });
            }
            Ok(())
        })
    })
}

/// Computes `out[indices] = values`, or `+=` if `accumulate`, in row-major order of the indices. Of
/// equal indices the last one counts. Negative indices count from the end. `values` has the sizes
/// of `out[indices]`.
pub fn index_put(
    out: &mut ViewMut<'_>,
    indices: &[Option<View<'_>>],
    values: &View<'_>,
    accumulate: bool,
) -> Result<()> {
    const KERNEL: &str = "index_put";
    same_dtype(KERNEL, "the values", out.dtype(), values.dtype())?;
    let blocks = Blocks::new(KERNEL, out, indices, Negative::Wraps, values)?;
    dispatch!(out.dtype(), T => {
        match accumulate {
            true => put::<T, Add>(&blocks, out, values),
            false => put::<T, Replace>(&blocks, out, values),
        }
    });
    Ok(())
}

fn put<T: Element, C: Combine<T>>(blocks: &Blocks, out: &mut ViewMut<'_>, values: &View<'_>) {
    let (dst, src) = (out.typed::<T>(), values.typed::<T>());
    let (so, si) = (blocks.block.inner_stride(0), blocks.block.inner_stride(1));
    for p in 0..blocks.starts.len() {
        blocks.runs(p, |a, b, len| {
            for i in 0..len as i64 {
                // SAFETY: the indices were checked, and only one thread writes.
                unsafe { dst.set(a + i * so, C::combine(dst.get(a + i * so), src.get(b + i * si))) }
            }
        });
    }
}
