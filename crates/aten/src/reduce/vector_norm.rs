//! Vector norms over dimensions: `norm` and `linalg_vector_norm`.

use super::{averaged, every, listed, picked, reduced, reduction, t};
use maquette_ir::Scalar;
use maquette_ir::loops::Axes;
use maquette_ir::loops::named::{self, Reduced};
use maquette_ops::operator::loops::{NestCx, NestResults};
use maquette_ops::operator::lowering::{How, Lowering, Metas};
use maquette_ops::operator::table;
use maquette_ops::{Result, Tensor, Value};
use smallvec::smallvec;

fn norm_order(p: &Value) -> Result<f64> {
    Ok(p.opt(Value::scalar)?.map_or(2.0, Scalar::to_f64))
}

/// The metadata of a norm. Norms of infinite or negative order have no value for no elements.
fn norm_meta(args: &[Value], dims: &[usize], keepdim: bool, dtype: &Value) -> Result<Metas> {
    let (x, p) = (t(args)?, norm_order(&args[1])?);
    let of = if p < 0.0 || p.is_infinite() {
        picked
    } else {
        |x: &Tensor, d: &[usize], k, t| Ok(reduced(x, d, k, t))
    };
    Ok(smallvec![of(x, dims, keepdim, averaged(x, dtype, "a norm")?)?])
}

/// The nest of a norm along dimensions, of which each has one element if `is_single`.
fn norm(
    cx: &mut NestCx<'_>,
    dims: &[usize],
    keep: bool,
    is_single: fn(&[Value]) -> bool,
) -> Result<NestResults> {
    let p = if cx.is_none(1) { 2.0 } else { cx.scalar(1)?.to_f64() };
    // The norm of one element is its magnitude. Its power could overflow.
    let p = if cx.holds(is_single) && p != 0.0 { f64::INFINITY } else { p };
    let x = cx.input(0)?;
    let along: Axes = dims.iter().map(|d| x.axes[*d]).collect();
    let of = Reduced { x: &x, along: &along, keep, out: cx.result_dtype(0) };
    Ok(smallvec![named::vector_norm(&mut cx.nest, of, p)?])
}

/// The nest of a norm whose arguments begin with `self, p, dim, keepdim`.
fn norm_along(cx: &mut NestCx<'_>) -> Result<NestResults> {
    let dims = cx.by_integers(|a| listed(t(a)?, &a[2]))?;
    let keep = cx.flag(3)?;
    norm(cx, &dims, keep, |a| t(a).is_ok_and(|x| listed(x, &a[2]).is_ok_and(|d| is_single(x, &d))))
}

/// Whether a reduction over dimensions combines single elements.
fn is_single(x: &Tensor, dims: &[usize]) -> bool {
    dims.iter().all(|d| x.sizes()[*d].as_i64() == Some(1))
}

table! {
    /// Vector norms.
    static TABLE = {
        "aten::norm.Scalar(Tensor self, Scalar p=2) -> Tensor" => {
            role: General,
            lowering: reduction(
                |_, a| norm_meta(a, &every(t(a)?), false, &Value::None),
                How::Loops(|cx| {
                    let dims = cx.by_integers(|a| t(a).map(every))?;
                    norm(cx, &dims, false, |a| t(a).is_ok_and(|x| is_single(x, &every(x))))
                }),
            ),
            vjp: crate::grad::NORM,
        },
        "aten::norm.ScalarOpt_dtype(Tensor self, Scalar? p, *, \
            ScalarType dtype) -> Tensor" => {
            role: General,
            lowering: Lowering::Composite(|a| {
                maquette_ops::call(
                    "aten::norm.ScalarOpt_dim",
                    maquette_ops::args![
                        t(a)?.to_dtype(a[2].dtype()?),
                        a[1].clone(),
                        Value::from_dims([0i64; 0])
                    ],
                )
            }),
        },
        "aten::norm.ScalarOpt_dim_dtype(Tensor self, Scalar? p, int[1] dim, bool keepdim, \
            *, ScalarType dtype) -> Tensor" => {
            role: General,
            lowering: Lowering::Composite(|a| {
                maquette_ops::call(
                    "aten::norm.ScalarOpt_dim",
                    maquette_ops::args![
                        t(a)?.to_dtype(a[4].dtype()?),
                        a[1].clone(),
                        a[2].clone(),
                        a[3].clone()
                    ],
                )
            }),
        },
        "aten::norm.ScalarOpt_dim(Tensor self, Scalar? p, int[1] dim, \
            bool keepdim=False) -> Tensor" => {
            role: General,
            lowering: reduction(
                |_, a| norm_meta(a, &listed(t(a)?, &a[2])?, a[3].bool()?, &Value::None),
                How::Loops(norm_along),
            ),
            vjp: crate::grad::NORM_DIM,
        },
        "aten::linalg_vector_norm(Tensor self, Scalar ord=2, int[1]? dim=None, \
            bool keepdim=False, *, ScalarType? dtype=None) -> Tensor" => {
            role: General,
            lowering: reduction(
                |_, a| norm_meta(a, &listed(t(a)?, &a[2])?, a[3].bool()?, &a[4]),
                How::Loops(norm_along),
            ),
            vjp: crate::grad::VECTOR_NORM,
        },
    }
}
