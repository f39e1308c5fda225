//! The derivatives of operators on images: samples at points, pooling and interpolation.

pub(crate) mod grid;
pub(crate) mod pooling;
