//! Attention and embeddings.

use super::dims::{done, fresh, require, require_index, require_rank, require_same_dtype};
use super::lower::{Class, Compute, Lowering, Metas};
use super::matrix::folded;
use super::table;
use crate::eager::{input, output};
use crate::error::{Error, Result};
use crate::meta::Dims;
use crate::methods::aten;
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

/// `softmax(q kᵀ scale + mask) v`, by products and a softmax.
#[track_caller]
fn scaled_dot_product_attention(a: &[Value]) -> Result<Tensor> {
    let (q, k, v, mask) = (a[0].tensor()?, a[1].tensor()?, a[2].tensor()?, a[3].opt_tensor()?);
    let (dropout, causal) = (a[4].float()?, a[5].bool()?);
    for (name, t) in [("query", q), ("key", k), ("value", v)] {
        require_rank(name, t, 2..=64)?;
        require_same_dtype(("query", q), (name, t))?;
    }
    if !q.dtype().is_float() {
        return Err(Error::value(format!("argument `query` must have a floating dtype, found {}", q.dtype())));
    }
    if dropout != 0.0 {
        return Err(Error::value(format!("`dropout_p` must be 0, found {dropout}: apply dropout to the inputs instead")));
    }
    if causal && mask.is_some() {
        return Err(Error::value("`attn_mask` must not be given where `is_causal` is true"));
    }
    // half precision rounds once, at the end
    let (dtype, wide) = (q.dtype(), if q.dtype() == DType::F64 { DType::F64 } else { DType::F32 });
    let (q, mut k, mut v) = (&q.to_dtype(wide), k.to_dtype(wide), v.to_dtype(wide));
    if a[7].bool()? {
        require_rank("query", q, 3..=64)?;
        let heads = q.sizes()[q.dim() - 3];
        (k, v) = (repeat_heads(&k, heads)?, repeat_heads(&v, heads)?);
    }
    let width = q.sizes()[q.dim() - 1];
    let scale = match a[6].opt(Value::float)? {
        Some(s) => s,
        None => 1.0 / (width.as_i64().map_or_else(|| width.guard_int(), Ok)? as f64).sqrt(),
    };
    let mut scores = q.matmul(&k.transpose(-2, -1)) * scale;
    let loc = Loc::caller();
    let lowest = Scalar::Float(f64::NEG_INFINITY);
    let mut hide = |allowed: &Tensor| scores = aten!("where.self", loc; allowed, &scores, aten!("scalar_tensor", loc; lowest, wide));
    if causal {
        let (rows, cols) = (q.sizes()[q.dim() - 2], k.sizes()[k.dim() - 2]);
        hide(&aten!("ones", loc; Value::from_dims([rows, cols]), DType::Bool).tril(0));
    }
    match mask {
        Some(m) if m.dtype() == DType::Bool => hide(m),
        Some(m) => scores = m + &scores,
        None => {}
    }
    Ok(aten!("_safe_softmax", loc; &scores, -1i64).matmul(&v).to_dtype(dtype))
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
        "aten::embedding(Tensor weight, Tensor indices, SymInt padding_idx=-1, bool scale_grad_by_freq=False, bool sparse=False) -> Tensor" =>
            Lowering::Compute(Compute {
                class: Class::Gather,
                metas: |_, a| rows_metas(a),
                run: |a, out| Ok(kernels::embedding(&input(a[0].tensor()?)?, &input(a[1].tensor()?)?, &mut output(&out[0])?)?),
            }),
    }
}
