//! Softmax and its logarithm along an axis.
//!
//! The greatest element of a row is subtracted first, so that no exponential overflows. Every step
//! rounds in the accumulator's dtype, and the result is cast once.

use super::{Input, without};
use crate::DType;
use crate::loops::fold::{Fold, Order};
use crate::loops::{Axes, AxisId, Index, IndexMap, LoopBuilder, LoopError, StageId};
use crate::scalar_expr::{BinaryOp, UnaryOp};
use crate::sym::Expr;

/// `exp(x - max) * (1 / sum)` along an axis, as `aten::_softmax`. An axis that is not among those of
/// `x` makes each element a row. The output has the dtype `out`.
///
/// # Errors
/// A dtype is not a float.
pub fn softmax(
    nest: &mut LoopBuilder,
    x: &Input,
    along: AxisId,
    out: DType,
) -> Result<StageId, LoopError> {
    let Rows { rows, exp, sum, .. } = exponentials(nest, x, along)?;
    let scale = nest.map(&rows, |s| {
        let sum = s.load(sum, &rows[..])?;
        Ok(s.expr.unary(UnaryOp::Reciprocal, sum)?)
    })?;
    nest.map(&x.axes, |s| {
        // A row that is one element has no axis in the output.
        let at: IndexMap = match x.axes.contains(&along) {
            true => x.axes[..].into(),
            false => x.axes.iter().map(|a| Index::from(*a)).chain([Expr::Int(0).into()]).collect(),
        };
        let exp = s.load(exp, at)?;
        let scale = s.load(scale, &rows[..])?;
        let y = s.expr.binary(BinaryOp::Mul, exp, scale)?;
        Ok(s.expr.cast(y, out)?)
    })
}

/// `x - max - log(sum(exp(x - max)))` along an axis, as `aten::_log_softmax`.
///
/// # Errors
/// As [`softmax`].
pub fn log_softmax(
    nest: &mut LoopBuilder,
    x: &Input,
    along: AxisId,
    out: DType,
) -> Result<StageId, LoopError> {
    let Rows { rows, max, sum, .. } = exponentials(nest, x, along)?;
    let log = nest.map(&rows, |s| {
        let sum = s.load(sum, &rows[..])?;
        Ok(s.expr.unary(UnaryOp::Log, sum)?)
    })?;
    nest.map(&x.axes, |s| {
        let element = s.element(x, x.dtype.accumulator())?;
        let (max, log) = (s.load(max, &rows[..])?, s.load(log, &rows[..])?);
        let shifted = s.expr.binary(BinaryOp::Sub, element, max)?;
        let y = s.expr.binary(BinaryOp::Sub, shifted, log)?;
        Ok(s.expr.cast(y, out)?)
    })
}

/// The stages that both have in common.
struct Rows {
    /// The axes but that of the rows' elements.
    rows: Axes,
    max: StageId,
    exp: StageId,
    sum: StageId,
}

fn exponentials(nest: &mut LoopBuilder, x: &Input, along: AxisId) -> Result<Rows, LoopError> {
    let wide = x.dtype.accumulator();
    let mut over = x.axes.clone();
    let mut rows = without(&over, &[along]);
    if rows.len() == over.len() {
        rows.clone_from(&over);
        over.push(along);
    }
    let max = nest.reduce(&over, &[along], Fold::Max, Order::Lanes, |s| s.element(x, wide))?;
    let exp = nest.map(&over, |s| {
        let element = s.element(x, wide)?;
        let max = s.load(max, &rows[..])?;
        let shifted = s.expr.binary(BinaryOp::Sub, element, max)?;
        Ok(s.expr.unary(UnaryOp::Exp, shifted)?)
    })?;
    let sum = nest.reduce(&over, &[along], Fold::Sum, Order::Lanes, |s| s.load(exp, &over[..]))?;
    Ok(Rows { rows, max, exp, sum })
}
