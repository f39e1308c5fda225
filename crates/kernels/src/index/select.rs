//! The slices of a tensor that indices name: `index_select` and embeddings.

use super::Negative;
use super::blocks::blocks;
use crate::copy::{check_dim, same_dtype};
use crate::element::dispatch;
use crate::error::{KernelError, Result};
use crate::thread_pool;
use crate::view::{Ptr, View, ViewMut, numel};
use maquette_ir::DType;

const KERNEL: &str = "select";

/// Selects the slices of `input` at `indices`, of any shape, along dimension `dim`. The dimensions of
/// the indices replace it.
pub(crate) fn select(
    input: &View<'_>,
    dim: usize,
    indices: &View<'_>,
    out: &mut ViewMut<'_>,
) -> Result<()> {
    check_dim(KERNEL, dim, input.rank())?;
    if row_major(input, dim, indices, out)? {
        return Ok(());
    }
    let mut all: Vec<Option<View<'_>>> = vec![None; dim];
    all.push(Some(indices.clone()));
    blocks(KERNEL, input, &all, Negative::Fails, out)
}

/// [`select`] where all are row-major, so that a slice of each is one piece of memory. It allocates
/// nothing. Returns `false`, with nothing written, for other layouts and wrong operands.
fn row_major(
    input: &View<'_>,
    dim: usize,
    indices: &View<'_>,
    out: &mut ViewMut<'_>,
) -> Result<bool> {
    let (Some(outer), Some((&size, inner))) =
        (input.sizes().get(..dim), input.sizes().get(dim..).and_then(<[i64]>::split_first))
    else {
        return Ok(false);
    };
    let fits = out.sizes().strip_prefix(outer).and_then(|rest| rest.strip_prefix(indices.sizes()))
        == Some(inner);
    if !fits || ![input, indices, out.as_view()].iter().all(|v| v.is_contiguous()) {
        return Ok(false);
    }
    same_dtype(KERNEL, "the output", input.dtype(), out.dtype())?;
    match indices.dtype() {
        DType::I64 => {
            // SAFETY: these are the elements of the view, which nothing writes.
            let indices = unsafe { indices.typed::<i64>().slice(0, indices.numel()) };
            slices(input, [outer, inner], (dim, size), &|i| indices[i], indices.len(), out)?;
        }
        DType::I32 => {
            // SAFETY: as above.
            let indices = unsafe { indices.typed::<i32>().slice(0, indices.numel()) };
            let at = |i: usize| i64::from(indices[i]);
            slices(input, [outer, inner], (dim, size), &at, indices.len(), out)?;
        }
        _ => return Ok(false),
    }
    Ok(true)
}

/// Copies the slices at `count` indices, which are the values of `at`.
fn slices(
    input: &View<'_>,
    [outer, inner]: [&[i64]; 2],
    (dim, size): (usize, i64),
    at: &(dyn Fn(usize) -> i64 + Sync),
    count: usize,
    out: &mut ViewMut<'_>,
) -> Result<()> {
    if let Some(index) = (0..count).map(at).find(|index| !(0..size).contains(index)) {
        return Err(KernelError::IndexOutOfRange { index, size, dim });
    }
    let (len, grain) = (numel(inner), (thread_pool::GRAIN / numel(inner).max(1)).max(1));
    dispatch!(size input.dtype(), T => {
        let from: Ptr<T> = Ptr(input.as_ptr().cast_mut().cast());
        let to: Ptr<T> = Ptr(out.as_ptr().cast_mut().cast());
        thread_pool::ranges(numel(outer) * count, grain, 1, &|first, last| {
            let (mut base, mut i) = (first / count * size as usize, first % count);
            for slice in first..last {
                let index = base + at(i) as usize;
                // SAFETY: the indices were checked, and each slice of the output is written by one
                // task. The type has the elements' size.
                unsafe {
                    match len {
                        1 => to.set(slice as i64, from.get(index as i64)),
                        _ => {
                            let found = from.slice((index * len) as i64, len);
                            to.slice_mut((slice * len) as i64, len).copy_from_slice(found);
                        }
                    }
                }
                i += 1;
                if i == count {
                    (base, i) = (base + size as usize, 0);
                }
            }
            Ok(())
        })
    })
}
