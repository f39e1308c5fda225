//! Normalizations of rows: layer norm, RMS norm and group norm.
//!
//! Every step rounds in the accumulator of the input's dtype, and a result is cast once. The mean
//! and the variance of a row are those of [`Fold::Moments`]. A row of no elements has the mean 0,
//! and NaN as its reciprocal standard deviation.

use super::{Input, Reduced, Reduction, reduce_by};
use crate::DType;
use crate::loops::fold::{Fold, Order};
use crate::loops::{
    Affine, Axes, AxisId, Index, IndexMap, LoopBuilder, LoopError, ScalarId, Source, StageBuilder,
    StageId, StageKind, StageOutput,
};
use crate::scalar_expr::{BinaryOp, Bounds, CmpOp, Reg, UnaryOp};
use crate::sym::{Expr, SymError};

/// The operands of [`layer_norm`] and [`rms_norm`].
#[derive(Clone, Copy, Debug)]
pub struct RowNorm<'a> {
    /// The input, of a float dtype. The output has its dtype.
    pub x: &'a Input,
    /// The number of dimensions that make a row, the last ones.
    pub normalized: usize,
    /// The scale, with the sizes of a row.
    pub weight: Option<&'a Input>,
    /// The shift, with the sizes of a row. An RMS norm has none.
    pub bias: Option<&'a Input>,
    /// A number of the accumulator's dtype that is added to the variance. The default is the
    /// machine epsilon of that dtype.
    pub eps: Option<ScalarId>,
    /// The dtype of the statistics.
    pub statistics: DType,
}

/// The axes of a row norm.
struct RowAxes<'a> {
    /// The axes of the statistics: those of the rows, and one of one iteration for each dimension
    /// of a row.
    rows: Axes,
    /// The axes of a row.
    row: &'a [AxisId],
    /// Where an element of the input finds the statistics of its row.
    at: IndexMap,
}

impl<'a> RowNorm<'a> {
    fn axes(&self, nest: &mut LoopBuilder) -> Result<RowAxes<'a>, LoopError> {
        let lead = self.x.axes.len().checked_sub(self.normalized);
        let lead = lead.ok_or_else(|| LoopError::new("a row has too many dimensions"))?;
        let (lead, row) = self.x.axes.split_at(lead);
        let mut rows = Axes::from_slice(lead);
        rows.extend(row.iter().map(|_| nest.unit_axis()));
        let zeros = row.iter().map(|_| Index::from(Expr::Int(0)));
        let at = lead.iter().map(|a| Index::from(*a)).chain(zeros).collect();
        Ok(RowAxes { rows, row, at })
    }

    /// Multiplies by the weight, adds the bias, and casts to the output's dtype.
    fn scaled(&self, s: &mut StageBuilder<'_>, y: Reg, row: &[AxisId]) -> Result<Reg, LoopError> {
        let mut y = y;
        for (part, op) in [(self.weight, BinaryOp::Mul), (self.bias, BinaryOp::Add)] {
            if let Some(part) = part {
                let part = s.load(part.id, row)?;
                let part = s.expr.cast(part, self.x.dtype.accumulator())?;
                y = s.expr.binary(op, y, part)?;
            }
        }
        Ok(s.expr.cast(y, self.x.dtype)?)
    }
}

/// `(x - mean) / sqrt(variance + eps) * weight + bias` of each row, as `aten::native_layer_norm`;
/// then the means and the reciprocal standard deviations.
///
/// # Errors
/// The input is not a float; a parameter has not the rank of a row.
pub fn layer_norm(nest: &mut LoopBuilder, of: RowNorm<'_>) -> Result<[StageOutput; 3], LoopError> {
    let (x, wide) = (of.x, of.x.dtype.accumulator());
    let RowAxes { rows, row, at } = of.axes(nest)?;
    let over: Axes = rows.iter().chain(row).copied().collect();
    let moments = nest.reduce(&over, row, Fold::Moments, Order::Lanes, |s| s.element(x, wide))?;
    let statistics = standardization(nest, moments, &rows, row, of.eps)?;
    let y = nest.map(&x.axes, |s| {
        let element = s.element(x, wide)?;
        let y = standardized(s, element, statistics, &at)?;
        of.scaled(s, y, row)
    })?;
    let [mean, rstd] = cast_both(nest, statistics, &rows, of.statistics)?;
    Ok([y.into(), mean, rstd])
}

/// `x / sqrt(mean(x * x) + eps) * weight` of each row, as `aten::_fused_rms_norm`; then the
/// reciprocal roots.
///
/// # Errors
/// As [`layer_norm`].
pub fn rms_norm(nest: &mut LoopBuilder, of: RowNorm<'_>) -> Result<[StageOutput; 2], LoopError> {
    let (x, wide) = (of.x, of.x.dtype.accumulator());
    let lead = x.axes.len().saturating_sub(of.normalized);
    let reduced = Reduced { x, along: &x.axes[lead..], keep: true, out: wide };
    let mean = reduce_by(nest, Reduction::Mean, reduced, |s| {
        let element = s.element(x, wide)?;
        Ok(s.expr.binary(BinaryOp::Mul, element, element)?)
    })?;
    let RowAxes { rows, row, at } = of.axes(nest)?;
    let rstd = nest.map(&rows, |s| {
        let mean = s.load(mean, at.clone())?;
        let eps = epsilon(s, of.eps, wide)?;
        let sum = s.expr.binary(BinaryOp::Add, mean, eps)?;
        Ok(s.expr.unary(UnaryOp::Rsqrt, sum)?)
    })?;
    let y = nest.map(&x.axes, |s| {
        let element = s.element(x, wide)?;
        let rstd = s.load(rstd, at)?;
        let y = s.expr.binary(BinaryOp::Mul, element, rstd)?;
        of.scaled(s, y, row)
    })?;
    let [rstd] = cast(nest, [rstd.into()], &rows, of.statistics)?;
    Ok([y.into(), rstd])
}

/// The operands of [`group_norm`].
#[derive(Clone, Debug)]
pub struct GroupNorm<'a> {
    /// The input, of a float dtype.
    pub x: Source,
    /// The axes of its dimensions: the sample, the channel, and others.
    pub axes: &'a [AxisId],
    /// The number of groups into which the channels are divided.
    pub groups: i64,
    /// The scale of each channel.
    pub weight: Option<&'a Input>,
    /// The shift of each channel.
    pub bias: Option<&'a Input>,
    /// A number of the accumulator's dtype that is added to the variance.
    pub eps: ScalarId,
    /// The dtype of the statistics.
    pub statistics: DType,
}

/// Normalizes each group of channels of a sample, then scales and shifts each channel, as
/// `aten::native_group_norm`; then the means and the reciprocal standard deviations.
///
/// # Errors
/// The input is not a float with at least two dimensions.
pub fn group_norm(
    nest: &mut LoopBuilder,
    of: &GroupNorm<'_>,
) -> Result<[StageOutput; 3], LoopError> {
    let [n, c, space @ ..] = of.axes else {
        return Err(LoopError::new("the input of a group norm has samples and channels"));
    };
    let missing = || LoopError::new("the input of a group norm does not exist");
    let (dtype, sizes) = nest.nest().source(of.x).ok_or_else(missing)?;
    let wide = dtype.accumulator();
    let sized = |e: SymError| LoopError::new(e.to_string());
    let (samples, channels) = (sizes[0], sizes[1]);
    let per_group = nest.symbols_mut().floor_div(channels, Expr::Int(of.groups)).map_err(sized)?;
    let (group, member) = (nest.axis(Expr::Int(of.groups)), nest.axis(per_group));
    let channel =
        Affine { start: Expr::Int(0), terms: [(group, per_group), (member, Expr::Int(1))].into() };
    let at: IndexMap = [Index::from(*n), channel.into()]
        .into_iter()
        .chain(space.iter().map(|a| Index::from(*a)))
        .collect();
    let rows = [*n, group];
    let row: Axes = [member].iter().chain(space).copied().collect();
    let over: Axes = rows.iter().chain(&row).copied().collect();
    let moments = nest.reduce(&over, &row, Fold::Moments, Order::Lanes, |s| {
        let element = s.load(of.x, at)?;
        Ok(s.expr.cast(element, wide)?)
    })?;
    let statistics = standardization(nest, moments, &rows, &row, Some(of.eps))?;
    // The statistics of each channel. Its axes are new, so that the samples are not divided into
    // panels: each stage divides itself.
    let own = [nest.axis(samples), nest.axis(channels)];
    let divisor = nest.size(per_group);
    let of_channel = nest.stage(&own, StageKind::Map, |s| {
        let (channel, divisor) = (s.coord(own[1]), s.launch(divisor)?);
        let group = s.expr.binary(BinaryOp::TruncDiv, channel, divisor)?;
        (0..2)
            .map(|output| {
                let from = StageOutput { stage: statistics, output };
                let at: IndexMap = [Index::from(own[0]), Index::Computed].into_iter().collect();
                s.read(from, at, &[group], Bounds::Inside, None)
            })
            .collect()
    })?;
    let y = nest.map(of.axes, |s| {
        let element = s.load(of.x, of.axes)?;
        let element = s.expr.cast(element, wide)?;
        let mut y = standardized(s, element, of_channel, &[*n, *c].into())?;
        for (part, op) in [(of.weight, BinaryOp::Mul), (of.bias, BinaryOp::Add)] {
            if let Some(part) = part {
                let part = s.load(part.id, [*c])?;
                let part = s.expr.cast(part, wide)?;
                y = s.expr.binary(op, y, part)?;
            }
        }
        Ok(s.expr.cast(y, dtype)?)
    })?;
    let [mean, rstd] = cast_both(nest, statistics, &rows, of.statistics)?;
    Ok([y.into(), mean, rstd])
}

/// The mean and `1 / sqrt(variance + eps)` of each row, from its moments.
fn standardization(
    nest: &mut LoopBuilder,
    moments: StageId,
    rows: &[AxisId],
    row: &[AxisId],
    eps: Option<ScalarId>,
) -> Result<StageId, LoopError> {
    let count = nest.count(row)?;
    nest.stage(rows, StageKind::Map, |s| {
        let mean = s.load(moments, rows)?;
        let squares = s.load(StageOutput { stage: moments, output: 1 }, rows)?;
        let wide = s.expr.dtype(mean)?;
        let count = s.launch(count)?;
        let zero = s.expr.constant(0, DType::I64);
        let is_empty = s.expr.compare(CmpOp::Eq, count, zero)?;
        let zero = s.expr.constant(0.0, wide);
        let mean = s.expr.select(is_empty, zero, mean)?;
        let count = s.expr.cast(count, wide)?;
        let variance = s.expr.binary(BinaryOp::Div, squares, count)?;
        let eps = epsilon(s, eps, wide)?;
        let sum = s.expr.binary(BinaryOp::Add, variance, eps)?;
        Ok(vec![mean, s.expr.unary(UnaryOp::Rsqrt, sum)?])
    })
}

fn epsilon(s: &mut StageBuilder<'_>, eps: Option<ScalarId>, wide: DType) -> Result<Reg, LoopError> {
    let smallest = if wide == DType::F64 { f64::EPSILON } else { f64::from(f32::EPSILON) };
    match eps {
        Some(eps) => s.launch(eps),
        None => Ok(s.expr.constant(smallest, wide)),
    }
}

/// `(x - mean) * rstd` with the statistics that a stage has at a position.
fn standardized(
    s: &mut StageBuilder<'_>,
    x: Reg,
    statistics: StageId,
    at: &IndexMap,
) -> Result<Reg, LoopError> {
    let mean = s.load(statistics, at.clone())?;
    let rstd = s.load(StageOutput { stage: statistics, output: 1 }, at.clone())?;
    let deviation = s.expr.binary(BinaryOp::Sub, x, mean)?;
    Ok(s.expr.binary(BinaryOp::Mul, deviation, rstd)?)
}

/// Both outputs of a stage in another dtype.
fn cast_both(
    nest: &mut LoopBuilder,
    stage: StageId,
    axes: &[AxisId],
    dtype: DType,
) -> Result<[StageOutput; 2], LoopError> {
    cast(nest, [0, 1].map(|output| StageOutput { stage, output }), axes, dtype)
}

/// Outputs of stages over some axes, in another dtype.
fn cast<const N: usize>(
    nest: &mut LoopBuilder,
    of: [StageOutput; N],
    axes: &[AxisId],
    dtype: DType,
) -> Result<[StageOutput; N], LoopError> {
    if of.iter().all(|output| nest.nest().dtype(*output) == Some(dtype)) {
        return Ok(of);
    }
    let stage = nest.stage(axes, StageKind::Map, |s| {
        of.iter()
            .map(|output| {
                let x = s.load(*output, axes)?;
                Ok(s.expr.cast(x, dtype)?)
            })
            .collect()
    })?;
    Ok(std::array::from_fn(|i| StageOutput { stage, output: i as u8 }))
}
