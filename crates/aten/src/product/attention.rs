//! Scaled dot-product attention: `softmax(q kᵀ scale + mask) v`.

use maquette_ir::DType;
use maquette_ir::loops::named::{self, Scale};
use maquette_ir::sym::SymInt;
use maquette_ir::typing::{TypingError, broadcast};
use maquette_kernels as kernels;
use maquette_ops::operator::Derivative;
use maquette_ops::operator::cpu_exec::{input, output};
use maquette_ops::operator::dims::{
    fresh, fresh_like, known_equal, require, require_rank, require_same_dtype,
};
use maquette_ops::operator::loops::{NestCx, NestResults};
use maquette_ops::operator::lowering::{Class, Compute, How, Lowering, Metas, Strides};
use maquette_ops::operator::{dims_text, table};
use maquette_ops::operator::{require_equal, require_same};
use maquette_ops::{Dims, Error, ErrorKind, Result, Tensor, Value};
use smallvec::{SmallVec, smallvec};

/// The options of an attention besides query, key and value.
struct Attention<'a> {
    mask: Option<&'a Tensor>,
    causal: bool,
    /// Grouped-query attention: a head of key and value serves several heads of the query.
    grouped: bool,
}

impl Attention<'_> {
    /// The sizes of the output: the common batch, the rows of `q`, the width of `v`. Checks all
    /// operands.
    fn sizes(&self, [q, k, v]: [&Tensor; 3]) -> Result<Dims> {
        for (name, t) in [("query", q), ("key", k), ("value", v)] {
            require_rank(name, t, if self.grouped { 3 } else { 2 }..=64)?;
            require_same_dtype(("query", q), (name, t))?;
        }
        maquette_ops::operator::dims::require_float("query", q)?;
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
            crate::shape::views::expand(m.meta(), &wanted).map_err(|e| match e.kind() {
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
    let (causal, grouped) = (args[5].bool()?, args[7].bool()?);
    Ok((operands, Attention { mask: args[3].opt_tensor()?, causal, grouped }))
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
    maquette_ops::operator::dims::require_float("query", q)?;
    let (n, s) = (q.sizes(), k.sizes());
    require_same(&[n[0], s[1], s[2], n[3]], k.sizes(), || "argument `key` must have".into())?;
    require_same(k.sizes(), v.sizes(), || "argument `value` must have".into())?;
    require_heads("key", k, q)?;
    if let Some(m) = args[5].opt_tensor()? {
        require_same_dtype(("query", q), ("attn_mask", m))?;
        crate::shape::views::expand(m.meta(), &[n[0], n[1], n[2], s[2]])?;
    }
    let rows = fresh(q, smallvec![n[0], n[2], n[1]], crate::norm::compute_dtype(q.dtype()));
    Ok(smallvec![fresh_like(q, q.dtype())?, crate::shape::views::transpose(&rows, 1, 2)?])
}

/// The places of an attention's options among the arguments.
struct Places {
    mask: usize,
    /// `None` if it is not causal.
    causal: Option<usize>,
    scale: usize,
}

/// The nest of an attention of arguments 0 to 2. `round` says whether weights of half precision are
/// rounded before they are multiplied with the values. A query that sees no key yields 0, or NaN if
/// the softmax is plain.
fn attended(
    cx: &mut NestCx<'_>,
    at: &Places,
    grouped: bool,
    round: bool,
    plain_softmax: bool,
) -> Result<named::Attended> {
    let (query, key, value) = (cx.input(0)?, cx.input(1)?, cx.input(2)?);
    let mask = cx.optional_input(at.mask)?;
    let out = cx.result_dtype(0);
    let batch = cx.result_rank(0).saturating_sub(2);
    let batch = cx.result_axes_in(0, 0..batch);
    let scale = if cx.has_size(0, query.axes.len() - 1, 0)? {
        Scale::None
    } else if cx.is_none(at.scale) {
        Scale::Width
    } else {
        Scale::Number(cx.number(at.scale, out.accumulator())?)
    };
    let of = named::Attention {
        query: &query,
        key: &key,
        value: &value,
        mask: mask.as_ref(),
        batch: &batch,
        causal: at.causal.map_or(Ok(false), |at| cx.flag(at))?,
        scale,
        grouped,
        round,
        plain_softmax,
        out,
    };
    Ok(named::attention(&mut cx.nest, &of)?)
}

fn scaled_nest(cx: &mut NestCx<'_>) -> Result<NestResults> {
    // PyTorch's fused kernel rounds, and takes 4-d operands. For others PyTorch computes products
    // and a softmax without rounding between.
    let is_4d = |v: &Value| v.tensor().is_ok_and(|t| t.dim() == 4);
    let round = cx.args()[..3].iter().all(is_4d);
    let (places, grouped) = (Places { mask: 3, causal: Some(5), scale: 6 }, cx.flag(7)?);
    Ok(smallvec![attended(cx, &places, grouped, round, false)?.output])
}

fn flash_nest(cx: &mut NestCx<'_>) -> Result<NestResults> {
    let places = Places { mask: 5, causal: Some(4), scale: 6 };
    let of = attended(cx, &places, true, true, false)?;
    let dtype = cx.result_dtype(1);
    let logarithms = named::logarithms(&mut cx.nest, &of, dtype)?;
    Ok(smallvec![of.output, logarithms])
}

fn plain_metas(args: &[Value]) -> Result<Metas> {
    let operands = [args[0].tensor()?, args[1].tensor()?, args[2].tensor()?];
    let options = Attention { mask: args[3].opt_tensor()?, causal: false, grouped: false };
    let q = operands[0];
    Ok(smallvec![fresh(q, options.sizes(operands)?, q.dtype())])
}

fn plain_nest(cx: &mut NestCx<'_>) -> Result<NestResults> {
    let places = Places { mask: 3, causal: None, scale: 4 };
    Ok(smallvec![attended(cx, &places, false, false, true)?.output])
}

/// The gradients of query, key and value: row-major, with their sizes.
fn backward_metas(args: &[Value]) -> Result<Metas> {
    let (grad, q, v) = (args[0].tensor()?, args[1].tensor()?, args[3].tensor()?);
    let options =
        Attention { mask: args[4].opt_tensor()?, causal: args[5].bool()?, grouped: false };
    let operands = [q, args[2].tensor()?, v];
    let sizes = options.sizes(operands)?;
    require_same_dtype(("grad", grad), ("query", q))?;
    require_same(&sizes, grad.sizes(), || "argument `grad` must have".into())?;
    Ok(operands.iter().map(|t| fresh(t, t.sizes().into(), t.dtype())).collect())
}

fn backward(args: &[Value], outs: &[Tensor]) -> Result<()> {
    let q = args[1].tensor()?;
    let width = q.sizes()[q.dim() - 1].as_i64().unwrap_or(1);
    let scale = args[6].opt(Value::float)?.unwrap_or(1.0 / (width as f64).sqrt());
    let mask = args[4].opt_tensor()?.map(input).transpose()?;
    let options = kernels::Attention { scale, causal: args[5].bool()?, mask, ..Default::default() };
    let [dq, dk, dv] = outs else { return Err(Error::value("three gradients are written")) };
    let operands = [input(q)?, input(args[2].tensor()?)?, input(args[3].tensor()?)?];
    let (mut dq, mut dk, mut dv) = (output(dq)?, output(dk)?, output(dv)?);
    let outs = [&mut dq, &mut dk, &mut dv];
    Ok(kernels::attention_backward(
        &input(args[0].tensor()?)?,
        operands.each_ref(),
        &options,
        outs,
    )?)
}

table! {
    /// Attention.
    static TABLE = {
        "aten::scaled_dot_product_attention(Tensor query, Tensor key, Tensor value, \
            Tensor? attn_mask=None, float dropout_p=0., bool is_causal=False, *, \
            float? scale=None, bool enable_gqa=False) -> Tensor" => {
            role: General,
            lowering: Lowering::Compute(Compute {
                class: Class::Attention,
                strides: Strides::RowMajor,
                metas: |_, a| scaled_metas(a),
                how: How::Loops(scaled_nest),
            }),
            vjp: crate::grad::ATTENTION,
        },
        "aten::_scaled_dot_product_flash_attention_for_cpu(Tensor query, Tensor key, \
            Tensor value, float dropout_p=0., bool is_causal=False, *, Tensor? attn_mask=None, \
            float? scale=None) -> (Tensor output, Tensor logsumexp)" => {
            role: General,
            lowering: Lowering::Compute(Compute {
                class: Class::Attention,
                strides: Strides::FromOperands,
                metas: |_, a| flash_metas(a),
                how: How::Loops(flash_nest),
            }),
            vjp: crate::grad::FLASH_ATTENTION,
        },
        // What a program writes as products and a softmax: a query that sees no key yields NaN.
        "fast::attention(Tensor query, Tensor key, Tensor value, Tensor? attn_mask=None, \
            float? scale=None) -> Tensor" => {
            role: General,
            lowering: Lowering::Compute(Compute {
                class: Class::Attention,
                strides: Strides::RowMajor,
                metas: |_, a| plain_metas(a),
                how: How::Loops(plain_nest),
            }),
            vjp: Derivative::Refused("only compiled programs call it"),
        },
        "grad::attention(Tensor grad, Tensor query, Tensor key, Tensor value, \
            Tensor? attn_mask=None, bool is_causal=False, float? scale=None) \
            -> (Tensor, Tensor, Tensor)" => {
            role: General,
            lowering: Lowering::Compute(Compute {
                class: Class::Attention,
                strides: Strides::RowMajor,
                metas: |_, a| backward_metas(a),
                how: How::Kernel(backward),
            }),
            vjp: crate::grad::ATTENTION_BACKWARD,
        },
    }
}
