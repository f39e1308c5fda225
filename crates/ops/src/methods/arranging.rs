//! Differences, parts, and repetition of elements.

use super::aten;
use super::calls::{aten_outputs, calls, list, tensors};
use super::methods;
use crate::dispatch::value::Value;
use crate::error::Result;
use crate::tensor::Tensor;
use crate::tensor::meta::IntoDims;
use maquette_ir::Loc;
use maquette_ir::sym::SymInt;

methods! {
    /// The `n`th differences of neighbours along a dimension.
    fn diff(n: i64, dim: i64) = "diff";
    /// The elements in row-major order.
    fn ravel() = "ravel";
    /// The last two dimensions exchanged.
    #[allow(non_snake_case, reason = "the operator's name")]
    fn mT() = "mT";
    /// Elements of each line along `dim` at `indices`, which broadcasts.
    fn take_along_dim(indices: &Tensor, dim: i64) = "take_along_dim";
}

calls! {
    /// Expanded to `size`, without copying.
    fn broadcast_to(size: impl IntoDims) = "broadcast_to", Value::from_dims(size);
    /// The sum over the dimensions that broadcasting from `size` would repeat.
    fn sum_to_size(size: impl IntoDims) = "sum_to_size", Value::from_dims(size);
    /// Each element of a dimension `repeats` times, one after the other.
    fn repeat_interleave(repeats: impl Into<SymInt>, dim: i64) =
        "repeat_interleave.self_int", repeats.into(), dim;
    /// Element `i` of a dimension `repeats[i]` times.
    fn repeat_interleave_by(repeats: &Tensor, dim: i64) =
        "repeat_interleave.self_Tensor", repeats, dim;
    /// The integral along a dimension at the points `x`, by the trapezoidal rule.
    fn trapezoid(x: &Tensor, dim: i64) = "trapezoid.x", x, dim;
}

impl Tensor {
    /// Views of `sections` parts of a dimension whose lengths differ by 1 at most.
    ///
    /// PyTorch: `aten::tensor_split.sections`.
    ///
    /// # Errors
    /// As [`Tensor::split`].
    #[track_caller]
    pub fn tensor_split(&self, sections: impl Into<SymInt>, dim: i64) -> Result<Vec<Tensor>> {
        tensors(aten_outputs!("tensor_split.sections", Loc::caller(); self, sections.into(), dim))
    }

    /// Tensors beside each other: along dimension 1, or 0 for vectors.
    ///
    /// PyTorch: `aten::hstack`.
    #[track_caller]
    pub fn hstack<'a>(tensors: impl IntoIterator<Item = &'a Tensor>) -> Tensor {
        aten!("hstack", Loc::caller(); list(tensors))
    }

    /// Tensors below each other: along dimension 0, vectors as rows.
    ///
    /// PyTorch: `aten::vstack`.
    #[track_caller]
    pub fn vstack<'a>(tensors: impl IntoIterator<Item = &'a Tensor>) -> Tensor {
        aten!("vstack", Loc::caller(); list(tensors))
    }
}
