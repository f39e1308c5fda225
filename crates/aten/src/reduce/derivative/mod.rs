//! The derivatives of reductions, scans and norms.

pub(crate) mod norms;
pub(crate) mod reductions;
