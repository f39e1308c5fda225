//! Views: other sizes and strides over the same storage.

use super::calls::{aten_outputs, calls, tensors};
use super::index::SliceRange;
use super::{aten, methods};
use crate::dispatch::value::Value;
use crate::error::Result;
use crate::tensor::Tensor;
use crate::tensor::meta::IntoDims;
use maquette_ir::sym::SymInt;
use maquette_ir::{DType, Loc};

calls! {
    /// The same elements under other sizes, one of which may be -1; an error where only a copy
    /// could do that.
    fn view(size: impl IntoDims) = "view", Value::from_dims(size);
    /// The same bytes as elements of another dtype.
    fn view_dtype(dtype: DType) = "view.dtype", dtype;
    /// The same elements under other sizes, one of which may be -1: a view where there is one, else
    /// a copy.
    fn reshape(shape: impl IntoDims) = "reshape", Value::from_dims(shape);
    /// One dimension split into several, one of which may be -1.
    fn unflatten(dim: i64, sizes: impl IntoDims) = "unflatten.int", dim, Value::from_dims(sizes);
    /// Dimensions of size 1 repeated, and new ones in front, without copying; -1 keeps a size.
    fn expand(size: impl IntoDims) = "expand", Value::from_dims(size);
    /// Its dimensions in another order.
    fn permute(dims: impl IntoDims) = "permute", Value::from_dims(dims);
    /// Its dimensions `source` moved to the places `destination`.
    fn movedim(source: impl IntoDims, destination: impl IntoDims) =
        "movedim.intlist", Value::from_dims(source), Value::from_dims(destination);
    /// Element `index` of a dimension, which disappears; counted from the end where negative.
    fn select(dim: i64, index: impl Into<SymInt>) = "select.int", dim, index.into();
    /// `length` elements of a dimension from `start` on.
    fn narrow(dim: i64, start: impl Into<SymInt>, length: impl Into<SymInt>) =
        "narrow", dim, start.into(), length.into();
    /// Without these dimensions, where they have size 1.
    fn squeeze_dims(dims: impl IntoDims) = "squeeze.dims", Value::from_dims(dims);
    /// Any sizes and strides over the storage, from `storage_offset` or its own offset.
    fn as_strided(size: impl IntoDims, stride: impl IntoDims, storage_offset: Option<SymInt>) =
        "as_strided", Value::from_dims(size), Value::from_dims(stride), storage_offset;
}

methods! {
    /// The same elements under the sizes of `other`, as a view.
    fn view_as(other: &Tensor) = "view_as";
    /// The same elements under the sizes of `other`.
    fn reshape_as(other: &Tensor) = "reshape_as";
    /// The dimensions from `start_dim` to `end_dim` as one.
    fn flatten(start_dim: i64, end_dim: i64) = "flatten.using_ints";
    /// Expanded to the sizes of `other`.
    fn expand_as(other: &Tensor) = "expand_as";
    /// With two dimensions exchanged.
    fn transpose(dim0: i64, dim1: i64) = "transpose.int";
    /// A matrix transposed; vectors and numbers as they are.
    fn t() = "t";
    /// Without the dimensions of size 1.
    fn squeeze() = "squeeze";
    /// Without this dimension, where it has size 1.
    fn squeeze_dim(dim: i64) = "squeeze.dim";
    /// With a new dimension of size 1.
    fn unsqueeze(dim: i64) = "unsqueeze";
    /// The diagonal of two dimensions, as the last one.
    fn diagonal(offset: i64, dim1: i64, dim2: i64) = "diagonal";
    /// Windows of `size` elements every `step` elements of a dimension, as a new last dimension.
    fn unfold(dimension: i64, size: i64, step: i64) = "unfold";
    /// Another handle with a view of its own.
    fn alias() = "alias";
    /// The same elements, without gradient.
    fn detach() = "detach";
}

impl Tensor {
    /// A part of a dimension: `x.slice(0, 2..5)`, `x.slice(-1, ..-1)`. Bounds are clamped, and
    /// count from the end where negative.
    ///
    /// PyTorch: `aten::slice.Tensor`.
    #[track_caller]
    pub fn slice(&self, dim: i64, range: impl SliceRange) -> Tensor {
        let (start, end) = range.bounds();
        aten!("slice.Tensor", Loc::caller(); self, dim, start, end)
    }

    /// Every `step`th element of a part of a dimension.
    ///
    /// PyTorch: `aten::slice.Tensor`.
    #[track_caller]
    pub fn slice_step(&self, dim: i64, range: impl SliceRange, step: impl Into<SymInt>) -> Tensor {
        let (start, end) = range.bounds();
        aten!("slice.Tensor", Loc::caller(); self, dim, start, end, step.into())
    }

    /// Views of `split_size` elements of a dimension each; the last may be smaller.
    ///
    /// PyTorch: `aten::split.Tensor`.
    ///
    /// # Errors
    /// The tensor is poisoned, or there is no such dimension. The number of views becomes a guard
    /// where the size is symbolic.
    #[track_caller]
    pub fn split(&self, split_size: impl Into<SymInt>, dim: i64) -> Result<Vec<Tensor>> {
        tensors(aten_outputs!("split.Tensor", Loc::caller(); self, split_size.into(), dim))
    }

    /// Views of the given lengths of a dimension, which must add up to its size.
    ///
    /// PyTorch: `aten::split_with_sizes`.
    ///
    /// # Errors
    /// As [`Tensor::split`]; and the lengths do not add up.
    #[track_caller]
    pub fn split_with_sizes(&self, split_sizes: impl IntoDims, dim: i64) -> Result<Vec<Tensor>> {
        tensors(aten_outputs!("split_with_sizes", Loc::caller();
            self, Value::from_dims(split_sizes), dim
        ))
    }

    /// At most `chunks` views of equal length of a dimension; the last may be smaller.
    ///
    /// PyTorch: `aten::chunk`.
    ///
    /// # Errors
    /// As [`Tensor::split`].
    #[track_caller]
    pub fn chunk(&self, chunks: i64, dim: i64) -> Result<Vec<Tensor>> {
        tensors(aten_outputs!("chunk", Loc::caller(); self, chunks, dim))
    }

    /// A view for each element of a dimension.
    ///
    /// PyTorch: `aten::unbind.int`.
    ///
    /// # Errors
    /// As [`Tensor::split`].
    #[track_caller]
    pub fn unbind(&self, dim: i64) -> Result<Vec<Tensor>> {
        tensors(aten_outputs!("unbind.int", Loc::caller(); self, dim))
    }
}
