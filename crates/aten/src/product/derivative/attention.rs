//! Derivatives of attention.
//!
//! The gradients of query, key and value are one operator, `grad::attention`, which computes the
//! scores again, block by block. A gradient of the mask is a whole matrix of scores in any case,
//! and so is what further derivatives need: these are computed by parts.

use crate::grad::parts::{differentiate, parts};
use crate::grad::rule;
use maquette_ir::sym::SymInt;
use maquette_ir::{DType, Loc};
use maquette_ops::operator::Saved::Input;
use maquette_ops::operator::dims::known_equal;
use maquette_ops::operator::{Backward, Derivative, aten};
use maquette_ops::{Error, Op, Result, Tensor, Value};

pub(crate) const ATTENTION: Derivative =
    rule!([Input(0), Input(1), Input(2), Input(3)], |b| of_attention(
        b,
        &OfAttention { mask: 3, causal: 5, scale: 6, grouped: b.arg(7).bool()? }
    ));

pub(crate) const FLASH_ATTENTION: Derivative = rule!(
    [Input(0), Input(1), Input(2), Input(5)],
    |b| of_attention(b, &OfAttention { mask: 5, causal: 4, scale: 6, grouped: true })
);

/// The derivative of `grad::attention`, which has the arguments of an attention after the gradient.
pub(crate) const ATTENTION_BACKWARD: Derivative = parts!(|a| {
    let (grad, scale) = (a[0].tensor()?, a[6].opt(|v| v.float())?);
    let (weights, [query, key, value]) =
        attention_weights(&a[1..4], a[4].opt_tensor()?.cloned(), a[5].bool()?, scale, false)?;
    let of_weights = grad.matmul(&value.transpose(-2, -1));
    let sum = (&weights * &of_weights).sum_dim([-1i64], true);
    let of_scores = scaled_scores(&weights * (of_weights - sum), &query, scale);
    Ok(vec![
        of_scores.matmul(&key),
        of_scores.transpose(-2, -1).matmul(&query),
        weights.transpose(-2, -1).matmul(grad),
    ])
});

/// The places of an attention's options among its arguments.
struct OfAttention {
    mask: usize,
    causal: usize,
    scale: usize,
    /// Whether a head of key and value may serve several heads of the query.
    grouped: bool,
}

/// One kernel that computes the scores again, block by block; by parts for a mask that requires a
/// gradient, the gradient of the log-sum-exp, and half precision.
fn of_attention(b: &Backward<'_>, at: &OfAttention) -> Result<()> {
    let (causal, scale) = (b.arg(at.causal).bool()?, b.arg(at.scale).opt(|v| v.float())?);
    let has_mask = b.tensors(at.mask) > 0;
    let is_wide = matches!(b.meta(0)?.dtype, DType::F32 | DType::F64);
    let other = (1..b.results()).any(|i| b.has_grad(i));
    if !is_wide || other || !b.has_grad(0) || has_mask && b.needs(at.mask) {
        return differentiate(b, &|a| {
            let mask = a[at.mask].opt_tensor()?.cloned();
            let (weights, [_, _, value]) = attention_weights(a, mask, causal, scale, at.grouped)?;
            Ok(vec![weights.matmul(&value)])
        });
    }
    let (grad, query) = (b.grad(), b.input(0));
    let last = |t: &Tensor, n: usize| -> Vec<SymInt> { t.sizes()[t.dim() - n..].to_vec() };
    let batch = &grad.sizes()[..grad.dim() - 2];
    let of_batch = |t: &Tensor| {
        let own = &t.sizes()[..t.dim() - 2];
        let is_same = own.len() == batch.len()
            && own.iter().zip(batch).all(|(own, all)| known_equal(*own, *all));
        if is_same { t.clone() } else { t.expand([batch, &last(t, 2)[..]].concat()) }
    };
    let (own_key, own_value) = (b.input(1), b.input(2));
    let group = |t: &Tensor| -> Option<SymInt> {
        let (own, all) = (*t.sizes().get(t.dim().checked_sub(3)?)?, *batch.last()?);
        let is_one = known_equal(own, all) || own.as_i64() == Some(1);
        (at.grouped && !is_one).then(|| all.floor_div(own))
    };
    let repeated = |t: &Tensor| match group(t) {
        Some(n) => aten!("repeat_interleave.self_int", b.loc(); t, n, -3),
        None => t.clone(),
    };
    let (key, value) = (repeated(&own_key), repeated(&own_value));
    let mask = match has_mask {
        true => Value::Tensor(b.input(at.mask)),
        false => Value::None,
    };
    let scale = scale.map_or(Value::None, Value::from);
    let args = [
        Value::Tensor(grad.clone()),
        Value::Tensor(of_batch(&query)),
        Value::Tensor(of_batch(&key)),
        Value::Tensor(of_batch(&value)),
        mask,
        Value::from(causal),
        scale,
    ];
    let found = Op::find("grad::attention")?.call_at(args.into_iter().collect(), b.loc())?;
    let mut found = found.iter().flat_map(Value::tensors);
    let mut next = || found.next().cloned().ok_or_else(|| Error::msg("a gradient is missing"));
    let (of_query, of_key, of_value) = (next()?, next()?, next()?);
    let summed = |t: Tensor, own: &Tensor| match group(own) {
        Some(n) => {
            let heads = own.sizes()[own.dim() - 3];
            let outer = &batch[..batch.len() - 1];
            t.reshape([outer, &[heads, n], &last(&t, 2)[..]].concat()).sum_dim([-3i64], false)
        }
        None => t,
    };
    b.set(0, || of_query)?;
    b.set(1, || summed(of_key, &own_key))?;
    b.set(2, || summed(of_value, &own_value))
}

/// The products of query and key, multiplied by the scale.
fn scaled_scores(scores: Tensor, query: &Tensor, scale: Option<f64>) -> Tensor {
    match scale {
        Some(scale) => scores * scale,
        None => {
            let width = query.size(-1);
            let width = scores.detach().new_full([0i64; 0], 1.0, scores.dtype()) * width;
            scores / width.sqrt()
        }
    }
}

/// The weights of an attention by parts, and its query, key and value, heads repeated.
fn attention_weights(
    a: &[Value],
    mask: Option<Tensor>,
    causal: bool,
    scale: Option<f64>,
    grouped: bool,
) -> Result<(Tensor, [Tensor; 3])> {
    let (query, mut key, mut value) =
        (a[0].tensor()?.clone(), a[1].tensor()?.clone(), a[2].tensor()?.clone());
    // no heads need no repetition
    if grouped && query.size(-3).as_i64() != Some(0) {
        let repeat = |t: &Tensor| -> Tensor {
            let repeats = query.size(-3).floor_div(t.size(-3));
            aten!("repeat_interleave.self_int", Loc::caller(); t, repeats, -3)
        };
        (key, value) = (repeat(&key), repeat(&value));
    }
    let scores = query.matmul(&key.transpose(-2, -1));
    let mut scores = scaled_scores(scores, &query, scale);
    if causal {
        let (rows, columns) = (scores.size(-2), scores.size(-1));
        let seen = scores.detach().new_ones([rows, columns], DType::Bool).tril(0);
        scores = seen.where_(scores, f64::NEG_INFINITY);
    }
    if let Some(mask) = mask {
        scores = match mask.dtype() {
            DType::Bool => mask.where_(scores, f64::NEG_INFINITY),
            _ => scores + mask,
        };
    }
    let weights = aten!("_safe_softmax", Loc::caller(); scores, -1);
    Ok((weights, [query, key, value]))
}
