//! Variances and vector norms.

use super::reduce::{kept_at, kept_axes};
use super::{Reduced, Reduction, reduce_by};
use crate::DType;
use crate::loops::{LoopBuilder, LoopError, ScalarId, StageBuilder, StageOutput};
use crate::scalar_expr::{BinaryOp, CmpOp, Reg, UnaryOp};

/// What is subtracted from the number of elements to get the divisor of a variance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Correction {
    /// A known number.
    Fixed(i64),
    /// A launch scalar, an `f64`.
    Number(ScalarId),
}

/// The variance of the elements along some axes: the sum of squared deviations from the mean,
/// divided by `max(n - correction, 0)`; or with `root` the standard deviation. Then the mean, an
/// `f64`.
///
/// Both accumulate in `f64`: the sum of squared deviations may overflow `f32` although the standard
/// deviation does not.
///
/// # Errors
/// The elements or the output are not numbers.
pub fn variance(
    nest: &mut LoopBuilder,
    of: Reduced<'_>,
    correction: Correction,
    root: bool,
) -> Result<[StageOutput; 2], LoopError> {
    let wide = DType::F64;
    let of_wide = Reduced { out: wide, ..of };
    let mean = reduce_by(nest, Reduction::Mean, of_wide, |s| s.element(of.x, wide))?;
    let sum = reduce_by(nest, Reduction::Sum, of_wide, |s| {
        let (element, mean) = (s.element(of.x, wide)?, s.load(mean, kept_at(of))?);
        let deviation = s.expr.binary(BinaryOp::Sub, element, mean)?;
        Ok(s.expr.binary(BinaryOp::Mul, deviation, deviation)?)
    })?;
    let (count, kept) = (nest.count(of.along)?, kept_axes(nest, sum));
    let variance = nest.map(&kept, |s| {
        let (sum, count) = (s.load(sum, &kept[..])?, s.launch(count)?);
        let count = s.expr.cast(count, wide)?;
        let correction = match correction {
            Correction::Fixed(number) => s.expr.constant(number, wide),
            Correction::Number(number) => s.launch(number)?,
        };
        let divisor = s.expr.binary(BinaryOp::Sub, count, correction)?;
        let zero = s.expr.constant(0.0, wide);
        let is_positive = s.expr.compare(CmpOp::Gt, divisor, zero)?;
        let divisor = s.expr.select(is_positive, divisor, zero)?;
        let mut y = s.expr.binary(BinaryOp::Div, sum, divisor)?;
        if root {
            y = s.expr.unary(UnaryOp::Sqrt, y)?;
        }
        Ok(s.expr.cast(y, of.out)?)
    })?;
    Ok([variance.into(), mean])
}

/// As [`variance`], with the mean in the output's dtype.
///
/// # Errors
/// As [`variance`].
pub fn variance_and_mean(
    nest: &mut LoopBuilder,
    of: Reduced<'_>,
    correction: Correction,
    root: bool,
) -> Result<[StageOutput; 2], LoopError> {
    let [variance, mean] = variance(nest, of, correction, root)?;
    if of.out == DType::F64 {
        return Ok([variance, mean]);
    }
    let kept = kept_axes(nest, mean);
    let mean = nest.map(&kept, |s| {
        let mean = s.load(mean, &kept[..])?;
        Ok(s.expr.cast(mean, of.out)?)
    })?;
    Ok([variance, mean.into()])
}

/// The norm `(sum |x|^p)^(1/p)` of the elements along some axes. With p = 0 it is the number of
/// elements that are not zero, with infinite p the greatest or least magnitude. Elements are cast
/// to the output's dtype, a float, before their magnitude is taken.
///
/// # Errors
/// The output is not a float.
pub fn vector_norm(
    nest: &mut LoopBuilder,
    of: Reduced<'_>,
    p: f64,
) -> Result<StageOutput, LoopError> {
    let wide = of.out.accumulator();
    let p = if wide == DType::F32 { f64::from(p as f32) } else { p };
    let op = match p {
        f64::INFINITY => Reduction::Max,
        f64::NEG_INFINITY => Reduction::Min,
        _ => Reduction::Sum,
    };
    let fold = reduce_by(nest, op, Reduced { out: wide, ..of }, |s| {
        let element = s.element(of.x, of.out)?;
        let element = s.expr.cast(element, wide)?;
        power(s, element, p)
    })?;
    if wide == of.out && (p == 0.0 || p == 1.0 || p.is_infinite()) {
        return Ok(fold);
    }
    let kept = kept_axes(nest, fold);
    let norm = nest.map(&kept, |s| {
        let sum = s.load(fold, &kept[..])?;
        let y = root(s, sum, p)?;
        Ok(s.expr.cast(y, of.out)?)
    })?;
    Ok(norm.into())
}

/// What the norm of order p adds for an element: `|x|^p`, or `|x|` for infinite p.
///
/// # Errors
/// The element is not a float.
pub fn power(s: &mut StageBuilder<'_>, x: Reg, p: f64) -> Result<Reg, LoopError> {
    let wide = s.expr.dtype(x)?;
    if p == 2.0 {
        return Ok(s.expr.binary(BinaryOp::Mul, x, x)?);
    }
    if p == 0.0 {
        let (zero, one) = (s.expr.constant(0.0, wide), s.expr.constant(1.0, wide));
        let is_zero = s.expr.compare(CmpOp::Eq, x, zero)?;
        return Ok(s.expr.select(is_zero, zero, one)?);
    }
    let magnitude = s.expr.unary(UnaryOp::Abs, x)?;
    if p == 1.0 || p.is_infinite() {
        return Ok(magnitude);
    }
    let p = s.expr.constant(p, wide);
    Ok(s.expr.binary(BinaryOp::Pow, magnitude, p)?)
}

/// The norm of order p of such a sum, or for infinite p of an extreme: `x^(1/p)`.
///
/// # Errors
/// The sum is not a float.
pub fn root(s: &mut StageBuilder<'_>, x: Reg, p: f64) -> Result<Reg, LoopError> {
    if p == 0.0 || p == 1.0 || p.is_infinite() {
        return Ok(x);
    }
    if p == 2.0 {
        return Ok(s.expr.unary(UnaryOp::Sqrt, x)?);
    }
    let wide = s.expr.dtype(x)?;
    let (one, p) = (s.expr.constant(1.0, wide), s.expr.constant(p, wide));
    let inverse = s.expr.binary(BinaryOp::Div, one, p)?;
    Ok(s.expr.binary(BinaryOp::Pow, x, inverse)?)
}
