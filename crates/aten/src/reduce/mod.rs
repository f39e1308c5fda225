//! Reductions over dimensions: the metadata rules, and the operators that are one call of a
//! reduction kernel (`sum`, `mean`, `amax`, `any`, …). Results are row-major. Variances are in
//! `variance`, vector norms in `vector_norm`.
//!
//! The macro `reduce!` is for reductions that have a value for no elements (a sum), and `pick!` for
//! those that have none (a maximum).

pub(crate) mod calculus;
pub(crate) mod derivative;
pub(crate) mod scan;
pub(crate) mod variance;
pub(crate) mod vector_norm;

use crate::grad;
use maquette_ir::DType;
use maquette_ir::loops::Axes;
use maquette_ir::loops::named::{self, Reduced, Reduction};
use maquette_ir::scalar_expr::UnaryOp;
use maquette_ops::operator::Derivative;
use maquette_ops::operator::loops::{NestCx, NestResults};
use maquette_ops::operator::lowering::{Class, Compute, How, Lowering, Metas, Strides};
use maquette_ops::operator::wrap_dim;
use maquette_ops::operator::{dims_text, table};
use maquette_ops::{Dims, Error, Meta, Result, Tensor, Value};
use smallvec::{SmallVec, smallvec};

type DimList = SmallVec<[usize; 6]>;

/// A reduction with row-major results.
pub(super) const fn reduction(
    metas: fn(&maquette_ops::FakeCtx, &[Value]) -> Result<Metas>,
    how: How,
) -> Lowering {
    Lowering::Compute(Compute { class: Class::Reduce, strides: Strides::RowMajor, metas, how })
}

/// All dimensions.
pub(super) fn every(t: &Tensor) -> DimList {
    (0..t.dim()).collect()
}

/// The dimensions in a list. An absent or an empty list means all.
pub(super) fn listed(t: &Tensor, dims: &Value) -> Result<DimList> {
    match dims {
        Value::None => Ok(every(t)),
        dims if dims.ints()?.is_empty() => Ok(every(t)),
        dims => named(t, dims),
    }
}

/// The dimensions in a list. An absent list means all, an empty list none.
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
    // A 0-d tensor accepts dimension 0, but has no dimension to reduce.
    out.retain(|d| *d < t.dim());
    out.sort_unstable();
    Ok(out)
}

/// The metadata of a reduction of `t` over `dims`.
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

/// The dtype of a sum or product: the requested one, else i64 for integers and bools, else the
/// operand's.
pub(super) fn accumulated(t: &Tensor, dtype: &Value) -> Result<DType> {
    let own = if t.dtype().is_float() { t.dtype() } else { DType::I64 };
    Ok(dtype.opt(Value::dtype)?.unwrap_or(own))
}

/// The dtype of a mean or a norm: the requested one, else the operand's. It must be a float.
///
/// `what` names the operator in the error.
pub(super) fn averaged(t: &Tensor, dtype: &Value, what: &str) -> Result<DType> {
    let d = dtype.opt(Value::dtype)?.unwrap_or(t.dtype());
    if d.is_float() {
        Ok(d)
    } else {
        Err(Error::value(format!("{what} takes floats, or a floating-point `dtype`; found {d}")))
    }
}

/// The dtype of `any` and `all`: bool, but u8 for u8, as in PyTorch.
fn truth(t: &Tensor) -> DType {
    if t.dtype() == DType::U8 { DType::U8 } else { DType::Bool }
}

/// The dimension that argument `i` names, as a list. The list is empty for a 0-d tensor.
fn one(args: &[Value], i: usize) -> Result<DimList> {
    named(args[0].tensor()?, &args[i])
}

/// The dimension that argument `i` names, or all dimensions if the argument is absent.
fn one_or_all(args: &[Value], i: usize) -> Result<DimList> {
    listed_or_none(args[0].tensor()?, &args[i])
}

/// The nest of a reduction of argument 0 over `dims`.
pub(super) fn reduce_nest(
    cx: &mut NestCx<'_>,
    op: Reduction,
    dims: &[usize],
    keep: bool,
) -> Result<NestResults> {
    let x = cx.input(0)?;
    let out = cx.result_dtype(0);
    let along: Axes = dims.iter().map(|d| x.axes[*d]).collect();
    let of = Reduced { x: &x, along: &along, keep, out };
    Ok(smallvec![named::reduce(&mut cx.nest, op, of)?])
}

/// A sum or product in the output's dtype. Those of bools are `any` and `all`.
const fn total(op: Reduction, out: DType) -> Reduction {
    match (out, op) {
        (DType::Bool, Reduction::Prod) => Reduction::All,
        (DType::Bool, Reduction::Sum) => Reduction::Any,
        (_, op) => op,
    }
}

/// The number of elements that are not zero.
fn count_nonzero(cx: &mut NestCx<'_>, dims: &[usize]) -> Result<NestResults> {
    let x = cx.input(0)?;
    let along: Axes = dims.iter().map(|d| x.axes[*d]).collect();
    let of = Reduced { x: &x, along: &along, keep: false, out: DType::I64 };
    Ok(smallvec![named::reduce_by(&mut cx.nest, Reduction::Sum, of, |s| {
        let is_nonzero = s.element(&x, DType::Bool)?;
        Ok(s.expr.cast(is_nonzero, DType::I64)?)
    })?])
}

/// The sum of the elements that are numbers.
fn nansum(cx: &mut NestCx<'_>, dims: &[usize], keep: bool) -> Result<NestResults> {
    let (x, out) = (cx.input(0)?, cx.result_dtype(0));
    let op = total(Reduction::Sum, out);
    let along: Axes = dims.iter().map(|d| x.axes[*d]).collect();
    let of = Reduced { x: &x, along: &along, keep, out };
    if !x.dtype.is_float() {
        return Ok(smallvec![named::reduce(&mut cx.nest, op, of)?]);
    }
    Ok(smallvec![named::reduce_by(&mut cx.nest, op, of, |s| {
        let element = s.element(&x, x.dtype.accumulator())?;
        let is_nan = s.expr.unary(UnaryOp::IsNan, element)?;
        let zero = s.expr.constant(0, x.dtype.accumulator());
        let number = s.expr.select(is_nan, zero, element)?;
        let rounded = s.expr.cast(number, out)?;
        Ok(s.expr.cast(rounded, op.accumulator(x.dtype, out))?)
    })?])
}

/// The least or greatest elements along a dimension, and their indices.
fn with_index(cx: &mut NestCx<'_>, max: bool) -> Result<NestResults> {
    let (dims, keep) = (cx.by_integers(|a| one(a, 1))?, cx.flag(2)?);
    let (x, out) = (cx.input(0)?, cx.result_dtype(0));
    let along: Axes = dims.iter().map(|d| x.axes[*d]).collect();
    let of = Reduced { x: &x, along: &along, keep, out };
    Ok(named::extreme(&mut cx.nest, max, of)?.into())
}

/// The least and the greatest elements.
fn aminmax(cx: &mut NestCx<'_>) -> Result<NestResults> {
    let (dims, keep) = (cx.by_integers(|a| one_or_all(a, 1))?, cx.flag(2)?);
    let (x, out) = (cx.input(0)?, cx.result_dtype(0));
    let along: Axes = dims.iter().map(|d| x.axes[*d]).collect();
    let of = Reduced { x: &x, along: &along, keep, out };
    let min = named::reduce(&mut cx.nest, Reduction::Min, of)?;
    Ok(smallvec![min, named::reduce(&mut cx.nest, Reduction::Max, of)?])
}

/// `log(sum(exp(x)))`
fn logsumexp(cx: &mut NestCx<'_>, dims: &[usize], keep: bool) -> Result<NestResults> {
    let (x, out) = (cx.input(0)?, cx.result_dtype(0));
    let along: Axes = dims.iter().map(|d| x.axes[*d]).collect();
    let of = Reduced { x: &x, along: &along, keep, out };
    Ok(smallvec![named::logsumexp(&mut cx.nest, of)?])
}

fn with_index_meta(args: &[Value]) -> Result<Metas> {
    let x = args[0].tensor()?;
    let values = picked(x, &one(args, 1)?, args[2].bool()?, x.dtype())?;
    Ok(smallvec![values.clone(), values.with_dtype(DType::I64)])
}

/// A reduction with one output: `$dims` are the dimensions, `$keep` is the index of the argument
/// `keepdim`, and `$dtype` is the dtype of the output.
macro_rules! reduce {
    ($op:expr, |$a:ident| $dims:expr, keep $keep:expr, $dtype:expr) => {
        reduce!(
            nest |cx, dims, keep| reduce_nest(cx, total($op, cx.result_dtype(0)), dims, keep),
            |$a| $dims, keep $keep, $dtype
        )
    };
    (
        nest |$cx:ident, $d:ident, $k:ident| $nest:expr,
        |$a:ident| $dims:expr, keep $keep:expr, $dtype:expr
    ) => {
        reduction(
            |_, $a| {
                let (t, keep): (&Tensor, Option<usize>) = ($a[0].tensor()?, $keep);
                let keep = keep.map_or(Ok(false), |i| $a[i].bool())?;
                Ok(smallvec![reduced(t, &$dims?, keep, $dtype?)])
            },
            How::Loops(|$cx| {
                let (found, keep): (DimList, Option<usize>) = ($cx.by_integers(|$a| $dims)?, $keep);
                let ($d, $k): (&[usize], bool) =
                    (&found, keep.map_or(Ok(false), |i| $cx.flag(i))?);
                $nest
            }),
        )
    };
}

/// As [`reduce`], for reductions that have no value for no elements.
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
            How::Loops(|cx| {
                let (dims, keep): (DimList, Option<usize>) = (cx.by_integers(|$a| $dims)?, $keep);
                let keep = keep.map_or(Ok(false), |i| cx.flag(i))?;
                reduce_nest(cx, $op, &dims, keep)
            }),
        )
    };
}

pub(super) fn t(args: &[Value]) -> Result<&Tensor> {
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
    static TABLE = {
        "aten::sum(Tensor self, *, ScalarType? dtype=None) -> Tensor" => {
            role: General,
            lowering: reduce!(
                Reduction::Sum,
                |a| Ok::<_, Error>(every(t(a)?)), keep None, accumulated(t(a)?, &a[1])
            ),
            vjp: grad::SUM,
        },
        "aten::sum.dim_IntList(Tensor self, int[1]? dim, bool keepdim=False, *, \
            ScalarType? dtype=None) -> Tensor" => {
            role: General,
            lowering: reduce!(
                Reduction::Sum,
                |a| listed(t(a)?, &a[1]), keep Some(2), accumulated(t(a)?, &a[3])
            ),
            vjp: grad::SUM_DIM,
        },
        "aten::nansum(Tensor self, int[1]? dim=None, bool keepdim=False, *, \
            ScalarType? dtype=None) -> Tensor" => {
            role: General,
            lowering: reduce!(
                nest |cx, dims, keep| nansum(cx, dims, keep),
                |a| listed(t(a)?, &a[1]), keep Some(2), accumulated(t(a)?, &a[3])
            ),
            vjp: crate::grad::NANSUM,
        },
        "aten::prod(Tensor self, *, ScalarType? dtype=None) -> Tensor" => {
            role: General,
            lowering: reduce!(
                Reduction::Prod,
                |a| Ok::<_, Error>(every(t(a)?)), keep None, accumulated(t(a)?, &a[1])
            ),
            vjp: crate::grad::PROD,
        },
        "aten::prod.dim_int(Tensor self, int dim, bool keepdim=False, *, \
            ScalarType? dtype=None) -> Tensor" => {
            role: General,
            lowering: reduce!(
                Reduction::Prod,
                |a| one(a, 1), keep Some(2), accumulated(t(a)?, &a[3])
            ),
            vjp: crate::grad::PROD_DIM,
        },
        "aten::mean(Tensor self, *, ScalarType? dtype=None) -> Tensor" => {
            role: General,
            lowering: reduce!(
                Reduction::Mean,
                |a| Ok::<_, Error>(every(t(a)?)), keep None, averaged(t(a)?, &a[1], "the mean")
            ),
            vjp: crate::grad::MEAN,
        },
        "aten::mean.dim(Tensor self, int[1]? dim, bool keepdim=False, *, \
            ScalarType? dtype=None) -> Tensor" => {
            role: General,
            lowering: reduce!(
                Reduction::Mean,
                |a| listed(t(a)?, &a[1]), keep Some(2), averaged(t(a)?, &a[3], "the mean")
            ),
            vjp: crate::grad::MEAN_DIM,
        },
        "aten::max(Tensor self) -> Tensor" => {
            role: General,
            lowering: pick!(Reduction::Max, |a| Ok::<_, Error>(every(t(a)?)), keep None, own),
            vjp: crate::grad::PICK_ALL,
        },
        "aten::min(Tensor self) -> Tensor" => {
            role: General,
            lowering: pick!(Reduction::Min, |a| Ok::<_, Error>(every(t(a)?)), keep None, own),
            vjp: crate::grad::PICK_ALL,
        },
        "aten::amax(Tensor self, int[1] dim=[], bool keepdim=False) -> Tensor" => {
            role: General,
            lowering: pick!(Reduction::Max, |a| listed(t(a)?, &a[1]), keep Some(2), own),
            vjp: crate::grad::EXTREME,
        },
        "aten::amin(Tensor self, int[1] dim=[], bool keepdim=False) -> Tensor" => {
            role: General,
            lowering: pick!(Reduction::Min, |a| listed(t(a)?, &a[1]), keep Some(2), own),
            vjp: crate::grad::EXTREME,
        },
        "aten::argmax(Tensor self, int? dim=None, bool keepdim=False) -> Tensor" => {
            role: General,
            lowering: pick!(Reduction::ArgMax, |a| one_or_all(a, 1), keep Some(2), index),
            vjp: Derivative::None("the result is no float"),
        },
        "aten::argmin(Tensor self, int? dim=None, bool keepdim=False) -> Tensor" => {
            role: General,
            lowering: pick!(Reduction::ArgMin, |a| one_or_all(a, 1), keep Some(2), index),
            vjp: Derivative::None("the result is no float"),
        },
        "aten::max.dim(Tensor self, int dim, \
            bool keepdim=False) -> (Tensor values, Tensor indices)" => {
            role: General,
            lowering: reduction(|_, a| with_index_meta(a), How::Loops(|cx| with_index(cx, true))),
            vjp: crate::grad::PICK,
        },
        "aten::min.dim(Tensor self, int dim, \
            bool keepdim=False) -> (Tensor values, Tensor indices)" => {
            role: General,
            lowering: reduction(|_, a| with_index_meta(a), How::Loops(|cx| with_index(cx, false))),
            vjp: crate::grad::PICK,
        },
        "aten::aminmax(Tensor self, *, int? dim=None, \
            bool keepdim=False) -> (Tensor min, Tensor max)" => {
            role: General,
            lowering: reduction(
                |_, a| {
                    Ok(SmallVec::from_elem(
                        picked(t(a)?, &one_or_all(a, 1)?, a[2].bool()?, t(a)?.dtype())?,
                        2,
                    ))
                },
                How::Loops(aminmax),
            ),
            vjp: crate::grad::EXTREMES,
        },
        "aten::any(Tensor self) -> Tensor" => {
            role: General,
            lowering: reduce!(
                Reduction::Any, |a| Ok::<_, Error>(every(t(a)?)), keep None, t(a).map(truth)
            ),
            vjp: Derivative::None("the result is no float"),
        },
        "aten::any.dim(Tensor self, int dim, bool keepdim=False) -> Tensor" => {
            role: General,
            lowering: reduce!(Reduction::Any, |a| one(a, 1), keep Some(2), t(a).map(truth)),
            vjp: Derivative::None("the result is no float"),
        },
        "aten::any.dims(Tensor self, int[]? dim=None, bool keepdim=False) -> Tensor" => {
            role: General,
            lowering: reduce!(
                Reduction::Any, |a| listed_or_none(t(a)?, &a[1]), keep Some(2), t(a).map(truth)
            ),
            vjp: Derivative::None("the result is no float"),
        },
        "aten::all(Tensor self) -> Tensor" => {
            role: General,
            lowering: reduce!(
                Reduction::All, |a| Ok::<_, Error>(every(t(a)?)), keep None, t(a).map(truth)
            ),
            vjp: Derivative::None("the result is no float"),
        },
        "aten::all.dim(Tensor self, int dim, bool keepdim=False) -> Tensor" => {
            role: General,
            lowering: reduce!(Reduction::All, |a| one(a, 1), keep Some(2), t(a).map(truth)),
            vjp: Derivative::None("the result is no float"),
        },
        "aten::all.dims(Tensor self, int[]? dim=None, bool keepdim=False) -> Tensor" => {
            role: General,
            lowering: reduce!(
                Reduction::All, |a| listed_or_none(t(a)?, &a[1]), keep Some(2), t(a).map(truth)
            ),
            vjp: Derivative::None("the result is no float"),
        },
        "aten::count_nonzero(Tensor self, int? dim=None) -> Tensor" => {
            role: General,
            lowering: reduce!(
                nest |cx, dims, _keep| count_nonzero(cx, dims),
                |a| one_or_all(a, 1), keep None, Ok::<_, Error>(DType::I64)
            ),
            vjp: Derivative::None("the result is no float"),
        },
        "aten::count_nonzero.dim_IntList(Tensor self, int[] dim) -> Tensor" => {
            role: General,
            lowering: reduce!(
                nest |cx, dims, _keep| count_nonzero(cx, dims),
                |a| listed(t(a)?, &a[1]), keep None, Ok::<_, Error>(DType::I64)
            ),
            vjp: Derivative::None("the result is no float"),
        },
        "aten::logsumexp(Tensor self, int[1] dim, bool keepdim=False) -> Tensor" => {
            role: General,
            lowering: reduce!(
                nest |cx, dims, keep| logsumexp(cx, dims, keep),
                |a| listed(t(a)?, &a[1]), keep Some(2),
                t(a).map(|x| if x.dtype().is_float() { x.dtype() } else { DType::F32 })
            ),
            vjp: crate::grad::LOGSUMEXP,
        },
    }
}
