//! Derivatives of arithmetic that need less than those of the scalar expressions: sums save
//! nothing, and an exponential saves its result.

use crate::grad::rule;
use maquette_ops::operator::Saved::{Input, InputFor, Output};
use maquette_ops::operator::{Backward, Derivative, ZEROS, aten};
use maquette_ops::{Result, Tensor, Value};

/// `x` times the number in an argument; `x` itself if the number is 1.
fn scaled(x: Tensor, by: &Value) -> Result<Tensor> {
    let factor = by.scalar()?;
    Ok(if factor.to_f64() == 1.0 { x } else { x * factor })
}

/// Gives a gradient that may fail to be computed.
pub(crate) fn give(b: &Backward<'_>, argument: usize, grad: Result<Tensor>) -> Result<()> {
    b.set(argument, || grad.unwrap_or_else(Tensor::poison))
}

pub(crate) const ADD: Derivative = rule!([], |b| {
    b.set(0, || b.grad())?;
    give(b, 1, scaled(b.grad(), b.arg(2)))
});

pub(crate) const SUB: Derivative = rule!([], |b| {
    b.set(0, || b.grad())?;
    give(b, 1, scaled(-b.grad(), b.arg(2)))
});

/// The gradient is that of the result: of sums with a number, and of copies.
pub(crate) const IDENTITY: Derivative = rule!([], |b| b.set(0, || b.grad()));

pub(crate) const NEG: Derivative = rule!([], |b| b.set(0, || -b.grad()));

pub(crate) const MUL: Derivative = rule!([InputFor(1, 0), InputFor(0, 1)], |b| {
    match b.tensors(1) {
        0 => give(b, 0, b.arg(1).scalar().map(|s| b.grad() * s))?,
        _ => b.set(0, || b.grad() * b.input(1))?,
    }
    b.set(1, || b.grad() * crate::grad::first(b))
});

pub(crate) const MUL_SCALAR: Derivative =
    rule!([], |b| give(b, 0, b.arg(1).scalar().map(|s| b.grad() * s)));

pub(crate) const DIV: Derivative = rule!([Input(1), InputFor(0, 1)], |b| {
    match b.tensors(1) {
        0 => give(b, 0, b.arg(1).scalar().map(|s| b.grad() / s))?,
        _ => b.set(0, || b.grad() / b.input(1))?,
    }
    b.set(1, || -b.grad() * ((crate::grad::first(b) / b.input(1)) / b.input(1)))
});

pub(crate) const DIV_SCALAR: Derivative =
    rule!([], |b| give(b, 0, b.arg(1).scalar().map(|s| b.grad() / s)));

pub(crate) const EXP: Derivative = rule!([Output(0)], |b| b.set(0, || b.grad() * b.output(0)));

pub(crate) const SQRT: Derivative =
    rule!([Output(0)], |b| b.set(0, || b.grad() / (b.output(0) * 2.0)));

pub(crate) const RELU: Derivative = rule!([Output(0)], |b| {
    b.set(0, || aten!("threshold_backward", b.loc(); b.grad(), b.output(0), 0))
});

pub(crate) const TANH: Derivative =
    rule!([Output(0)], |b| { b.set(0, || aten!("tanh_backward", b.loc(); b.grad(), b.output(0))) });

pub(crate) const SIGMOID: Derivative = rule!([Output(0)], |b| {
    b.set(0, || aten!("sigmoid_backward", b.loc(); b.grad(), b.output(0)))
});

/// Results with zeros as gradients, since the function is constant almost everywhere.
pub(crate) const ZERO: Derivative = Derivative::Rule(ZEROS);
