//! Along one dimension: running results, order, softmax.

use super::dims::{done, fresh_like};
use super::lower::{Class, Compute, Lowering, Metas, Strides};
use super::reduce::accumulated;
use super::table;
use crate::dispatch::cpu_exec;
use crate::dispatch::value::Value;
use crate::error::{Error, Result};
use crate::methods::aten;
use crate::tensor::Tensor;
use crate::tensor::meta::Meta;
use crate::tensor::shape::wrap_dim;
use maquette_ir::scalar_expr::CmpOp;
use maquette_ir::{DType, Loc};
use maquette_kernels::{KernelError, ReduceOp, ScanOp, View, ViewMut};
use smallvec::smallvec;

const fn along(
    class: Class,
    strides: Strides,
    metas: fn(&crate::FakeCtx, &[Value]) -> Result<Metas>,
    run: fn(&[Value], &[Tensor]) -> Result<()>,
) -> Lowering {
    Lowering::Compute(Compute { class, strides, metas, run })
}

fn dim(args: &[Value], i: usize) -> Result<usize> {
    wrap_dim(args[i].int_i64()?, args[0].tensor()?.dim())
}

/// A row-major result of the sizes of argument 0, whose dimension argument `i` must exist.
fn same_sizes(args: &[Value], i: usize, dtype: DType) -> Result<Meta> {
    dim(args, i)?;
    let x = args[0].tensor()?;
    Ok(Meta::contiguous(x.sizes(), dtype).on(x.device()))
}

fn scan_meta(args: &[Value]) -> Result<Metas> {
    Ok(smallvec![same_sizes(args, 1, accumulated(args[0].tensor()?, &args[2])?)?])
}

fn scan(args: &[Value], outs: &[Tensor], op: ScanOp) -> Result<()> {
    let x = cpu_exec::cast(args[0].tensor()?, outs[0].dtype())?;
    Ok(maquette_kernels::scan(
        op,
        &cpu_exec::input(&x)?,
        dim(args, 1)?,
        &mut cpu_exec::output(&outs[0])?,
    )?)
}

fn extreme_meta(args: &[Value]) -> Result<Metas> {
    let values = same_sizes(args, 1, args[0].tensor()?.dtype())?;
    Ok(smallvec![values.clone(), Meta { dtype: DType::I64, ..values }])
}

fn extreme(args: &[Value], outs: &[Tensor], max: bool) -> Result<()> {
    let (values, indices) = (&mut cpu_exec::output(&outs[0])?, &mut cpu_exec::output(&outs[1])?);
    Ok(maquette_kernels::cumulative_extreme(
        max,
        &cpu_exec::input(args[0].tensor()?)?,
        dim(args, 1)?,
        values,
        indices,
    )?)
}

/// Values and indices in the memory order of argument 0.
fn sort_meta(args: &[Value], d: usize) -> Result<Metas> {
    dim(args, d)?;
    let x = args[0].tensor()?;
    Ok(smallvec![fresh_like(x, x.dtype())?, fresh_like(x, DType::I64)?])
}

/// Sorting is stable always.
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
    Ok(smallvec![values.clone(), Meta { dtype: DType::I64, ..values }])
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

fn softmax_meta(args: &[Value]) -> Result<Metas> {
    let x = args[0].tensor()?;
    if !x.dtype().is_float() {
        return Err(Error::value(format!(
            "a softmax takes floats, found {}; convert first, or give `dtype`",
            x.dtype()
        )));
    }
    if args[2].bool()? && x.dtype() != DType::F16 {
        return Err(Error::value(format!("`half_to_float` takes f16, found {}", x.dtype())));
    }
    Ok(smallvec![same_sizes(args, 1, if args[2].bool()? { DType::F32 } else { x.dtype() })?])
}

type Rows = fn(&View<'_>, usize, &mut ViewMut<'_>) -> Result<(), KernelError>;

fn softmax(args: &[Value], outs: &[Tensor], kernel: Rows) -> Result<()> {
    let x = cpu_exec::cast(args[0].tensor()?, outs[0].dtype())?;
    Ok(kernel(&cpu_exec::input(&x)?, dim(args, 1)?, &mut cpu_exec::output(&outs[0])?)?)
}

fn safe_softmax_meta(args: &[Value]) -> Result<Metas> {
    let dtype = args[2].opt(Value::dtype)?.unwrap_or(args[0].tensor()?.dtype());
    if !dtype.is_float() {
        return Err(Error::value(format!("a softmax takes floats, found {dtype}; give `dtype`")));
    }
    Ok(smallvec![same_sizes(args, 1, dtype)?])
}

/// As a softmax, but a row of nothing but negative infinity gives zeros.
fn safe_softmax(args: &[Value], out: &Tensor) -> Result<()> {
    let x = cpu_exec::cast(args[0].tensor()?, out.dtype())?;
    if x.numel().as_i64() == Some(0) {
        return Ok(());
    }
    let d = dim(args, 1)?;
    let (shares, mut row) = (Tensor::allocate(out.meta().clone())?, out.meta().sizes.clone());
    maquette_kernels::softmax(&cpu_exec::input(&x)?, d, &mut cpu_exec::output(&shares)?)?;
    if let Some(n) = row.get_mut(d) {
        *n = 1.into();
    }
    let max = Tensor::allocate(Meta::contiguous(row, out.dtype()).on(out.device()))?;
    let dims: &[usize] = if x.dim() == 0 { &[] } else { &[d] };
    maquette_kernels::reduce(
        ReduceOp::Max,
        &cpu_exec::input(&x)?,
        dims,
        &mut cpu_exec::output(&max)?,
    )?;
    cpu_exec::map_into(out, &[&shares, &max], |b, r| {
        let (least, zero) =
            (b.constant(f64::NEG_INFINITY, out.dtype()), b.constant(0, out.dtype()));
        let masked = b.compare(CmpOp::Eq, r[1], least)?;
        b.select(masked, zero, r[0])
    })
}

/// Argument 0 in the dtype that argument 2 asks for.
fn converted(args: &[Value]) -> Result<Tensor> {
    let x = args[0].tensor()?;
    match args[2].opt(Value::dtype)? {
        Some(d) => crate::call("aten::to.dtype", crate::args![x, d])?.swap_remove(0).into_tensor(),
        None => Ok(x.clone()),
    }
}

table! {
    /// Along one dimension.
    pub(super) static TABLE = {
        General "aten::cumsum(Tensor self, int dim, *, ScalarType? dtype=None) -> Tensor" =>
            along(
                Class::Scan,
                Strides::RowMajor,
                |_, a| scan_meta(a),
                |a, o| scan(a, o, ScanOp::Sum),
            ),
        General "aten::cumsum_(Tensor(a!) self, int dim, *, \
            ScalarType? dtype=None) -> Tensor(a!)" =>
            Lowering::InPlace("aten::cumsum"),
        General "aten::cumprod(Tensor self, int dim, *, ScalarType? dtype=None) -> Tensor" =>
            along(
                Class::Scan,
                Strides::RowMajor,
                |_, a| scan_meta(a),
                |a, o| scan(a, o, ScanOp::Prod),
            ),
        General "aten::cumprod_(Tensor(a!) self, int dim, *, \
            ScalarType? dtype=None) -> Tensor(a!)" =>
            Lowering::InPlace("aten::cumprod"),
        General "aten::cummax(Tensor self, int dim) -> (Tensor values, Tensor indices)" =>
            along(
                Class::Scan,
                Strides::RowMajor,
                |_, a| extreme_meta(a),
                |a, o| extreme(a, o, true),
            ),
        General "aten::cummin(Tensor self, int dim) -> (Tensor values, Tensor indices)" =>
            along(
                Class::Scan,
                Strides::RowMajor,
                |_, a| extreme_meta(a),
                |a, o| extreme(a, o, false),
            ),
        General "aten::sort(Tensor self, int dim=-1, \
            bool descending=False) -> (Tensor values, Tensor indices)" =>
            along(
                Class::Sort,
                Strides::FromOperands,
                |_, a| sort_meta(a, 1),
                |a, o| sort(a, 1, &o[0], &o[1]),
            ),
        General "aten::sort.stable(Tensor self, *, bool? stable, int dim=-1, \
            bool descending=False) -> (Tensor values, Tensor indices)" =>
            along(
                Class::Sort,
                Strides::FromOperands,
                |_, a| sort_meta(a, 2),
                |a, o| sort(a, 2, &o[0], &o[1]),
            ),
        General "aten::argsort(Tensor self, int dim=-1, bool descending=False) -> Tensor" =>
            along(
                Class::Sort,
                Strides::FromOperands,
                |_, a| Ok(smallvec![sort_meta(a, 1)?.swap_remove(1)]),
                |a, o| argsort(a, o, 1),
            ),
        General "aten::argsort.stable(Tensor self, *, bool stable, int dim=-1, \
            bool descending=False) -> Tensor" =>
            along(
                Class::Sort,
                Strides::FromOperands,
                |_, a| Ok(smallvec![sort_meta(a, 2)?.swap_remove(1)]),
                |a, o| argsort(a, o, 2),
            ),
        General "aten::topk(Tensor self, SymInt k, int dim=-1, bool largest=True, \
            bool sorted=True) -> (Tensor values, Tensor indices)" =>
            along(Class::Sort, Strides::RowMajor, |_, a| topk_meta(a), topk),
        General "aten::_softmax(Tensor self, int dim, bool half_to_float) -> Tensor" =>
            along(
                Class::Reduce,
                Strides::RowMajor,
                |_, a| softmax_meta(a),
                |a, o| softmax(a, o, maquette_kernels::softmax),
            ),
        General "aten::_log_softmax(Tensor self, int dim, bool half_to_float) -> Tensor" =>
            along(
                Class::Reduce,
                Strides::RowMajor,
                |_, a| softmax_meta(a),
                |a, o| softmax(a, o, maquette_kernels::log_softmax),
            ),
        General "aten::_safe_softmax(Tensor self, int dim, ScalarType? dtype=None) -> Tensor" =>
            along(
                Class::Reduce,
                Strides::RowMajor,
                |_, a| safe_softmax_meta(a),
                |a, o| safe_softmax(a, &o[0]),
            ),
        General "aten::softmax.int(Tensor self, int dim, ScalarType? dtype=None) -> Tensor" =>
            Lowering::Composite(|a| {
                done(aten!("_softmax", Loc::caller(); converted(a)?, a[1].clone(), false))
            }),
        General "aten::log_softmax.int(Tensor self, int dim, ScalarType? dtype=None) -> Tensor" =>
            Lowering::Composite(|a| {
                done(aten!("_log_softmax", Loc::caller(); converted(a)?, a[1].clone(), false))
            }),
    }
}
