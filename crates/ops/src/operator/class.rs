//! The kernel classes of builtin operators.

use maquette_ir::graph::Recomputation;

/// The kernel class of an operator that computes elements. Facts that passes ask follow from the
/// class; a backend implements loop nests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "the names are the documentation")]
pub enum Class {
    Reduce,
    Gemm,
    Linalg,
    Convolution,
    Attention,
    Norm,
    Gather,
    Scatter,
    Scan,
    Sort,
    Pool,
    Window,
    Random,
    Recurrent,
    Fill,
    Copy,
    Scalar,
}

impl Class {
    /// Why an operator of the class is computed by a function and not by a loop nest.
    pub(crate) const fn reason_for_call(self) -> &'static str {
        match self {
            Class::Linalg => "the steps of a factorization depend on each other",
            Class::Recurrent => "a loop over time",
            Class::Reduce
            | Class::Gemm
            | Class::Convolution
            | Class::Attention
            | Class::Norm
            | Class::Gather
            | Class::Scatter
            | Class::Scan
            | Class::Sort
            | Class::Pool
            | Class::Window
            | Class::Random
            | Class::Fill
            | Class::Copy
            | Class::Scalar => "not yet a loop nest",
        }
    }

    /// What it takes to compute a result again.
    pub(crate) const fn recomputation(self) -> Recomputation {
        match self {
            Class::Reduce
            | Class::Norm
            | Class::Gather
            | Class::Pool
            | Class::Window
            | Class::Fill
            | Class::Copy => Recomputation::Cheap,
            Class::Gemm
            | Class::Linalg
            | Class::Convolution
            | Class::Attention
            | Class::Scatter
            | Class::Scan
            | Class::Sort
            | Class::Recurrent => Recomputation::Expensive,
            Class::Random | Class::Scalar => Recomputation::Never,
        }
    }

    /// Whether results may depend on the strides of the operands: `linalg_det` and its like
    /// factorize a row-major matrix as its transpose.
    pub(crate) const fn observes_strides(self) -> bool {
        matches!(self, Class::Linalg)
    }

    /// Whether the kernels write to outputs with any strides.
    pub(crate) const fn supports_strided_output(self) -> bool {
        match self {
            Class::Copy
            | Class::Fill
            | Class::Gather
            | Class::Scatter
            | Class::Pool
            | Class::Random => true,
            Class::Reduce
            | Class::Gemm
            | Class::Linalg
            | Class::Convolution
            | Class::Attention
            | Class::Norm
            | Class::Scan
            | Class::Sort
            | Class::Window
            | Class::Recurrent
            | Class::Scalar => false,
        }
    }

    /// Whether the kernels may draw random numbers. Recurrent layers apply dropout between layers
    /// in training.
    pub(crate) const fn uses_rng(self) -> bool {
        match self {
            Class::Random | Class::Recurrent => true,
            Class::Reduce
            | Class::Gemm
            | Class::Linalg
            | Class::Convolution
            | Class::Attention
            | Class::Norm
            | Class::Gather
            | Class::Scatter
            | Class::Scan
            | Class::Sort
            | Class::Pool
            | Class::Window
            | Class::Fill
            | Class::Copy
            | Class::Scalar => false,
        }
    }

    /// Whether the kernels write every element of their outputs for all operands. If so, the
    /// executor does not zero fresh outputs.
    pub(crate) const fn overwrites_output(self) -> bool {
        match self {
            Class::Reduce
            | Class::Gemm
            | Class::Linalg
            | Class::Convolution
            | Class::Attention
            | Class::Norm
            | Class::Gather
            | Class::Scatter
            | Class::Scan
            | Class::Random
            | Class::Copy => true,
            Class::Sort
            | Class::Pool
            | Class::Window
            | Class::Recurrent
            | Class::Fill
            | Class::Scalar => false,
        }
    }
}
