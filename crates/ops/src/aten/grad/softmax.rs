//! Derivatives of softmax and its logarithm, of their results.

use super::rule;
use crate::aten::Derivative;
use crate::aten::Saved::Output;
use maquette_ir::fault_injection::{Fault, fault_injected};

pub(in crate::aten) const SOFTMAX: Derivative = rule!([Output(0)], |b| {
    let dim = b.arg(1).int_i64()?;
    b.set(0, || {
        let weighted = b.grad() * b.output(0);
        if fault_injected(Fault::SoftmaxOneTerm) {
            return weighted;
        }
        &weighted - b.output(0) * weighted.sum_dim([dim], true)
    })
});

pub(in crate::aten) const LOG_SOFTMAX: Derivative = rule!([Output(0)], |b| {
    let dim = b.arg(1).int_i64()?;
    b.set(0, || b.grad() - b.output(0).exp() * b.grad().sum_dim([dim], true))
});
