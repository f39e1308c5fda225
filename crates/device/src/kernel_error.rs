//! Errors of kernels.

use maquette_ir::DType;

/// The reason that a kernel refused its operands or stopped.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum KernelError {
    /// An operand has a dtype the kernel does not take there.
    #[error("{kernel}: {operand} must be {expected}, found {found}")]
    DType {
        /// The kernel.
        kernel: &'static str,
        /// Which operand.
        operand: &'static str,
        /// The dtypes the kernel takes.
        expected: String,
        /// The operand's dtype.
        found: DType,
    },
    /// An operand has the wrong sizes.
    #[error("{kernel}: {operand} must have sizes {expected:?}, found {found:?}")]
    Shape {
        /// The kernel.
        kernel: &'static str,
        /// Which operand.
        operand: &'static str,
        /// The required sizes.
        expected: Vec<i64>,
        /// The operand's sizes.
        found: Vec<i64>,
    },
    /// The wrong number of operands.
    #[error("{kernel}: takes {expected} {what}, found {found}")]
    Count {
        /// The kernel.
        kernel: &'static str,
        /// What is counted.
        what: &'static str,
        /// How many it takes.
        expected: usize,
        /// How many were given.
        found: usize,
    },
    /// An attribute is invalid, or does not fit the operands.
    #[error("{kernel}: {message}")]
    Argument {
        /// The kernel.
        kernel: &'static str,
        /// What is wrong, and what was expected.
        message: String,
    },
    /// The dimension is out of range.
    #[error("{kernel}: dimension {dim} is out of range for rank {rank}")]
    Dim {
        /// The kernel.
        kernel: &'static str,
        /// The dimension.
        dim: usize,
        /// How many there are.
        rank: usize,
    },
    /// An index is out of range.
    #[error("index {index} is out of bounds for dimension {dim} with size {size}")]
    IndexOutOfRange {
        /// The index as given.
        index: i64,
        /// The size of the dimension.
        size: i64,
        /// The dimension indexed.
        dim: usize,
    },
    /// A reduction without an identity element over no elements.
    #[error("{kernel}: cannot reduce over a dimension with no elements")]
    EmptyReduction {
        /// The kernel.
        kernel: &'static str,
    },
    /// The scratch memory for these operands cannot be allocated.
    #[error("{kernel}: cannot allocate {elements} elements of scratch memory")]
    Memory {
        /// The kernel.
        kernel: &'static str,
        /// The number of elements requested, or a lower bound of it.
        elements: usize,
    },
    /// An assertion of a loop nest does not hold.
    #[error("{0}")]
    Assertion(Box<str>),
    /// An integer was divided by zero.
    #[error("integer division by zero")]
    DivisionByZero,
}

impl KernelError {
    /// An attribute that is invalid, or does not fit the operands.
    pub fn argument(kernel: &'static str, message: impl Into<String>) -> KernelError {
        KernelError::Argument { kernel, message: message.into() }
    }
}
