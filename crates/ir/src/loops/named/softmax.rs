//! Softmax and its logarithm along an axis, and the logarithm of a sum of exponentials.
//!
//! The greatest element of a row is subtracted first, so that no exponential overflows. Every step
//! rounds in the accumulator's dtype, and the result is cast once.

use super::reduce::{kept_at, kept_axes};
use super::{Input, Reduced, Reduction, reduce_by, without};
use crate::DType;
use crate::loops::fold::{Fold, Order};
use crate::loops::{
    Axes, AxisId, Index, IndexMap, LoopBuilder, LoopError, StageBuilder, StageId, StageOutput,
};
use crate::scalar_expr::{BinaryOp, CmpOp, Reg, UnaryOp};
use crate::sym::Expr;

/// `exp(x - max) * (1 / sum)` along an axis, as `aten::_softmax`. An axis that is not among those
/// of `x` makes each element a row. The output has the dtype `out`.
///
/// # Errors
/// A dtype is not a float.
pub fn softmax(
    nest: &mut LoopBuilder,
    x: &Input,
    along: AxisId,
    out: DType,
) -> Result<StageId, LoopError> {
    let rows = exponentials(nest, x, along, x.dtype)?;
    scaled(nest, x, along, &rows, |s, y| Ok(s.expr.cast(y, out)?))
}

/// As [`softmax`], of elements that are cast to the output's dtype first. A row of negative
/// infinities gives zeros instead of NaN, as `aten::_safe_softmax`.
///
/// # Errors
/// As [`softmax`].
pub fn safe_softmax(
    nest: &mut LoopBuilder,
    x: &Input,
    along: AxisId,
    out: DType,
) -> Result<StageId, LoopError> {
    let rows = exponentials(nest, x, along, out)?;
    scaled(nest, x, along, &rows, |s, y| {
        let max = s.load(rows.max, &rows.rows[..])?;
        let least = s.expr.constant(f64::NEG_INFINITY, out.accumulator());
        let is_masked = s.expr.compare(CmpOp::Eq, max, least)?;
        let (y, zero) = (s.expr.cast(y, out)?, s.expr.constant(0.0, out));
        Ok(s.expr.select(is_masked, zero, y)?)
    })
}

/// The product of the exponentials and the reciprocal of their sum.
fn scaled(
    nest: &mut LoopBuilder,
    x: &Input,
    along: AxisId,
    of: &Rows,
    result: impl FnOnce(&mut StageBuilder<'_>, Reg) -> Result<Reg, LoopError>,
) -> Result<StageId, LoopError> {
    let Rows { rows, exp, sum, .. } = of;
    let (exp, sum) = (*exp, *sum);
    let scale = nest.map(rows, |s| {
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
        result(s, y)
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
    let Rows { rows, max, sum, .. } = exponentials(nest, x, along, x.dtype)?;
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

/// `log(sum(exp(x - max))) + max` along some axes, as `aten::logsumexp`. An infinite maximum is
/// replaced by 0, since `inf - inf` is NaN.
///
/// # Errors
/// The output is not a float.
pub fn logsumexp(nest: &mut LoopBuilder, of: Reduced<'_>) -> Result<StageOutput, LoopError> {
    let wide = of.out.accumulator();
    let of_wide = Reduced { out: wide, ..of };
    let max = reduce_by(nest, Reduction::Max, of_wide, |s| s.element(of.x, wide))?;
    let kept = kept_axes(nest, max);
    let shift = nest.map(&kept, |s| {
        let max = s.load(max, &kept[..])?;
        let (zero, is_infinite) = (s.expr.constant(0.0, wide), s.expr.unary(UnaryOp::IsInf, max)?);
        Ok(s.expr.select(is_infinite, zero, max)?)
    })?;
    let sum = reduce_by(nest, Reduction::Sum, of_wide, |s| {
        let (element, shift) = (s.element(of.x, wide)?, s.load(shift, kept_at(of))?);
        let shifted = s.expr.binary(BinaryOp::Sub, element, shift)?;
        Ok(s.expr.unary(UnaryOp::Exp, shifted)?)
    })?;
    // Both have the same dimensions, but axes of one iteration of their own.
    let at: IndexMap = kept
        .iter()
        .map(|axis| match of.x.axes.contains(axis) {
            true => Index::from(*axis),
            false => Expr::Int(0).into(),
        })
        .collect();
    let kept = kept_axes(nest, sum);
    let y = nest.map(&kept, |s| {
        let (sum, shift) = (s.load(sum, &kept[..])?, s.load(shift, at)?);
        let log = s.expr.unary(UnaryOp::Log, sum)?;
        let y = s.expr.binary(BinaryOp::Add, log, shift)?;
        Ok(s.expr.cast(y, of.out)?)
    })?;
    Ok(y.into())
}

/// The stages that both have in common.
struct Rows {
    /// The axes but that of the rows' elements.
    rows: Axes,
    max: StageId,
    exp: StageId,
    sum: StageId,
}

/// The elements are cast to a dtype first, and then to its accumulator.
fn exponentials(
    nest: &mut LoopBuilder,
    x: &Input,
    along: AxisId,
    via: DType,
) -> Result<Rows, LoopError> {
    let wide = via.accumulator();
    let wide_element = |s: &mut StageBuilder<'_>| -> Result<Reg, LoopError> {
        let element = s.element(x, via)?;
        Ok(s.expr.cast(element, wide)?)
    };
    let mut over = x.axes.clone();
    let mut rows = without(&over, &[along]);
    if rows.len() == over.len() {
        rows.clone_from(&over);
        over.push(along);
    }
    let max = nest.reduce(&over, &[along], Fold::Max, Order::Lanes, wide_element)?;
    let exp = nest.map(&over, |s| {
        let element = wide_element(s)?;
        let max = s.load(max, &rows[..])?;
        let shifted = s.expr.binary(BinaryOp::Sub, element, max)?;
        Ok(s.expr.unary(UnaryOp::Exp, shifted)?)
    })?;
    let sum = nest.reduce(&over, &[along], Fold::Sum, Order::Lanes, |s| s.load(exp, &over[..]))?;
    Ok(Rows { rows, max, exp, sum })
}
