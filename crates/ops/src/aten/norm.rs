//! Layer norm, RMS norm and group norm. Half precision computes in `f32` and rounds the result
//! once.

use super::dims::{
    done, fresh, in_format_of, is_contiguous, product, require, require_float, require_rank,
};
use super::lowering::{Class, Compute, How, Lowering, Metas, Strides};
use super::table;
use crate::dispatch::cpu_exec::{self, input, output};
use crate::dispatch::value::Value;
use crate::error::{Error, Result};
use crate::methods::calls::{aten_outputs, results};
use crate::tensor::meta::{Dims, Meta};
use crate::tensor::shape::require_same;
use crate::tensor::{Tensor, dims_text};
use maquette_ir::scalar_expr::{BinaryOp, BuildError, ExprBuilder, Reg, UnaryOp};
use maquette_ir::sym::SymInt;
use maquette_ir::{DType, Loc};
use maquette_kernels::{self as kernels, LayerNorm};
use smallvec::smallvec;

pub(super) const fn norm(
    strides: Strides,
    metas: fn(&crate::FakeCtx, &[Value]) -> Result<Metas>,
    run: fn(&[Value], &[Tensor]) -> Result<()>,
) -> Lowering {
    Lowering::Compute(Compute { class: Class::Norm, strides, metas, how: How::Host(run) })
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

/// A view of a row-major tensor as one dimension.
fn flat(t: &Tensor) -> Result<Tensor> {
    t.view_of(Meta::contiguous(smallvec::SmallVec::from_slice(&[t.numel()]) as Dims, t.dtype()))
}

/// Fills the statistics of an empty input: means are 0, reciprocal standard deviations are NaN.
fn no_elements(statistics: &[Tensor]) -> Result<()> {
    let Some((rstd, mean)) = statistics.split_last() else { return Ok(()) };
    mean.iter().try_for_each(|t| cpu_exec::fill(t, 0.0))?;
    cpu_exec::fill(rstd, f64::NAN)
}

fn layer_norm(args: &[Value], out: &[Tensor]) -> Result<()> {
    if out[0].numel().as_i64() == Some(0) {
        return no_elements(&out[1..]);
    }
    let (mean, rstd) = (flat(&out[1])?, flat(&out[2])?);
    let operands = LayerNorm {
        weight: args[2].opt_tensor()?.map(input).transpose()?,
        bias: args[3].opt_tensor()?.map(input).transpose()?,
        mean: Some(output(&mean)?),
        rstd: Some(output(&rstd)?),
    };
    Ok(kernels::layer_norm(
        &input(args[0].tensor()?)?,
        args[1].ints()?.len(),
        args[4].float()?,
        operands,
        &mut output(&out[0])?,
    )?)
}

/// A view of a vector with sizes `[1, C, 1, …]`, to broadcast against a batch with `rank`
/// dimensions.
pub(super) fn per_channel(t: &Tensor, rank: usize) -> Result<Tensor> {
    let (mut sizes, mut strides): (Dims, Dims) =
        (smallvec![1.into(); rank], smallvec![SymInt::from(0); rank]);
    sizes[1] = t.numel();
    strides[1] = t.strides().first().copied().unwrap_or(1.into());
    t.view_of(t.meta().with_dims(sizes, strides))
}

/// The dtype in which normalizations compute: at least `f32`.
pub(super) fn compute_dtype(d: DType) -> DType {
    if d == DType::F64 { d } else { DType::F32 }
}

/// Fills `out` with an expression of `x` and `parts`, which broadcast to it. The expression is
/// computed in the compute dtype.
pub(super) fn blend(
    x: &Tensor,
    parts: &[&Tensor],
    out: &Tensor,
    build: impl FnOnce(&mut ExprBuilder, &[Reg]) -> Result<Reg, BuildError>,
) -> Result<()> {
    let wide = compute_dtype(out.dtype());
    cpu_exec::map_into(out, &[&[x], parts].concat(), |b, r| {
        let regs = r.iter().map(|&r| b.cast(r, wide)).collect::<Result<Vec<_>, _>>()?;
        let y = build(b, &regs)?;
        b.cast(y, out.dtype())
    })
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

/// `x * rsqrt(mean(x²) + eps) * weight`. The default `eps` is that of the compute dtype, as in
/// PyTorch.
fn rms_norm(args: &[Value], out: &[Tensor]) -> Result<()> {
    let (x, lead) = (args[0].tensor()?, args[0].tensor()?.dim() - args[1].ints()?.len());
    if x.numel().as_i64() == Some(0) {
        return no_elements(&out[1..]);
    }
    let wide = compute_dtype(x.dtype());
    let smallest = if wide == DType::F64 { f64::EPSILON } else { f64::from(f32::EPSILON) };
    let eps = args[3].opt(Value::float)?.unwrap_or(smallest);
    let squares = Tensor::allocate(fresh(x, x.sizes().into(), wide))?;
    blend(x, &[], &squares, |b, r| b.binary(BinaryOp::Mul, r[0], r[0]))?;
    let mean = Tensor::allocate(out[1].meta().clone())?;
    kernels::reduce(
        kernels::ReduceOp::Mean,
        &input(&squares)?,
        &(lead..x.dim()).collect::<Vec<_>>(),
        &mut output(&mean)?,
    )?;
    blend(&mean, &[], &out[1], |b, r| {
        let eps = b.constant(eps, wide);
        let sum = b.binary(BinaryOp::Add, r[0], eps)?;
        b.unary(UnaryOp::Rsqrt, sum)
    })?;
    let parts: Vec<&Tensor> = [&out[1]].into_iter().chain(args[2].opt_tensor()?).collect();
    blend(x, &parts, &out[0], |b, r| {
        let y = b.binary(BinaryOp::Mul, r[0], r[1])?;
        r.get(2).map_or(Ok(y), |&w| b.binary(BinaryOp::Mul, y, w))
    })
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

/// Normalizes each group of channels as a row of layer norm, then applies scale and shift per
/// channel.
fn group_norm(args: &[Value], out: &[Tensor]) -> Result<()> {
    let x = args[0].tensor()?;
    if x.numel().as_i64() == Some(0) {
        return no_elements(&out[1..]);
    }
    // Each group is a row of a contiguous copy. The copy keeps full precision until scale and shift
    // are applied.
    let wide = compute_dtype(x.dtype());
    let (work, normal) = (
        Tensor::allocate(fresh(x, x.sizes().into(), wide))?,
        Tensor::allocate(fresh(x, x.sizes().into(), wide))?,
    );
    cpu_exec::copy(x, &work)?;
    let rows = out[1].numel();
    let as_rows = Meta::contiguous([rows, x.numel().floor_div(rows)], wide);
    let (mean, rstd) = (flat(&out[1])?, flat(&out[2])?);
    let (from, to) = (work.view_of(as_rows.clone())?, normal.view_of(as_rows)?);
    let operands = LayerNorm {
        weight: None,
        bias: None,
        mean: Some(output(&mean)?),
        rstd: Some(output(&rstd)?),
    };
    kernels::layer_norm(&input(&from)?, 1, args[7].float()?, operands, &mut output(&to)?)?;
    let (weight, bias) = (args[1].opt_tensor()?, args[2].opt_tensor()?);
    let parts: Vec<Tensor> =
        weight.iter().chain(&bias).map(|t| per_channel(t, 3)).collect::<Result<_>>()?;
    // `N`, `C` and `HxW` give the channel of each element, independent of the sizes of `x`.
    let in_channels = |t: &Tensor| {
        let m = Meta::contiguous([args[3].int()?, args[4].int()?, args[5].int()?], t.dtype());
        t.view_of(Meta { offset: t.storage_offset(), ..m })
    };
    let direct = is_contiguous(out[0].sizes(), out[0].strides())?;
    // The copy of the input is no longer needed, so its memory holds the result.
    let scaled = if direct { &out[0] } else { &work };
    blend(
        &in_channels(&normal)?,
        &parts.iter().collect::<Vec<_>>(),
        &in_channels(scaled)?,
        |b, r| {
            let mut y = r[0];
            let mut rest = r[1..].iter();
            for (present, op) in
                [(weight.is_some(), BinaryOp::Mul), (bias.is_some(), BinaryOp::Add)]
            {
                if let Some(&part) = rest.as_slice().first().filter(|_| present) {
                    rest.next();
                    y = b.binary(op, y, part)?;
                }
            }
            Ok(y)
        },
    )?;
    if direct { Ok(()) } else { cpu_exec::copy(&work, &out[0]) }
}

table! {
    /// Layer, RMS and group norm.
    pub(super) static TABLE = {
        General "aten::native_layer_norm(Tensor input, SymInt[] normalized_shape, Tensor? weight, \
            Tensor? bias, float eps) -> (Tensor, Tensor, Tensor)" =>
            norm(Strides::RowMajor, |_, a| layer_norm_metas(a), layer_norm),
        General "aten::layer_norm(Tensor input, SymInt[] normalized_shape, Tensor? weight=None, \
            Tensor? bias=None, float eps=1.0000000000000001e-05, \
            bool cudnn_enable=True) -> Tensor" =>
            Lowering::Composite(|a| {
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
        General "aten::native_group_norm(Tensor input, Tensor? weight, Tensor? bias, SymInt N, \
            SymInt C, SymInt HxW, int group, float eps) -> (Tensor, Tensor, Tensor)" =>
            norm(Strides::FromOperands, |_, a| group_norm_metas(a), group_norm),
        General "aten::group_norm(Tensor input, int num_groups, Tensor? weight=None, \
            Tensor? bias=None, float eps=1.0000000000000001e-05, \
            bool cudnn_enabled=True) -> Tensor" =>
            Lowering::Composite(|a| {
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
        General "aten::_fused_rms_norm(Tensor input, int[] normalized_shape, Tensor? weight, \
            float? eps) -> (Tensor, Tensor)" =>
            norm(Strides::FromOperands, |_, a| rms_norm_metas(a), rms_norm),
        General "aten::rms_norm(Tensor input, SymInt[] normalized_shape, Tensor? weight=None, \
            float? eps=None) -> Tensor" =>
            Lowering::Composite(|a| {
                let [x, shape, weight, eps] = [0, 1, 2, 3].map(|i| a[i].clone());
                let [y, _] =
                    results(aten_outputs!("_fused_rms_norm", Loc::caller(); x, shape, weight, eps));
                done(y)
            }),
    }
}
