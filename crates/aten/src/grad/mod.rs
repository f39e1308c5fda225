//! The derivatives of builtin operators, by name. Each family has its own in `derivative`. Each is
//! a rule made of operators, so that a trace of a gradient is a graph like any other.
//!
//! Source: `tools/autograd/derivatives.yaml` of PyTorch, for formulas and conventions.

pub(crate) mod parts;

pub(crate) use crate::image::derivative::grid::*;
pub(crate) use crate::image::derivative::pooling::*;
pub(crate) use crate::index::derivative::reads::*;
pub(crate) use crate::index::derivative::scatters::*;
pub(crate) use crate::linalg::derivative::*;
pub(crate) use crate::loss::derivative::distances::*;
pub(crate) use crate::loss::derivative::losses::*;
pub(crate) use crate::norm::derivative::*;
pub(crate) use crate::order::derivative::orders::*;
pub(crate) use crate::order::derivative::picks::*;
pub(crate) use crate::pointwise::derivative::activation::*;
pub(crate) use crate::pointwise::derivative::arithmetic::*;
pub(crate) use crate::pointwise::derivative::powers::*;
pub(crate) use crate::product::derivative::attention::*;
pub(crate) use crate::product::derivative::products::*;
pub(crate) use crate::reduce::derivative::norms::*;
pub(crate) use crate::reduce::derivative::reductions::*;
pub(crate) use crate::shape::derivative::*;
pub(crate) use crate::special::derivative::*;

/// A rule: what it saves, and the gradients that it gives.
macro_rules! rule {
    ([$($saved:expr),*], |$b:ident| $body:expr) => {
        ::maquette_ops::operator::Derivative::Rule(::maquette_ops::operator::RuleDef {
            saves: &[$($saved),*],
            backward: |$b| $body,
        })
    };
}
pub(crate) use rule;
