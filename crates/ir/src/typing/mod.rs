//! Typing rules that operators share: dtype promotion, broadcasting, and the strides of results.
//! They are PyTorch's rules.
//!
//! On plain numbers of up to four dimensions they allocate no memory. A decision on symbolic sizes
//! is proved if possible, and otherwise guarded on the example values. No guard is recorded merely
//! to determine strides that cannot be observed: those of empty tensors and of dimensions of size
//! 1. Without this rule, every trace would specialise on whether its sizes are 0 or 1.

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
    contiguous_strides, contiguous_strides_i64, counts_as_empty, dense_strides, dense_strides_i64,
    fill_dense_strides, is_contiguous, is_contiguous_i64, is_non_overlapping_and_dense,
    is_non_overlapping_and_dense_i64,
};

use crate::sym::{SymError, SymInt};
use smallvec::SmallVec;

/// Sizes or strides, in elements.
pub type Dims = SmallVec<[SymInt; 4]>;
/// Sizes or strides that are plain numbers, in elements.
pub type DimsI64 = SmallVec<[i64; 4]>;

/// The error of operands with incompatible sizes or strides.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TypingError {
    /// Two sizes of one dimension differ and neither is 1.
    #[error(
        "cannot broadcast {shape} with {other_shape}: dimension {dim} of the result is {size} in \
            operand {operand}, but {other_size} in operand {other}"
    )]
    Broadcast {
        /// The position of the operand that determined the size so far.
        operand: usize,
        /// The text of its sizes.
        shape: String,
        /// The position of the operand that is incompatible.
        other: usize,
        /// The text of its sizes.
        other_shape: String,
        /// The dimension of the result.
        dim: usize,
        /// The text of the size so far.
        size: String,
        /// The text of the incompatible size.
        other_size: String,
    },
    /// An operand's numbers of sizes and strides differ, or it has more dimensions than the result.
    #[error(
        "operand {operand} has {strides} strides for {sizes} sizes, in a result of {out} dimensions"
    )]
    Rank {
        /// The operand's position.
        operand: usize,
        /// The number of its sizes.
        sizes: usize,
        /// The number of its strides.
        strides: usize,
        /// The number of dimensions of the result.
        out: usize,
    },
    /// A decision on a symbolic size failed.
    #[error(transparent)]
    Sym(#[from] SymError),
}

/// The numbers, if all values are plain numbers.
fn plain(values: &[SymInt]) -> Option<DimsI64> {
    values.iter().map(|v| v.as_i64()).collect()
}

/// Converts numbers to symbolic integers.
fn symbolic(values: &[i64]) -> Dims {
    values.iter().map(|&v| SymInt::from(v)).collect()
}
