//! Derivatives of views: the gradient in the places of the operand.

use super::{give, rule};
use crate::aten::views::wrap_dims;
use crate::aten::{Backward, Derivative};
use crate::autograd::strided::Placed;
use crate::error::Result;
use crate::tensor::Tensor;

/// Views with all elements of the operand in row-major order.
pub(in crate::aten) const RESHAPED: Derivative =
    rule!([], |b| give(b, 0, b.sizes(0).map(|sizes| b.grad().reshape(sizes))));

/// Views that repeat elements: the sum over the repetitions, which every gradient undergoes.
pub(in crate::aten) const EXPANDED: Derivative = rule!([], |b| b.set(0, || b.grad()));

/// Views of distinct elements at any place of the operand.
pub(in crate::aten) const PLACED: Derivative = rule!([], |b| {
    let part = Placed::new(b.meta(0)?, b.result_meta(0)?).spread(&b.grad());
    give(b, 0, part)
});

pub(in crate::aten) const TRANSPOSED: Derivative = rule!([], |b| {
    let (d, e) = (b.arg(1).int_i64()?, b.arg(2).int_i64()?);
    b.set(0, || b.grad().transpose(d, e))
});

pub(in crate::aten) const T: Derivative = rule!([], |b| b.set(0, || b.grad().t()));

fn inverse(b: &Backward<'_>) -> Result<Tensor> {
    let dims = b.arg(1).ints_i64()?;
    let dims = wrap_dims(&dims, dims.len())?;
    let mut inverse = vec![0i64; dims.len()];
    for (to, &from) in dims.iter().enumerate() {
        inverse[from] = to as i64;
    }
    Ok(b.grad().permute(&inverse))
}

pub(in crate::aten) const PERMUTED: Derivative = rule!([], |b| give(b, 0, inverse(b)));
