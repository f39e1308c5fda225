//! Derivatives of reductions and scans.

use crate::grad::parts::parts;
use crate::grad::{give, rule};
use crate::shape::views::wrap_dims;
use maquette_ir::fault_injection::{Fault, fault_injected};
use maquette_ops::operator::Saved::{Input, Output};
use maquette_ops::operator::{Backward, Derivative, aten};
use maquette_ops::{Result, Tensor, Value};

/// The dimensions in an argument of a reduction: all, if it is absent or empty.
pub(crate) fn dims_of(dims: &Value, rank: usize) -> Result<Vec<i64>> {
    let given = match dims {
        Value::None => return Ok((0..rank as i64).collect()),
        Value::Int(_) => smallvec::smallvec![dims.int_i64()?],
        _ => dims.ints_i64()?,
    };
    if given.is_empty() {
        return Ok((0..rank as i64).collect());
    }
    let mut dims: Vec<i64> = wrap_dims(&given, rank)?.iter().map(|d| *d as i64).collect();
    dims.sort_unstable();
    // a scalar has a dimension by name only
    dims.retain(|d| *d < rank as i64);
    Ok(dims)
}

/// A result of a reduction over `dims`, with these dimensions.
pub(crate) fn kept(mut result: Tensor, dims: &[i64], keep: bool) -> Tensor {
    if !keep {
        for d in dims {
            result = result.unsqueeze(*d);
        }
    }
    result
}

/// The gradient of a reduction over the dimensions in an argument, with the sizes of the operand.
fn spread(b: &Backward<'_>, dims: &Value, keep: bool) -> Result<Tensor> {
    let sizes = b.sizes(0)?;
    Ok(kept(b.grad(), &dims_of(dims, sizes.len())?, keep).expand(sizes))
}

pub(crate) const SUM: Derivative = rule!([], |b| give(b, 0, spread(b, &Value::None, false)));

pub(crate) const SUM_DIM: Derivative =
    rule!([], |b| give(b, 0, spread(b, b.arg(1), b.arg(2).bool()?)));

pub(crate) const NANSUM: Derivative = rule!([Input(0)], |b| {
    let grad = spread(b, b.arg(1), b.arg(2).bool()?)?;
    give(b, 0, Ok(grad.masked_fill(&b.input(0).isnan(), 0.0)))
});

pub(crate) const MEAN: Derivative = rule!([], |b| {
    let n = b.meta(0)?.numel();
    give(b, 0, spread(b, &Value::None, false).map(|g| g / n))
});

pub(crate) const MEAN_DIM: Derivative = rule!([], |b| {
    let sizes = b.sizes(0)?;
    let dims = dims_of(b.arg(1), sizes.len())?;
    let given = spread(b, b.arg(1), b.arg(2).bool()?);
    if fault_injected(Fault::MeanNotDivided) {
        return give(b, 0, given);
    }
    let n = dims.iter().fold(1.into(), |n: maquette_ir::sym::SymInt, d| n * sizes[*d as usize]);
    give(b, 0, given.map(|g| g / n))
});

/// Shared among equal extremes.
pub(crate) const EXTREME: Derivative = rule!([Input(0), Output(0)], |b| {
    let (x, keep) = (b.input(0), b.arg(2).bool()?);
    let dims = dims_of(b.arg(1), x.dim())?;
    give(b, 0, Ok(shared(&x, &b.output(0), &b.grad(), &dims, keep)))
});

pub(crate) const EXTREMES: Derivative = rule!([Input(0), Output(0), Output(1)], |b| {
    let (x, keep) = (b.input(0), b.arg(2).bool()?);
    let dims = dims_of(b.arg(1), x.dim())?;
    let of = |i| shared(&x, &b.output(i), &b.grad_of(i), &dims, keep);
    give(b, 0, Ok(of(0) + of(1)))
});

fn shared(x: &Tensor, extreme: &Tensor, grad: &Tensor, dims: &[i64], keep: bool) -> Tensor {
    let mask = x.eq(kept(extreme.clone(), dims, keep)).to_dtype(x.dtype());
    let count = if dims.is_empty() { mask.clone() } else { mask.sum_dim(dims, true) };
    mask * (kept(grad.clone(), dims, keep) / count)
}

pub(crate) const LOGSUMEXP: Derivative = rule!([Input(0), Output(0)], |b| {
    let (x, keep) = (b.input(0), b.arg(2).bool()?);
    let dims = dims_of(b.arg(1), x.dim())?;
    let out = kept(b.output(0), &dims, keep);
    give(b, 0, Ok(kept(b.grad(), &dims, keep) * (x - out).exp()))
});

/// The sums from the end.
fn sums_from_end(x: &Tensor, dim: i64) -> Tensor {
    if fault_injected(Fault::SumsFromStart) {
        return x.cumsum(dim);
    }
    if x.dim() == 0 { x.clone() } else { x.flip([dim]).cumsum(dim).flip([dim]) }
}

pub(crate) const CUMSUM: Derivative =
    rule!([], |b| give(b, 0, b.arg(1).int_i64().map(|d| sums_from_end(&b.grad(), d))));

/// The gradient of an element is the sum of `grad[j] exp(x - out[j])` over the results `j` from it
/// on. A factor `exp(x)` alone may be infinite or 0. So the sums are those of `logcumsumexp`, of
/// positive and of negative gradients. A logarithm has no derivative where a gradient is 0, so a
/// sweep that is recorded takes all pairs of an element and a result.
pub(crate) const LOGCUMSUMEXP: Derivative = rule!([Input(0), Output(0)], |b| {
    let (x, out, grad) = (b.input(0), b.output(0), b.grad());
    let dim = b.arg(1).int_i64()?;
    if x.dim() == 0 {
        return b.set(0, || grad);
    }
    if [&x, &out, &grad].into_iter().any(maquette_ops::operator::requires_grad) {
        return b.set(0, || over_pairs(&x, &out, &grad, dim));
    }
    let sums = |grad: &Tensor| {
        let weighted = grad.gt(0.0).where_(grad.log(), f64::NEG_INFINITY) - &out;
        let sums = aten!("logcumsumexp", b.loc(); weighted.flip([dim]), dim);
        (sums.flip([dim]) + &x).exp()
    };
    b.set(0, || sums(&grad) - sums(&-&grad))
});

fn over_pairs(x: &Tensor, out: &Tensor, grad: &Tensor, dim: i64) -> Tensor {
    let n = x.size(dim);
    let upto = x.detach().new_ones([n, n], maquette_ir::DType::Bool).tril(0);
    let [x, out, grad] = [x, out, grad].map(|t| t.transpose(dim, -1));
    let exponents = x.unsqueeze(-2) - out.unsqueeze(-1);
    let factors = upto.where_(exponents, f64::NEG_INFINITY).exp();
    (factors * grad.unsqueeze(-1)).sum_dim([-2i64], false).transpose(dim, -1)
}

/// The products of the elements before each, and of those after it, which no zero makes undefined.
fn products_of_others(x: &Tensor, dim: i64) -> Tensor {
    let n = x.size(dim);
    let mut sizes = x.sizes().to_vec();
    let d = if dim < 0 { dim + sizes.len() as i64 } else { dim };
    if let Some(size) = sizes.get_mut(d as usize) {
        *size = 1.into();
    }
    let one = x.detach().new_ones(&sizes[..], x.dtype());
    // one element more than needed: a dimension without elements is no other case
    let before = |x: &Tensor| Tensor::cat([&one, x], dim).cumprod(dim).narrow(dim, 0, n);
    if fault_injected(Fault::ProductOfEarlier) {
        return before(x);
    }
    before(x) * before(&x.flip([dim])).flip([dim])
}

/// The gradient of a product over a dimension that the operand has.
fn of_product(x: &Tensor, dim: i64, grad: Tensor) -> Tensor {
    match x.size(dim).as_i64() {
        Some(0) => x.clone(),
        _ => grad * products_of_others(x, dim),
    }
}

pub(crate) const PROD: Derivative = rule!([Input(0)], |b| {
    let sizes = b.sizes(0)?;
    b.set(0, || of_product(&b.input(0).reshape([-1i64]), 0, b.grad()).reshape(sizes))
});

pub(crate) const PROD_DIM: Derivative = rule!([Input(0)], |b| {
    let (x, dims) = (b.input(0), dims_of(b.arg(1), b.sizes(0)?.len())?);
    let Some(&dim) = dims.first() else { return b.set(0, || b.grad()) };
    let grad = kept(b.grad(), &dims, b.arg(2).bool()?);
    b.set(0, || of_product(&x, dim, grad))
});

/// Each result is the product of the elements up to its own. The cost is quadratic, and zeros are
/// as good as other elements.
pub(crate) const CUMPROD: Derivative = parts!(|a| {
    let (x, dim) = (a[0].tensor()?, a[1].int_i64()?);
    if x.dim() == 0 {
        return Ok(vec![x.clone()]);
    }
    let rows = x.transpose(dim, -1).unsqueeze(-2);
    let n = x.size(dim);
    let upto = x.detach().new_ones([n, n], maquette_ir::DType::Bool).tril(0);
    Ok(vec![upto.where_(rows, 1.0).prod_dim(-1, false).transpose(dim, -1)])
});
