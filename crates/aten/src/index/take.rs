//! Elements by row-major position: `take` and `put`. Both are advanced indexing of the flattened
//! tensor.

use super::scatter::{gather, scatter};
use maquette_ir::DType;
use maquette_ir::loops::{Index, IndexMap};
use maquette_ir::scalar_expr::Bounds;
use maquette_kernels as kernels;
use maquette_ops::internals::MetaInternals;
use maquette_ops::operator::cpu_exec::{self, input, output};
use maquette_ops::operator::dims::{
    fresh, fresh_like, is_contiguous, require_index, require_same_dtype,
};
use maquette_ops::operator::loops::{NestCx, NestResults};
use maquette_ops::operator::lowering::{How, Lowering, Metas};
use maquette_ops::operator::require_equal;
use maquette_ops::operator::{dims_text, table};
use maquette_ops::{Error, Result, Tensor, Value};
use smallvec::smallvec;

/// The elements in row-major order as one dimension: a view if the tensor is contiguous, else a
/// copy.
pub(crate) fn flat(t: &Tensor) -> Result<Tensor> {
    let whole = if is_contiguous(t.sizes(), t.strides())? {
        t.clone()
    } else {
        let out = Tensor::allocate(fresh(t, t.sizes().into(), t.dtype()))?;
        cpu_exec::copy(t, &out)?;
        out
    };
    let m = fresh(t, smallvec![t.numel()], t.dtype());
    whole.view_of(m.with_offset(whole.meta().offset()))
}

fn take(cx: &mut NestCx<'_>) -> Result<NestResults> {
    let (x, index) = (cx.view(|a| flat(a[0].tensor()?))?, cx.input(1)?);
    let taken = cx.nest.map(&index.axes, |s| {
        let position = s.element(&index, DType::I64)?;
        let at: IndexMap = [Index::Computed].into_iter().collect();
        s.read(x.id, at, &[position], Bounds::Wraps, None)
    })?;
    Ok(smallvec![taken.into()])
}

fn put(args: &[Value], out: &Tensor) -> Result<()> {
    let x = args[0].tensor()?;
    let work = Tensor::allocate(fresh(x, x.sizes().into(), x.dtype()))?;
    cpu_exec::copy(x, &work)?;
    let (index, source) = (flat(args[1].tensor()?)?, flat(args[2].tensor()?)?);
    if index.numel().as_i64() != Some(0) {
        kernels::index_put(
            &mut output(&flat(&work)?)?,
            &[Some(input(&index)?)],
            &input(&source)?,
            args[3].bool()?,
        )?;
    }
    cpu_exec::copy(&work, out)
}

fn put_meta(args: &[Value]) -> Result<Metas> {
    let (x, index, source) = (args[0].tensor()?, args[1].tensor()?, args[2].tensor()?);
    require_index("index", index)?;
    require_same_dtype(("self", x), ("source", source))?;
    let mismatch = || {
        Error::value(format!(
            "`index` {} and `source` {} must have the same number of elements",
            dims_text(index.sizes()),
            dims_text(source.sizes())
        ))
    };
    require_equal(index.numel(), source.numel(), &mismatch)?;
    Ok(smallvec![fresh_like(x, x.dtype())?])
}

fn take_meta(x: &Tensor, index: &Tensor) -> Result<Metas> {
    require_index("index", index)?;
    Ok(smallvec![fresh(x, index.sizes().into(), x.dtype())])
}

table! {
    /// `take` and `put`.
    static TABLE = {
        "aten::take(Tensor self, Tensor index) -> Tensor" => {
            role: General,
            lowering: gather(|_, a| take_meta(a[0].tensor()?, a[1].tensor()?), How::Loops(take)),
            vjp: crate::grad::TAKE,
        },
        "aten::put(Tensor self, Tensor index, Tensor source, \
            bool accumulate=False) -> Tensor" => {
            role: General,
            lowering: scatter(|_, a| put_meta(a), |a, out| put(a, &out[0])),
            vjp: crate::grad::PUT,
        },
        "aten::put_(Tensor(a!) self, Tensor index, Tensor source, \
            bool accumulate=False) -> Tensor(a!)" => {
            role: General,
            lowering: Lowering::InPlace("aten::put"),
        },
    }
}
