//! Scaled dot-product attention: `softmax(q kᵀ scale + mask) v`; and `embedding`.
//!
//! The kernel takes batches that are equal. Operands are expanded with stride 0 to the common
//! batch. In grouped-query attention the heads are split into two dimensions, groups and heads of a
//! group, so that the heads of key and value repeat with stride 0.

use super::dims::{
    fresh, fresh_like, known_equal, require, require_index, require_rank, require_same_dtype,
};
use super::lowering::{Class, Compute, How, Lowering, Metas, Strides};
use super::table;
use crate::dispatch::cpu_exec::{input, output};
use crate::dispatch::value::Value;
use crate::error::{Error, ErrorKind, Result};
use crate::tensor::meta::Dims;
use crate::tensor::shape::{require_equal, require_same};
use crate::tensor::{Tensor, dims_text};
use maquette_ir::DType;
use maquette_ir::loops::named;
use maquette_ir::sym::SymInt;
use maquette_ir::typing::{TypingError, broadcast};
use maquette_kernels as kernels;
use smallvec::{SmallVec, smallvec};

/// The options of an attention besides query, key and value.
struct Attention<'a> {
    mask: Option<&'a Tensor>,
    causal: bool,
    /// The factor of the scores; `1 / sqrt(width)` if absent.
    scale: Option<f64>,
    /// Grouped-query attention: a head of key and value serves several heads of the query.
    grouped: bool,
    /// Whether half-precision weights are rounded before they are multiplied with the values.
    round: bool,
}

impl Attention<'_> {
    /// The sizes of the output: the common batch, the rows of `q`, the width of `v`. Checks all
    /// operands.
    fn sizes(&self, [q, k, v]: [&Tensor; 3]) -> Result<Dims> {
        for (name, t) in [("query", q), ("key", k), ("value", v)] {
            require_rank(name, t, if self.grouped { 3 } else { 2 }..=64)?;
            require_same_dtype(("query", q), (name, t))?;
        }
        super::dims::require_float("query", q)?;
        if self.causal && self.mask.is_some() {
            return Err(Error::value("`attn_mask` must not be given if `is_causal` is true"));
        }
        let last = |t: &Tensor| [t.sizes()[t.dim() - 2], t.sizes()[t.dim() - 1]];
        let ([n, e], [l, width], [values, d]) = (last(q), last(k), last(v));
        let misfit = |must: String, t: &Tensor| {
            Error::value(format!("argument {must}, found sizes {}", dims_text(t.sizes())))
        };
        require_equal(e, width, &|| {
            misfit(format!("`key` must have rows of {e} elements, as `query`"), k)
        })?;
        require_equal(l, values, &|| misfit(format!("`value` must have {l} rows, as `key`"), v))?;
        let mut operands =
            SmallVec::<[(&str, &Tensor); 4]>::from_slice(&[("query", q), ("key", k), ("value", v)]);
        if let Some(m) = self.mask {
            if ![DType::Bool, DType::F32, q.dtype()].contains(&m.dtype()) {
                let (own, found) = (q.dtype(), m.dtype());
                let must = "argument `attn_mask` must have dtype bool, f32 or that of `query`";
                return Err(Error::value(format!(
                    "{must} ({own}), found {found}{}",
                    dims_text(m.sizes())
                )));
            }
            let wanted = [&m.sizes()[..m.dim().saturating_sub(2)], &[n, l]].concat();
            super::views::expand(m.meta(), &wanted).map_err(|e| match e.kind() {
                ErrorKind::Value(_) => {
                    misfit(format!("`attn_mask` must expand to sizes {}", dims_text(&wanted)), m)
                }
                _ => e,
            })?;
            operands.push(("attn_mask", m));
        }
        let mut batches: SmallVec<[Dims; 4]> =
            operands.iter().map(|(_, t)| t.sizes()[..t.dim().saturating_sub(2)].into()).collect();
        if self.grouped {
            for (&(name, t), batch) in operands.iter().zip(&mut batches).take(3).skip(1) {
                require_heads(name, t, q)?;
                batch[t.dim() - 3] = heads(q);
            }
        }
        let mut sizes = broadcast(&batches.iter().map(|b| &b[..]).collect::<SmallVec<[_; 4]>>())
            .map_err(|e| match e {
                TypingError::Broadcast { operand, other, .. } => {
                    let [(a, x), (b, y)] = [operands[operand], operands[other]];
                    let found = format!("{} and {}", dims_text(x.sizes()), dims_text(y.sizes()));
                    Error::value(format!(
                        "the leading sizes of `{a}` and `{b}` must broadcast, found sizes {found}"
                    ))
                }
                e => e.into(),
            })?;
        sizes.extend([n, d]);
        Ok(sizes)
    }

    /// Fills the output and, if requested, the log-sum-exp of each row of scores.
    fn run(&self, [q, k, v]: [&Tensor; 3], out: &Tensor, logsumexp: Option<&Tensor>) -> Result<()> {
        let empty = |t: &Tensor| t.numel().as_i64() == Some(0);
        if empty(out) && logsumexp.is_none_or(empty) {
            return Ok(());
        }
        let rank = out.dim();
        let batch = &out.sizes()[..rank - 2];
        // If keys and values have different numbers of heads, both are repeated in memory, because
        // no one split of the heads has strides for both.
        let (mut k, mut v) = (k.clone(), v.clone());
        if self.grouped && heads(&k).as_i64() != heads(&v).as_i64() {
            [k, v] = [k, v].map(|t| t.repeat_interleave(heads(q).floor_div(heads(&t)), -3));
        }
        // Otherwise the heads are split, and the new dimension repeats keys and values with stride
        // 0.
        let groups = if self.grouped {
            Some([heads(&k), batch[rank - 3].floor_div(heads(&k))])
        } else {
            None
        };
        let split = |t: Tensor, dim: i64| match groups {
            Some(groups) => t.unflatten(dim, groups),
            None => t,
        };
        let wide = |t: &Tensor| {
            split(
                t.expand(batch.iter().chain(&t.sizes()[t.dim() - 2..]).copied().collect::<Dims>()),
                -3,
            )
        };
        let repeated = |t: &Tensor| match groups {
            Some(groups) => {
                let sizes = batch[..rank - 3]
                    .iter()
                    .copied()
                    .chain(groups)
                    .chain(t.sizes()[t.dim() - 2..].iter().copied());
                t.unsqueeze(-3).expand(sizes.collect::<Dims>())
            }
            None => wide(t),
        };
        let mask = match self.mask {
            Some(m) => {
                let sizes: Dims = batch
                    .iter()
                    .copied()
                    .chain([out.sizes()[rank - 2], k.sizes()[k.dim() - 2]])
                    .collect();
                Some(split(m.expand(sizes), -3))
            }
            None => None,
        };
        let logsumexp = logsumexp.map(|t| split(t.clone(), -2));
        let (q, k, v, out) = (wide(q), repeated(&k), repeated(&v), split(out.clone(), -3));
        let width = q.sizes()[q.dim() - 1].as_i64().unwrap_or(1);
        let options = kernels::Attention {
            scale: self.scale.unwrap_or(1.0 / (width as f64).sqrt()),
            causal: self.causal,
            round: self.round,
            mask: mask.as_ref().map(|m| input(m.ok()?)).transpose()?,
            logsumexp: logsumexp.as_ref().map(|t| output(t.ok()?)).transpose()?,
        };
        Ok(kernels::attention(
            &input(q.ok()?)?,
            &input(k.ok()?)?,
            &input(v.ok()?)?,
            options,
            &mut output(out.ok()?)?,
        )?)
    }
}

fn heads(t: &Tensor) -> SymInt {
    t.sizes()[t.dim() - 3]
}

/// Requires the heads of `t` to divide the heads of the query.
#[track_caller]
fn require_heads(name: &str, t: &Tensor, q: &Tensor) -> Result<()> {
    let (own, all) = (heads(t), heads(q));
    if known_equal(own, all) {
        return Ok(());
    }
    let divides = if own.as_i64() == Some(0) { all.eq(0) } else { all.modulo(own).eq(0) };
    require(divides, || {
        format!(
            "the heads of `{name}` must divide the {all} of `query`, found sizes {}",
            dims_text(t.sizes())
        )
    })
}

fn without_dropout(p: f64) -> Result<()> {
    if p == 0.0 {
        Ok(())
    } else {
        Err(Error::value(format!(
            "`dropout_p` must be 0, found {p}: apply dropout to the inputs instead"
        )))
    }
}

/// The operands and options of `scaled_dot_product_attention`.
fn scaled(args: &[Value]) -> Result<([&Tensor; 3], Attention<'_>)> {
    without_dropout(args[4].float()?)?;
    let operands = [args[0].tensor()?, args[1].tensor()?, args[2].tensor()?];
    // PyTorch's fused kernel rounds, and takes 4-d operands. For others PyTorch computes products
    // and a softmax without rounding between.
    let round = operands.iter().all(|t| t.dim() == 4);
    let (causal, grouped) = (args[5].bool()?, args[7].bool()?);
    Ok((
        operands,
        Attention {
            mask: args[3].opt_tensor()?,
            causal,
            scale: args[6].opt(Value::float)?,
            grouped,
            round,
        },
    ))
}

fn scaled_metas(args: &[Value]) -> Result<Metas> {
    let (operands, options) = scaled(args)?;
    let q = operands[0];
    Ok(smallvec![fresh(q, options.sizes(operands)?, q.dtype())])
}

/// The metadata of the output, and of the log-sum-exp, which is stored in the order batch, row,
/// head.
#[track_caller]
fn flash_metas(args: &[Value]) -> Result<Metas> {
    let (q, k, v) = (args[0].tensor()?, args[1].tensor()?, args[2].tensor()?);
    without_dropout(args[3].float()?)?;
    for (name, t) in [("query", q), ("key", k), ("value", v)] {
        require_rank(name, t, 4..=4)?;
        require_same_dtype(("query", q), (name, t))?;
    }
    super::dims::require_float("query", q)?;
    let (n, s) = (q.sizes(), k.sizes());
    require_same(&[n[0], s[1], s[2], n[3]], k.sizes(), || "argument `key` must have".into())?;
    require_same(k.sizes(), v.sizes(), || "argument `value` must have".into())?;
    require_heads("key", k, q)?;
    if let Some(m) = args[5].opt_tensor()? {
        require_same_dtype(("query", q), ("attn_mask", m))?;
        super::views::expand(m.meta(), &[n[0], n[1], n[2], s[2]])?;
    }
    let rows = fresh(q, smallvec![n[0], n[2], n[1]], super::norm::compute_dtype(q.dtype()));
    Ok(smallvec![fresh_like(q, q.dtype())?, super::views::transpose(&rows, 1, 2)?])
}

fn flash(args: &[Value], out: &[Tensor]) -> Result<()> {
    let options = Attention {
        mask: args[5].opt_tensor()?,
        causal: args[4].bool()?,
        scale: args[6].opt(Value::float)?,
        grouped: true,
        round: true,
    };
    options.run([args[0].tensor()?, args[1].tensor()?, args[2].tensor()?], &out[0], Some(&out[1]))
}

fn rows_metas(args: &[Value]) -> Result<Metas> {
    let (weight, index) = (args[0].tensor()?, args[1].tensor()?);
    require_rank("weight", weight, 2..=2)?;
    require_index("indices", index)?;
    let sizes = index.sizes().iter().copied().chain([weight.sizes()[1]]).collect();
    Ok(smallvec![fresh(weight, sizes, weight.dtype())])
}

table! {
    /// Attention and embedding.
    pub(super) static TABLE = {
        General "aten::scaled_dot_product_attention(Tensor query, Tensor key, Tensor value, \
            Tensor? attn_mask=None, float dropout_p=0., bool is_causal=False, *, \
            float? scale=None, bool enable_gqa=False) -> Tensor" =>
            Lowering::Compute(Compute {
                class: Class::Attention,
                strides: Strides::RowMajor,
                metas: |_, a| scaled_metas(a),
                how: How::Host(|a, out| {
                    scaled(a).and_then(|(operands, options)| options.run(operands, &out[0], None))
                }),
            }),
        General "aten::_scaled_dot_product_flash_attention_for_cpu(Tensor query, Tensor key, \
            Tensor value, float dropout_p=0., bool is_causal=False, *, Tensor? attn_mask=None, \
            float? scale=None) -> (Tensor output, Tensor logsumexp)" =>
            Lowering::Compute(Compute {
                class: Class::Attention,
                strides: Strides::FromOperands,
                metas: |_, a| flash_metas(a),
                how: How::Host(flash),
            }),
        General "aten::embedding(Tensor weight, Tensor indices, SymInt padding_idx=-1, \
            bool scale_grad_by_freq=False, bool sparse=False) -> Tensor" =>
            Lowering::Compute(Compute {
                class: Class::Gather,
                strides: Strides::RowMajor,
                metas: |_, a| rows_metas(a),
                how: How::Loops(|cx| {
                    let (weight, indices) = (cx.input(0)?, cx.input(1)?);
                    Ok(smallvec![named::select(&mut cx.nest, &weight, 0, &indices)?.into()])
                }),
            }),
    }
}
