//! Derivatives of operators that pick elements along a dimension and return their positions: sorts,
//! maxima with positions, medians, pooling by maxima.

use crate::grad::{give, rule};
use maquette_ir::fault_injection::{Fault, fault_injected};
use maquette_ops::operator::Saved::{Input, Output};
use maquette_ops::operator::wrap_dim;
use maquette_ops::operator::{Backward, Derivative};
use maquette_ops::{Result, Tensor};

/// The gradient at the positions in result 1 along a dimension.
fn along(b: &Backward<'_>, dim: i64, keep: bool) -> Result<()> {
    let x = b.meta(0)?;
    let d = wrap_dim(dim, x.rank())? as i64;
    let (mut at, mut grad) = (b.output(1), b.grad());
    if x.rank() == 0 {
        return b.set(0, || grad);
    }
    if !keep {
        (at, grad) = (at.unsqueeze(d), grad.unsqueeze(d));
    }
    b.set(0, || grad.new_zeros(&x.sizes, x.dtype).scatter_add(d, &at, &grad))
}

/// Positions along argument 1, where argument 2 says whether the dimension is kept.
pub(crate) const PICK: Derivative =
    rule!([Output(1)], |b| along(b, b.arg(1).int_i64()?, b.arg(2).bool()?));

/// Positions along argument 2, where argument 3 says whether the dimension is kept.
pub(crate) const PICK_KTH: Derivative =
    rule!([Output(1)], |b| along(b, b.arg(2).int_i64()?, b.arg(3).bool()?));

/// Positions along argument 1, which stays.
pub(crate) const SORT: Derivative =
    rule!([Output(1)], |b| match fault_injected(Fault::PicksInOrder) {
        true => b.set(0, || b.grad()),
        false => along(b, b.arg(1).int_i64()?, true),
    });

/// Positions along argument 2, which stays.
pub(crate) const SORT_STABLE: Derivative =
    rule!([Output(1)], |b| along(b, b.arg(2).int_i64()?, true));

/// The gradient shared among the elements that equal the result.
fn among_equal(b: &Backward<'_>) -> Result<()> {
    let x = b.input(0);
    let mask = x.eq(b.output(0)).logical_or(x.isnan().logical_and(b.output(0).isnan()));
    // an infinite gradient must not reach the other elements as NaN
    give(b, 0, Ok(mask.where_(b.grad() / mask.sum(), 0.0)))
}

/// The extreme or the median of all elements.
pub(crate) const PICK_ALL: Derivative = rule!([Input(0), Output(0)], |b| among_equal(b));

/// The gradient at positions in the last `dims` dimensions, counted row by row.
fn at_positions(b: &Backward<'_>, dims: usize) -> Result<()> {
    let x = b.meta(0)?;
    let start = -(dims as i64);
    let (at, grad) = (b.output(1).flatten(start, -1), b.grad().flatten(start, -1));
    let mut sizes = x.sizes[..x.rank() - dims].to_vec();
    sizes.push(x.sizes[x.rank() - dims..].iter().fold(1.into(), |n, s| n * *s));
    b.set(0, || grad.new_zeros(&sizes, x.dtype).scatter_add(-1, &at, &grad).reshape(&x.sizes))
}

pub(crate) const MAX_POOL2D: Derivative = rule!([Output(1)], |b| at_positions(b, 2));

pub(crate) const MAX_POOL3D: Derivative = rule!([Output(1)], |b| at_positions(b, 3));

/// The elements of the gradient at the positions in an argument, in the last `dims` dimensions.
fn from_positions(b: &Backward<'_>, at: &Tensor, dims: i64) -> Result<()> {
    let sizes = b.sizes(0)?;
    let grad = b.grad().flatten(-dims, -1).gather(-1, &at.flatten(-dims, -1));
    give(b, 0, Ok(grad.reshape(sizes)))
}

pub(crate) const MAX_UNPOOL2D: Derivative =
    rule!([Input(1)], |b| from_positions(b, &b.input(1), 2));

pub(crate) const MAX_UNPOOL3D: Derivative =
    rule!([Input(1)], |b| from_positions(b, &b.input(1), 3));

/// The gradient of the pooling is linear in its first operand, and constant in its second.
pub(crate) const MAX_POOL2D_BACKWARD: Derivative =
    rule!([Input(7)], |b| from_positions(b, &b.input(7), 2));
