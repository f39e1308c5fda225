//! Elementwise losses of predictions against targets, and their reduction.

pub(crate) mod classification;
pub(crate) mod derivative;
pub(crate) mod distance;

use crate::shape::views;
use maquette_ir::loops::fold::{Fold, Order};
use maquette_ir::loops::named::Input;
use maquette_ir::loops::{Axes, AxisId, IndexMap, StageOutput};
use maquette_ir::scalar_expr::{BinaryOp, CmpOp, UnaryOp};
use maquette_ir::typing::{broadcast, elementwise_strides, promote};
use maquette_ir::{DType, Scalar};
use maquette_ops::operator::dims::{done, fresh, require_float, require_floats};
use maquette_ops::operator::loops::{NestCx, NestResults};
use maquette_ops::operator::lowering::{
    Class, Compute, How, Lowering, Metas, Strides, operand, wide,
};
use maquette_ops::operator::require_same;
use maquette_ops::operator::{dims_text, host, table};
use maquette_ops::{Error, Outputs, Reduction, Result, Tensor, Value};
use smallvec::smallvec;
use std::f64::consts::PI;

/// How the rows of losses reduce.
pub(super) trait Reduces: Sized {
    /// The reduction with PyTorch's number.
    fn of(v: &Value) -> Result<Reduction>;

    /// Reduces a tensor of losses.
    fn apply(self, loss: Tensor) -> Result<Outputs>;

    /// The reduction of a stage of losses over some axes, `f64`. The mean divides by `total`, or by
    /// the number of losses.
    fn append(
        self,
        cx: &mut NestCx<'_>,
        losses: StageOutput,
        axes: &[AxisId],
        total: Option<StageOutput>,
    ) -> Result<StageOutput>;

    /// Reduces losses on the host, and stores the result.
    fn store(self, out: &Tensor, losses: &[f64]) -> Result<()>;
}

impl Reduces for Reduction {
    fn of(v: &Value) -> Result<Reduction> {
        Ok(match v.int_i64()? {
            0 => Reduction::None,
            1 => Reduction::Mean,
            2 => Reduction::Sum,
            other => {
                return Err(Error::value(format!(
                    "`reduction` must be 0 (none), 1 (mean) or 2 (sum), found {other}"
                )));
            }
        })
    }

    fn apply(self, loss: Tensor) -> Result<Outputs> {
        done(match self {
            Reduction::None => loss,
            Reduction::Mean => loss.mean(),
            Reduction::Sum => loss.sum(),
        })
    }

    fn append(
        self,
        cx: &mut NestCx<'_>,
        losses: StageOutput,
        axes: &[AxisId],
        total: Option<StageOutput>,
    ) -> Result<StageOutput> {
        let out = cx.result_dtype(0);
        if self == Reduction::None {
            let y = cx.nest.map(axes, |s| {
                let loss = s.load(losses, axes)?;
                Ok(s.expr.cast(loss, out)?)
            })?;
            return Ok(y.into());
        }
        let sum = sum_of(cx, losses, axes)?;
        let count = cx.nest.count(axes)?;
        let y = cx.nest.map(&[], |s| {
            let mut y = s.load(sum, [])?;
            if self == Reduction::Mean {
                let by = match total {
                    Some(total) => s.load(total, [])?,
                    None => {
                        let count = s.launch(count)?;
                        s.expr.cast(count, DType::F64)?
                    }
                };
                y = s.expr.binary(BinaryOp::Div, y, by)?;
            }
            Ok(s.expr.cast(y, out)?)
        })?;
        Ok(y.into())
    }

    fn store(self, out: &Tensor, losses: &[f64]) -> Result<()> {
        let sum = || losses.iter().sum::<f64>();
        match self {
            Reduction::None => host::store_reals(out, losses),
            Reduction::Mean => host::store_reals(out, &[sum() / losses.len() as f64]),
            Reduction::Sum => host::store_reals(out, &[sum()]),
        }
    }
}

/// The sum of a stage over all of its axes.
pub(super) fn sum_of(cx: &mut NestCx<'_>, of: StageOutput, axes: &[AxisId]) -> Result<StageOutput> {
    let mut along = Axes::from_slice(axes);
    if along.is_empty() {
        along.push(cx.nest.unit_axis());
    }
    let sum = cx.nest.reduce(&along, &along, Fold::Sum, Order::Lanes, |s| s.load(of, axes))?;
    Ok(sum.into())
}

/// The promoted dtype of tensors.
pub(super) fn promoted(tensors: &[&Tensor]) -> DType {
    promote(tensors.iter().map(|t| operand(&Value::Tensor((*t).clone()))))
}

fn require_float_dtype(x: &Tensor, y: &Tensor, dtype: DType) -> Result<()> {
    if dtype.is_float() {
        return Ok(());
    }
    Err(Error::value(format!(
        "the loss takes floats, found `self` {} and `target` {}",
        x.dtype(),
        y.dtype()
    )))
}

/// `|self - target|`, computed in a dtype in which the operands are exact.
fn difference(x: &Tensor, y: &Tensor, dtype: DType) -> Result<Tensor> {
    require_float_dtype(x, y, dtype)?;
    Ok(x.to_dtype(wide(dtype)) - y.to_dtype(wide(dtype)))
}

fn mse(x: &Tensor, y: &Tensor) -> Result<Tensor> {
    require_float_dtype(x, y, promoted(&[x, y]))?;
    Ok((x - y).square())
}

fn smooth_l1(x: &Tensor, y: &Tensor, beta: f64) -> Result<Tensor> {
    if beta.is_nan() || beta < 0.0 {
        return Err(Error::value(format!("`beta` must not be negative, found {beta}")));
    }
    let dtype = promoted(&[x, y]);
    let e = difference(x, y, dtype)?;
    let d = e.abs();
    let loss = match beta {
        0.0 => d,
        _ => d.lt(beta).where_(e.square() * (0.5 / beta), d - 0.5 * beta),
    };
    Ok(loss.to_dtype(dtype))
}

fn huber(x: &Tensor, y: &Tensor, delta: f64) -> Result<Tensor> {
    if delta.is_nan() || delta <= 0.0 {
        return Err(Error::value(format!("`delta` must be positive, found {delta}")));
    }
    // the square of the difference itself has a second derivative at 0
    let e = difference(x, y, x.dtype())?;
    let d = e.abs();
    Ok(d.lt(delta).where_(e.square() * 0.5, (&d - 0.5 * delta) * delta).to_dtype(x.dtype()))
}

fn soft_margin(x: &Tensor, y: &Tensor) -> Result<Tensor> {
    require_float("self", x)?;
    Ok((-x * y.to_dtype(x.dtype())).exp().log1p())
}

fn kl_div(x: &Tensor, y: &Tensor, log_target: bool) -> Result<Tensor> {
    require_floats(&[("self", x), ("target", y)])?;
    Ok(if log_target { y.exp() * (y - x) } else { y.xlogy(y) - y * x })
}

fn poisson_nll(x: &Tensor, y: &Tensor, log_input: bool, full: bool, eps: f64) -> Tensor {
    let loss = if log_input { x.exp() - y * x } else { x - y * (x + eps).log() };
    if !full {
        return loss;
    }
    // Stirling's approximation of `log(target!)`.
    let stirling = y * y.log() - y + (y * (2.0 * PI)).log() * 0.5;
    loss + y.le(1).where_(0.0, stirling)
}

fn hinge_embedding(x: &Tensor, y: &Tensor, margin: f64) -> Tensor {
    // PyTorch truncates the margin if the operands are integers.
    let margin =
        if x.dtype().is_float() { Scalar::Float(margin) } else { Scalar::Int(margin as i64) };
    let (zero, near) = (x.zeros_like(), (-x + margin).clamp_min(0));
    y.ne(1).where_(near, &zero) + y.ne(-1).where_(x, &zero)
}

/// Requires an operand that scales losses to expand to their sizes.
fn require_expands(name: &str, t: &Tensor, losses: &Tensor) -> Result<()> {
    views::expand(t.meta(), losses.sizes()).map(drop).map_err(|_| {
        Error::value(format!(
            "argument `{name}` {} must expand to the sizes {} of the losses",
            dims_text(t.sizes()),
            dims_text(losses.sizes())
        ))
    })
}

fn bce_with_logits(
    x: &Tensor,
    y: &Tensor,
    weight: Option<&Tensor>,
    pos_weight: Option<&Tensor>,
) -> Result<Tensor> {
    require_floats(&[("self", x), ("target", y)])?;
    require_expands("self", x, y)?;
    let mut factor = None;
    if let Some(p) = pos_weight {
        require_expands("pos_weight", p, y)?;
        factor = Some((p - 1) * y + 1);
    }
    let log_likelihood = x.log_sigmoid();
    let loss = (1 - y) * x - factor.map_or(log_likelihood.clone(), |f| log_likelihood * f);
    let Some(w) = weight else { return Ok(loss.to_dtype(y.dtype())) };
    require_expands("weight", w, y)?;
    Ok((loss * w).to_dtype(y.dtype()))
}

fn bce_metas(args: &[Value]) -> Result<Metas> {
    let (x, y) = (args[0].tensor()?, args[1].tensor()?);
    require_float("self", x)?;
    maquette_ops::operator::dims::require_same_dtype(("self", x), ("target", y))?;
    require_same(x.sizes(), &broadcast(&[x.sizes(), y.sizes()])?, || {
        "the losses have, with `self`,".into()
    })?;
    if let Some(w) = args[2].opt_tensor()? {
        require_expands("weight", w, x)?;
    }
    let m = fresh(x, x.sizes().into(), x.dtype());
    Ok(smallvec![match Reduction::of(&args[3])? {
        Reduction::None => m.with_strides(elementwise_strides(
            x.sizes(),
            &[(x.sizes(), x.strides()), (y.sizes(), y.strides())]
        )?),
        _ => fresh(x, smallvec![], x.dtype()),
    }])
}

/// `-w (t log(p) + (1 - t) log(1 - p))`, computed in `f64`.
fn bce(cx: &mut NestCx<'_>) -> Result<NestResults> {
    cx.explain(not_a_probability);
    let (x, target, weight) = (cx.input(0)?, cx.input(1)?, cx.optional_input(2)?);
    let (reduction, wide) = (cx.by_integers(|a| Reduction::of(&a[3]))?, DType::F64);
    let target_at = expanded(cx, &target, &x.axes)?;
    let weight = match weight {
        Some(weight) => Some((weight.id, expanded(cx, &weight, &x.axes)?)),
        None => None,
    };
    let message = cx.nest.message("every element must be a probability between 0 and 1");
    let losses = cx.nest.map(&x.axes, |s| {
        let (p, target) = (s.element(&x, wide)?, s.load(target.id, target_at)?);
        let target = s.expr.cast(target, wide)?;
        let (zero, one) = (s.expr.constant(0.0, wide), s.expr.constant(1.0, wide));
        for probability in [p, target] {
            let from = s.expr.compare(CmpOp::Ge, probability, zero)?;
            let to = s.expr.compare(CmpOp::Le, probability, one)?;
            let is_inside = s.expr.binary(BinaryOp::And, from, to)?;
            s.expr.assert(is_inside, message)?;
        }
        // PyTorch limits the logarithms to -100, so that no loss is infinite.
        let rest = s.expr.binary(BinaryOp::Sub, one, p)?;
        let mut log = |x| {
            let (log, least) = (s.expr.unary(UnaryOp::Log, x)?, s.expr.constant(-100.0, wide));
            s.expr.binary(BinaryOp::Max, log, least)
        };
        let (is, is_not) = (log(p)?, log(rest)?);
        let other = s.expr.binary(BinaryOp::Sub, target, one)?;
        let other = s.expr.binary(BinaryOp::Mul, other, is_not)?;
        let own = s.expr.binary(BinaryOp::Mul, target, is)?;
        let loss = s.expr.binary(BinaryOp::Sub, other, own)?;
        let Some((id, at)) = weight else { return Ok(loss) };
        let weight = s.load(id, at)?;
        let weight = s.expr.cast(weight, wide)?;
        Ok(s.expr.binary(BinaryOp::Mul, loss, weight)?)
    })?;
    Ok(smallvec![reduction.append(cx, losses.into(), &x.axes, None)?])
}

/// Where an operand that expands to some axes is read.
fn expanded(cx: &mut NestCx<'_>, x: &Input, axes: &[AxisId]) -> Result<IndexMap> {
    let last = &axes[axes.len().saturating_sub(x.axes.len())..];
    x.axes.iter().zip(last).map(|(dim, axis)| Ok(cx.nest.broadcast(*dim, *axis)?.into())).collect()
}

/// The error of a loss of numbers that are not probabilities.
fn not_a_probability(args: &[Value]) -> Result<Error> {
    for (name, of) in ["self", "target"].into_iter().zip(args) {
        let of = host::reals(of.tensor()?)?;
        if let Some(p) = of.iter().find(|p| !(0.0..=1.0).contains(*p)) {
            return Ok(Error::value(format!(
                "every element of `{name}` must be a probability between 0 and 1, found {p}"
            )));
        }
    }
    Ok(Error::value("`self` and `target` must be probabilities between 0 and 1"))
}

fn log_sigmoid_forward(x: &Tensor) -> Result<Outputs> {
    require_float("self", x)?;
    let x = x.contiguous();
    let (y, buffer) = (x.log_sigmoid(), (-x.abs()).exp());
    y.ok()?;
    buffer.ok()?;
    Ok(smallvec![Value::Tensor(y), Value::Tensor(buffer)])
}

/// A composite of `self` and `target`, reduced as argument `$r` says.
macro_rules! reduced {
    ($r:literal, |$a:ident, $x:ident, $y:ident| $loss:expr) => {
        Lowering::Composite(|$a| {
            let ($x, $y) = ($a[0].tensor()?, $a[1].tensor()?);
            let reduction = Reduction::of(&$a[$r])?;
            reduction.apply($loss)
        })
    };
}

table! {
    /// Elementwise losses.
    static TABLE = {
        "aten::mse_loss(Tensor self, Tensor target, int reduction=1) -> Tensor" => {
            role: General,
            lowering: reduced!(2, |a, x, y| mse(x, y)?),
        },
        "aten::l1_loss(Tensor self, Tensor target, int reduction=1) -> Tensor" => {
            role: General,
            lowering: reduced!(2, |a, x, y| (x - y).abs()),
        },
        "aten::smooth_l1_loss(Tensor self, Tensor target, int reduction=1, \
            float beta=1.) -> Tensor" => {
            role: General,
            lowering: reduced!(2, |a, x, y| smooth_l1(x, y, a[3].float()?)?),
        },
        "aten::huber_loss(Tensor self, Tensor target, int reduction=1, \
            float delta=1.) -> Tensor" => {
            role: General,
            lowering: reduced!(2, |a, x, y| huber(x, y, a[3].float()?)?),
        },
        "aten::soft_margin_loss(Tensor self, Tensor target, int reduction=1) -> Tensor" => {
            role: General,
            lowering: reduced!(2, |a, x, y| soft_margin(x, y)?),
        },
        "aten::kl_div(Tensor self, Tensor target, int reduction=1, *, \
            bool log_target=False) -> Tensor" => {
            role: General,
            lowering: reduced!(2, |a, x, y| kl_div(x, y, a[3].bool()?)?),
        },
        "aten::poisson_nll_loss(Tensor input, Tensor target, bool log_input, bool full, \
            float eps, int reduction) -> Tensor" => {
            role: General,
            lowering: reduced!(
                5, |a, x, y| poisson_nll(x, y, a[2].bool()?, a[3].bool()?, a[4].float()?)
            ),
        },
        "aten::hinge_embedding_loss(Tensor self, Tensor target, float margin=1., \
            int reduction=1) -> Tensor" => {
            role: General,
            lowering: reduced!(3, |a, x, y| hinge_embedding(x, y, a[2].float()?)),
        },
        "aten::margin_ranking_loss(Tensor input1, Tensor input2, Tensor target, \
            float margin=0., int reduction=1) -> Tensor" => {
            role: General,
            lowering: reduced!(
                4, |a, x, y| (-a[2].tensor()? * (x - y) + a[3].float()?).clamp_min(0)
            ),
        },
        "aten::binary_cross_entropy(Tensor self, Tensor target, Tensor? weight=None, \
            int reduction=1) -> Tensor" => {
            role: General,
            lowering: Lowering::Compute(Compute {
                class: Class::Reduce,
                strides: Strides::FromOperands,
                metas: |_, a| bce_metas(a),
                how: How::Loops(bce),
            }),
            vjp: crate::grad::BINARY_CROSS_ENTROPY,
        },
        "aten::binary_cross_entropy_with_logits(Tensor self, Tensor target, \
            Tensor? weight=None, Tensor? pos_weight=None, int reduction=1) -> Tensor" => {
            role: General,
            lowering: reduced!(
                4, |a, x, y| bce_with_logits(x, y, a[2].opt_tensor()?, a[3].opt_tensor()?)?
            ),
        },
        "aten::log_sigmoid_forward(Tensor self) -> (Tensor output, Tensor buffer)" => {
            role: General,
            lowering: Lowering::Composite(|a| log_sigmoid_forward(a[0].tensor()?)),
        },
    }
}
