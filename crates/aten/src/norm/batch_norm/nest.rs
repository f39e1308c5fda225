//! The loop nest of batch norm.
//!
//! In training, two folds of each channel give the mean and the sum of squared deviations from it;
//! then each channel has one scale and one shift, and the running statistics their new values.

use super::Form;
use maquette_ir::DType;
use maquette_ir::loops::named::{self, Input, Reduced, Reduction};
use maquette_ir::loops::{
    Axes, AxisId, LoopBuilder, LoopError, ScalarId, Source, StageKind, StageOutput,
};
use maquette_ir::scalar_expr::{BinaryOp, Reg, UnaryOp};
use maquette_ops::operator::loops::{NestCx, NestResults};
use maquette_ops::{Error, Result};

/// What becomes of the running statistics in training.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Running {
    /// They stay as they are.
    Kept,
    /// The arguments are updated.
    Updated,
    /// The new ones are the last results. Outside training these are the old ones.
    Returned,
}

/// The nest of an operator of a form, with the results that [`BatchNorm::metas`] describes, then
/// those that `reserve` and `running` say.
///
/// PyTorch rounds the statistics of a batch to their dtype before it uses them, and folds scale and
/// shift: `x * (w * rstd) + (b - mean * (w * rstd))`.
pub(crate) fn nest(
    cx: &mut NestCx<'_>,
    form: Form,
    reserve: bool,
    running: Running,
) -> Result<NestResults> {
    let (training, at) = match form {
        Form::Full => (cx.flag(5)?, 6),
        Form::NoStats => (cx.flag(3)?, 4),
        Form::Fixed(training) => (training, 5),
    };
    let x = cx.input(0)?;
    let (weight, bias) = (cx.optional_input(1)?, cx.optional_input(2)?);
    let old = match form {
        Form::NoStats => None,
        _ => cx.optional_input(3)?.zip(cx.optional_input(4)?),
    };
    let (wide, dtype) = (x.dtype.accumulator(), cx.result_dtype(1));
    let eps = cx.number(at + 1, wide)?;
    // Each stage divides itself: the channels have an axis of their own in the stages between.
    let channels = cx.nest.nest().extent(x.axes[1]);
    let own = [cx.nest.axis(channels)];
    let (mut results, mut new) = (NestResults::new(), None);
    let statistics: [StageOutput; 2] = if training {
        let batch = Batch::new(&mut cx.nest, &x, dtype, own, eps)?;
        if let (Some((mean, var)), true) = (&old, running != Running::Kept) {
            let momentum = cx.number(at, DType::F64)?;
            new = Some(batch.updated(&mut cx.nest, [mean, var], own, momentum)?);
        }
        results.extend([batch.mean, batch.rstd]);
        [batch.mean, batch.rstd]
    } else {
        let Some((mean, var)) = &old else {
            return Err(Error::value("a batch norm outside training has running statistics"));
        };
        let statistics = cx.nest.stage(&own, StageKind::Map, |s| {
            let (mean, var) = (s.load(mean.id, own)?, s.load(var.id, own)?);
            let (mean, var) = (s.expr.cast(mean, wide)?, s.expr.cast(var, wide)?);
            let eps = s.launch(eps)?;
            let sum = s.expr.binary(BinaryOp::Add, var, eps)?;
            Ok(vec![mean, s.expr.unary(UnaryOp::Rsqrt, sum)?])
        })?;
        for result in [1, 2] {
            results.push(empty(cx, result)?);
        }
        [0, 1].map(|output| StageOutput { stage: statistics, output })
    };
    let affine = cx.nest.stage(&own, StageKind::Map, |s| {
        let mut part = |from: Source| -> Result<Reg, LoopError> {
            let reg = s.load(from, own)?;
            Ok(s.expr.cast(reg, wide)?)
        };
        let [mean, rstd] = [part(statistics[0].into())?, part(statistics[1].into())?];
        let weight = weight.as_ref().map(|w| part(w.id.into())).transpose()?;
        let bias = bias.as_ref().map(|b| part(b.id.into())).transpose()?;
        let scale = weight.map_or(Ok(rstd), |w| s.expr.binary(BinaryOp::Mul, rstd, w))?;
        let moved = s.expr.binary(BinaryOp::Mul, mean, scale)?;
        let start = bias.unwrap_or_else(|| s.expr.constant(0.0, wide));
        Ok(vec![scale, s.expr.binary(BinaryOp::Sub, start, moved)?])
    })?;
    let y = cx.nest.map(&x.axes, |s| {
        let element = s.element(&x, wide)?;
        let scale = s.load(affine, [x.axes[1]])?;
        let shift = s.load(StageOutput { stage: affine, output: 1 }, [x.axes[1]])?;
        let scaled = s.expr.binary(BinaryOp::Mul, element, scale)?;
        let y = s.expr.binary(BinaryOp::Add, scaled, shift)?;
        Ok(s.expr.cast(y, x.dtype)?)
    })?;
    results.insert(0, y.into());
    if reserve {
        results.push(empty(cx, 3)?);
    }
    match (running, new, old) {
        (Running::Updated, Some(new), _) => {
            cx.update(3);
            cx.update(4);
            results.extend(new);
        }
        (Running::Returned, Some(new), _) => results.extend(new),
        (Running::Returned, None, Some((mean, var))) => {
            for old in [mean, var] {
                let same = cx.nest.map(&old.axes, |s| s.element(&old, old.dtype))?;
                results.push(same.into());
            }
        }
        _ => {}
    }
    Ok(results)
}

/// A result of no elements.
fn empty(cx: &mut NestCx<'_>, result: usize) -> Result<StageOutput> {
    let (axes, dtype) = (cx.result_axes(result), cx.result_dtype(result));
    Ok(cx.nest.map(&axes, |s| Ok(s.expr.constant(0, dtype)))?.into())
}

/// The statistics of a batch, for each channel, rounded to their dtype.
struct Batch {
    mean: StageOutput,
    /// The sum of squared deviations.
    squares: StageOutput,
    rstd: StageOutput,
    /// The number of elements of a channel.
    count: ScalarId,
}

impl Batch {
    fn new(
        nest: &mut LoopBuilder,
        x: &Input,
        dtype: DType,
        own: [AxisId; 1],
        eps: ScalarId,
    ) -> Result<Batch> {
        let (wide, channel) = (x.dtype.accumulator(), x.axes[1]);
        let along: Axes = x.axes.iter().copied().filter(|a| *a != channel).collect();
        let of = Reduced { x, along: &along, keep: false, out: dtype };
        let mean = named::reduce(nest, Reduction::Mean, of)?;
        let squares = named::reduce_by(nest, Reduction::Sum, of, |s| {
            let (element, mean) = (s.element(x, wide)?, s.load(mean, [channel])?);
            let mean = s.expr.cast(mean, wide)?;
            let deviation = s.expr.binary(BinaryOp::Sub, element, mean)?;
            Ok(s.expr.binary(BinaryOp::Mul, deviation, deviation)?)
        })?;
        let count = nest.count(&along)?;
        let rstd = nest.map(&own, |s| {
            let (squares, count) = (s.load(squares, own)?, s.launch(count)?);
            let (squares, count) = (s.expr.cast(squares, wide)?, s.expr.cast(count, wide)?);
            let variance = s.expr.binary(BinaryOp::Div, squares, count)?;
            let eps = s.launch(eps)?;
            let sum = s.expr.binary(BinaryOp::Add, variance, eps)?;
            let rstd = s.expr.unary(UnaryOp::Rsqrt, sum)?;
            Ok(s.expr.cast(rstd, dtype)?)
        })?;
        Ok(Batch { mean, squares, rstd: rstd.into(), count })
    }

    /// The new running mean and variance. The variance of the batch is the unbiased estimate, which
    /// divides by n - 1.
    fn updated(
        &self,
        nest: &mut LoopBuilder,
        old: [&Input; 2],
        own: [AxisId; 1],
        momentum: ScalarId,
    ) -> Result<[StageOutput; 2]> {
        let stage = nest.stage(&own, StageKind::Map, |s| {
            let (momentum, one) = (s.launch(momentum)?, s.expr.constant(1.0, DType::F64));
            let kept = s.expr.binary(BinaryOp::Sub, one, momentum)?;
            let mut updated = |old: &Input, batch: StageOutput, over: Option<ScalarId>| {
                let wide = old.dtype.accumulator();
                let (value, batch) = (s.load(old.id, own)?, s.load(batch, own)?);
                let (value, mut batch) = (s.expr.cast(value, wide)?, s.expr.cast(batch, wide)?);
                if let Some(count) = over {
                    let (count, one) = (s.launch(count)?, s.expr.constant(1, DType::I64));
                    let over = s.expr.binary(BinaryOp::Sub, count, one)?;
                    let over = s.expr.cast(over, wide)?;
                    batch = s.expr.binary(BinaryOp::Div, batch, over)?;
                }
                let (keep, add) = (s.expr.cast(kept, wide)?, s.expr.cast(momentum, wide)?);
                let value = s.expr.binary(BinaryOp::Mul, value, keep)?;
                let batch = s.expr.binary(BinaryOp::Mul, batch, add)?;
                let new = s.expr.binary(BinaryOp::Add, value, batch)?;
                Ok::<_, LoopError>(s.expr.cast(new, old.dtype)?)
            };
            let mean = updated(old[0], self.mean, None)?;
            Ok(vec![mean, updated(old[1], self.squares, Some(self.count))?])
        })?;
        Ok([0, 1].map(|output| StageOutput { stage, output }))
    }
}
