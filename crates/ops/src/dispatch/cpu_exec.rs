//! Eager execution on the CPU: turns tensors into the raw strided views that the kernel crate
//! takes.
//!
//! Safety of this module: a view is made only of a tensor whose region is borrowed for the running
//! call (the handle carries the borrow), or of a tensor that this call allocated and has not yet
//! shared.
#![allow(unsafe_code)]

use crate::error::{Error, Result};
use crate::operator::pointwise::cache::CompiledExpr;
use crate::tensor::Tensor;
use crate::tensor::meta::{IntoDims, Meta};
use crate::tensor::overlap::may_self_overlap;
use maquette_ir::scalar_expr::{BuildError, ExprBuilder, Reg, ScalarExpr};
use maquette_ir::{DType, Scalar};
use maquette_kernels::{ContiguousKernel, Dims, View, ViewMut};
use smallvec::SmallVec;

/// A read-only view of an operand's data.
pub fn input(t: &Tensor) -> Result<View<'_>> {
    let (mut sizes, mut strides) = (Dims::new(), Dims::new());
    let ptr = t.raw_dims(&mut sizes, &mut strides)?;
    // SAFETY: `raw_dims` checked that the layout lies inside the storage. The borrow described in
    // the module documentation excludes writers.
    Ok(unsafe { View::from_dims(ptr.as_ptr(), t.dtype(), sizes, strides) })
}

/// A writable view of an output's data.
pub fn output(t: &Tensor) -> Result<ViewMut<'_>> {
    let (mut sizes, mut strides) = (Dims::new(), Dims::new());
    let ptr = t.raw_dims(&mut sizes, &mut strides)?;
    // SAFETY: as `input`; exclusive by the borrow, or because the tensor is new.
    Ok(unsafe { ViewMut::from_dims(ptr.as_ptr(), t.dtype(), sizes, strides) })
}

/// A read-only view of an operand, broadcast to `sizes` by strides of 0.
fn expanded<'a>(t: &'a Tensor, sizes: &[i64]) -> Result<View<'a>> {
    let raw = t.raw()?;
    let lead = sizes
        .len()
        .checked_sub(raw.layout.sizes.len())
        .ok_or_else(|| Error::value("an operand has more dimensions than the result"))?;
    let mut strides: SmallVec<[i64; 6]> = SmallVec::from_elem(0, lead);
    for ((&n, &s), &m) in raw.layout.sizes.iter().zip(&raw.layout.strides).zip(&sizes[lead..]) {
        if n != m && n != 1 {
            let (found, expected) = (&raw.layout.sizes, &sizes);
            return Err(Error::value(format!(
                "an operand of sizes {found:?} does not expand to the result's {expected:?}"
            )));
        }
        strides.push(if n == m { s } else { 0 });
    }
    // SAFETY: as `input`; a dimension is expanded by stride 0, so no element outside the operand's
    // own is named.
    Ok(unsafe { View::from_raw(raw.ptr.as_ptr(), t.dtype(), sizes, &strides) })
}

/// Runs a compiled pointwise expression and writes the result to `out`.
pub(crate) fn pointwise(compiled: &CompiledExpr, operands: &[&Tensor], out: &Tensor) -> Result<()> {
    run_expr(&compiled.expr, compiled.contiguous_kernel.as_ref(), operands, out)
}

/// The element count if all tensors have the same sizes and are row-major without gaps. The kernel
/// can then treat each as one contiguous row and ignore the dimensions.
pub(crate) fn common_dense_numel<'a>(mut tensors: impl Iterator<Item = &'a Tensor>) -> Option<i64> {
    let first = tensors.next()?;
    let n = first.meta().checked_dense_numel()?;
    let same = |t: &Tensor| {
        t.dim() == first.dim()
            && t.sizes().iter().zip(first.sizes()).all(|(a, b)| a.as_i64() == b.as_i64())
            && t.meta().dense_numel().is_some()
    };
    tensors.all(same).then_some(n)
}

fn run_expr(
    expr: &ScalarExpr,
    contiguous_kernel: Option<&ContiguousKernel>,
    operands: &[&Tensor],
    out: &Tensor,
) -> Result<()> {
    if let Some(n) = common_dense_numel(std::iter::once(out).chain(operands.iter().copied())) {
        let row = |t: &Tensor| t.raw_row(n);
        // SAFETY: as `input` and `output`, of a layout that is one row.
        let mut target = unsafe { ViewMut::from_raw(row(out)?.as_ptr(), out.dtype(), &[n], &[1]) };
        let mut inputs: SmallVec<[View<'_>; 2]> = SmallVec::new();
        for t in operands {
            // SAFETY: as above.
            inputs.push(unsafe { View::from_raw(row(t)?.as_ptr(), t.dtype(), &[n], &[1]) });
        }
        let outputs = std::slice::from_mut(&mut target);
        if let Some(p) = contiguous_kernel
            && p.run(&inputs, outputs)?
        {
            return Ok(());
        }
        return Ok(maquette_kernels::pointwise(expr, &inputs, outputs)?);
    }
    let mut target = output(out)?;
    let sizes: SmallVec<[i64; 6]> = target.sizes().into();
    let inputs: SmallVec<[View<'_>; 4]> =
        operands.iter().map(|t| expanded(t, &sizes)).collect::<Result<_>>()?;
    Ok(maquette_kernels::pointwise(expr, &inputs, std::slice::from_mut(&mut target))?)
}

/// Copies `from` to `to`, with broadcasting and dtype conversion. Both must be borrowed, or newly
/// allocated by this call.
pub fn copy(from: &Tensor, to: &Tensor) -> Result<()> {
    let mut target = output(to)?;
    let sizes: SmallVec<[i64; 6]> = target.sizes().into();
    Ok(maquette_kernels::copy(&expanded(from, &sizes)?, &mut target)?)
}

/// A copy of the tensor's current contents with the same sizes and strides, because the kernel may
/// depend on the strides. Elements that share an address in the original share one in the copy.
pub(crate) fn snapshot(t: &Tensor) -> Result<Tensor> {
    let meta =
        Meta { offset: 0.into(), ..t.meta().with_dims(t.sizes().into(), t.strides().into()) };
    let out = Tensor::allocate_to_fill(meta)?;
    let borrow = t.borrow(
        crate::tensor::borrow::Access::Read,
        crate::tensor::holder::Holder::Guard(maquette_ir::Loc::caller()),
    )?;
    copy_with_self_overlap(t, &out)?;
    drop(borrow);
    Ok(out)
}

impl Tensor {
    /// Copies a tensor of the same sizes and dtype into this one, whose elements may share memory.
    /// Elements in one place have equal values, so that the order of writes does not matter.
    ///
    /// # Errors
    /// Another access conflicts with a borrow of either tensor.
    pub(crate) fn copy_shared_elements_(&self, from: &Tensor) -> Result<()> {
        let holder = || crate::tensor::holder::Holder::Guard(maquette_ir::Loc::caller());
        let from = if self.has_storage_of(from) { snapshot(from)? } else { from.clone() };
        let _read = from.borrow(crate::tensor::borrow::Access::Read, holder())?;
        let _write = self.borrow(crate::tensor::borrow::Access::Write, holder())?;
        copy_with_self_overlap(&from, self)
    }
}

/// Copies between tensors of the same sizes whose elements may alias each other.
///
/// The kernel may not write one address from two threads. The function therefore drops the
/// dimensions of stride 0. While the remaining layout may still overlap itself, it splits the
/// shortest dimension and copies the slices one after another.
fn copy_with_self_overlap(from: &Tensor, to: &Tensor) -> Result<()> {
    let Some(mut at) = to.meta().concrete() else {
        return Err(Error::value("a tensor with data has plain sizes"));
    };
    at.sizes
        .iter_mut()
        .zip(&at.strides)
        .filter(|(n, s)| **s == 0 && **n > 1)
        .for_each(|(n, _)| *n = 1);
    let dims = || at.sizes.iter().enumerate().filter(|(_, n)| **n > 1);
    let Some((shortest, &count)) =
        dims().min_by_key(|(_, n)| **n).filter(|_| may_self_overlap(&at))
    else {
        let part = |t: &Tensor| {
            t.view_of(t.meta().with_dims(at.sizes.as_slice().into_dims(), t.strides().into()))
        };
        return match to.is_on_host() {
            true => copy(&part(from)?, &part(to)?),
            false => part(to)?.copy_elements_of(&part(from)?),
        };
    };
    at.sizes[shortest] = 1;
    (0..count).try_for_each(|i| {
        let part = |t: &Tensor| {
            let meta = t.meta().with_dims(at.sizes.as_slice().into_dims(), t.strides().into());
            let offset = meta.offset + t.strides()[shortest] * i;
            t.view_of(Meta { offset, ..meta })
        };
        copy_with_self_overlap(&part(from)?, &part(to)?)
    })
}

/// A row-major copy. The operand must be borrowed, or newly allocated by this call.
pub fn contiguous(t: &Tensor) -> Result<Tensor> {
    let out = Tensor::allocate_to_fill(Meta::contiguous(t.sizes(), t.dtype()).on(t.device()))?;
    copy(t, &out)?;
    Ok(out)
}

/// The tensor converted to `dtype`. Returns the same tensor if it has that dtype already.
pub fn cast(t: &Tensor, dtype: DType) -> Result<Tensor> {
    if t.dtype() == dtype {
        return Ok(t.clone());
    }
    let out = Tensor::allocate_to_fill(Meta {
        dtype,
        ..Meta::contiguous(t.sizes(), dtype).on(t.device())
    })?;
    copy(t, &out)?;
    Ok(out)
}

/// Sets every element.
pub fn fill(out: &Tensor, value: impl Into<Scalar>) -> Result<()> {
    Ok(maquette_kernels::fill(&mut output(out)?, value.into())?)
}

/// Computes an expression over operands, broadcast to the sizes of `out`. `build` receives the
/// registers that hold the operands.
pub fn map_into(
    out: &Tensor,
    operands: &[&Tensor],
    build: impl FnOnce(&mut ExprBuilder, &[Reg]) -> Result<Reg, BuildError>,
) -> Result<()> {
    let mut b = ExprBuilder::new();
    let inputs: SmallVec<[Reg; 4]> = operands.iter().map(|t| b.input(t.dtype())).collect();
    let result = build(&mut b, &inputs).map_err(Error::other)?;
    let expr = b.finish(&[result]).map_err(Error::other)?;
    run_expr(&expr, None, operands, out)
}
