//! Differences, repetition and splitting of dimensions.

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
    /// The `n`-th differences of neighbours along a dimension.
    fn diff(n: i64, dim: i64) = "diff";
    /// The elements in row-major order.
    fn ravel() = "ravel";
    /// Exchanges the last two dimensions.
    #[allow(non_snake_case, reason = "the operator's name")]
    fn mT() = "mT";
    /// The elements at positions `indices` along `dim`. The other dimensions broadcast.
    fn take_along_dim(indices: &Tensor, dim: i64) = "take_along_dim";
}

calls! {
    /// Expanded to `size`, without copying.
    fn broadcast_to(size: impl IntoDims) = "broadcast_to", Value::from_dims(size);
    /// The sum over the dimensions that broadcasting from `size` would repeat.
    fn sum_to_size(size: impl IntoDims) = "sum_to_size", Value::from_dims(size);
    /// Repeats each element of a dimension `repeats` times in a row.
    fn repeat_interleave(repeats: impl Into<SymInt>, dim: i64) =
        "repeat_interleave.self_int", repeats.into(), dim;
    /// Repeats element `i` of a dimension `repeats[i]` times.
    fn repeat_interleave_by(repeats: &Tensor, dim: i64) =
        "repeat_interleave.self_Tensor", repeats, dim;
    /// The integral along a dimension at the points `x`, by the trapezoidal rule.
    fn trapezoid(x: &Tensor, dim: i64) = "trapezoid.x", x, dim;
}

impl Tensor {
    /// Splits a dimension into `sections` views whose lengths differ by at most 1.
    ///
    /// PyTorch: `aten::tensor_split.sections`.
    ///
    /// # Errors
    /// As [`Tensor::split`].
    #[track_caller]
    pub fn tensor_split(&self, sections: impl Into<SymInt>, dim: i64) -> Result<Vec<Tensor>> {
        tensors(aten_outputs!("tensor_split.sections", Loc::caller(); self, sections.into(), dim))
    }

    /// Joins tensors along dimension 1, or vectors along dimension 0.
    ///
    /// PyTorch: `aten::hstack`.
    #[track_caller]
    pub fn hstack<'a>(tensors: impl IntoIterator<Item = &'a Tensor>) -> Tensor {
        aten!("hstack", Loc::caller(); list(tensors))
    }

    /// Joins tensors along dimension 0. Vectors become rows.
    ///
    /// PyTorch: `aten::vstack`.
    #[track_caller]
    pub fn vstack<'a>(tensors: impl IntoIterator<Item = &'a Tensor>) -> Tensor {
        aten!("vstack", Loc::caller(); list(tensors))
    }
}
