//! Derivatives of matrix products.

use super::rule;
use crate::aten::Derivative;
use crate::aten::Saved::InputFor;

pub(in crate::aten) const MM: Derivative = rule!([InputFor(1, 0), InputFor(0, 1)], |b| {
    b.set(0, || b.grad().mm(&b.input(1).t()))?;
    b.set(1, || b.input(0).t().mm(&b.grad()))
});

pub(in crate::aten) const BMM: Derivative = rule!([InputFor(1, 0), InputFor(0, 1)], |b| {
    b.set(0, || b.grad().bmm(&b.input(1).transpose(1, 2)))?;
    b.set(1, || b.input(0).transpose(1, 2).bmm(&b.grad()))
});
