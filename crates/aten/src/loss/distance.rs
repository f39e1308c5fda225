//! Distances between vectors: `cdist`, `pdist`, `pairwise_distance`, `cosine_similarity`; and the
//! losses that use them.

use super::{Reduces, promoted};
use maquette_ir::loops::fold::{Fold, Order};
use maquette_ir::loops::named::{self, Input};
use maquette_ir::loops::{Axes, AxisId, IndexMap};
use maquette_ir::scalar_expr::{BinaryOp, UnaryOp};
use maquette_ir::typing::broadcast;
use maquette_ir::{DType, Scalar};
use maquette_ops::Reduction;
use maquette_ops::operator::dims::{
    done, fresh, require_float, require_floats, require_rank, require_same_dtype,
};
use maquette_ops::operator::loops::{NestCx, NestResults};
use maquette_ops::operator::lowering::{Class, Compute, How, Lowering, Metas, Strides};
use maquette_ops::operator::{dims_text, host, table};
use maquette_ops::operator::{require_equal, wrap_dim};
use maquette_ops::{Dims, Error, Result, Tensor, Value};
use smallvec::smallvec;

const fn compute(
    metas: fn(&maquette_ops::FakeCtx, &[Value]) -> Result<Metas>,
    how: How,
) -> Lowering {
    Lowering::Compute(Compute { class: Class::Reduce, strides: Strides::RowMajor, metas, how })
}

/// The `p`-norm of differences.
fn norm(differences: impl Iterator<Item = f64>, p: f64) -> f64 {
    let greatest = |a: f64, b: f64| if a.is_nan() || b.is_nan() { f64::NAN } else { a.max(b) };
    let d = differences.map(f64::abs);
    match p {
        0.0 => d.map(|x| if x == 0.0 || x.is_nan() { x } else { 1.0 }).sum(),
        1.0 => d.sum(),
        2.0 => d.map(|x| x * x).sum::<f64>().sqrt(),
        f64::INFINITY => d.fold(0.0, greatest),
        _ => d.map(|x| x.powf(p)).sum::<f64>().powf(1.0 / p),
    }
}

fn order(p: &Value) -> Result<f64> {
    let p = p.float()?;
    if p >= 0.0 { Ok(p) } else { Err(Error::value(format!("`p` must not be negative, found {p}"))) }
}

fn wide_float(op: &str, t: &Tensor) -> Result<()> {
    match t.dtype() {
        DType::F32 | DType::F64 => Ok(()),
        found => Err(Error::value(format!("`{op}` takes f32 and f64, found {found}"))),
    }
}

/// The metadata of `cdist`: the broadcast batch, a row for each vector of `x1` and a column for
/// each vector of `x2`.
fn pairs_meta(x1: &Tensor, x2: &Tensor) -> Result<Metas> {
    require_rank("x1", x1, 2..=64)?;
    require_rank("x2", x2, 2..=64)?;
    require_same_dtype(("x1", x1), ("x2", x2))?;
    let ((n, a), (m, b)) = ((x1.dim(), x1.sizes()), (x2.dim(), x2.sizes()));
    require_equal(a[n - 1], b[m - 1], &|| {
        Error::value(format!(
            "vectors of `x1` {} and `x2` {} must have the same length",
            dims_text(a),
            dims_text(b)
        ))
    })?;
    let mut sizes: Dims = broadcast(&[&a[..n - 2], &b[..m - 2]])?;
    sizes.extend([a[n - 2], b[m - 2]]);
    Ok(smallvec![fresh(x1, sizes, x1.dtype())])
}

/// The `p`-norms of the differences of all pairs of vectors. They are computed in `f64`, with sums
/// in the order of the elements.
fn pairs(cx: &mut NestCx<'_>, p: f64) -> Result<NestResults> {
    let (x1, x2, wide) = (cx.input(0)?, cx.input(1)?, DType::F64);
    let (axes, out) = (cx.result_axes(0), cx.result_dtype(0));
    let missing = || Error::value("the operands are matrices");
    let (&along, _) = x1.axes.split_last().ok_or_else(missing)?;
    let [batch @ .., row, column] = &axes[..] else { return Err(missing()) };
    let at = |cx: &mut NestCx<'_>, x: &Input, vector: AxisId| -> Result<IndexMap> {
        let lead = x.axes.len().saturating_sub(2);
        let of = batch.iter().skip(batch.len().saturating_sub(lead));
        let mut at = IndexMap::default();
        for (dim, axis) in x.axes[..lead].iter().zip(of) {
            at.0.push(cx.nest.broadcast(*dim, *axis)?.into());
        }
        at.0.extend([vector.into(), along.into()]);
        Ok(at)
    };
    let (at1, at2) = (at(cx, &x1, *row)?, at(cx, &x2, *column)?);
    let over: Axes = axes.iter().copied().chain([along]).collect();
    let fold = if p == f64::INFINITY { Fold::Max } else { Fold::Sum };
    let sum = cx.nest.reduce(&over, &[along], fold, Order::Sequential, |s| {
        let (a, b) = (s.load(x1.id, at1)?, s.load(x2.id, at2)?);
        let (a, b) = (s.expr.cast(a, wide)?, s.expr.cast(b, wide)?);
        let difference = s.expr.binary(BinaryOp::Sub, a, b)?;
        let power = named::power(s, difference, p)?;
        let is_nan = s.expr.unary(UnaryOp::IsNan, difference)?;
        match p {
            // A NaN counts as itself.
            0.0 => Ok(s.expr.select(is_nan, difference, power)?),
            // As in PyTorch, the greatest distance ignores NaN. That of no elements is 0.
            f64::INFINITY => {
                let zero = s.expr.constant(0.0, wide);
                Ok(s.expr.select(is_nan, zero, power)?)
            }
            _ => Ok(power),
        }
    })?;
    let y = cx.nest.map(&axes, |s| {
        let sum = s.load(sum, &axes[..])?;
        let zero = s.expr.constant(0.0, wide);
        let sum = if p == f64::INFINITY { s.expr.binary(BinaryOp::Max, sum, zero)? } else { sum };
        let y = named::root(s, sum, p)?;
        Ok(s.expr.cast(y, out)?)
    })?;
    Ok(smallvec![y.into()])
}

fn cdist_metas(args: &[Value]) -> Result<Metas> {
    wide_float("cdist", args[0].tensor()?)?;
    order(&args[2])?;
    match args[3].opt(Value::int_i64)? {
        None | Some(0..=2) => pairs_meta(args[0].tensor()?, args[1].tensor()?),
        Some(other) => {
            Err(Error::value(format!("`compute_mode` must be 0, 1 or 2, found {other}")))
        }
    }
}

fn pdist_metas(args: &[Value]) -> Result<Metas> {
    let x = args[0].tensor()?;
    require_rank("self", x, 2..=2)?;
    wide_float("pdist", x)?;
    order(&args[1])?;
    let n = x.sizes()[0];
    Ok(smallvec![fresh(x, smallvec![(n * (n - 1)).floor_div(2)], x.dtype())])
}

fn pdist(a: &[Value], out: &Tensor) -> Result<()> {
    let (x, p) = (a[0].tensor()?, order(&a[1])?);
    let (data, sizes) = (host::reals(x)?, host::sizes(x)?);
    let row = |i: usize| &data[i * sizes[1]..][..sizes[1]];
    let mut distances = Vec::new();
    for i in 0..sizes[0] {
        distances.extend(
            (i + 1..sizes[0]).map(|j| norm(row(i).iter().zip(row(j)).map(|(a, b)| a - b), p)),
        );
    }
    host::store_reals(out, &distances)
}

/// The `p`-norm of `x1 - x2 + eps` over the last dimension.
fn pairwise(x1: &Tensor, x2: &Tensor, p: f64, eps: f64, keepdim: bool) -> Result<Tensor> {
    if x1.dim().max(x2.dim()) == 0 {
        return Err(Error::value("`pairwise_distance` takes vectors, found two 0-d tensors"));
    }
    Ok((x1 - x2 + eps).norm_dim(p, [-1i64], keepdim))
}

fn cosine_similarity(x1: &Tensor, x2: &Tensor, dim: i64, eps: f64) -> Result<Tensor> {
    let dtype = promoted(&[x1, x2]);
    if !dtype.is_float() {
        return Err(Error::value(format!(
            "`cosine_similarity` takes floats, found `x1` {} and `x2` {}",
            x1.dtype(),
            x2.dtype()
        )));
    }
    let sizes = broadcast(&[x1.sizes(), x2.sizes()])?;
    wrap_dim(dim, sizes.len())?;
    // Each operand is normalized by itself, so that no product overflows.
    let unit = |x: &Tensor| {
        let x = x.to_dtype(dtype).expand(sizes.clone());
        let norm = x.linalg_vector_norm(2.0, [dim], true).clamp_min(eps);
        x / norm
    };
    Ok((unit(x1) * unit(x2)).sum_dim([dim], false))
}

fn cosine_embedding(x1: &Tensor, x2: &Tensor, target: &Tensor, margin: f64) -> Result<Tensor> {
    let rank = target.dim();
    if rank > 1 || x1.dim() != rank + 1 || x2.dim() != rank + 1 {
        let [a, b, t] = [x1, x2, target].map(|t| dims_text(t.sizes()));
        return Err(Error::value(format!(
            "inputs must have one dimension more than a target of 0 or 1 dimensions, found {t} \
                with {a} and {b}"
        )));
    }
    let dim = [rank as i64];
    let dot = |a: &Tensor, b: &Tensor| (a * b).sum_dim(dim, false);
    let cos = dot(x1, x2) / ((dot(x1, x1) + 1e-12) * (dot(x2, x2) + 1e-12)).sqrt();
    let zero = cos.zeros_like();
    Ok(target.eq(1).where_(1.0 - &cos, &zero)
        + target.eq(-1).where_((&cos - margin).clamp_min(0), &zero))
}

fn triplet_margin(a: &[Value]) -> Result<Tensor> {
    let (anchor, positive, negative) = (a[0].tensor()?, a[1].tensor()?, a[2].tensor()?);
    if anchor.dim() != positive.dim() || anchor.dim() != negative.dim() {
        let [a, p, n] = [anchor, positive, negative].map(|t| dims_text(t.sizes()));
        return Err(Error::value(format!(
            "`anchor`, `positive` and `negative` must have equally many dimensions, found {a}, \
                {p} and {n}"
        )));
    }
    let (margin, p, eps) = (a[3].float()?, a[4].float()?, a[5].float()?);
    let near = pairwise(anchor, positive, p, eps, false)?;
    let mut far = pairwise(anchor, negative, p, eps, false)?;
    if a[6].bool()? {
        far = far.minimum(pairwise(positive, negative, p, eps, false)?);
    }
    Ok((near - far + margin).clamp_min(0))
}

table! {
    /// Distances and losses of distances.
    static TABLE = {
        "aten::dist(Tensor self, Tensor other, Scalar p=2) -> Tensor" => {
            role: General,
            lowering: Lowering::Composite(|a| {
                let (x, y, p): (_, _, Scalar) = (a[0].tensor()?, a[1].tensor()?, a[2].scalar()?);
                require_floats(&[("self", x), ("other", y)])?;
                done((x - y).norm(p))
            }),
        },
        "aten::_cdist_forward(Tensor x1, Tensor x2, float p, \
            int? compute_mode) -> Tensor" => {
            role: General,
            lowering: compute(
                |_, a| cdist_metas(a),
                How::Loops(|cx| {
                    let p = cx.scalar(2)?.to_f64();
                    pairs(cx, p)
                }),
            ),
            vjp: crate::grad::CDIST,
        },
        "aten::cdist(Tensor x1, Tensor x2, float p=2., int? compute_mode=None) -> Tensor" => {
            role: General,
            lowering: Lowering::Composite(|a| {
                maquette_ops::call("aten::_cdist_forward", a.iter().cloned().collect())
            }),
        },
        "aten::_euclidean_dist(Tensor x1, Tensor x2) -> Tensor" => {
            role: General,
            lowering: compute(
                |_, a| {
                    require_float("x1", a[0].tensor()?)?;
                    pairs_meta(a[0].tensor()?, a[1].tensor()?)
                },
                How::Loops(|cx| pairs(cx, 2.0)),
            ),
            vjp: crate::grad::EUCLIDEAN,
        },
        "aten::_pdist_forward(Tensor self, float p=2.) -> Tensor" => {
            role: General,
            lowering: compute(|_, a| pdist_metas(a), How::Host(|a, out| pdist(a, &out[0]))),
            vjp: crate::grad::PDIST,
        },
        "aten::pdist(Tensor self, float p=2.) -> Tensor" => {
            role: General,
            lowering: Lowering::Composite(|a| {
                maquette_ops::call("aten::_pdist_forward", a.iter().cloned().collect())
            }),
        },
        "aten::pairwise_distance(Tensor x1, Tensor x2, float p=2., \
            float eps=9.9999999999999995e-07, bool keepdim=False) -> Tensor" => {
            role: General,
            lowering: Lowering::Composite(|a| {
                done(pairwise(
                    a[0].tensor()?,
                    a[1].tensor()?,
                    a[2].float()?,
                    a[3].float()?,
                    a[4].bool()?,
                )?)
            }),
        },
        "aten::cosine_similarity(Tensor x1, Tensor x2, int dim=1, \
            float eps=1e-08) -> Tensor" => {
            role: General,
            lowering: Lowering::Composite(|a| {
                done(cosine_similarity(
                    a[0].tensor()?,
                    a[1].tensor()?,
                    a[2].int_i64()?,
                    a[3].float()?,
                )?)
            }),
        },
        "aten::cosine_embedding_loss(Tensor input1, Tensor input2, Tensor target, \
            float margin=0., int reduction=1) -> Tensor" => {
            role: General,
            lowering: Lowering::Composite(|a| {
                Reduction::of(&a[4])?.apply(cosine_embedding(
                    a[0].tensor()?,
                    a[1].tensor()?,
                    a[2].tensor()?,
                    a[3].float()?,
                )?)
            }),
        },
        "aten::triplet_margin_loss(Tensor anchor, Tensor positive, Tensor negative, \
            float margin=1., float p=2., float eps=9.9999999999999995e-07, bool swap=False, \
            int reduction=1) -> Tensor" => {
            role: General,
            lowering: Lowering::Composite(|a| Reduction::of(&a[7])?.apply(triplet_margin(a)?)),
        },
    }
}
