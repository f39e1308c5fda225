//! The derivatives of builtin operators, one file for each family. Each is a rule made of operators,
//! so that a trace of a gradient is a graph like any other.
//!
//! Source: `tools/autograd/derivatives.yaml` of PyTorch, for formulas and conventions.

mod activation;
mod arithmetic;
mod attention;
mod distances;
mod grid;
mod indexing;
mod linalg;
mod losses;
mod norms;
mod orders;
mod parts;
mod picks;
mod pooling;
mod powers;
mod products;
mod reductions;
mod scatters;
mod softmax;
mod special;
mod views;

pub(super) use activation::*;
pub(crate) use arithmetic::*;
pub(super) use attention::*;
pub(super) use distances::*;
pub(super) use grid::*;
pub(super) use indexing::*;
pub(super) use linalg::*;
pub(super) use losses::*;
pub(super) use norms::*;
pub(super) use orders::*;
pub(super) use picks::*;
pub(super) use pooling::*;
pub(super) use powers::*;
pub(super) use products::*;
pub(super) use reductions::*;
pub(super) use scatters::*;
pub(super) use softmax::*;
pub(super) use special::*;
pub(super) use views::*;

/// A rule: what it saves, and the gradients that it gives.
macro_rules! rule {
    ([$($saved:expr),*], |$b:ident| $body:expr) => {
        ::maquette_ops::operator::Derivative::Rule(::maquette_ops::operator::RuleDef {
            saves: &[$($saved),*],
            backward: |$b| $body,
        })
    };
}
use rule;
