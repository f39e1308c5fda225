//! Normalisations: over the last dimensions, over groups of channels, and with stored statistics.

use super::dims::{channels_last_strides, done, fresh, is_channels_last, product, require, require_rank};
use super::lower::{Class, Compute, Lowering, Metas};
use super::table;
use crate::eager::{self, input, output};
use crate::error::{Error, Result};
use crate::meta::{Dims, Meta};
use crate::shape::require_same;
use crate::tensor::{Tensor, dims_text};
use crate::value::Value;
use maquette_ir::DType;
use maquette_ir::scalar_expr::{BinaryOp, ExprBuilder, ScalarExpr, UnaryOp};
use maquette_ir::sym::SymInt;
use maquette_kernels::{self as kernels, LayerNorm};
use smallvec::smallvec;

const fn norm(metas: fn(&crate::FakeCtx, &[Value]) -> Result<Metas>, run: fn(&[Value], &[Tensor]) -> Result<()>) -> Lowering {
    Lowering::Compute(Compute { class: Class::Norm, metas, run })
}

fn require_float(x: &Tensor) -> Result<()> {
    if x.dtype().is_float() {
        return Ok(());
    }
    Err(Error::value(format!("argument `input` must have a floating dtype, found {}{}", x.dtype(), dims_text(x.sizes()))))
}

/// Weight and bias, if given, must have these sizes.
#[track_caller]
fn require_affine(a: &[Value], sizes: &[SymInt]) -> Result<()> {
    for (name, v) in [("weight", &a[0]), ("bias", &a[1])] {
        if let Some(t) = v.opt_tensor()? {
            require_same(sizes, t.sizes(), || format!("argument `{name}` must have"))?;
        }
    }
    Ok(())
}

#[track_caller]
fn layer_norm_metas(a: &[Value]) -> Result<Metas> {
    let (x, shape) = (a[0].tensor()?, a[1].ints()?);
    require_float(x)?;
    let lead = x.dim().checked_sub(shape.len()).filter(|_| !shape.is_empty());
    let Some(lead) = lead else {
        return Err(Error::value(format!(
            "`normalized_shape` {} must be the last sizes of `input` {}",
            dims_text(shape),
            dims_text(x.sizes())
        )));
    };
    require_same(shape, &x.sizes()[lead..], || "the last dimensions of `input` must have".into())?;
    require_affine(&a[2..4], shape)?;
    let statistics: Dims = x.sizes()[..lead].iter().copied().chain(shape.iter().map(|_| 1.into())).collect();
    // parameters in single precision keep the statistics of half-precision inputs in it
    let wide = a[2].opt_tensor()?.is_some_and(|w| w.dtype() == DType::F32 && x.dtype() != DType::F64);
    let s = fresh(x, statistics, if wide { DType::F32 } else { x.dtype() });
    Ok(smallvec![fresh(x, x.sizes().into(), x.dtype()), s.clone(), s])
}

/// A tensor without regard to its sizes: row-major, as one dimension.
fn flat(t: &Tensor) -> Result<Tensor> {
    t.view_of(Meta::contiguous(smallvec::SmallVec::from_slice(&[t.numel()]) as Dims, t.dtype()))
}

fn layer_norm(a: &[Value], out: &[Tensor]) -> Result<()> {
    if out[0].numel().as_i64() == Some(0) {
        return Ok(());
    }
    let (mean, rstd) = (flat(&out[1])?, flat(&out[2])?);
    let operands = LayerNorm {
        weight: a[2].opt_tensor()?.map(input).transpose()?,
        bias: a[3].opt_tensor()?.map(input).transpose()?,
        mean: Some(output(&mean)?),
        rstd: Some(output(&rstd)?),
    };
    Ok(kernels::layer_norm(&input(a[0].tensor()?)?, a[1].ints()?.len(), a[4].float()?, operands, &mut output(&out[0])?)?)
}

/// `[1, C, 1, …]`, to stand beside a batch of `rank` dimensions.
fn per_channel(t: &Tensor, rank: usize) -> Result<Tensor> {
    let (mut sizes, mut strides): (Dims, Dims) = (smallvec![1.into(); rank], smallvec![SymInt::from(0); rank]);
    sizes[1] = t.numel();
    strides[1] = t.strides().first().copied().unwrap_or(1.into());
    t.view_of(t.meta().with_dims(sizes, strides))
}

/// Runs an expression over operands that broadcast to the output.
fn pointwise(expr: &ScalarExpr, operands: &[&Tensor], out: &Tensor) -> Result<()> {
    let mut out = output(out)?;
    let sizes: Vec<i64> = out.sizes().to_vec();
    let views: Vec<_> = operands.iter().map(|t| Ok(input(t)?.expand(&sizes)?)).collect::<Result<_>>()?;
    Ok(kernels::pointwise(expr, &views, std::slice::from_mut(&mut out))?)
}

/// The dtype that half precision is computed in.
fn compute_dtype(d: DType) -> DType {
    if d == DType::F64 { d } else { DType::F32 }
}

/// `x * scale + shift`, channel by channel. The expression is built over inputs `x`, then `parts`, in the compute dtype.
fn affine(
    x: &Tensor,
    parts: &[&Tensor],
    out: &Tensor,
    build: &dyn Fn(&mut ExprBuilder, &[maquette_ir::scalar_expr::Reg]) -> Result<maquette_ir::scalar_expr::Reg>,
) -> Result<()> {
    let mut b = ExprBuilder::new();
    let wide = compute_dtype(out.dtype());
    let mut regs = Vec::new();
    for t in [&[x], parts].concat() {
        let r = b.input(t.dtype());
        regs.push(b.cast(r, wide).map_err(Error::other)?);
    }
    let y = build(&mut b, &regs)?;
    let y = b.cast(y, out.dtype()).map_err(Error::other)?;
    let expr = b.finish(&[y]).map_err(Error::other)?;
    pointwise(&expr, &[&[x], parts].concat(), out)
}

#[track_caller]
fn group_norm_metas(a: &[Value]) -> Result<Metas> {
    let (x, n, c, space, groups) = (a[0].tensor()?, a[3].int()?, a[4].int()?, a[5].int()?, a[6].int_i64()?);
    require_float(x)?;
    if groups < 1 {
        return Err(Error::value(format!("`group` must be positive, found {groups}")));
    }
    require(c.modulo(groups).eq(0), || format!("the {c} channels must be divisible by `group` {groups}"))?;
    require((n * c * space).eq(x.numel()), || {
        format!("`N` {n}, `C` {c} and `HxW` {space} must hold the elements of `input` {}", dims_text(x.sizes()))
    })?;
    require_affine(&a[1..3], &[c])?;
    let m = fresh(x, x.sizes().into(), x.dtype());
    let m = if is_channels_last(x.meta())? { Meta { strides: channels_last_strides(&m.sizes), ..m } } else { m };
    let wide = a[1].opt_tensor()?.is_some_and(|w| w.dtype() == DType::F32 && x.dtype() != DType::F64);
    let s = fresh(x, smallvec![n, groups.into()], if wide { DType::F32 } else { x.dtype() });
    Ok(smallvec![m, s.clone(), s])
}

fn group_norm(a: &[Value], out: &[Tensor]) -> Result<()> {
    let x = a[0].tensor()?;
    if x.numel().as_i64() == Some(0) {
        return Ok(());
    }
    // groups become rows of a contiguous copy, which keeps full precision until the scale and shift
    let wide = compute_dtype(x.dtype());
    let (work, normal) = (Tensor::allocate(fresh(x, x.sizes().into(), wide))?, Tensor::allocate(fresh(x, x.sizes().into(), wide))?);
    eager::copy(x, &work)?;
    let rows = out[1].numel();
    let as_rows = Meta::contiguous([rows, x.numel().floor_div(rows)], wide);
    let (mean, rstd) = (flat(&out[1])?, flat(&out[2])?);
    let (from, to) = (work.view_of(as_rows.clone())?, normal.view_of(as_rows)?);
    let operands = LayerNorm { weight: None, bias: None, mean: Some(output(&mean)?), rstd: Some(output(&rstd)?) };
    kernels::layer_norm(&input(&from)?, 1, a[7].float()?, operands, &mut output(&to)?)?;
    let (weight, bias) = (a[1].opt_tensor()?, a[2].opt_tensor()?);
    let parts: Vec<Tensor> = weight.iter().chain(&bias).map(|t| per_channel(t, x.dim())).collect::<Result<_>>()?;
    affine(&normal, &parts.iter().collect::<Vec<_>>(), &out[0], &|b, r| {
        let mut y = r[0];
        let mut rest = r[1..].iter();
        for (given, op) in [(weight.is_some(), BinaryOp::Mul), (bias.is_some(), BinaryOp::Add)] {
            if let Some(&part) = rest.as_slice().first().filter(|_| given) {
                rest.next();
                y = b.binary(op, y, part).map_err(Error::other)?;
            }
        }
        Ok(y)
    })
}

/// Input, weight, bias, running mean and variance, eps of a batch norm that uses stored statistics.
struct Stored<'a> {
    x: &'a Tensor,
    weight: Option<&'a Tensor>,
    bias: Option<&'a Tensor>,
    mean: &'a Tensor,
    var: &'a Tensor,
    eps: f64,
}

impl<'a> Stored<'a> {
    fn of(a: &'a [Value], training: Option<usize>, eps: usize) -> Result<Stored<'a>> {
        if let Some(i) = training
            && a[i].bool()?
        {
            return Err(Error::value("`training` must be false: batch statistics that update the running ones are not implemented"));
        }
        let missing = |name| Error::value(format!("`{name}` must be given where `training` is false"));
        Ok(Stored {
            x: a[0].tensor()?,
            weight: a[1].opt_tensor()?,
            bias: a[2].opt_tensor()?,
            mean: a[3].opt_tensor()?.ok_or_else(|| missing("running_mean"))?,
            var: a[4].opt_tensor()?.ok_or_else(|| missing("running_var"))?,
            eps: a[eps].float()?,
        })
    }

    #[track_caller]
    fn metas(&self, a: &[Value]) -> Result<Metas> {
        require_float(self.x)?;
        require_rank("input", self.x, 2..=5)?;
        let channels = &self.x.sizes()[1..2];
        require_affine(&a[1..3], channels)?;
        require_same(channels, self.mean.sizes(), || "argument `running_mean` must have".into())?;
        require_same(channels, self.var.sizes(), || "argument `running_var` must have".into())?;
        let m = super::dims::fresh_like(self.x, self.x.dtype())?;
        let empty = fresh(self.x, smallvec![0.into()], self.mean.dtype());
        Ok(smallvec![m, empty.clone(), empty])
    }

    /// One scale and one shift a channel, as PyTorch folds them: `x * (w * rstd) + (b - mean * (w * rstd))`.
    fn run(&self, out: &Tensor) -> Result<()> {
        let rank = self.x.dim();
        let given = [Some(self.mean), Some(self.var), self.weight, self.bias];
        let parts: Vec<Tensor> = given.iter().flatten().map(|t| per_channel(t, rank)).collect::<Result<_>>()?;
        let (has_weight, has_bias) = (self.weight.is_some(), self.bias.is_some());
        let eps = self.eps;
        affine(self.x, &parts.iter().collect::<Vec<_>>(), out, &|b, r| {
            let (x, mean, var) = (r[0], r[1], r[2]);
            let mut rest = r[3..].iter().copied();
            let wide = b.dtype(x).map_err(Error::other)?;
            let eps = b.constant(eps, wide);
            let var = b.binary(BinaryOp::Add, var, eps).map_err(Error::other)?;
            let mut scale = b.unary(UnaryOp::Rsqrt, var).map_err(Error::other)?;
            if let Some(w) = rest.next().filter(|_| has_weight) {
                scale = b.binary(BinaryOp::Mul, scale, w).map_err(Error::other)?;
            }
            let moved = b.binary(BinaryOp::Mul, mean, scale).map_err(Error::other)?;
            let last = r.last().copied().filter(|_| has_bias);
            let start = last.unwrap_or_else(|| b.constant(0.0, wide));
            let shift = b.binary(BinaryOp::Sub, start, moved).map_err(Error::other)?;
            let scaled = b.binary(BinaryOp::Mul, x, scale).map_err(Error::other)?;
            b.binary(BinaryOp::Add, scaled, shift).map_err(Error::other)
        })
    }
}

table! {
    /// See the module.
    pub(super) static TABLE = {
        "aten::native_layer_norm(Tensor input, SymInt[] normalized_shape, Tensor? weight, Tensor? bias, float eps) -> (Tensor, Tensor, Tensor)" =>
            norm(|_, a| layer_norm_metas(a), layer_norm),
        "aten::layer_norm(Tensor input, SymInt[] normalized_shape, Tensor? weight=None, Tensor? bias=None, float eps=1.0000000000000001e-05, bool cudnn_enable=True) -> Tensor" =>
            Lowering::Composite(|a| done(a[0].tensor()?.native_layer_norm(a[1].ints()?, a[2].opt_tensor()?, a[3].opt_tensor()?, a[4].float()?).0)),
        "aten::native_group_norm(Tensor input, Tensor? weight, Tensor? bias, SymInt N, SymInt C, SymInt HxW, int group, float eps) -> (Tensor, Tensor, Tensor)" =>
            norm(|_, a| group_norm_metas(a), group_norm),
        "aten::group_norm(Tensor input, int num_groups, Tensor? weight=None, Tensor? bias=None, float eps=1.0000000000000001e-05, bool cudnn_enabled=True) -> Tensor" =>
            Lowering::Composite(|a| {
                let x = a[0].tensor()?;
                require_rank("input", x, 2..=64)?;
                let (n, c, space) = (x.sizes()[0], x.sizes()[1], product(&x.sizes()[2..]));
                done(x.native_group_norm(a[2].opt_tensor()?, a[3].opt_tensor()?, [n, c, space], a[1].int_i64()?, a[4].float()?).0)
            }),
        "aten::native_batch_norm(Tensor input, Tensor? weight, Tensor? bias, Tensor? running_mean, Tensor? running_var, bool training, float momentum, float eps) -> (Tensor, Tensor, Tensor)" =>
            norm(|_, a| Stored::of(a, Some(5), 7)?.metas(a), |a, out| Stored::of(a, Some(5), 7)?.run(&out[0])),
        "aten::_native_batch_norm_legit_no_training(Tensor input, Tensor? weight, Tensor? bias, Tensor running_mean, Tensor running_var, float momentum, float eps) -> (Tensor, Tensor, Tensor)" =>
            norm(|_, a| Stored::of(a, None, 6)?.metas(a), |a, out| Stored::of(a, None, 6)?.run(&out[0])),
        "aten::batch_norm(Tensor input, Tensor? weight, Tensor? bias, Tensor? running_mean, Tensor? running_var, bool training, float momentum, float eps, bool cudnn_enabled) -> Tensor" =>
            Lowering::Composite(|a| {
                let s = Stored::of(a, Some(5), 7)?;
                done(s.x._native_batch_norm_legit_no_training(s.weight, s.bias, s.mean, s.var, a[6].float()?, s.eps).0)
            }),
    }
}
