//! The derivatives of builtin operators, one file for each family. Each is a rule made of operators,
//! so that a trace of a gradient is a graph like any other.
//!
//! Source: `tools/autograd/derivatives.yaml` of PyTorch, for formulas and conventions.

mod arithmetic;
mod products;
mod reductions;
mod views;

pub(crate) use arithmetic::*;
pub(super) use products::*;
pub(super) use reductions::*;
pub(super) use views::*;

/// A rule: what it saves, and the gradients that it gives.
macro_rules! rule {
    ([$($saved:expr),*], |$b:ident| $body:expr) => {
        $crate::aten::Derivative::Rule($crate::aten::RuleDef {
            saves: &[$($saved),*],
            backward: |$b| $body,
        })
    };
}
use rule;
