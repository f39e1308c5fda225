//! The derivatives of reads and writes at positions that tensors hold.

pub(crate) mod reads;
pub(crate) mod scatters;
