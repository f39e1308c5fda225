//! Derivatives of losses.

use crate::grad::parts::parts;
use crate::grad::rule;
use maquette_ops::operator::Saved::Input;
use maquette_ops::operator::{Backward, Derivative};
use maquette_ops::{Reduction, Result, Tensor, Value};

/// 0: none, 1: the mean, 2: the sum.
fn reduced(x: Tensor, reduction: &Value) -> Result<Tensor> {
    Ok(match reduction.int_i64()? {
        0 => x,
        1 => x.mean(),
        _ => x.sum(),
    })
}

/// The negative logarithm of the likelihood of the targets, along dimension 1.
pub(crate) const NLL_LOSS: Derivative = parts!(|a| {
    let (x, target) = (a[0].tensor()?, a[1].tensor()?);
    let (x, target) = match x.dim() {
        1 => (x.unsqueeze(0), target.reshape([1i64])),
        _ => (x.clone(), target.clone()),
    };
    let alone = a[0].tensor()?.dim() == 1;
    let counts = target.ne(a[4].int_i64()?);
    let class = counts.where_(&target, 0).to_dtype(maquette_ir::DType::I64);
    // without classes, every target is one that is ignored
    let (each, weight) = if x.size(1).as_i64() == Some(0) {
        (x.sum_dim([1i64], false), x.detach().new_zeros(class.sizes(), x.dtype()))
    } else {
        let weight = match a[2].opt_tensor()? {
            Some(weight) => weight.take(&class),
            None => x.detach().new_ones(class.sizes(), x.dtype()),
        };
        let weight = counts.where_(weight, 0.0);
        let each = -x.gather(1, &class.unsqueeze(1)).squeeze_dim(1) * &weight;
        // what is ignored may be infinite
        (counts.where_(each, 0.0), weight)
    };
    Ok(vec![match a[3].int_i64()? {
        0 if alone => each.squeeze_dim(0),
        0 => each,
        1 => each.sum() / weight.sum(),
        _ => each.sum(),
    }])
});

/// The gradient of a loss that is reduced as argument `reduction` tells.
fn spread(b: &Backward<'_>, reduction: usize) -> Result<Tensor> {
    Ok(match b.arg(reduction).int_i64()? {
        1 => b.grad() / b.meta(0)?.numel(),
        _ => b.grad(),
    })
}

/// The gradient of the probability is bounded at 0 and 1, and that of the weight is the loss of
/// each element. PyTorch refuses a weight that requires a gradient.
pub(crate) const BINARY_CROSS_ENTROPY: Derivative = rule!([Input(0), Input(1), Input(2)], |b| {
    let (x, spread) = (b.input(0), spread(b, 3)?);
    let grad = match b.tensors(2) {
        0 => spread,
        _ => {
            let each = || x.binary_cross_entropy(&b.input(1), None, Reduction::None);
            b.set(2, || &spread * each())?;
            spread * b.input(2)
        }
    };
    b.set(0, || &grad * (&x - b.input(1)) / ((1.0 - &x) * &x).clamp_min(1e-12))?;
    b.set(1, || &grad * ((-&x).log1p() - x.log()))
});

pub(crate) const MULTI_MARGIN: Derivative = parts!(|a| {
    let (x, target) = (a[0].tensor()?, a[1].tensor()?);
    let alone = x.dim() < 2;
    let x = if alone { x.reshape([1i64, -1]) } else { x.clone() };
    let target = target.reshape([-1i64]);
    let (p, margin) = (a[2].scalar()?.to_f64(), a[3].scalar()?.to_f64());
    let at = target.unsqueeze(1);
    let over = (&x - x.gather(1, &at) + margin).clamp_min(0.0);
    let loss = if p == 2.0 { &over * &over } else { over };
    let loss = match a[4].opt_tensor()? {
        Some(weight) => loss * weight.take(&target).unsqueeze(1),
        None => loss,
    };
    let own = x.detach().zeros_like().scatter_value(1, &at, 1.0).gt(0.0);
    let loss = loss.masked_fill(&own, 0.0).sum_dim([1i64], false) / x.size(1);
    let loss = reduced(loss, &a[5])?;
    Ok(vec![if alone { loss.reshape([0i64; 0]) } else { loss }])
});

/// The targets of a row are those before the first negative one.
pub(crate) const MULTILABEL_MARGIN: Derivative = parts!(|a| {
    let (x, target) = (a[0].tensor()?, a[1].tensor()?);
    let alone = x.dim() < 2;
    let rows = |t: &Tensor| if alone { t.reshape([1i64, -1]) } else { t.clone() };
    let (x, target) = (rows(x), rows(target));
    let valid = target.ge(0).to_dtype(x.dtype()).cumprod(1);
    let at = target.clamp_min(0);
    let is_target = x.detach().zeros_like().scatter_add(1, &at, &valid).gt(0.0);
    let over = 1.0 - x.gather(1, &at).unsqueeze(2) + x.unsqueeze(1);
    let counts = valid.gt(0.0).unsqueeze(2).logical_and(is_target.logical_not().unsqueeze(1));
    let loss = counts.where_(over.relu(), 0.0).sum_dim([1i64, 2], false) / x.size(1);
    let loss = reduced(loss, &a[2])?;
    Ok(vec![if alone { loss.reshape([0i64; 0]) } else { loss }])
});
