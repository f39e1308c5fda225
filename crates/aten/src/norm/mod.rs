//! Layer norm, RMS norm and group norm. Half precision computes in `f32` and rounds the result
//! once.

pub(crate) mod batch_norm;
pub(crate) mod derivative;
pub(crate) mod softmax;

use maquette_ir::loops::named::{self, GroupNorm, RowNorm};
use maquette_ir::loops::{
    Axes, AxisId, Index, IndexMap, LoopBuilder, LoopError, ScalarId, Source, StageId, StageOutput,
};
use maquette_ir::scalar_expr::{BinaryOp, Bounds};
use maquette_ir::sym::{Expr, SymInt};
use maquette_ir::{DType, Loc};
use maquette_kernels as kernels;
use maquette_ops::operator::cpu_exec::{input, output};
use maquette_ops::operator::dims::{
    done, fresh, in_format_of, product, require, require_float, require_rank, require_same_dtype,
};
use maquette_ops::operator::loops::{NestCx, NestResults};
use maquette_ops::operator::lowering::{Class, Compute, How, Lowering, Metas, Strides};
use maquette_ops::operator::require_same;
use maquette_ops::operator::{aten_outputs, results};
use maquette_ops::operator::{dims_text, table};
use maquette_ops::{Dims, Error, Result, Tensor, Value};
use smallvec::smallvec;

pub(super) const fn norm(
    strides: Strides,
    metas: fn(&maquette_ops::FakeCtx, &[Value]) -> Result<Metas>,
    how: How,
) -> Lowering {
    Lowering::Compute(Compute { class: Class::Norm, strides, metas, how })
}

/// Requires weight and bias, if present, to have these sizes.
#[track_caller]
pub(super) fn require_affine(args: &[Value], sizes: &[SymInt]) -> Result<()> {
    for (name, v) in ["weight", "bias"].into_iter().zip(args) {
        if let Some(t) = v.opt_tensor()? {
            require_same(sizes, t.sizes(), || format!("argument `{name}` must have"))?;
        }
    }
    Ok(())
}

#[track_caller]
fn layer_norm_metas(args: &[Value]) -> Result<Metas> {
    let (x, shape) = (args[0].tensor()?, args[1].ints()?);
    let statistics = rows_of(x, shape)?;
    require_affine(&args[2..4], shape)?;
    // As in PyTorch, `f32` parameters make the statistics of half-precision inputs `f32`.
    let wide =
        args[2].opt_tensor()?.is_some_and(|w| w.dtype() == DType::F32 && x.dtype() != DType::F64);
    let s = fresh(x, statistics, if wide { DType::F32 } else { x.dtype() });
    Ok(smallvec![fresh(x, x.sizes().into(), x.dtype()), s.clone(), s])
}

/// The sizes of the statistics, one for each row of sizes `shape`: trailing dimensions have size 1.
#[track_caller]
fn rows_of(x: &Tensor, shape: &[SymInt]) -> Result<Dims> {
    require_float("input", x)?;
    let lead = x.dim().checked_sub(shape.len()).filter(|_| !shape.is_empty());
    let Some(lead) = lead else {
        return Err(Error::value(format!(
            "`normalized_shape` {} must be the last sizes of `input` {}",
            dims_text(shape),
            dims_text(x.sizes())
        )));
    };
    require_same(shape, &x.sizes()[lead..], || "the last dimensions of `input` must have".into())?;
    Ok(x.sizes()[..lead].iter().copied().chain(shape.iter().map(|_| 1.into())).collect())
}

/// The operands of a row norm: argument 0 is the input and argument 1 the sizes of a row; then the
/// weight, the bias if there is one, and the number that is added to the variance.
fn row_norm<R: IntoIterator<Item = StageOutput>>(
    cx: &mut NestCx<'_>,
    has_bias: bool,
    named: fn(&mut LoopBuilder, RowNorm<'_>) -> Result<R, LoopError>,
) -> Result<NestResults> {
    let x = cx.input(0)?;
    let (weight, bias) =
        (cx.optional_input(2)?, if has_bias { cx.optional_input(3)? } else { None });
    let at = if has_bias { 4 } else { 3 };
    let eps = (!cx.is_none(at)).then(|| cx.number(at, x.dtype.accumulator())).transpose()?;
    let (normalized, statistics) = (cx.len(1)?, cx.result_dtype(1));
    let (weight, bias) = (weight.as_ref(), bias.as_ref());
    let of = RowNorm { x: &x, normalized, weight, bias, eps, statistics };
    Ok(named(&mut cx.nest, of)?.into_iter().collect())
}

/// The gradients of the input, the weight and the bias of a layer norm: row-major.
#[track_caller]
fn layer_norm_backward_metas(args: &[Value]) -> Result<Metas> {
    let (grad, x, shape) = (args[0].tensor()?, args[1].tensor()?, args[2].ints()?);
    let statistics = rows_of(x, shape)?;
    require_same(x.sizes(), grad.sizes(), || "argument `grad` must have".into())?;
    require_affine(&args[5..6], shape)?;
    require_same_dtype(("grad", grad), ("input", x))?;
    for (name, v) in [("mean", &args[3]), ("rstd", &args[4])] {
        let t = v.tensor()?;
        require_same(&statistics, t.sizes(), || format!("argument `{name}` must have"))?;
        require_same_dtype((name, t), ("input", x))?;
    }
    if let Some(weight) = args[5].opt_tensor()? {
        require_same_dtype(("weight", weight), ("input", x))?;
    }
    let own = fresh(x, shape.into(), x.dtype());
    Ok(smallvec![fresh(x, x.sizes().into(), x.dtype()), own.clone(), own])
}

fn layer_norm_backward(args: &[Value], outs: &[Tensor]) -> Result<()> {
    let [dx, dweight, dbias] = outs else {
        return Err(Error::value("three gradients are written"));
    };
    let (grad, x) = (input(args[0].tensor()?)?, input(args[1].tensor()?)?);
    let (mean, rstd) = (input(args[3].tensor()?)?, input(args[4].tensor()?)?);
    let weight = args[5].opt_tensor()?.map(input).transpose()?;
    let operands = kernels::LayerNormBackward {
        grad: &grad,
        input: &x,
        statistics: [&mean, &rstd],
        weight: weight.as_ref(),
    };
    let outs = [&mut output(dx)?, &mut output(dweight)?, &mut output(dbias)?];
    Ok(kernels::layer_norm_backward(&operands, args[2].ints()?.len(), outs)?)
}

/// The dtype in which normalizations compute: at least `f32`.
pub(super) fn compute_dtype(d: DType) -> DType {
    if d == DType::F64 { d } else { DType::F32 }
}

/// `_fused_rms_norm`: returns the normalized tensor and the reciprocal root of the mean square.
fn rms_norm_metas(args: &[Value]) -> Result<Metas> {
    let (x, shape) = (args[0].tensor()?, args[1].ints()?);
    let statistics = rows_of(x, shape)?;
    require_affine(&args[2..3], shape)?;
    Ok(smallvec![
        fresh(x, x.sizes().into(), x.dtype()),
        fresh(x, statistics, compute_dtype(x.dtype()))
    ])
}

#[track_caller]
fn group_norm_metas(args: &[Value]) -> Result<Metas> {
    let (x, n, c, space, groups) =
        (args[0].tensor()?, args[3].int()?, args[4].int()?, args[5].int()?, args[6].int_i64()?);
    require_float("input", x)?;
    if groups < 1 {
        return Err(Error::value(format!("`group` must be positive, found {groups}")));
    }
    require(c.modulo(groups).eq(0), || {
        format!("the {c} channels must be divisible by `group` {groups}")
    })?;
    require((n * c * space).eq(x.numel()), || {
        format!(
            "`N` {n}, `C` {c} and `HxW` {space} must hold the elements of `input` {}",
            dims_text(x.sizes())
        )
    })?;
    require_affine(&args[1..3], &[c])?;
    let m = in_format_of(x, fresh(x, x.sizes().into(), x.dtype()))?;
    let wide =
        args[1].opt_tensor()?.is_some_and(|w| w.dtype() == DType::F32 && x.dtype() != DType::F64);
    let s = fresh(x, smallvec![n, groups.into()], if wide { DType::F32 } else { x.dtype() });
    Ok(smallvec![m, s.clone(), s])
}

/// Whether the sizes of argument 0 begin with the arguments `N` and `C`.
fn has_channels(args: &[Value]) -> bool {
    let Ok(x) = args[0].tensor() else { return false };
    let is = |dim: usize, arg: usize| {
        let size = x.sizes().get(dim).and_then(|n| n.as_i64());
        size.is_some() && size == args[arg].int_i64().ok()
    };
    is(0, 3) && is(1, 4)
}

/// A group norm. The row-major elements of the input are those of sizes `[N, C, HxW]`, whatever its
/// sizes are.
fn group_norm(cx: &mut NestCx<'_>) -> Result<NestResults> {
    let (x, weight, bias) = (cx.input(0)?, cx.optional_input(1)?, cx.optional_input(2)?);
    let (groups, eps) = (cx.int(6)?, cx.number(7, x.dtype.accumulator())?);
    let (weight, bias, statistics) = (weight.as_ref(), bias.as_ref(), cx.result_dtype(1));
    if cx.holds(has_channels) {
        let (from, axes) = (x.id.into(), &x.axes[..]);
        let of = GroupNorm { x: from, axes, groups, weight, bias, eps, statistics };
        return Ok(NestResults::from_slice(&named::group_norm(&mut cx.nest, &of)?));
    }
    let sizes: Vec<Expr> = [3, 4, 5].map(|arg| cx.size(arg)).into_iter().collect::<Result<_>>()?;
    let axes: Axes = sizes.iter().map(|size| cx.nest.axis(*size)).collect();
    let values = rearranged(&mut cx.nest, x.id.into(), &x.axes, &axes)?;
    let of = GroupNorm { x: values.into(), axes: &axes, groups, weight, bias, eps, statistics };
    let [y, mean, rstd] = named::group_norm(&mut cx.nest, &of)?;
    let y = rearranged(&mut cx.nest, y.into(), &axes, &x.axes)?;
    Ok(smallvec![y.into(), mean, rstd])
}

/// The row-major elements of a source, whose dimensions have the extents `from`, over other axes.
fn rearranged(
    nest: &mut LoopBuilder,
    source: Source,
    from: &[AxisId],
    to: &[AxisId],
) -> Result<StageId, LoopError> {
    let mut sizes_of = |axes: &[AxisId]| -> Vec<ScalarId> {
        axes.iter()
            .map(|a| nest.nest().extent(*a))
            .collect::<Vec<_>>()
            .into_iter()
            .map(|size| nest.size(size))
            .collect()
    };
    let (from_sizes, to_sizes) = (sizes_of(from), sizes_of(to));
    nest.map(to, |s| {
        let mut position = s.expr.constant(0, DType::I64);
        for (axis, size) in to.iter().zip(&to_sizes) {
            let (size, coord) = (s.launch(*size)?, s.coord(*axis));
            position = s.expr.binary(BinaryOp::Mul, position, size)?;
            position = s.expr.binary(BinaryOp::Add, position, coord)?;
        }
        let mut digits = Vec::new();
        for size in from_sizes.iter().rev() {
            let size = s.launch(*size)?;
            digits.push(s.expr.binary(BinaryOp::Remainder, position, size)?);
            position = s.expr.binary(BinaryOp::FloorDiv, position, size)?;
        }
        digits.reverse();
        let at: IndexMap = from.iter().map(|_| Index::Computed).collect();
        s.read(source, at, &digits, Bounds::Inside, None)
    })
}

table! {
    /// Layer, RMS and group norm.
    static TABLE = {
        "aten::native_layer_norm(Tensor input, SymInt[] normalized_shape, Tensor? weight, \
            Tensor? bias, float eps) -> (Tensor, Tensor, Tensor)" => {
            role: General,
            lowering: norm(
                Strides::RowMajor,
                |_, a| layer_norm_metas(a),
                How::Loops(|cx| row_norm(cx, true, named::layer_norm)),
            ),
            vjp: crate::grad::LAYER_NORM,
        },
        "grad::layer_norm(Tensor grad, Tensor input, SymInt[] normalized_shape, Tensor mean, \
            Tensor rstd, Tensor? weight=None) -> (Tensor, Tensor, Tensor)" => {
            role: General,
            lowering: norm(
                Strides::RowMajor,
                |_, a| layer_norm_backward_metas(a),
                How::Kernel(layer_norm_backward),
            ),
            vjp: crate::grad::LAYER_NORM_BACKWARD,
        },
        "aten::layer_norm(Tensor input, SymInt[] normalized_shape, Tensor? weight=None, \
            Tensor? bias=None, float eps=1.0000000000000001e-05, \
            bool cudnn_enable=True) -> Tensor" => {
            role: General,
            lowering: Lowering::Composite(|a| {
                done(
                    a[0].tensor()?
                        .native_layer_norm(
                            a[1].ints()?,
                            a[2].opt_tensor()?,
                            a[3].opt_tensor()?,
                            a[4].float()?,
                        )
                        .0,
                )
            }),
        },
        "aten::native_group_norm(Tensor input, Tensor? weight, Tensor? bias, SymInt N, \
            SymInt C, SymInt HxW, int group, float eps) -> (Tensor, Tensor, Tensor)" => {
            role: General,
            lowering: norm(
                Strides::FromOperands,
                |_,
                a| group_norm_metas(a),
                How::Loops(group_norm),
            ),
            vjp: crate::grad::GROUP_NORM,
        },
        "aten::group_norm(Tensor input, int num_groups, Tensor? weight=None, \
            Tensor? bias=None, float eps=1.0000000000000001e-05, \
            bool cudnn_enabled=True) -> Tensor" => {
            role: General,
            lowering: Lowering::Composite(|a| {
                let x = a[0].tensor()?;
                require_rank("input", x, 2..=64)?;
                let (n, c, space) = (x.sizes()[0], x.sizes()[1], product(&x.sizes()[2..]));
                done(
                    x.native_group_norm(
                        a[2].opt_tensor()?,
                        a[3].opt_tensor()?,
                        [n, c, space],
                        a[1].int_i64()?,
                        a[4].float()?,
                    )
                    .0,
                )
            }),
        },
        "aten::_fused_rms_norm(Tensor input, int[] normalized_shape, Tensor? weight, \
            float? eps) -> (Tensor, Tensor)" => {
            role: General,
            lowering: norm(
                Strides::FromOperands,
                |_, a| rms_norm_metas(a),
                How::Loops(|cx| row_norm(cx, false, named::rms_norm)),
            ),
            vjp: crate::grad::RMS_NORM,
        },
        "aten::rms_norm(Tensor input, SymInt[] normalized_shape, Tensor? weight=None, \
            float? eps=None) -> Tensor" => {
            role: General,
            lowering: Lowering::Composite(|a| {
                let [x, shape, weight, eps] = [0, 1, 2, 3].map(|i| a[i].clone());
                let [y, _] =
                    results(aten_outputs!("_fused_rms_norm", Loc::caller(); x, shape, weight, eps));
                done(y)
            }),
        },
    }
}
