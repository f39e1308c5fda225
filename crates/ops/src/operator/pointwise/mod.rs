//! Pointwise operators: broadcasting, type promotion, and one scalar expression for each element.
//! The dtypes follow from a `Types`, and the expression is written as a formula (`formula`).

pub(crate) mod cache;
pub mod formula;
