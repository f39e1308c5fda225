//! The reduction of losses, which methods and rows name.

use crate::dispatch::value::Value;

/// The reduction of a batch of losses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reduction {
    /// No reduction.
    None,
    /// The mean; NaN for no losses.
    Mean,
    /// The sum.
    Sum,
}

impl From<Reduction> for Value {
    /// The number by which PyTorch's schemas represent a reduction.
    fn from(r: Reduction) -> Value {
        Value::from(r as i64)
    }
}
