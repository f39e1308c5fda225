//! Typing rules shared by every operator: dtype promotion, broadcasting and the strides of results.
//!
//! The rules are PyTorch's. On plain numbers they cost no allocation up to four dimensions. On
//! symbolic sizes they decide what can be proved, guard on the example values where it cannot, and
//! never guard to tell whether a size is 0 or 1 only for the sake of strides that cannot be
//! observed: those of empty tensors and of dimensions of size 1.

mod broadcast;
mod elementwise;
mod promote;
mod strides;
#[cfg(test)]
mod symbolic_tests;
#[cfg(test)]
mod tests;

pub use broadcast::broadcast;
pub use elementwise::elementwise_strides;
pub use promote::{Operand, OperandKind, can_cast, promote, promote_pair};
pub use strides::{
    contiguous_strides, contiguous_strides_i64, dense_strides, dense_strides_i64, is_contiguous,
    is_contiguous_i64, is_non_overlapping_and_dense, is_non_overlapping_and_dense_i64,
};

use crate::sym::{SymError, SymInt};
use smallvec::SmallVec;

/// Sizes or strides, in elements.
pub type Dims = SmallVec<[SymInt; 4]>;
/// Sizes or strides that are plain numbers, in elements.
pub type DimsI64 = SmallVec<[i64; 4]>;

/// Sizes or strides that do not fit together.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TypingError {
    /// Two sizes of one dimension differ and neither is 1.
    #[error(
        "cannot broadcast {shape} with {other_shape}: dimension {dim} of the result is {size} in \
            operand {operand}, but {other_size} in operand {other}"
    )]
    Broadcast {
        /// The position of the operand that has the size so far.
        operand: usize,
        /// Its sizes, printed.
        shape: String,
        /// The position of the operand that does not fit.
        other: usize,
        /// Its sizes, printed.
        other_shape: String,
        /// The dimension of the result.
        dim: usize,
        /// The size so far, printed.
        size: String,
        /// The size that does not fit, printed.
        other_size: String,
    },
    /// An operand has another number of strides than sizes, or more dimensions than the result.
    #[error(
        "operand {operand} has {strides} strides for {sizes} sizes, in a result of {out} dimensions"
    )]
    Rank {
        /// The operand's position.
        operand: usize,
        /// How many sizes it has.
        sizes: usize,
        /// How many strides it has.
        strides: usize,
        /// The number of dimensions of the result.
        out: usize,
    },
    /// A symbolic size could not be decided on.
    #[error(transparent)]
    Sym(#[from] SymError),
}

/// The values, if all are plain numbers.
fn plain(values: &[SymInt]) -> Option<DimsI64> {
    values.iter().map(|v| v.as_i64()).collect()
}

fn symbolic(values: &[i64]) -> Dims {
    values.iter().map(|&v| SymInt::from(v)).collect()
}
