//! Products of matrices and vectors.

use super::Input;
use crate::DType;
use crate::loops::{Axes, LoopBuilder, LoopError, ScalarId, StageKind, StageOutput};
use crate::scalar_expr::BinaryOp;

/// A product `alpha * a b + beta * addend`.
///
/// The dimensions of `a` are batch dimensions, rows if it has one dimension more, and the
/// contracted one. Those of `b` are the same batch dimensions, the contracted one, and columns if
/// it has one dimension more. The output has batch dimensions, rows and columns. Elements are
/// multiplied in the accumulator's dtype, and the result is cast once.
#[derive(Clone, Copy, Debug)]
pub struct Product<'a> {
    /// The left factor.
    pub a: &'a Input,
    /// The right factor.
    pub b: &'a Input,
    /// The number of batch dimensions.
    pub batch: usize,
    /// The factor of the product; `None` for 1. The sum of no products should not be multiplied.
    pub alpha: Option<ScalarId>,
    /// What is added.
    pub addend: Option<Addend<'a>>,
    /// The dtype of the output.
    pub out: DType,
}

/// What is added to a product.
#[derive(Clone, Copy, Debug)]
pub struct Addend<'a> {
    /// The factor of the operand.
    pub beta: ScalarId,
    /// The operand, which is broadcast to the output.
    pub of: &'a Input,
}

impl Product<'_> {
    /// The axes of the output: batch dimensions, rows, columns.
    pub fn axes(&self) -> Axes {
        let rows = self.a.axes.len().saturating_sub(1);
        let columns = self.b.axes.iter().skip(self.batch + 1);
        self.a.axes[..rows].iter().chain(columns).copied().collect()
    }
}

/// Appends the stages of a product.
///
/// # Errors
/// A factor has no contracted dimension, or the dtype is not a number.
pub fn product(nest: &mut LoopBuilder, of: &Product<'_>) -> Result<StageOutput, LoopError> {
    let Some(&contracted) = of.a.axes.last() else {
        return Err(LoopError::new("a factor has no dimension to contract"));
    };
    let (axes, accumulator) = (of.axes(), of.out.accumulator());
    let over: Axes = axes.iter().copied().chain([contracted]).collect();
    let batch = of.a.axes[..of.batch].iter();
    let columns = of.b.axes.iter().skip(of.batch + 1);
    let at_b: Axes = batch.chain([&contracted]).chain(columns).copied().collect();
    let along: Axes = [contracted].into_iter().collect();
    let sum = nest.stage(&over, StageKind::Contract { along }, |s| {
        let a = s.element(of.a, accumulator)?;
        let b = s.load(of.b.id, &at_b[..])?;
        Ok(vec![a, s.expr.cast(b, accumulator)?])
    })?;
    if of.alpha.is_none() && of.addend.is_none() && accumulator == of.out {
        return Ok(sum.into());
    }
    let addend = match &of.addend {
        Some(addend) => Some((addend.beta, addend.of.id, nest.broadcast_to(addend.of, &axes)?)),
        None => None,
    };
    let result = nest.map(&axes, |s| {
        let mut y = s.load(sum, &axes[..])?;
        if let Some(alpha) = of.alpha {
            let alpha = s.launch(alpha)?;
            y = s.expr.binary(BinaryOp::Mul, alpha, y)?;
        }
        if let Some((beta, operand, at)) = addend {
            let (beta, addend) = (s.launch(beta)?, s.load(operand, at)?);
            let addend = s.expr.cast(addend, accumulator)?;
            let scaled = s.expr.binary(BinaryOp::Mul, beta, addend)?;
            y = s.expr.binary(BinaryOp::Add, y, scaled)?;
        }
        Ok(s.expr.cast(y, of.out)?)
    })?;
    Ok(result.into())
}
