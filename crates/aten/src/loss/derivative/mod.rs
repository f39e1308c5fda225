//! The derivatives of losses and distances.

pub(crate) mod distances;
pub(crate) mod losses;
