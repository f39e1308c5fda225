//! New tensors: factories, evenly spaced and random numbers, copies and conversions.

pub(crate) mod copies;
pub(crate) mod creation;
pub(crate) mod random;
pub(crate) mod ranges;
