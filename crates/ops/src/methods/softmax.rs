//! Softmax.

use super::methods;
use maquette_ir::DType;

methods! {
    /// `exp(x) / sum(exp(x))` along a dimension.
    fn softmax(dim: i64) = "softmax.int";
    /// The logarithm of [`softmax`](crate::Tensor::softmax).
    fn log_softmax(dim: i64) = "log_softmax.int";
    /// As [`softmax`](crate::Tensor::softmax), with elements converted to `dtype` first.
    fn softmax_dtype(dim: i64, dtype: DType) = "softmax.int";
}
