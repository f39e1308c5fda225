//! Reads and writes at positions that tensors or arguments hold.

pub(crate) mod derivative;
pub(crate) mod embedding;
pub(crate) mod indexing;
pub(crate) mod scatter;
pub(crate) mod slices;
pub(crate) mod take;
pub(crate) mod view_scatter;
