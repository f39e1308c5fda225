//! The slices of a tensor that indices name: `index_select` and embeddings.

use super::Negative;
use super::blocks::blocks;
use crate::copy::check_dim;
use crate::element::dispatch;
use crate::error::{KernelError, Result};
use crate::thread_pool;
use crate::view::{Ptr, View, ViewMut, numel};
use maquette_ir::DType;

const KERNEL: &str = "select";

/// Selects the slices of `input` at `indices`, of any shape, along dimension `dim`. The dimensions
/// of the indices replace it.
pub(crate) fn select(
    input: &View<'_>,
    dim: usize,
    indices: &View<'_>,
    out: &mut ViewMut<'_>,
) -> Result<()> {
    check_dim(KERNEL, dim, input.rank())?;
    if let Some(select) = RowMajorSelect::of(input, dim, indices, out) {
        let [from, at] = [input, indices].map(|v| Ptr(v.as_ptr().cast_mut()));
        // SAFETY: the addresses are those of the views.
        return unsafe { select.run([from, at, Ptr(out.as_ptr().cast_mut())]) };
    }
    let mut all: Vec<Option<View<'_>>> = vec![None; dim];
    all.push(Some(indices.clone()));
    blocks(KERNEL, input, &all, Negative::Fails, out)
}

/// [`select`] of row-major operands of given sizes: a slice of each is one piece of memory. It
/// allocates nothing.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RowMajorSelect {
    run: unsafe fn(&RowMajorSelect, [Ptr<u8>; 3]) -> Result<()>,
    dim: usize,
    /// The elements before the dimension, along it, and of a slice.
    outer: usize,
    size: i64,
    len: usize,
    /// The number of indices.
    count: usize,
}

impl RowMajorSelect {
    /// The selection for operands of the layouts of these, whose memory is not accessed. `None` for
    /// other layouts and wrong operands.
    pub fn of(
        input: &View<'_>,
        dim: usize,
        indices: &View<'_>,
        out: &ViewMut<'_>,
    ) -> Option<RowMajorSelect> {
        let outer = input.sizes().get(..dim)?;
        let (&size, inner) = input.sizes().get(dim..)?.split_first()?;
        let fits = out.sizes().strip_prefix(outer)?.strip_prefix(indices.sizes())? == inner
            && input.dtype() == out.dtype()
            && [input, indices, out.as_view()].iter().all(|v| v.is_contiguous());
        let run = match indices.dtype() {
            DType::I64 => dispatch!(size input.dtype(), T => RowMajorSelect::slices::<T, i64>),
            DType::I32 => dispatch!(size input.dtype(), T => RowMajorSelect::slices::<T, i32>),
            _ => return None,
        };
        let (outer, len, count) = (numel(outer), numel(inner), indices.numel());
        fits.then_some(RowMajorSelect { run, dim, outer, size, len, count })
    }

    /// Selects between these addresses of element 0 of the input, the indices and the output.
    ///
    /// # Safety
    /// With the layouts of the operands, they satisfy the contracts of [`View::from_raw`] and
    /// [`ViewMut::from_raw`] during the call. The output overlaps neither operand.
    pub unsafe fn run(&self, addresses: [Ptr<u8>; 3]) -> Result<()> {
        // SAFETY: the caller's promise.
        unsafe { (self.run)(self, addresses) }
    }

    /// # Safety
    /// As [`RowMajorSelect::run`]; `T` has the size of an element, and `I` is the type of the
    /// indices.
    unsafe fn slices<T: Copy, I: Copy + Into<i64> + Sync>(
        &self,
        [from, at, to]: [Ptr<u8>; 3],
    ) -> Result<()> {
        let RowMajorSelect { dim, outer, size, len, count, .. } = *self;
        let (from, to) = (Ptr(from.0.cast::<T>()), Ptr(to.0.cast::<T>()));
        // SAFETY: these are the elements of the indices, which nothing writes.
        let indices: &[I] = unsafe { Ptr(at.0.cast()).slice(0, count) };
        if let Some(&index) = indices.iter().find(|index| !(0..size).contains(&(**index).into())) {
            return Err(KernelError::IndexOutOfRange { index: index.into(), size, dim });
        }
        let grain = (thread_pool::GRAIN / len.max(1)).max(1);
        thread_pool::ranges(outer * count, grain, 1, &|first, last| {
            let (mut base, mut i) = (first / count * size as usize, first % count);
            for slice in first..last {
                let index = base + indices[i].into() as usize;
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
    }
}
