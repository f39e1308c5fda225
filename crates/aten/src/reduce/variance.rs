//! Variances and standard deviations: `var`, `std`, `var_mean`, `std_mean`. The divisor is `n -
//! correction`; the older overloads with `unbiased` have a correction of 0 or 1.

use super::{averaged, every, listed, reduced, reduction, t};
use maquette_ir::DType;
use maquette_ir::loops::Axes;
use maquette_ir::loops::named::{self, Correction, Reduced};
use maquette_ops::operator::loops::{NestCx, NestResults};
use maquette_ops::operator::lowering::{How, Lowering, Metas};
use maquette_ops::operator::table;
use maquette_ops::{Error, Outputs, Result, Value};
use smallvec::{SmallVec, smallvec};

/// The metadata of the `count` outputs of `self, dim, *, correction, keepdim`.
fn variance_meta(args: &[Value], count: usize) -> Result<Metas> {
    let x = args[0].tensor()?;
    if !x.dtype().is_float() {
        return Err(Error::value(format!(
            "the standard deviation and variance take floats, found {}",
            x.dtype()
        )));
    }
    args[2].opt(Value::scalar)?;
    let dims = listed(x, &args[1])?;
    Ok(SmallVec::from_elem(reduced(x, &dims, args[3].bool()?, x.dtype()), count))
}

/// The nest of the variance of argument 0 along dimensions, or with `root` of its root; and of the
/// mean if there is a second result. As in PyTorch, a divisor that is not positive gives NaN or
/// infinity.
fn variance_nest(
    cx: &mut NestCx<'_>,
    dims: &[usize],
    keep: bool,
    correction: Option<Correction>,
    root: bool,
) -> Result<NestResults> {
    let x = cx.input(0)?;
    let correction = match correction {
        Some(correction) => correction,
        None => Correction::Number(cx.number(2, DType::F64)?),
    };
    let along: Axes = dims.iter().map(|d| x.axes[*d]).collect();
    let of = Reduced { x: &x, along: &along, keep, out: cx.result_dtype(0) };
    if cx.results() == 1 {
        return Ok(smallvec![named::variance(&mut cx.nest, of, correction, root)?[0]]);
    }
    Ok(named::variance_and_mean(&mut cx.nest, of, correction, root)?.into())
}

/// The nest of an overload whose arguments are `self, dim, *, correction, keepdim`.
fn corrected(cx: &mut NestCx<'_>, root: bool) -> Result<NestResults> {
    let dims = cx.by_integers(|a| listed(t(a)?, &a[1]))?;
    let correction = cx.is_none(2).then_some(Correction::Fixed(1));
    let keep = cx.flag(3)?;
    variance_nest(cx, &dims, keep, correction, root)
}

/// The correction that argument `unbiased` stands for.
fn legacy(cx: &NestCx<'_>, unbiased: usize) -> Result<Option<Correction>> {
    Ok(Some(Correction::Fixed(i64::from(cx.flag(unbiased)?))))
}

/// Calls the overload with `correction`: `unbiased` is a correction of 1.
fn by_correction(
    op: &str,
    x: &Value,
    dims: Option<&Value>,
    unbiased: &Value,
    keepdim: bool,
) -> Result<Outputs> {
    let correction = i64::from(unbiased.bool()?);
    maquette_ops::call(
        op,
        maquette_ops::args![x.clone(), dims.cloned().unwrap_or(Value::None), correction, keepdim],
    )
}

table! {
    /// Variances and standard deviations.
    static TABLE = {
        "aten::var(Tensor self, bool unbiased=True) -> Tensor" => {
            role: General,
            lowering: reduction(
                |_, a| {
                    Ok(smallvec![reduced(
                        t(a)?,
                        &every(t(a)?),
                        false,
                        averaged(t(a)?, &Value::None, "the variance")?
                    )])
                },
                How::Loops(|cx| {
                    let dims = cx.by_integers(|a| t(a).map(every))?;
                    let correction = legacy(cx, 1)?;
                    variance_nest(cx, &dims, false, correction, false)
                }),
            ),
            vjp: crate::grad::VAR,
        },
        "aten::var.dim(Tensor self, int[1]? dim, bool unbiased=True, \
            bool keepdim=False) -> Tensor" => {
            role: General,
            lowering: reduction(
                |_, a| {
                    Ok(smallvec![reduced(
                        t(a)?,
                        &listed(t(a)?, &a[1])?,
                        a[3].bool()?,
                        averaged(t(a)?, &Value::None, "the variance")?
                    )])
                },
                How::Loops(|cx| {
                    let dims = cx.by_integers(|a| listed(t(a)?, &a[1]))?;
                    let (correction, keep) = (legacy(cx, 2)?, cx.flag(3)?);
                    variance_nest(cx, &dims, keep, correction, false)
                }),
            ),
            vjp: crate::grad::VAR_DIM,
        },
        "aten::var.correction(Tensor self, int[1]? dim=None, *, Scalar? correction=None, \
            bool keepdim=False) -> Tensor" => {
            role: General,
            lowering: reduction(|_, a| variance_meta(a, 1), How::Loops(|cx| corrected(cx, false))),
            vjp: crate::grad::VAR_CORRECTION,
        },
        "aten::std.correction(Tensor self, int[1]? dim=None, *, Scalar? correction=None, \
            bool keepdim=False) -> Tensor" => {
            role: General,
            lowering: reduction(|_, a| variance_meta(a, 1), How::Loops(|cx| corrected(cx, true))),
            vjp: crate::grad::STD_CORRECTION,
        },
        "aten::var_mean.correction(Tensor self, int[1]? dim=None, *, \
            Scalar? correction=None, bool keepdim=False) -> (Tensor, Tensor)" => {
            role: General,
            lowering: reduction(|_, a| variance_meta(a, 2), How::Loops(|cx| corrected(cx, false))),
            vjp: crate::grad::VAR_MEAN,
        },
        "aten::std_mean.correction(Tensor self, int[1]? dim=None, *, \
            Scalar? correction=None, bool keepdim=False) -> (Tensor, Tensor)" => {
            role: General,
            lowering: reduction(|_, a| variance_meta(a, 2), How::Loops(|cx| corrected(cx, true))),
            vjp: crate::grad::STD_MEAN,
        },
        "aten::std(Tensor self, bool unbiased=True) -> Tensor" => {
            role: General,
            lowering: Lowering::Composite(|a| {
                by_correction("aten::std.correction", &a[0], None, &a[1], false)
            }),
        },
        "aten::std.dim(Tensor self, int[1]? dim, bool unbiased=True, \
            bool keepdim=False) -> Tensor" => {
            role: General,
            lowering: Lowering::Composite(|a| {
                by_correction("aten::std.correction", &a[0], Some(&a[1]), &a[2], a[3].bool()?)
            }),
        },
        "aten::std_mean(Tensor self, bool unbiased=True) -> (Tensor, Tensor)" => {
            role: General,
            lowering: Lowering::Composite(|a| {
                by_correction("aten::std_mean.correction", &a[0], None, &a[1], false)
            }),
        },
        "aten::std_mean.dim(Tensor self, int[1]? dim, bool unbiased=True, \
            bool keepdim=False) -> (Tensor, Tensor)" => {
            role: General,
            lowering: Lowering::Composite(|a| {
                by_correction("aten::std_mean.correction", &a[0], Some(&a[1]), &a[2], a[3].bool()?)
            }),
        },
        "aten::var_mean(Tensor self, bool unbiased=True) -> (Tensor, Tensor)" => {
            role: General,
            lowering: Lowering::Composite(|a| {
                by_correction("aten::var_mean.correction", &a[0], None, &a[1], false)
            }),
        },
        "aten::var_mean.dim(Tensor self, int[1]? dim, bool unbiased=True, \
            bool keepdim=False) -> (Tensor, Tensor)" => {
            role: General,
            lowering: Lowering::Composite(|a| {
                by_correction("aten::var_mean.correction", &a[0], Some(&a[1]), &a[2], a[3].bool()?)
            }),
        },
    }
}
