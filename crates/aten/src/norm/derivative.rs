//! Derivatives of softmax and its logarithm, of their results.

use crate::grad::rule;
use maquette_ir::fault_injection::{Fault, fault_injected};
use maquette_ops::operator::Derivative;
use maquette_ops::operator::Saved::Output;

pub(crate) const SOFTMAX: Derivative = rule!([Output(0)], |b| {
    let dim = b.arg(1).int_i64()?;
    b.set(0, || {
        let weighted = b.grad() * b.output(0);
        if fault_injected(Fault::SoftmaxOneTerm) {
            return weighted;
        }
        &weighted - b.output(0) * weighted.sum_dim([dim], true)
    })
});

pub(crate) const LOG_SOFTMAX: Derivative = rule!([Output(0)], |b| {
    let dim = b.arg(1).int_i64()?;
    b.set(0, || b.grad() - b.output(0).exp() * b.grad().sum_dim([dim], true))
});
