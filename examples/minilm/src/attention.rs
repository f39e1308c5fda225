//! Attention, as the builtin operator or as a custom one: the same numbers, another graph.

use maquette::ndarray::{Array4, Axis, Ix4, s};
use maquette::prelude::*;

/// How attention is computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attention {
    /// `aten::scaled_dot_product_attention`
    Builtin,
    /// `minilm::attention`, below: to the tracer a name with a shape.
    Opaque,
}

/// `softmax(q kᵀ / sqrt(width)) v` for each head: `[batch, heads, length, width]`, attending where
/// `allowed`, `[batch, 1, 1, length]`.
pub fn attend(how: Attention, q: &Tensor, k: &Tensor, v: &Tensor, allowed: &Tensor) -> Tensor {
    match how {
        Attention::Builtin => {
            q.scaled_dot_product_attention(k, v, Some(allowed), false, None, false)
        }
        Attention::Opaque => attention(q, k, v, allowed),
    }
}

#[custom_op("minilm::attention")]
fn attention(q: &Tensor, k: &Tensor, v: &Tensor, allowed: &Tensor) -> Result<Tensor> {
    let (q, k, v, allowed) =
        (q.read::<f32>()?, k.read::<f32>()?, v.read::<f32>()?, allowed.read::<bool>()?);
    let q = q.view().into_dimensionality::<Ix4>()?;
    let k = k.view().into_dimensionality::<Ix4>()?;
    let v = v.view().into_dimensionality::<Ix4>()?;
    let allowed = allowed.view().into_dimensionality::<Ix4>()?;
    let (batch, heads, _, width) = q.dim();
    let scale = 1.0 / (width as f32).sqrt();

    let mut out = Array4::zeros(q.dim());
    for (b, h) in (0..batch).flat_map(|b| (0..heads).map(move |h| (b, h))) {
        let head = s![b, h, .., ..];
        let mut scores = q.slice(head).dot(&k.slice(head).t()) * scale;
        for mut row in scores.axis_iter_mut(Axis(0)) {
            row.zip_mut_with(&allowed.slice(s![b, 0, 0, ..]), |score, &allowed| {
                *score = if allowed { *score } else { f32::NEG_INFINITY }
            });
            let max = row.fold(f32::NEG_INFINITY, |m, &x| m.max(x));
            row.mapv_inplace(|x| (x - max).exp());
            row /= row.sum();
        }
        out.slice_mut(head).assign(&scores.dot(&v.slice(head)));
    }
    Ok(Tensor::from(out))
}

#[register_fake(attention)]
fn attention_fake(
    _cx: &FakeCtx,
    q: &Tensor,
    k: &Tensor,
    v: &Tensor,
    allowed: &Tensor,
) -> Result<Tensor> {
    for (name, t) in [("q", q), ("k", k), ("v", v), ("allowed", allowed)] {
        ensure!(t.dim() == 4, "`{name}` must have 4 dimensions, found {}", t.dim());
    }
    Ok(q.new_empty(q.sizes(), q.dtype()))
}
