//! Reductions over dimensions. Results are row-major.

use super::lowering::{Class, Compute, Lowering, Metas, Strides};
use super::norm::compute_dtype;
use super::table;
use crate::dispatch::cpu_exec;
use crate::dispatch::value::{Outputs, Value};
use crate::error::{Error, Result};
use crate::tensor::meta::{Dims, Meta};
use crate::tensor::shape::wrap_dim;
use crate::tensor::{Tensor, dims_text};
use maquette_ir::scalar_expr::{BinaryOp, CmpOp, UnaryOp};
use maquette_ir::{DType, Scalar};
use maquette_kernels::ReduceOp;
use smallvec::{SmallVec, smallvec};

type DimList = SmallVec<[usize; 6]>;

const fn reduction(
    metas: fn(&crate::FakeCtx, &[Value]) -> Result<Metas>,
    run: fn(&[Value], &[Tensor]) -> Result<()>,
) -> Lowering {
    Lowering::Compute(Compute { class: Class::Reduce, strides: Strides::RowMajor, metas, run })
}

/// Every dimension.
fn every(t: &Tensor) -> DimList {
    (0..t.dim()).collect()
}

/// The dimensions a list names; all where it is absent or empty.
fn listed(t: &Tensor, dims: &Value) -> Result<DimList> {
    match dims {
        Value::None => Ok(every(t)),
        dims if dims.ints()?.is_empty() => Ok(every(t)),
        dims => named(t, dims),
    }
}

/// The dimensions a list names; all where it is absent, none where it is empty.
fn listed_or_none(t: &Tensor, dims: &Value) -> Result<DimList> {
    if dims.is_none() { Ok(every(t)) } else { named(t, dims) }
}

fn named(t: &Tensor, dims: &Value) -> Result<DimList> {
    let mut out = DimList::new();
    for d in dims.ints_i64()? {
        let d = wrap_dim(d, t.dim())?;
        if out.contains(&d) {
            return Err(Error::value(format!("duplicate dimension {d}")));
        }
        out.push(d);
    }
    // a 0-d tensor takes dimension 0, of which it has none
    out.retain(|d| *d < t.dim());
    out.sort_unstable();
    Ok(out)
}

/// The metadata of a reduction of argument 0 over `dims`.
pub(super) fn reduced(t: &Tensor, dims: &[usize], keepdim: bool, dtype: DType) -> Meta {
    let mut sizes = Dims::new();
    for (d, &n) in t.sizes().iter().enumerate() {
        match (dims.contains(&d), keepdim) {
            (false, _) => sizes.push(n),
            (true, true) => sizes.push(1.into()),
            (true, false) => {}
        }
    }
    Meta::contiguous(sizes, dtype).on(t.device())
}

/// As [`reduced`], for reductions that have no value for no elements.
pub(super) fn picked(t: &Tensor, dims: &[usize], keepdim: bool, dtype: DType) -> Result<Meta> {
    if let Some(d) = dims.iter().find(|d| t.sizes()[**d].as_i64() == Some(0)) {
        let sizes = dims_text(t.sizes());
        return Err(Error::value(format!(
            "cannot reduce over dimension {d} of sizes {sizes}, which has no elements"
        )));
    }
    Ok(reduced(t, dims, keepdim, dtype))
}

fn fold(op: ReduceOp, x: &Tensor, dims: &[usize], out: &Tensor) -> Result<()> {
    Ok(maquette_kernels::reduce(op, &cpu_exec::input(x)?, dims, &mut cpu_exec::output(out)?)?)
}

/// The dtype of a sum: as asked for, else wide integers for integers and bools.
pub(super) fn accumulated(t: &Tensor, dtype: &Value) -> Result<DType> {
    let own = if t.dtype().is_float() { t.dtype() } else { DType::I64 };
    Ok(dtype.opt(Value::dtype)?.unwrap_or(own))
}

/// The dtype of a mean or a norm: as asked for, else the operand's; a float.
fn averaged(t: &Tensor, dtype: &Value, what: &str) -> Result<DType> {
    let d = dtype.opt(Value::dtype)?.unwrap_or(t.dtype());
    if d.is_float() {
        Ok(d)
    } else {
        Err(Error::value(format!("{what} takes floats, or a floating-point `dtype`; found {d}")))
    }
}

/// Bool, except that bytes stay bytes.
fn truth(t: &Tensor) -> DType {
    if t.dtype() == DType::U8 { DType::U8 } else { DType::Bool }
}

/// The dimension argument `i` names, as a list of at most one.
fn one(args: &[Value], i: usize) -> Result<DimList> {
    named(args[0].tensor()?, &args[i])
}

/// The dimension argument `i` names, or all where it is absent.
fn one_or_all(args: &[Value], i: usize) -> Result<DimList> {
    listed_or_none(args[0].tensor()?, &args[i])
}

fn fold_cast(op: ReduceOp, x: &Tensor, dims: &[usize], out: &Tensor) -> Result<()> {
    fold(op, &cpu_exec::cast(x, out.dtype())?, dims, out)
}

/// A sum or product of the elements in the output's dtype, which PyTorch casts them to first. To
/// wide ones they are cast as they are read.
fn total(op: ReduceOp, x: &Tensor, dims: &[usize], out: &Tensor) -> Result<()> {
    match (out.dtype(), op) {
        (DType::Bool, ReduceOp::Prod) => fold(ReduceOp::All, x, dims, out),
        (DType::Bool, _) => fold(ReduceOp::Any, x, dims, out),
        (DType::F16 | DType::BF16, _) => fold_cast(op, x, dims, out),
        _ => fold(op, x, dims, out),
    }
}

/// Halves are divided before they are rounded, and integers are not cut down to them before they
/// are added.
fn mean(x: &Tensor, dims: &[usize], out: &Tensor) -> Result<()> {
    let wide = if x.dtype().is_float() { x.dtype() } else { compute_dtype(out.dtype()) };
    fold(ReduceOp::Mean, &cpu_exec::cast(x, wide)?, dims, out)
}

fn spread(args: &[Value], dims: usize) -> Result<(&Tensor, DimList, f64)> {
    let x = args[0].tensor()?;
    if !x.dtype().is_float() {
        return Err(Error::value(format!(
            "the standard deviation and variance take floats, found {}",
            x.dtype()
        )));
    }
    let correction = args[dims + 1].opt(Value::scalar)?.map_or(1.0, Scalar::to_f64);
    Ok((x, listed(x, &args[dims])?, correction))
}

/// Metadata of `count` outputs of a variance: `self, dim, *, correction, keepdim`.
fn spread_meta(args: &[Value], count: usize) -> Result<Metas> {
    let (x, dims, _) = spread(args, 1)?;
    Ok(SmallVec::from_elem(reduced(x, &dims, args[3].bool()?, x.dtype()), count))
}

/// As PyTorch's, deviations over no degree of freedom are NaN or infinite, never negative.
fn run_spread(args: &[Value], outs: &[Tensor], root: bool) -> Result<()> {
    let (x, dims, correction) = spread(args, 1)?;
    fold(
        if root { ReduceOp::Std { correction } } else { ReduceOp::Var { correction } },
        x,
        &dims,
        &outs[0],
    )?;
    let Some(out) = outs.get(1) else { return Ok(()) };
    // the mean is accumulated as the deviations from it are
    let mean = Tensor::allocate(Meta { dtype: DType::F64, ..out.meta().clone() })?;
    fold(ReduceOp::Mean, x, &dims, &mean)?;
    cpu_exec::copy(&mean, out)
}

fn legacy_spread(args: &[Value], unbiased: usize) -> Result<ReduceOp> {
    Ok(ReduceOp::Var { correction: f64::from(u8::from(args[unbiased].bool()?)) })
}

/// The older overloads: `unbiased` is a correction of 1.
fn by_correction(
    op: &str,
    x: &Value,
    dims: Option<&Value>,
    unbiased: &Value,
    keepdim: bool,
) -> Result<Outputs> {
    let correction = i64::from(unbiased.bool()?);
    crate::call(
        op,
        crate::args![x.clone(), dims.cloned().unwrap_or(Value::None), correction, keepdim],
    )
}

fn norm_order(p: &Value) -> Result<f64> {
    Ok(p.opt(Value::scalar)?.map_or(2.0, Scalar::to_f64))
}

/// Norms of infinite and negative order choose from magnitudes, or divide by them: of none they
/// have no value.
fn norm_meta(args: &[Value], dims: &[usize], keepdim: bool, dtype: &Value) -> Result<Metas> {
    let (x, p) = (t(args)?, norm_order(&args[1])?);
    let of = if p < 0.0 || p.is_infinite() {
        picked
    } else {
        |x: &Tensor, d: &[usize], k, t| Ok(reduced(x, d, k, t))
    };
    Ok(smallvec![of(x, dims, keepdim, averaged(x, dtype, "a norm")?)?])
}

fn norm(args: &[Value], outs: &[Tensor], dims: &[usize]) -> Result<()> {
    let p = norm_order(&args[1])?;
    let (x, out) = (args[0].tensor()?, &outs[0]);
    fold_cast(ReduceOp::Norm(p), x, dims, out)
}

/// The same storage with reduced dimensions as 1, whatever `keepdim` was.
fn kept(x: &Tensor, dims: &[usize], out: &Tensor) -> Result<Tensor> {
    out.view_of(Meta { offset: out.storage_offset(), ..reduced(x, dims, true, out.dtype()) })
}

/// `log(sum(exp(x - max))) + max`, where an infinite maximum counts as 0.
fn logsumexp(x: &Tensor, dims: &[usize], out: &Tensor) -> Result<()> {
    let wide = if out.dtype() == DType::F64 { DType::F64 } else { DType::F32 };
    let x = cpu_exec::cast(x, wide)?;
    let max = Tensor::allocate(reduced(&x, dims, true, wide))?;
    if x.numel().as_i64() != Some(0) {
        fold(ReduceOp::Max, &x, dims, &max)?;
    }
    let max = cpu_exec::map(wide, &[&max], |b, r| {
        let (infinite, zero) = (b.unary(UnaryOp::IsInf, r[0])?, b.constant(0, wide));
        b.select(infinite, zero, r[0])
    })?;
    let exp = cpu_exec::map(wide, &[&x, &max], |b, r| {
        let d = b.binary(BinaryOp::Sub, r[0], r[1])?;
        b.unary(UnaryOp::Exp, d)
    })?;
    let sum = Tensor::allocate(reduced(&x, dims, true, wide))?;
    fold(ReduceOp::Sum, &exp, dims, &sum)?;
    cpu_exec::map_into(&kept(&x, dims, out)?, &[&sum, &max], |b, r| {
        let log = b.unary(UnaryOp::Log, r[0])?;
        let y = b.binary(BinaryOp::Add, log, r[1])?;
        b.cast(y, out.dtype())
    })
}

fn count_nonzero(x: &Tensor, dims: &[usize], out: &Tensor) -> Result<()> {
    let ones = cpu_exec::map(DType::Bool, &[x], |b, r| {
        let zero = b.constant(0, x.dtype());
        b.compare(CmpOp::Ne, r[0], zero)
    })?;
    fold(ReduceOp::Sum, &ones, dims, out)
}

fn nansum(x: &Tensor, dims: &[usize], out: &Tensor) -> Result<()> {
    if !x.dtype().is_float() {
        return total(ReduceOp::Sum, x, dims, out);
    }
    let numbers = cpu_exec::map(x.dtype(), &[x], |b, r| {
        let (nan, zero) = (b.unary(UnaryOp::IsNan, r[0])?, b.constant(0, x.dtype()));
        b.select(nan, zero, r[0])
    })?;
    total(ReduceOp::Sum, &numbers, dims, out)
}

fn with_index(args: &[Value], outs: &[Tensor], max: bool) -> Result<()> {
    let x = args[0].tensor()?;
    let dim = wrap_dim(args[1].int_i64()?, x.dim())?;
    let (values, indices) = (&mut cpu_exec::output(&outs[0])?, &mut cpu_exec::output(&outs[1])?);
    Ok(maquette_kernels::minmax_with_index(max, &cpu_exec::input(x)?, dim, values, indices)?)
}

fn with_index_meta(args: &[Value]) -> Result<Metas> {
    let x = args[0].tensor()?;
    let values = picked(x, &one(args, 1)?, args[2].bool()?, x.dtype())?;
    Ok(smallvec![values.clone(), Meta { dtype: DType::I64, ..values }])
}

/// One output over dimensions that `$dims` gives, of dtype `$dtype`; `$meta` is `reduced` or
/// `picked`.
macro_rules! reduce {
    ($op:expr, |$a:ident| $dims:expr, keep $keep:expr, $dtype:expr) => {
        reduce!(custom |x, dims, out| fold($op, x, dims, out), |$a| $dims, keep $keep, $dtype)
    };
    (
        custom |$x:ident, $d:ident, $out:ident| $run:expr,
        |$a:ident| $dims:expr, keep $keep:expr, $dtype:expr
    ) => {
        reduction(
            |_, $a| {
                let (t, keep): (&Tensor, Option<usize>) = ($a[0].tensor()?, $keep);
                let keep = keep.map_or(Ok(false), |i| $a[i].bool())?;
                Ok(smallvec![reduced(t, &$dims?, keep, $dtype?)])
            },
            |$a, outs| {
                let ($x, $d, $out): (&Tensor, &[usize], &Tensor) =
                    ($a[0].tensor()?, &$dims?, &outs[0]);
                $run
            },
        )
    };
}

/// As [`reduce`], where no elements are an error.
macro_rules! pick {
    ($op:expr, |$a:ident| $dims:expr, keep $keep:expr, $dtype:expr) => {
        reduction(
            |_, $a| {
                let keep: Option<usize> = $keep;
                let t = $a[0].tensor()?;
                Ok(smallvec![picked(
                    t,
                    &$dims?,
                    keep.map_or(Ok(false), |i| $a[i].bool())?,
                    $dtype(t)
                )?])
            },
            |$a, outs| fold($op, $a[0].tensor()?, &$dims?, &outs[0]),
        )
    };
}

fn t(args: &[Value]) -> Result<&Tensor> {
    args[0].tensor()
}

fn own(t: &Tensor) -> DType {
    t.dtype()
}

fn index(_: &Tensor) -> DType {
    DType::I64
}

table! {
    /// Reductions.
    pub(super) static TABLE = {
        General "aten::sum(Tensor self, *, ScalarType? dtype=None) -> Tensor" =>
            reduce!(
                custom |x, d, o| total(ReduceOp::Sum, x, d, o),
                |a| Ok::<_, Error>(every(t(a)?)), keep None, accumulated(t(a)?, &a[1])
            ),
        General "aten::sum.dim_IntList(Tensor self, int[1]? dim, bool keepdim=False, *, \
            ScalarType? dtype=None) -> Tensor" =>
            reduce!(
                custom |x, d, o| total(ReduceOp::Sum, x, d, o),
                |a| listed(t(a)?, &a[1]), keep Some(2), accumulated(t(a)?, &a[3])
            ),
        General "aten::nansum(Tensor self, int[1]? dim=None, bool keepdim=False, *, \
            ScalarType? dtype=None) -> Tensor" =>
            reduce!(
                custom |x, d, o| nansum(x, d, o),
                |a| listed(t(a)?, &a[1]), keep Some(2), accumulated(t(a)?, &a[3])
            ),
        General "aten::prod(Tensor self, *, ScalarType? dtype=None) -> Tensor" =>
            reduce!(
                custom |x, d, o| total(ReduceOp::Prod, x, d, o),
                |a| Ok::<_, Error>(every(t(a)?)), keep None, accumulated(t(a)?, &a[1])
            ),
        General "aten::prod.dim_int(Tensor self, int dim, bool keepdim=False, *, \
            ScalarType? dtype=None) -> Tensor" =>
            reduce!(
                custom |x, d, o| total(ReduceOp::Prod, x, d, o),
                |a| one(a, 1), keep Some(2), accumulated(t(a)?, &a[3])
            ),
        General "aten::mean(Tensor self, *, ScalarType? dtype=None) -> Tensor" =>
            reduce!(
                custom |x, d, o| mean(x, d, o),
                |a| Ok::<_, Error>(every(t(a)?)), keep None, averaged(t(a)?, &a[1], "the mean")
            ),
        General "aten::mean.dim(Tensor self, int[1]? dim, bool keepdim=False, *, \
            ScalarType? dtype=None) -> Tensor" =>
            reduce!(
                custom |x, d, o| mean(x, d, o),
                |a| listed(t(a)?, &a[1]), keep Some(2), averaged(t(a)?, &a[3], "the mean")
            ),
        General "aten::max(Tensor self) -> Tensor" =>
            pick!(ReduceOp::Max, |a| Ok::<_, Error>(every(t(a)?)), keep None, own),
        General "aten::min(Tensor self) -> Tensor" =>
            pick!(ReduceOp::Min, |a| Ok::<_, Error>(every(t(a)?)), keep None, own),
        General "aten::amax(Tensor self, int[1] dim=[], bool keepdim=False) -> Tensor" =>
            pick!(ReduceOp::Max, |a| listed(t(a)?, &a[1]), keep Some(2), own),
        General "aten::amin(Tensor self, int[1] dim=[], bool keepdim=False) -> Tensor" =>
            pick!(ReduceOp::Min, |a| listed(t(a)?, &a[1]), keep Some(2), own),
        General "aten::argmax(Tensor self, int? dim=None, bool keepdim=False) -> Tensor" =>
            pick!(ReduceOp::ArgMax, |a| one_or_all(a, 1), keep Some(2), index),
        General "aten::argmin(Tensor self, int? dim=None, bool keepdim=False) -> Tensor" =>
            pick!(ReduceOp::ArgMin, |a| one_or_all(a, 1), keep Some(2), index),
        General "aten::max.dim(Tensor self, int dim, \
            bool keepdim=False) -> (Tensor values, Tensor indices)" =>
            reduction(|_, a| with_index_meta(a), |a, o| with_index(a, o, true)),
        General "aten::min.dim(Tensor self, int dim, \
            bool keepdim=False) -> (Tensor values, Tensor indices)" =>
            reduction(|_, a| with_index_meta(a), |a, o| with_index(a, o, false)),
        General "aten::aminmax(Tensor self, *, int? dim=None, \
            bool keepdim=False) -> (Tensor min, Tensor max)" =>
            reduction(
                |_, a| {
                    Ok(SmallVec::from_elem(
                        picked(t(a)?, &one_or_all(a, 1)?, a[2].bool()?, t(a)?.dtype())?,
                        2,
                    ))
                },
                |a, o| {
                    fold(ReduceOp::Min, t(a)?, &one_or_all(a, 1)?, &o[0])?;
                    fold(ReduceOp::Max, t(a)?, &one_or_all(a, 1)?, &o[1])
                },
            ),
        General "aten::any(Tensor self) -> Tensor" =>
            reduce!(ReduceOp::Any, |a| Ok::<_, Error>(every(t(a)?)), keep None, t(a).map(truth)),
        General "aten::any.dim(Tensor self, int dim, bool keepdim=False) -> Tensor" =>
            reduce!(ReduceOp::Any, |a| one(a, 1), keep Some(2), t(a).map(truth)),
        General "aten::any.dims(Tensor self, int[]? dim=None, bool keepdim=False) -> Tensor" =>
            reduce!(ReduceOp::Any, |a| listed_or_none(t(a)?, &a[1]), keep Some(2), t(a).map(truth)),
        General "aten::all(Tensor self) -> Tensor" =>
            reduce!(ReduceOp::All, |a| Ok::<_, Error>(every(t(a)?)), keep None, t(a).map(truth)),
        General "aten::all.dim(Tensor self, int dim, bool keepdim=False) -> Tensor" =>
            reduce!(ReduceOp::All, |a| one(a, 1), keep Some(2), t(a).map(truth)),
        General "aten::all.dims(Tensor self, int[]? dim=None, bool keepdim=False) -> Tensor" =>
            reduce!(ReduceOp::All, |a| listed_or_none(t(a)?, &a[1]), keep Some(2), t(a).map(truth)),
        General "aten::count_nonzero(Tensor self, int? dim=None) -> Tensor" =>
            reduce!(
                custom |x, d, o| count_nonzero(x, d, o),
                |a| one_or_all(a, 1), keep None, Ok::<_, Error>(DType::I64)
            ),
        General "aten::count_nonzero.dim_IntList(Tensor self, int[] dim) -> Tensor" =>
            reduce!(
                custom |x, d, o| count_nonzero(x, d, o),
                |a| listed(t(a)?, &a[1]), keep None, Ok::<_, Error>(DType::I64)
            ),
        General "aten::logsumexp(Tensor self, int[1] dim, bool keepdim=False) -> Tensor" =>
            reduce!(custom |x, d, o| logsumexp(x, d, o), |a| listed(t(a)?, &a[1]), keep Some(2),
            t(a).map(|x| if x.dtype().is_float() { x.dtype() } else { DType::F32 })),
        General "aten::var(Tensor self, bool unbiased=True) -> Tensor" =>
            reduction(
                |_, a| {
                    Ok(smallvec![reduced(
                        t(a)?,
                        &every(t(a)?),
                        false,
                        averaged(t(a)?, &Value::None, "the variance")?
                    )])
                },
                |a, o| fold(legacy_spread(a, 1)?, t(a)?, &every(t(a)?), &o[0]),
            ),
        General "aten::var.dim(Tensor self, int[1]? dim, bool unbiased=True, \
            bool keepdim=False) -> Tensor" =>
            reduction(
                |_, a| {
                    Ok(smallvec![reduced(
                        t(a)?,
                        &listed(t(a)?, &a[1])?,
                        a[3].bool()?,
                        averaged(t(a)?, &Value::None, "the variance")?
                    )])
                },
                |a, o| fold(legacy_spread(a, 2)?, t(a)?, &listed(t(a)?, &a[1])?, &o[0]),
            ),
        General "aten::var.correction(Tensor self, int[1]? dim=None, *, Scalar? correction=None, \
            bool keepdim=False) -> Tensor" =>
            reduction(|_, a| spread_meta(a, 1), |a, o| run_spread(a, o, false)),
        General "aten::std.correction(Tensor self, int[1]? dim=None, *, Scalar? correction=None, \
            bool keepdim=False) -> Tensor" =>
            reduction(|_, a| spread_meta(a, 1), |a, o| run_spread(a, o, true)),
        General "aten::var_mean.correction(Tensor self, int[1]? dim=None, *, \
            Scalar? correction=None, bool keepdim=False) -> (Tensor, Tensor)" =>
            reduction(|_, a| spread_meta(a, 2), |a, o| run_spread(a, o, false)),
        General "aten::std_mean.correction(Tensor self, int[1]? dim=None, *, \
            Scalar? correction=None, bool keepdim=False) -> (Tensor, Tensor)" =>
            reduction(|_, a| spread_meta(a, 2), |a, o| run_spread(a, o, true)),
        General "aten::std(Tensor self, bool unbiased=True) -> Tensor" =>
            Lowering::Composite(|a| {
                by_correction("aten::std.correction", &a[0], None, &a[1], false)
            }),
        General "aten::std.dim(Tensor self, int[1]? dim, bool unbiased=True, \
            bool keepdim=False) -> Tensor" =>
            Lowering::Composite(|a| {
                by_correction("aten::std.correction", &a[0], Some(&a[1]), &a[2], a[3].bool()?)
            }),
        General "aten::std_mean(Tensor self, bool unbiased=True) -> (Tensor, Tensor)" =>
            Lowering::Composite(|a| {
                by_correction("aten::std_mean.correction", &a[0], None, &a[1], false)
            }),
        General "aten::std_mean.dim(Tensor self, int[1]? dim, bool unbiased=True, \
            bool keepdim=False) -> (Tensor, Tensor)" =>
            Lowering::Composite(|a| {
                by_correction("aten::std_mean.correction", &a[0], Some(&a[1]), &a[2], a[3].bool()?)
            }),
        General "aten::var_mean(Tensor self, bool unbiased=True) -> (Tensor, Tensor)" =>
            Lowering::Composite(|a| {
                by_correction("aten::var_mean.correction", &a[0], None, &a[1], false)
            }),
        General "aten::var_mean.dim(Tensor self, int[1]? dim, bool unbiased=True, \
            bool keepdim=False) -> (Tensor, Tensor)" =>
            Lowering::Composite(|a| {
                by_correction("aten::var_mean.correction", &a[0], Some(&a[1]), &a[2], a[3].bool()?)
            }),
        General "aten::norm.Scalar(Tensor self, Scalar p=2) -> Tensor" =>
            reduction(
                |_, a| norm_meta(a, &every(t(a)?), false, &Value::None),
                |a, o| norm(a, o, &every(t(a)?)),
            ),
        General "aten::norm.ScalarOpt_dtype(Tensor self, Scalar? p, *, \
            ScalarType dtype) -> Tensor" =>
            Lowering::Composite(|a| {
                crate::call(
                    "aten::norm.ScalarOpt_dim",
                    crate::args![
                        t(a)?.to_dtype(a[2].dtype()?),
                        a[1].clone(),
                        Value::from_dims([0i64; 0])
                    ],
                )
            }),
        General "aten::norm.ScalarOpt_dim_dtype(Tensor self, Scalar? p, int[1] dim, bool keepdim, \
            *, ScalarType dtype) -> Tensor" =>
            Lowering::Composite(|a| {
                crate::call(
                    "aten::norm.ScalarOpt_dim",
                    crate::args![
                        t(a)?.to_dtype(a[4].dtype()?),
                        a[1].clone(),
                        a[2].clone(),
                        a[3].clone()
                    ],
                )
            }),
        General "aten::norm.ScalarOpt_dim(Tensor self, Scalar? p, int[1] dim, \
            bool keepdim=False) -> Tensor" =>
            reduction(
                |_, a| norm_meta(a, &listed(t(a)?, &a[2])?, a[3].bool()?, &Value::None),
                |a, o| norm(a, o, &listed(t(a)?, &a[2])?),
            ),
        General "aten::linalg_vector_norm(Tensor self, Scalar ord=2, int[1]? dim=None, \
            bool keepdim=False, *, ScalarType? dtype=None) -> Tensor" =>
            reduction(
                |_, a| norm_meta(a, &listed(t(a)?, &a[2])?, a[3].bool()?, &a[4]),
                |a, o| norm(a, o, &listed(t(a)?, &a[2])?),
            ),
    }
}
