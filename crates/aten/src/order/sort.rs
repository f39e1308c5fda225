//! Order along one dimension: `sort` and `argsort`, which are always stable, and `topk`.

use crate::reduce::scan::{dim, same_sizes};
use maquette_ir::DType;
use maquette_ops::operator::Derivative;
use maquette_ops::operator::dims::fresh_like;
use maquette_ops::operator::lowering::{Class, Compute, How, Lowering, Metas, Strides};
use maquette_ops::operator::{cpu_exec, table};
use maquette_ops::{Error, Meta, Result, Tensor, Value};
use smallvec::smallvec;

const fn sorting(
    strides: Strides,
    metas: fn(&maquette_ops::FakeCtx, &[Value]) -> Result<Metas>,
    run: fn(&[Value], &[Tensor]) -> Result<()>,
) -> Lowering {
    Lowering::Compute(Compute { class: Class::Sort, strides, metas, how: How::Host(run) })
}

/// The metadata of values and indices, in the memory order of argument 0.
fn sort_meta(args: &[Value], d: usize) -> Result<Metas> {
    dim(args, d)?;
    let x = args[0].tensor()?;
    Ok(smallvec![fresh_like(x, x.dtype())?, fresh_like(x, DType::I64)?])
}

fn sort(args: &[Value], d: usize, values: &Tensor, indices: &Tensor) -> Result<()> {
    let (values, indices) = (&mut cpu_exec::output(values)?, &mut cpu_exec::output(indices)?);
    Ok(maquette_kernels::sort(
        &cpu_exec::input(args[0].tensor()?)?,
        dim(args, d)?,
        args[d + 1].bool()?,
        values,
        indices,
    )?)
}

fn argsort(args: &[Value], outs: &[Tensor], d: usize) -> Result<()> {
    let x = args[0].tensor()?;
    sort(args, d, &Tensor::allocate(fresh_like(x, x.dtype())?)?, &outs[0])
}

fn topk_meta(args: &[Value]) -> Result<Metas> {
    let (x, k, d) = (args[0].tensor()?, args[1].int()?, dim(args, 2)?);
    let mut values = same_sizes(args, 2, x.dtype())?;
    let available = x.sizes().get(d).copied().unwrap_or(1.into());
    let within = maquette_ir::sym::SymInt::from(0).le(k).statically_known() != Some(false)
        && k.le(available).statically_known() != Some(false);
    if !within {
        return Err(Error::value(format!(
            "`k` must be from 0 to the size {available} of dimension {d}, found {k}"
        )));
    }
    if let Some(n) = values.sizes.get_mut(d) {
        *n = k;
    }
    let values = Meta::contiguous(values.sizes, values.dtype).on(values.device);
    Ok(smallvec![values.clone(), values.with_dtype(DType::I64)])
}

fn topk(args: &[Value], outs: &[Tensor]) -> Result<()> {
    let (values, indices) = (&mut cpu_exec::output(&outs[0])?, &mut cpu_exec::output(&outs[1])?);
    Ok(maquette_kernels::topk(
        &cpu_exec::input(args[0].tensor()?)?,
        dim(args, 2)?,
        args[3].bool()?,
        values,
        indices,
    )?)
}

table! {
    /// `sort`, `argsort` and `topk`.
    static TABLE = {
        "aten::sort(Tensor self, int dim=-1, \
            bool descending=False) -> (Tensor values, Tensor indices)" => {
            role: General,
            lowering: sorting(Strides::FromOperands, |_, a| sort_meta(a, 1),
                |a, o| sort(a, 1, &o[0], &o[1]),
            ),
            vjp: crate::grad::SORT,
        },
        "aten::sort.stable(Tensor self, *, bool? stable, int dim=-1, \
            bool descending=False) -> (Tensor values, Tensor indices)" => {
            role: General,
            lowering: sorting(
                Strides::FromOperands,
                |_, a| sort_meta(a, 2),
                |a, o| sort(a, 2, &o[0], &o[1]),
            ),
            vjp: crate::grad::SORT_STABLE,
        },
        "aten::argsort(Tensor self, int dim=-1, bool descending=False) -> Tensor" => {
            role: General,
            lowering: sorting(
                Strides::FromOperands,
                |_, a| Ok(smallvec![sort_meta(a, 1)?.swap_remove(1)]),
                |a, o| argsort(a, o, 1),
            ),
            vjp: Derivative::None("the result is no float"),
        },
        "aten::argsort.stable(Tensor self, *, bool stable, int dim=-1, \
            bool descending=False) -> Tensor" => {
            role: General,
            lowering: sorting(
                Strides::FromOperands,
                |_, a| Ok(smallvec![sort_meta(a, 2)?.swap_remove(1)]),
                |a, o| argsort(a, o, 2),
            ),
            vjp: Derivative::None("the result is no float"),
        },
        "aten::topk(Tensor self, SymInt k, int dim=-1, bool largest=True, \
            bool sorted=True) -> (Tensor values, Tensor indices)" => {
            role: General,
            lowering: sorting(Strides::RowMajor, |_, a| topk_meta(a), topk),
            vjp: crate::grad::SORT_STABLE,
        },
    }
}
