//! Attention and embeddings.

use super::dims::{done, fresh, fresh_like, require, require_index, require_rank, require_same_dtype};
use super::lower::{Class, Compute, Lowering, Metas};
use super::matrix::folded;
use super::table;
use crate::eager::{self, input, output};
use crate::error::{Error, Result};
use crate::meta::Dims;
use crate::methods::aten;
use crate::shape::require_same;
use crate::tensor::{Tensor, dims_text};
use crate::value::Value;
use maquette_ir::{DType, Loc, Scalar};
use maquette_kernels as kernels;
use smallvec::smallvec;

/// The batch and head dimensions of grouped-query attention: each key and value head serves several query heads.
fn repeat_heads(t: &Tensor, heads: maquette_ir::sym::SymInt) -> Result<Tensor> {
    let n = t.dim();
    let (own, wide) = (t.sizes()[n - 3], dims_text(t.sizes()));
    require(heads.modulo(own).eq(0), || {
        format!("the {heads} heads of `query` must be a multiple of those of `key` and `value`, found {wide}")
    })?;
    let mut sizes: Dims = t.sizes().into();
    sizes.insert(n - 2, heads.floor_div(own));
    let mut merged: Dims = t.sizes().into();
    merged[n - 3] = heads;
    Ok(folded(&t.unsqueeze(-3).expand(sizes), merged))
}

/// What attention is asked for besides query, key and value.
struct Attention<'a> {
    mask: Option<&'a Tensor>,
    causal: bool,
    /// Of the scores; `1 / sqrt(width)` where absent.
    scale: Option<f64>,
    /// Heads of key and value may serve several of the query.
    grouped: bool,
}

impl Attention<'_> {
    /// The scores `q kᵀ scale + mask`, and the values for them; in single precision for half-precision operands.
    #[track_caller]
    fn scores(&self, [q, k, v]: [&Tensor; 3]) -> Result<(Tensor, Tensor)> {
        for (name, t) in [("query", q), ("key", k), ("value", v)] {
            require_rank(name, t, 2..=64)?;
            require_same_dtype(("query", q), (name, t))?;
        }
        if !q.dtype().is_float() {
            return Err(Error::value(format!("argument `query` must have a floating dtype, found {}", q.dtype())));
        }
        if self.causal && self.mask.is_some() {
            return Err(Error::value("`attn_mask` must not be given where `is_causal` is true"));
        }
        let wide = super::norm::compute_dtype(q.dtype());
        let (q, mut k, mut v) = (&q.to_dtype(wide), k.to_dtype(wide), v.to_dtype(wide));
        if self.grouped {
            require_rank("query", q, 3..=64)?;
            let heads = q.sizes()[q.dim() - 3];
            (k, v) = (repeat_heads(&k, heads)?, repeat_heads(&v, heads)?);
        }
        let width = q.sizes()[q.dim() - 1];
        let scale = match self.scale {
            Some(s) => s,
            None => 1.0 / (width.as_i64().map_or_else(|| width.guard_int(), Ok)? as f64).sqrt(),
        };
        let mut scores = q.matmul(&k.transpose(-2, -1)) * scale;
        let loc = Loc::caller();
        let lowest = Scalar::Float(f64::NEG_INFINITY);
        let mut hide = |allowed: &Tensor| scores = aten!("where.self", loc; allowed, &scores, aten!("scalar_tensor", loc; lowest, wide));
        if self.causal {
            let (rows, cols) = (q.sizes()[q.dim() - 2], k.sizes()[k.dim() - 2]);
            hide(&aten!("ones", loc; Value::from_dims([rows, cols]), DType::Bool).tril(0));
        }
        match self.mask {
            Some(m) if m.dtype() == DType::Bool => hide(m),
            Some(m) => scores = m + &scores,
            None => {}
        }
        Ok((scores, v))
    }
}

fn without_dropout(p: f64) -> Result<()> {
    if p == 0.0 { Ok(()) } else { Err(Error::value(format!("`dropout_p` must be 0, found {p}: apply dropout to the inputs instead"))) }
}

/// The weighted values, and each row's sum of weights and largest score, over which the weights are taken. `dtype` is the operands' own:
/// half precision rounds the weights before they meet the values, as PyTorch's kernel does.
fn attend(scores: &Tensor, v: &Tensor, dtype: DType) -> Result<[Tensor; 3]> {
    let loc = Loc::caller();
    let max = scores.amax(-1, true);
    // a row that may attend to nothing: its weights are 0, and its sum stands as 1
    let max = aten!("masked_fill.Scalar", loc; &max, &max.eq(f64::NEG_INFINITY), 0.0);
    let weights = (scores - &max).exp();
    let sum = weights.sum_dim(-1, true);
    let sum = aten!("masked_fill.Scalar", loc; &sum, &sum.eq(0.0), 1.0);
    let rounded = weights.to_dtype(dtype).to_dtype(weights.dtype());
    Ok([rounded.matmul(v) / &sum, sum, max])
}

/// `softmax(q kᵀ scale + mask) v`, by products and a softmax.
#[track_caller]
fn scaled_dot_product_attention(a: &[Value]) -> Result<Tensor> {
    without_dropout(a[4].float()?)?;
    let (q, k) = (a[0].tensor()?, a[1].tensor()?);
    let asked = Attention { mask: a[3].opt_tensor()?, causal: a[5].bool()?, scale: a[6].opt(Value::float)?, grouped: a[7].bool()? };
    let (scores, v) = asked.scores([q, k, a[2].tensor()?])?;
    // PyTorch's kernel is for batches of heads; other operands take products and a softmax, here without rounding between them
    let batches = [q, k, &v].iter().all(|t| t.dim() == 4);
    if batches && scores.dtype() != q.dtype() && v.sizes()[2].as_i64() != Some(0) {
        let [y, ..] = attend(&scores, &v, q.dtype())?;
        return Ok(y.to_dtype(q.dtype()));
    }
    Ok(aten!("_safe_softmax", Loc::caller(); &scores, -1i64).matmul(&v).to_dtype(q.dtype()))
}

/// Output like the query, and the logarithm of each row's sum, in memory by batch, row, head.
#[track_caller]
fn flash_metas(a: &[Value]) -> Result<Metas> {
    let (q, k, v) = (a[0].tensor()?, a[1].tensor()?, a[2].tensor()?);
    without_dropout(a[3].float()?)?;
    for (name, t) in [("query", q), ("key", k), ("value", v)] {
        require_rank(name, t, 4..=4)?;
        require_same_dtype(("query", q), (name, t))?;
    }
    super::norm::require_float(q)?;
    let (n, s) = (q.sizes(), k.sizes());
    require_same(&[n[0], s[1], s[2], n[3]], k.sizes(), || "argument `key` must have".into())?;
    require_same(k.sizes(), v.sizes(), || "argument `value` must have".into())?;
    require(n[1].modulo(s[1]).eq(0), || format!("the {} heads of `query` must be a multiple of the {} of `key`", n[1], s[1]))?;
    if let Some(m) = a[5].opt_tensor()? {
        require_same_dtype(("query", q), ("attn_mask", m))?;
        super::views::expand(m.meta(), &[n[0], n[1], n[2], s[2]])?;
    }
    let rows = fresh(q, smallvec![n[0], n[2], n[1]], super::norm::compute_dtype(q.dtype()));
    Ok(smallvec![fresh_like(q, q.dtype())?, super::views::transpose(&rows, 1, 2)?])
}

fn flash(a: &[Value], out: &[Tensor]) -> Result<()> {
    let asked = Attention { mask: a[5].opt_tensor()?, causal: a[4].bool()?, scale: a[6].opt(Value::float)?, grouped: true };
    let (scores, v) = asked.scores([a[0].tensor()?, a[1].tensor()?, a[2].tensor()?])?;
    let [y, sum, max] = attend(&scores, &v, out[0].dtype())?;
    eager::copy(y.ok()?, &out[0])?;
    eager::copy((max + sum.log()).squeeze_dim(-1).ok()?, &out[1])
}

fn rows_metas(a: &[Value]) -> Result<Metas> {
    let (weight, index) = (a[0].tensor()?, a[1].tensor()?);
    require_rank("weight", weight, 2..=2)?;
    require_index("indices", index)?;
    let sizes = index.sizes().iter().copied().chain([weight.sizes()[1]]).collect();
    Ok(smallvec![fresh(weight, sizes, weight.dtype())])
}

table! {
    /// See the module.
    pub(super) static TABLE = {
        "aten::scaled_dot_product_attention(Tensor query, Tensor key, Tensor value, Tensor? attn_mask=None, float dropout_p=0., bool is_causal=False, *, float? scale=None, bool enable_gqa=False) -> Tensor" =>
            Lowering::Composite(|a| done(scaled_dot_product_attention(a)?)),
        "aten::_scaled_dot_product_flash_attention_for_cpu(Tensor query, Tensor key, Tensor value, float dropout_p=0., bool is_causal=False, *, Tensor? attn_mask=None, float? scale=None) -> (Tensor output, Tensor logsumexp)" =>
            Lowering::Compute(Compute { class: Class::Attention, metas: |_, a| flash_metas(a), run: flash }),
        "aten::embedding(Tensor weight, Tensor indices, SymInt padding_idx=-1, bool scale_grad_by_freq=False, bool sparse=False) -> Tensor" =>
            Lowering::Compute(Compute {
                class: Class::Gather,
                metas: |_, a| rows_metas(a),
                run: |a, out| Ok(kernels::embedding(&input(a[0].tensor()?)?, &input(a[1].tensor()?)?, &mut output(&out[0])?)?),
            }),
    }
}
