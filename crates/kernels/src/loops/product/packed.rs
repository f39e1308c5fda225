//! Operands of launches in the layouts that products read.

use super::chain::InChains;
use crate::conv::PlaneConv;
use crate::error::Result;
use crate::gemm::{PackedMatrix, PixelWeights};
use maquette_ir::DType;

/// How an operand is packed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum PackForm {
    /// As the right factor of a product.
    Matrix,
    /// As the weights of windows.
    Windows,
    /// As the weights of a depthwise convolution, whose channels are last.
    Channels,
}

/// What makes the same packed operand of the same memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PackKey {
    pub(super) form: PackForm,
    pub(super) dtype: DType,
    pub(super) start: i64,
    pub(super) sizes: [usize; 2],
    pub(super) strides: [i64; 2],
}

/// An operand of a launch in the layout that products read. It is for the process that made it, and
/// for plans with products of its sizes.
#[derive(Debug)]
pub struct PackedOperand(pub(super) Packed);

/// What is packed.
pub(super) enum Packed {
    Matrix(PackedMatrix),
    F32(PixelWeights<f32>),
    F64(PixelWeights<f64>),
}

impl std::fmt::Debug for Packed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (name, sizes) = match self {
            Packed::Matrix(matrix) => ("Matrix", matrix.sizes()),
            Packed::F32(weights) => ("F32", weights.sizes()),
            Packed::F64(weights) => ("F64", weights.sizes()),
        };
        f.debug_tuple(name).field(&sizes).finish()
    }
}

impl PackedOperand {
    /// The bytes of memory that it takes.
    pub fn bytes(&self) -> usize {
        match &self.0 {
            Packed::Matrix(matrix) => matrix.bytes(),
            Packed::F32(weights) => weights.bytes(),
            Packed::F64(weights) => weights.bytes(),
        }
    }
}

/// A type that a convolution is computed in.
pub(super) trait Convolved: InChains {
    /// Computes a convolution by planes, as [`PlaneConv::run`].
    ///
    /// # Safety
    /// As [`PlaneConv::run`].
    unsafe fn by_planes(conv: &PlaneConv<'_, Self>) -> Option<Result<()>>;
    /// The packed weights, if they are of this type.
    fn weights(packed: &PackedOperand) -> Option<&PixelWeights<Self>>;
}

impl Convolved for f32 {
    unsafe fn by_planes(conv: &PlaneConv<'_, f32>) -> Option<Result<()>> {
        // SAFETY: the caller's promise.
        unsafe { conv.run() }
    }

    fn weights(packed: &PackedOperand) -> Option<&PixelWeights<f32>> {
        match &packed.0 {
            Packed::F32(weights) => Some(weights),
            _ => None,
        }
    }
}

impl Convolved for f64 {
    unsafe fn by_planes(conv: &PlaneConv<'_, f64>) -> Option<Result<()>> {
        // SAFETY: the caller's promise.
        unsafe { conv.run() }
    }

    fn weights(packed: &PackedOperand) -> Option<&PixelWeights<f64>> {
        match &packed.0 {
            Packed::F64(weights) => Some(weights),
            _ => None,
        }
    }
}
