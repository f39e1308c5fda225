//! Reductions of one operand.

use super::{Input, without};
use crate::DType;
use crate::loops::fold::{Fold, Order};
use crate::loops::{
    Axes, AxisId, Index, IndexMap, LoopBuilder, LoopError, Stage, StageBuilder, StageId,
    StageOutput,
};
use crate::scalar_expr::{BinaryOp, Reg};
use crate::sym::Expr;

/// What a reduction computes of the elements along some axes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reduction {
    /// The sum. Elements are cast to the output's dtype before they are added.
    Sum,
    /// The product, in the same way.
    Prod,
    /// The least element, or NaN if there is one.
    Min,
    /// The greatest element, or NaN if there is one.
    Max,
    /// Whether any element is not zero.
    Any,
    /// Whether no element is zero.
    All,
    /// The sum divided by the number of elements, in the output's accumulator.
    Mean,
    /// The index of the least element: of the first NaN, or of the first of equal ones.
    ArgMin,
    /// The index of the greatest element, in the same way.
    ArgMax,
}

impl Reduction {
    /// All reductions.
    pub const ALL: [Reduction; 9] = [
        Reduction::Sum,
        Reduction::Prod,
        Reduction::Min,
        Reduction::Max,
        Reduction::Any,
        Reduction::All,
        Reduction::Mean,
        Reduction::ArgMin,
        Reduction::ArgMax,
    ];

    /// The fold.
    pub const fn fold(self) -> Fold {
        match self {
            Reduction::Sum | Reduction::Any | Reduction::Mean => Fold::Sum,
            Reduction::Prod | Reduction::All => Fold::Prod,
            Reduction::Min => Fold::Min,
            Reduction::Max => Fold::Max,
            Reduction::ArgMin => Fold::ArgMin,
            Reduction::ArgMax => Fold::ArgMax,
        }
    }

    /// The dtype in which the elements are folded.
    pub const fn accumulator(self, x: DType, out: DType) -> DType {
        match self {
            Reduction::Sum | Reduction::Prod | Reduction::Mean => out.accumulator(),
            Reduction::Min | Reduction::Max | Reduction::ArgMin | Reduction::ArgMax => {
                x.accumulator()
            }
            Reduction::Any | Reduction::All => DType::Bool,
        }
    }
}

/// The operand, axes and output of a reduction.
#[derive(Clone, Copy, Debug)]
pub struct Reduced<'a> {
    /// The operand.
    pub x: &'a Input,
    /// The axes of the operand along which it is reduced.
    pub along: &'a [AxisId],
    /// Whether the output has an axis of one iteration in the place of each reduced one.
    pub keep: bool,
    /// The dtype of the output.
    pub out: DType,
}

/// Reduces the elements of an operand along some of its axes. The output has the other axes.
///
/// # Errors
/// The reduction does not accept a dtype.
pub fn reduce(
    nest: &mut LoopBuilder,
    op: Reduction,
    of: Reduced<'_>,
) -> Result<StageOutput, LoopError> {
    let accumulator = op.accumulator(of.x.dtype, of.out);
    let narrow = matches!(of.out, DType::F16 | DType::BF16);
    reduce_by(nest, op, of, |s| match op {
        // A sum of a narrow dtype adds rounded elements, as PyTorch does.
        Reduction::Sum | Reduction::Prod if narrow => {
            let x = s.element(of.x, of.out)?;
            Ok(s.expr.cast(x, accumulator)?)
        }
        _ => s.element(of.x, accumulator),
    })
}

/// As [`reduce`], of a function of each element. It has the dtype in which the reduction
/// accumulates.
///
/// # Errors
/// As [`reduce`], or the error of `element`.
pub fn reduce_by(
    nest: &mut LoopBuilder,
    op: Reduction,
    of: Reduced<'_>,
    element: impl FnOnce(&mut StageBuilder<'_>) -> Result<Reg, LoopError>,
) -> Result<StageOutput, LoopError> {
    let Reduced { x, along, keep, out } = of;
    let accumulator = op.accumulator(x.dtype, out);
    let (mut over, mut folded) = (Axes::new(), Axes::new());
    for &axis in &x.axes {
        if along.contains(&axis) {
            folded.push(axis);
            if keep {
                over.push(nest.unit_axis());
            }
        }
        over.push(axis);
    }
    if folded.is_empty() {
        // A fold of one element: it is combined with the identity all the same.
        folded.push(nest.unit_axis());
        over.push(folded[0]);
    }
    let fold = nest.reduce(&over, &folded, op.fold(), Order::Lanes, element)?;
    let kept = without(&over, &folded);
    match op {
        Reduction::ArgMin | Reduction::ArgMax => Ok(StageOutput { stage: fold, output: 1 }),
        Reduction::Mean => {
            let count = nest.count(&folded)?;
            let mean = nest.map(&kept, |s| {
                let (sum, count) = (s.load(fold, &kept[..])?, s.launch(count)?);
                let count = s.expr.cast(count, accumulator)?;
                let mean = s.expr.binary(BinaryOp::Div, sum, count)?;
                Ok(s.expr.cast(mean, out)?)
            })?;
            Ok(mean.into())
        }
        _ if accumulator == out => Ok(fold.into()),
        _ => Ok(cast(nest, fold, &kept, out)?.into()),
    }
}

/// The least element, or with `max` the greatest, and its index; see [`Reduction::ArgMin`].
///
/// # Errors
/// As [`reduce`].
pub fn extreme(
    nest: &mut LoopBuilder,
    max: bool,
    of: Reduced<'_>,
) -> Result<[StageOutput; 2], LoopError> {
    let op = if max { Reduction::ArgMax } else { Reduction::ArgMin };
    let index = reduce(nest, op, of)?;
    if op.accumulator(of.x.dtype, of.out) == of.out {
        return Ok([index.stage.into(), index]);
    }
    let kept = kept_axes(nest, index);
    Ok([cast(nest, index.stage, &kept, of.out)?.into(), index])
}

/// The axes of an output.
pub(super) fn kept_axes(nest: &LoopBuilder, of: StageOutput) -> Axes {
    nest.nest().stage(of.stage).map(Stage::axes).unwrap_or_default()
}

/// Where an element of the operand finds the output of a reduction.
pub(super) fn kept_at(of: Reduced<'_>) -> IndexMap {
    let at = |axis: &AxisId| match of.along.contains(axis) {
        true => of.keep.then(|| Index::from(Expr::Int(0))),
        false => Some(Index::from(*axis)),
    };
    of.x.axes.iter().filter_map(at).collect()
}

/// A stage's output in another dtype.
fn cast(
    nest: &mut LoopBuilder,
    of: StageId,
    axes: &[AxisId],
    dtype: DType,
) -> Result<StageId, LoopError> {
    nest.map(axes, |s| {
        let x = s.load(of, axes)?;
        Ok(s.expr.cast(x, dtype)?)
    })
}
