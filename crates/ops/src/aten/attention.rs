//! Attention and embeddings.

use super::dims::{fresh, fresh_like, require, require_index, require_rank, require_same_dtype};
use super::lower::{Class, Compute, Lowering, Metas};
use super::table;
use crate::eager::{input, output};
use crate::error::{Error, Result};
use crate::meta::Dims;
use crate::shape::{require_equal, require_same};
use crate::tensor::{Tensor, dims_text};
use crate::value::Value;
use maquette_ir::DType;
use maquette_ir::sym::SymInt;
use maquette_ir::typing::broadcast;
use maquette_kernels as kernels;
use smallvec::smallvec;

/// What attention is asked for besides query, key and value.
struct Attention<'a> {
    mask: Option<&'a Tensor>,
    causal: bool,
    /// Of the scores; `1 / sqrt(width)` where absent.
    scale: Option<f64>,
    /// Heads of key and value may serve several of the query.
    grouped: bool,
    /// Weights in half precision are rounded before they meet the values.
    round: bool,
}

impl Attention<'_> {
    /// The output's sizes: the common batch, and the rows of `q` by the width of `v`.
    fn sizes(&self, [q, k, v]: [&Tensor; 3]) -> Result<Dims> {
        for (name, t) in [("query", q), ("key", k), ("value", v)] {
            require_rank(name, t, if self.grouped { 3 } else { 2 }..=64)?;
            require_same_dtype(("query", q), (name, t))?;
        }
        super::norm::require_float(q)?;
        if self.causal && self.mask.is_some() {
            return Err(Error::value("`attn_mask` must not be given where `is_causal` is true"));
        }
        let last = |t: &Tensor| [t.sizes()[t.dim() - 2], t.sizes()[t.dim() - 1]];
        let ([n, e], [l, width], [values, d]) = (last(q), last(k), last(v));
        let unlike = |what: &str, a, b| Error::value(format!("{what}, found {a} and {b}"));
        require_equal(e, width, &|| unlike("`query` and `key` must have one width", e, width))?;
        require_equal(l, values, &|| unlike("`key` and `value` must have as many rows", l, values))?;
        let batch = |t: &Tensor| -> Result<Dims> {
            let mut sizes: Dims = t.sizes()[..t.dim().saturating_sub(2)].into();
            if let (true, Some(own)) = (self.grouped, sizes.last_mut()) {
                let heads = q.sizes()[q.dim() - 3];
                require(heads.modulo(*own).eq(0), || {
                    format!("the {heads} heads of `query` must be a multiple of those of `key` and `value`, found {}", dims_text(t.sizes()))
                })?;
                *own = heads;
            }
            Ok(sizes)
        };
        let mut batches = vec![batch(q)?, batch(k)?, batch(v)?];
        if let Some(m) = self.mask {
            if m.dtype() != DType::Bool && !m.dtype().is_float() {
                return Err(Error::value(format!("argument `attn_mask` must be bool or floating, found {}", m.dtype())));
            }
            let outer = &m.sizes()[..m.dim().saturating_sub(2)];
            super::views::expand(m.meta(), &[outer, &[n, l]].concat())?;
            batches.push(outer.into());
        }
        let mut sizes: Dims = broadcast(&batches.iter().map(|b| &b[..]).collect::<Vec<_>>())?;
        sizes.extend([n, d]);
        Ok(sizes)
    }

    /// Fills the output and, where asked, the logarithms of the rows' sums.
    fn run(&self, [q, k, v]: [&Tensor; 3], out: &Tensor, logsumexp: Option<&Tensor>) -> Result<()> {
        let rank = out.dim();
        let batch = &out.sizes()[..rank - 2];
        // Under grouped heads the batch has one dimension more, over which key and value are repeated by a stride of 0.
        let own = if self.grouped { Some(k.sizes()[k.dim() - 3]) } else { None };
        let split = |t: Tensor, dim: i64| match own {
            Some(own) => t.unflatten(dim, [own, SymInt::from(-1)]),
            None => t,
        };
        let wide = |t: &Tensor| split(t.expand(batch.iter().chain(&t.sizes()[t.dim() - 2..]).copied().collect::<Dims>()), -3);
        let repeated = |t: &Tensor| match own {
            Some(own) => {
                let group = batch[rank - 3].floor_div(own);
                let sizes = batch[..rank - 3].iter().copied().chain([own, group]).chain(t.sizes()[t.dim() - 2..].iter().copied());
                t.unsqueeze(-3).expand(sizes.collect::<Dims>())
            }
            None => wide(t),
        };
        let mask = match self.mask {
            Some(m) => {
                let sizes: Dims = batch.iter().copied().chain([out.sizes()[rank - 2], k.sizes()[k.dim() - 2]]).collect();
                Some(split(m.expand(sizes), -3))
            }
            None => None,
        };
        let logsumexp = logsumexp.map(|t| split(t.clone(), -2));
        let (q, k, v, out) = (wide(q), repeated(k), repeated(v), split(out.clone(), -3));
        let width = q.sizes()[q.dim() - 1].as_i64().unwrap_or(1);
        let asked = kernels::Attention {
            scale: self.scale.unwrap_or(1.0 / (width as f64).sqrt()),
            causal: self.causal,
            round: self.round,
            mask: mask.as_ref().map(|m| input(m.ok()?)).transpose()?,
            logsumexp: logsumexp.as_ref().map(|t| output(t.ok()?)).transpose()?,
        };
        Ok(kernels::attention(&input(q.ok()?)?, &input(k.ok()?)?, &input(v.ok()?)?, asked, &mut output(out.ok()?)?)?)
    }
}

fn without_dropout(p: f64) -> Result<()> {
    if p == 0.0 { Ok(()) } else { Err(Error::value(format!("`dropout_p` must be 0, found {p}: apply dropout to the inputs instead"))) }
}

/// `softmax(q kᵀ scale + mask) v`.
fn scaled(a: &[Value]) -> Result<([&Tensor; 3], Attention<'_>)> {
    without_dropout(a[4].float()?)?;
    let operands = [a[0].tensor()?, a[1].tensor()?, a[2].tensor()?];
    // PyTorch's kernel, which rounds, is for batches of heads; other operands take products and a softmax there, without rounding between
    let round = operands.iter().all(|t| t.dim() == 4);
    let (causal, grouped) = (a[5].bool()?, a[7].bool()?);
    Ok((operands, Attention { mask: a[3].opt_tensor()?, causal, scale: a[6].opt(Value::float)?, grouped, round }))
}

fn scaled_metas(a: &[Value]) -> Result<Metas> {
    let (operands, asked) = scaled(a)?;
    let q = operands[0];
    Ok(smallvec![fresh(q, asked.sizes(operands)?, q.dtype())])
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
    let asked = Attention { mask: a[5].opt_tensor()?, causal: a[4].bool()?, scale: a[6].opt(Value::float)?, grouped: true, round: true };
    asked.run([a[0].tensor()?, a[1].tensor()?, a[2].tensor()?], &out[0], Some(&out[1]))
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
            Lowering::Compute(Compute {
                class: Class::Attention,
                metas: |_, a| scaled_metas(a),
                run: |a, out| scaled(a).and_then(|(operands, asked)| asked.run(operands, &out[0], None)),
            }),
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
