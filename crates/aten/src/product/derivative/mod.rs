//! The derivatives of products and of attention.

pub(crate) mod attention;
pub(crate) mod products;
