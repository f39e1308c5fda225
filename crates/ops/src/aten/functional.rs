//! The operators of functional graphs: a view of a value, and a value with a view of it replaced. Offsets, sizes and strides count the
//! value's elements in row-major order, whatever its layout in memory is.

use super::dims::fresh;
use super::lower::{Class, Compute, Lowering, Metas};
use super::table;
use crate::eager;
use crate::error::Result;
use crate::meta::Meta;
use crate::tensor::Tensor;
use crate::value::Value;
use smallvec::smallvec;

/// The part of a value, laid out row-major, that `size, stride, offset` name.
fn part(base: &Tensor, at: &[Value]) -> Result<Tensor> {
    let meta = super::views::as_strided(base, at[0].ints()?, at[1].ints()?, Some(base.storage_offset() + at[2].int()?))?;
    base.view_of(meta)
}

fn view(a: &[Value], out: &[Tensor]) -> Result<()> {
    let base = a[0].tensor()?;
    let rows = if base.meta().is_plainly_contiguous() { base.clone() } else { eager::contiguous(base)? };
    eager::copy(&part(&rows, &a[1..])?, &out[0])
}

fn scatter(a: &[Value], out: &[Tensor]) -> Result<()> {
    let (base, from) = (a[0].tensor()?, a[1].tensor()?);
    eager::copy(base, &out[0])?;
    eager::copy(from, &part(&out[0], &a[2..])?)
}

fn view_metas(a: &[Value]) -> Result<Metas> {
    let base = a[0].tensor()?;
    Ok(smallvec![fresh(base, a[1].ints()?.into(), base.dtype())])
}

fn scatter_metas(a: &[Value]) -> Result<Metas> {
    let base = a[0].tensor()?;
    Ok(smallvec![Meta { requires_grad: false, ..fresh(base, base.sizes().into(), base.dtype()) }])
}

table! {
    /// See the module.
    pub(super) static TABLE = {
        "ir::view(Tensor self, SymInt[] size, SymInt[] stride, SymInt offset) -> Tensor" =>
            Lowering::Compute(Compute { class: Class::Copy, metas: |_, a| view_metas(a), run: view }),
        "ir::scatter(Tensor self, Tensor src, SymInt[] size, SymInt[] stride, SymInt offset) -> Tensor" =>
            Lowering::Compute(Compute { class: Class::Copy, metas: |_, a| scatter_metas(a), run: scatter }),
    }
}
