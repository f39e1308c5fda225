//! The derivatives of operators on the order of elements.

pub(crate) mod orders;
pub(crate) mod picks;
