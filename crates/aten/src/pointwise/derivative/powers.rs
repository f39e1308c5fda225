//! Derivatives of powers, with PyTorch's conventions at zero.

use super::activation::{first, second};
use crate::grad::rule;
use maquette_ops::operator::Derivative;
use maquette_ops::operator::Saved::{Input, Output};

pub(crate) const POW: Derivative = rule!([Input(0), Input(1), Output(0)], |b| {
    b.set(0, || {
        let (x, n) = (b.input(0), second(b));
        n.eq(0.0).where_(0.0, b.grad() * (&n * x.pow(&n - 1.0)))
    })?;
    let dtype = b.result_meta(0)?.dtype;
    b.set(1, || {
        let (x, n) = (first(b), b.input(1));
        let zero = x.eq(0.0).logical_and(n.ge(0.0));
        // the logarithm of an integer would be rounded to the default dtype
        b.grad() * zero.where_(0.0, b.output(0) * x.to_dtype(dtype).log())
    })
});
