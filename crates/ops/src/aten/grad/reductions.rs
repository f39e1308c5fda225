//! Derivatives of reductions.

use super::rule;
use crate::aten::views::wrap_dims;
use crate::aten::{Backward, Derivative};
use crate::dispatch::value::Value;
use crate::error::Result;
use crate::tensor::Tensor;

/// The gradient of a reduction over the dimensions in argument `dims` (all, if it is absent or
/// empty), with the sizes of the operand. Argument `keep` tells whether the result has them.
fn spread(b: &Backward<'_>, dims: &Value, keep: bool) -> Result<Tensor> {
    let sizes = b.sizes(0)?;
    let mut grad = b.grad();
    if !keep && !dims.is_none() {
        let mut dims = wrap_dims(&dims.ints_i64()?, sizes.len())?;
        dims.sort_unstable();
        for d in dims {
            grad = grad.unsqueeze(d as i64);
        }
    }
    Ok(grad.expand(sizes))
}

pub(in crate::aten) const SUM: Derivative =
    rule!([], |b| super::give(b, 0, spread(b, &Value::None, false)));

pub(in crate::aten) const SUM_DIM: Derivative = rule!([], |b| {
    let grad = spread(b, b.arg(1), b.arg(2).bool()?);
    super::give(b, 0, grad)
});
