//! Derivatives of norms and normalizations, by their parts.

use super::reductions::{dims_of, kept};
use crate::grad::parts::{differentiate, parts};
use crate::grad::rule;
use maquette_ir::DType;
use maquette_ir::sym::SymInt;
use maquette_ops::operator::Saved::{Input, Output};
use maquette_ops::operator::{Backward, Derivative};
use maquette_ops::{Error, Op, Result, Tensor, Value};

/// The number of elements along dimensions.
fn count(x: &Tensor, dims: &[i64]) -> SymInt {
    dims.iter().fold(1.into(), |n: SymInt, d| n * x.size(*d))
}

/// The square root, with the derivative 0 at 0.
fn safe_sqrt(x: &Tensor) -> Tensor {
    let zero = x.eq(0.0);
    x.masked_fill(&zero, 1.0).sqrt().masked_fill(&zero, 0.0)
}

/// The sum over dimensions, which may be none.
fn sum(x: &Tensor, dims: &[i64], keep: bool) -> Tensor {
    if dims.is_empty() { x.clone() } else { x.sum_dim(dims, keep) }
}

/// The variance over dimensions, and the mean.
fn moments(x: &Tensor, dims: &[i64], correction: f64, keep: bool) -> (Tensor, Tensor) {
    let n = count(x, dims);
    let mean = sum(x, dims, true) / n;
    let d = x - &mean;
    let squares = sum(&(&d * &d), dims, keep);
    let freedom = x.detach().new_full([0i64; 0], 1.0, x.dtype()) * n - correction;
    let variance = squares / freedom.clamp_min(0.0);
    let mean = if keep { mean } else { sum(x, dims, false) / n };
    (variance, mean)
}

fn correction(v: &Value) -> Result<f64> {
    Ok(v.opt(Value::scalar)?.map_or(1.0, |s| s.to_f64()))
}

fn unbiased(v: &Value) -> Result<f64> {
    Ok(f64::from(u8::from(v.bool()?)))
}

/// The gradient of a variance over dimensions.
fn of_variance(x: &Tensor, grad: &Tensor, dims: &[i64], correction: f64, keep: bool) -> Tensor {
    let n = count(x, dims);
    let freedom = x.detach().new_full([0i64; 0], 1.0, x.dtype()) * n - correction;
    let mean = sum(x, dims, true) / n;
    kept(grad.clone(), dims, keep) * (2.0 / freedom.clamp_min(0.0)) * (x - mean)
}

/// The gradient of a square root of which the result is `root`; 0 at 0.
fn of_root(grad: &Tensor, root: &Tensor) -> Tensor {
    (grad / (root * 2.0)).masked_fill(&root.eq(0.0), 0.0)
}

/// The gradient of a mean over dimensions.
fn of_mean(x: &Tensor, grad: Tensor, dims: &[i64], keep: bool) -> Tensor {
    kept(grad, dims, keep).expand(x.sizes()) / count(x, dims)
}

pub(crate) const VAR: Derivative = rule!([Input(0)], |b| {
    let (x, correction) = (b.input(0), unbiased(b.arg(1))?);
    let dims = dims_of(&Value::None, x.dim())?;
    b.set(0, || of_variance(&x, &b.grad(), &dims, correction, false))
});

pub(crate) const VAR_DIM: Derivative = rule!([Input(0)], |b| {
    let (x, correction, keep) = (b.input(0), unbiased(b.arg(2))?, b.arg(3).bool()?);
    let dims = dims_of(b.arg(1), x.dim())?;
    b.set(0, || of_variance(&x, &b.grad(), &dims, correction, keep))
});

pub(crate) const VAR_CORRECTION: Derivative = rule!([Input(0)], |b| {
    let (x, correction, keep) = (b.input(0), correction(b.arg(2))?, b.arg(3).bool()?);
    let dims = dims_of(b.arg(1), x.dim())?;
    b.set(0, || of_variance(&x, &b.grad(), &dims, correction, keep))
});

pub(crate) const STD_CORRECTION: Derivative = rule!([Input(0), Output(0)], |b| {
    let (x, correction, keep) = (b.input(0), correction(b.arg(2))?, b.arg(3).bool()?);
    let dims = dims_of(b.arg(1), x.dim())?;
    let grad = of_root(&b.grad(), &b.output(0));
    b.set(0, || of_variance(&x, &grad, &dims, correction, keep))
});

pub(crate) const VAR_MEAN: Derivative = rule!([Input(0)], |b| {
    let (x, correction, keep) = (b.input(0), correction(b.arg(2))?, b.arg(3).bool()?);
    let dims = dims_of(b.arg(1), x.dim())?;
    b.set(0, || {
        of_variance(&x, &b.grad(), &dims, correction, keep) + of_mean(&x, b.grad_of(1), &dims, keep)
    })
});

pub(crate) const STD_MEAN: Derivative = rule!([Input(0), Output(0)], |b| {
    let (x, correction, keep) = (b.input(0), correction(b.arg(2))?, b.arg(3).bool()?);
    let dims = dims_of(b.arg(1), x.dim())?;
    let grad = of_root(&b.grad(), &b.output(0));
    b.set(0, || {
        of_variance(&x, &grad, &dims, correction, keep) + of_mean(&x, b.grad_of(1), &dims, keep)
    })
});

/// The gradient of a norm: of the 2-norm and of infinite orders from the result, of others by their
/// parts.
fn of_norm(b: &Backward<'_>, p: f64, dims: &Value, keep: bool) -> Result<()> {
    let rank = b.sizes(0)?.len();
    let dims = dims_of(dims, rank)?;
    if p.is_infinite() {
        // By parts, the magnitudes that are not the norm would give `0 / inf` or `0 * inf`.
        let (x, norm) = (b.input(0), kept(b.output(0), &dims, keep));
        let size = x.abs();
        let is_norm = size.eq(&norm).logical_or(size.isnan());
        let direction = x.sign().masked_fill(&is_norm.logical_not(), 0.0);
        let ties = sum(&is_norm.to_dtype(norm.dtype()), &dims, true);
        return b.set(0, || kept(b.grad(), &dims, keep) / ties * direction);
    }
    if p != 2.0 {
        return differentiate(b, &|a| {
            let x = a[0].tensor()?;
            let x = if x.dtype() == b.result_meta(0)?.dtype {
                x.clone()
            } else {
                x.to_dtype(b.result_meta(0)?.dtype)
            };
            Ok(vec![vector_norm(&x, p, &dims, keep)])
        });
    }
    let norm = kept(b.output(0), &dims, keep);
    let direction = (b.input(0) / &norm).masked_fill(&norm.eq(0.0), 0.0);
    b.set(0, || kept(b.grad(), &dims, keep) * direction)
}

/// The p-norm over dimensions. Its derivative at zeros is 0.
pub(crate) fn vector_norm(x: &Tensor, p: f64, dims: &[i64], keep: bool) -> Tensor {
    if p == 0.0 {
        return sum(&(x * 0.0), dims, keep);
    }
    if p == 1.0 {
        return sum(&x.abs(), dims, keep);
    }
    if p == 2.0 {
        return safe_sqrt(&sum(&(x * x), dims, keep));
    }
    if p.is_infinite() {
        return match (dims.is_empty(), p > 0.0) {
            (true, _) => x.abs(),
            (_, true) => x.abs().amax(dims, keep),
            (_, false) => x.abs().amin(dims, keep),
        };
    }
    // The power of a zero has no part in the derivative. If the order is negative, it is infinite,
    // and the norm is 0 whatever the other elements are.
    let of_zero = if p < 0.0 { f64::INFINITY } else { 0.0 };
    let zero = x.eq(0.0);
    let powers = x.abs().masked_fill(&zero, 1.0).pow(p).masked_fill(&zero, of_zero);
    let total = sum(&powers, dims, keep);
    let none = total.eq(of_zero);
    total.masked_fill(&none, 1.0).pow(1.0 / p).masked_fill(&none, 0.0)
}

fn order(v: &Value) -> Result<f64> {
    Ok(v.opt(Value::scalar)?.map_or(2.0, |s| s.to_f64()))
}

pub(crate) const VECTOR_NORM: Derivative =
    rule!([Input(0), Output(0)], |b| of_norm(b, order(b.arg(1))?, b.arg(2), b.arg(3).bool()?));

pub(crate) const NORM: Derivative =
    rule!([Input(0), Output(0)], |b| of_norm(b, order(b.arg(1))?, &Value::None, false));

pub(crate) const NORM_DIM: Derivative =
    rule!([Input(0), Output(0)], |b| of_norm(b, order(b.arg(1))?, b.arg(2), b.arg(3).bool()?));

pub(crate) const RENORM: Derivative = parts!(|a| {
    let (x, most) = (a[0].tensor()?, a[3].scalar()?.to_f64());
    let dim = maquette_ops::operator::wrap_dim(a[2].int_i64()?, x.dim())? as i64;
    let dims: Vec<i64> = (0..x.dim() as i64).filter(|d| *d != dim).collect();
    // no elements have no largest one
    if x.numel().as_i64() == Some(0) {
        return Ok(vec![x * 1.0]);
    }
    let norm = vector_norm(x, order(&a[1])?, &dims, true);
    let factor = norm.gt(most).where_(most / (&norm + 1e-7), 1.0);
    Ok(vec![x * factor])
});

/// `(x - mean) / sqrt(var + eps)` over dimensions, with the mean and the factor.
fn standardized(x: &Tensor, dims: &[i64], eps: f64) -> (Tensor, Tensor, Tensor) {
    let (variance, mean) = moments(x, dims, 0.0, true);
    let factor = (variance + eps).rsqrt();
    ((x - &mean) * &factor, mean, factor)
}

fn affine(x: Tensor, weight: Option<Tensor>, bias: Option<Tensor>) -> Tensor {
    let x = weight.map_or(x.clone(), |w| x * w);
    match bias {
        Some(bias) => x + bias,
        None => x,
    }
}

/// The gradients of the input, the weight and the bias of a layer norm, by parts, from the saved
/// mean and factor, as `native_layer_norm_backward` of PyTorch. The last `normalized`
/// dimensions are normalized.
fn of_layer_norm(
    [grad, x, mean, factor]: [&Tensor; 4],
    weight: Option<&Tensor>,
    normalized: usize,
) -> [Tensor; 3] {
    let (rank, first) = (x.dim() as i64, (x.dim() - normalized) as i64);
    let (batch, dims): (Vec<i64>, Vec<i64>) = ((0..first).collect(), (first..rank).collect());
    let n = count(x, &dims);
    let standard = (x - mean) * factor;
    let scaled = weight.map_or_else(|| grad.clone(), |w| grad * w);
    let average = sum(&scaled, &dims, true) / n;
    let slope = sum(&(&scaled * &standard), &dims, true) / n;
    let of_input = (scaled - average - &standard * slope) * factor;
    [of_input, sum(&(grad * &standard), &batch, false), sum(grad, &batch, false)]
}

/// The derivative of `grad::layer_norm`.
pub(crate) const LAYER_NORM_BACKWARD: Derivative = parts!(|a| {
    let operands = [a[0].tensor()?, a[1].tensor()?, a[3].tensor()?, a[4].tensor()?];
    Ok(of_layer_norm(operands, a[5].opt_tensor()?, a[2].ints()?.len()).to_vec())
});

/// One kernel from the saved mean and factor; by parts if the dtypes differ, and in half precision.
/// Further derivatives reach the input through the mean and the factor, too.
pub(crate) const LAYER_NORM: Derivative = rule!([Input(0), Input(2), Output(1), Output(2)], |b| {
    let (x, mean, factor) = (b.input(0), b.output(1), b.output(2));
    let shape = b.arg(1).ints()?;
    let first = x.dim() - shape.len();
    let n = count(&x, &(first as i64..x.dim() as i64).collect::<Vec<_>>());
    let like = |t: Tensor, argument: usize| -> Result<Tensor> {
        let dtype = b.meta(argument)?.dtype;
        Ok(if t.dtype() == dtype { t } else { t.to_dtype(dtype) })
    };
    let mut grad: Option<Tensor> = None;
    if b.has_grad(0) {
        let weight = (b.tensors(2) > 0).then(|| b.input(2));
        let dtype = x.dtype();
        let is_one_kernel = matches!(dtype, DType::F32 | DType::F64)
            && weight.iter().chain([&mean, &factor]).all(|t| t.dtype() == dtype);
        let [of_input, of_weight, of_bias] = if is_one_kernel {
            let operands = [b.grad(), x.clone()].map(Value::from);
            let rest = [mean, factor.clone()].map(Value::from);
            let weight = weight.map_or(Value::None, Value::from);
            let args = operands.into_iter().chain([b.arg(1).clone()]).chain(rest);
            let args = args.chain([weight]).collect();
            let found = Op::find("grad::layer_norm")?.call_at(args, b.loc())?;
            let found: Vec<Tensor> = found.iter().flat_map(Value::tensors).cloned().collect();
            <[Tensor; 3]>::try_from(found).map_err(|_| Error::msg("a gradient is missing"))?
        } else {
            of_layer_norm([&b.grad(), &x, &mean, &factor], weight.as_ref(), shape.len())
        };
        for (argument, of) in [(2, of_weight), (3, of_bias)] {
            if b.needs(argument) {
                let of = like(of, argument)?;
                b.set(argument, || of)?;
            }
        }
        grad = Some(of_input);
    }
    if !b.needs(0) {
        return Ok(());
    }
    let mut add = |part: Tensor| {
        grad = Some(match grad.take() {
            Some(sum) => sum + part,
            None => part,
        });
    };
    if b.has_grad(1) {
        add((b.grad_of(1) / n).expand(x.sizes()));
    }
    if b.has_grad(2) {
        let standard = (&x - b.output(1)) * &factor;
        add(standard * (b.grad_of(2) * (&factor * &factor) / n).neg());
    }
    match grad {
        Some(grad) => {
            let grad = like(grad, 0)?;
            b.set(0, || grad)
        }
        None => Ok(()),
    }
});

pub(crate) const RMS_NORM: Derivative = parts!(|a| {
    let (x, n) = (a[0].tensor()?, a[1].ints()?.len() as i64);
    let dims: Vec<i64> = (x.dim() as i64 - n..x.dim() as i64).collect();
    let eps = a[3].opt(Value::float)?.unwrap_or(match x.dtype() {
        DType::F64 => f64::EPSILON,
        _ => f64::from(f32::EPSILON),
    });
    let factor = (sum(&(x * x), &dims, true) / count(x, &dims) + eps).rsqrt();
    Ok(vec![affine(x * &factor, a[2].opt_tensor()?.cloned(), None), factor])
});

pub(crate) const GROUP_NORM: Derivative = parts!(|a| {
    let x = a[0].tensor()?;
    let (n, channels, groups) = (a[3].int()?, a[4].int()?, a[6].int()?);
    let rows = x.reshape([n, groups, channels.floor_div(groups) * a[5].int()?]);
    let (out, mean, factor) = standardized(&rows, &[2], a[7].float()?);
    let mut sizes = vec![1i64; x.dim()];
    sizes[1] = -1;
    let of_channels =
        |v: &Value| -> Result<Option<Tensor>> { Ok(v.opt_tensor()?.map(|t| t.reshape(&sizes))) };
    let out = affine(out.reshape(x.sizes()), of_channels(&a[1])?, of_channels(&a[2])?);
    Ok(vec![out, mean.squeeze_dim(2), factor.squeeze_dim(2)])
});

/// Normalization of channels by the moments of the batch, or by the given ones.
fn batch_norm(a: &[Value], given: Option<(Tensor, Tensor)>, eps: f64) -> Result<Vec<Tensor>> {
    let x = a[0].tensor()?;
    let mut sizes = vec![1i64; x.dim()];
    sizes[1] = -1;
    let dims: Vec<i64> = (0..x.dim() as i64).filter(|d| *d != 1).collect();
    let (weight, bias) = (a[1].opt_tensor()?, a[2].opt_tensor()?);
    let of_channels = |t: Option<&Tensor>| t.map(|t| t.reshape(&sizes));
    let (out, mean, factor) = match given {
        Some((mean, variance)) => {
            let factor = (variance + eps).rsqrt();
            ((x - mean.reshape(&sizes)) * factor.reshape(&sizes), mean, factor)
        }
        None => standardized(x, &dims, eps),
    };
    let out = affine(out, of_channels(weight), of_channels(bias));
    Ok(vec![out, mean.reshape([-1i64]), factor.reshape([-1i64])])
}

fn given(a: &[Value]) -> Result<Option<(Tensor, Tensor)>> {
    Ok(Some((a[3].tensor()?.clone(), a[4].tensor()?.clone())))
}

pub(crate) const BATCH_NORM: Derivative = parts!(|a| {
    let given = if a[5].bool()? { None } else { given(a)? };
    Ok(batch_norm(a, given, a[7].float()?)?.into_iter().take(3).collect())
});

pub(crate) const BATCH_NORM_UPDATE: Derivative = parts!(|a| batch_norm(a, None, a[6].float()?));

pub(crate) const BATCH_NORM_NO_STATS: Derivative = parts!(|a| batch_norm(a, None, a[5].float()?));

pub(crate) const BATCH_NORM_NO_TRAINING: Derivative =
    parts!(|a| Ok(batch_norm(a, given(a)?, a[6].float()?)?.into_iter().take(1).collect()));
