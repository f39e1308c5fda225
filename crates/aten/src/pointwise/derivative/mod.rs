//! The derivatives of pointwise operators: activations, arithmetic and powers.

pub(crate) mod activation;
pub(crate) mod arithmetic;
pub(crate) mod powers;
