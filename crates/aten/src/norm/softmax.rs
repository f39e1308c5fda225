//! `softmax`, `log_softmax`, their gradients, and `_safe_softmax` for rows that are masked
//! entirely.

use crate::reduce::scan::same_sizes;
use maquette_ir::loops::named::{self, Input};
use maquette_ir::loops::{AxisId, LoopBuilder, LoopError, StageId};
use maquette_ir::{DType, Loc};
use maquette_ops::operator::dims::{done, require_floats};
use maquette_ops::operator::loops::{NestCx, NestResults};
use maquette_ops::operator::lowering::{Class, Compute, How, Lowering, Metas, Strides, wide};
use maquette_ops::operator::{aten, table};
use maquette_ops::operator::{require_same, wrap_dim};
use maquette_ops::{Error, Result, Tensor, Value};
use smallvec::smallvec;

const fn row_wise(
    metas: fn(&maquette_ops::FakeCtx, &[Value]) -> Result<Metas>,
    how: How,
) -> Lowering {
    Lowering::Compute(Compute { class: Class::Reduce, strides: Strides::RowMajor, metas, how })
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

type Named = fn(&mut LoopBuilder, &Input, AxisId, DType) -> Result<StageId, LoopError>;

fn softmax(cx: &mut NestCx<'_>, named: Named) -> Result<NestResults> {
    let x = cx.input(0)?;
    let along = cx.axis(&x, 1)?;
    let out = cx.result_dtype(0);
    Ok(smallvec![named(&mut cx.nest, &x, along, out)?.into()])
}

fn safe_softmax_meta(args: &[Value]) -> Result<Metas> {
    let dtype = args[2].opt(Value::dtype)?.unwrap_or(args[0].tensor()?.dtype());
    if !dtype.is_float() {
        return Err(Error::value(format!("a softmax takes floats, found {dtype}; give `dtype`")));
    }
    Ok(smallvec![same_sizes(args, 1, dtype)?])
}

/// Argument 0, converted to the dtype in argument 2 if there is one.
fn converted(args: &[Value]) -> Result<Tensor> {
    let x = args[0].tensor()?;
    match args[2].opt(Value::dtype)? {
        Some(d) => maquette_ops::call("aten::to.dtype", maquette_ops::args![x, d])?
            .swap_remove(0)
            .into_tensor(),
        None => Ok(x.clone()),
    }
}

/// The gradient of `softmax` or `log_softmax`, from the gradient of its output.
fn softmax_backward(args: &[Value], log: bool) -> Result<Tensor> {
    let (grad, output, dtype) = (args[0].tensor()?, args[1].tensor()?, args[3].dtype()?);
    require_floats(&[("grad_output", grad), ("output", output)])?;
    require_same(grad.sizes(), output.sizes(), || {
        "argument `output` must have, as `grad_output`,".into()
    })?;
    let dim = wrap_dim(args[2].int_i64()?, grad.dim())? as i64;
    let wide = wide(grad.dtype());
    let (g, y) = (grad.to_dtype(wide).contiguous(), output.to_dtype(wide).contiguous());
    let result = if log {
        &g - y.exp() * g.sum_dim([dim], true)
    } else {
        (&g - (&g * &y).sum_dim([dim], true)) * y
    };
    Ok(result.to_dtype(dtype))
}

table! {
    /// Softmax and its gradients.
    static TABLE = {
        "aten::_softmax(Tensor self, int dim, bool half_to_float) -> Tensor" => {
            role: General,
            lowering: row_wise(
                |_,
                a| softmax_meta(a),
                How::Loops(|cx| softmax(cx, named::softmax)),
            ),
            vjp: crate::grad::SOFTMAX,
        },
        "aten::_log_softmax(Tensor self, int dim, bool half_to_float) -> Tensor" => {
            role: General,
            lowering: row_wise(
                |_,
                a| softmax_meta(a),
                How::Loops(|cx| softmax(cx, named::log_softmax)),
            ),
            vjp: crate::grad::LOG_SOFTMAX,
        },
        "aten::_safe_softmax(Tensor self, int dim, ScalarType? dtype=None) -> Tensor" => {
            role: General,
            lowering: row_wise(
                |_,
                a| safe_softmax_meta(a),
                How::Loops(|cx| softmax(cx, named::safe_softmax)),
            ),
            vjp: crate::grad::SOFTMAX,
        },
        "aten::softmax.int(Tensor self, int dim, ScalarType? dtype=None) -> Tensor" => {
            role: General,
            lowering: Lowering::Composite(|a| {
                done(aten!("_softmax", Loc::caller(); converted(a)?, a[1].clone(), false))
            }),
        },
        "aten::log_softmax.int(Tensor self, int dim, ScalarType? dtype=None) -> Tensor" => {
            role: General,
            lowering: Lowering::Composite(|a| {
                done(aten!("_log_softmax", Loc::caller(); converted(a)?, a[1].clone(), false))
            }),
        },
        "aten::_softmax_backward_data(Tensor grad_output, Tensor output, int dim, \
            ScalarType input_dtype) -> Tensor" => {
            role: General,
            lowering: Lowering::Composite(|a| done(softmax_backward(a, false)?)),
        },
        "aten::_log_softmax_backward_data(Tensor grad_output, Tensor output, int dim, \
            ScalarType input_dtype) -> Tensor" => {
            role: General,
            lowering: Lowering::Composite(|a| done(softmax_backward(a, true)?)),
        },
    }
}
