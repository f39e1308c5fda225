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
    /// A view with other sizes, one of which may be -1. An error if only a copy can have them.
    fn view(size: impl IntoDims) = "view", Value::from_dims(size);
    /// The same bytes as elements of another dtype.
    fn view_dtype(dtype: DType) = "view.dtype", dtype;
    /// The elements with other sizes, one of which may be -1: a view if possible, else a copy.
    fn reshape(shape: impl IntoDims) = "reshape", Value::from_dims(shape);
    /// Splits one dimension into several. One size may be -1.
    fn unflatten(dim: i64, sizes: impl IntoDims) = "unflatten.int", dim, Value::from_dims(sizes);
    /// Expands dimensions of size 1 and adds leading dimensions, without copying. -1 keeps a size.
    fn expand(size: impl IntoDims) = "expand", Value::from_dims(size);
    /// Reorders the dimensions.
    fn permute(dims: impl IntoDims) = "permute", Value::from_dims(dims);
    /// Moves the dimensions `source` to the positions `destination`.
    fn movedim(source: impl IntoDims, destination: impl IntoDims) =
        "movedim.intlist", Value::from_dims(source), Value::from_dims(destination);
    /// Selects element `index` of a dimension and removes the dimension. A negative index counts
    /// from the end.
    fn select(dim: i64, index: impl Into<SymInt>) = "select.int", dim, index.into();
    /// The `length` elements of a dimension from `start`.
    fn narrow(dim: i64, start: impl Into<SymInt>, length: impl Into<SymInt>) =
        "narrow", dim, start.into(), length.into();
    /// Removes those of the given dimensions that have size 1.
    fn squeeze_dims(dims: impl IntoDims) = "squeeze.dims", Value::from_dims(dims);
    /// A view with any sizes and strides of the storage, from `storage_offset` or, by default, this
    /// tensor's offset.
    fn as_strided(size: impl IntoDims, stride: impl IntoDims, storage_offset: Option<SymInt>) =
        "as_strided", Value::from_dims(size), Value::from_dims(stride), storage_offset;
}

methods! {
    /// [`Tensor::view`] with the sizes of `other`.
    fn view_as(other: &Tensor) = "view_as";
    /// [`Tensor::reshape`] to the sizes of `other`.
    fn reshape_as(other: &Tensor) = "reshape_as";
    /// Merges the dimensions from `start_dim` to `end_dim`.
    fn flatten(start_dim: i64, end_dim: i64) = "flatten.using_ints";
    /// Expanded to the sizes of `other`.
    fn expand_as(other: &Tensor) = "expand_as";
    /// Exchanges two dimensions.
    fn transpose(dim0: i64, dim1: i64) = "transpose.int";
    /// The transpose of a matrix. Vectors and scalars are returned unchanged.
    fn t() = "t";
    /// Removes all dimensions of size 1.
    fn squeeze() = "squeeze";
    /// Removes this dimension if it has size 1.
    fn squeeze_dim(dim: i64) = "squeeze.dim";
    /// Inserts a dimension of size 1.
    fn unsqueeze(dim: i64) = "unsqueeze";
    /// The diagonal of two dimensions, as a new last dimension.
    fn diagonal(offset: i64, dim1: i64, dim2: i64) = "diagonal";
    /// Windows of `size` elements every `step` elements of a dimension, as a new last dimension.
    fn unfold(dimension: i64, size: i64, step: i64) = "unfold";
    /// A view of the whole tensor.
    fn alias() = "alias";
    /// A view of the whole tensor that does not require a gradient.
    fn detach() = "detach";
}

impl Tensor {
    /// A range of a dimension: `x.slice(0, 2..5)`, `x.slice(-1, ..-1)`. Negative bounds count from
    /// the end. Bounds out of range are clamped.
    ///
    /// PyTorch: `aten::slice.Tensor`.
    #[track_caller]
    pub fn slice(&self, dim: i64, range: impl SliceRange) -> Tensor {
        let (start, end) = range.bounds();
        aten!("slice.Tensor", Loc::caller(); self, dim, start, end)
    }

    /// Every `step`-th element of a range of a dimension.
    ///
    /// PyTorch: `aten::slice.Tensor`.
    #[track_caller]
    pub fn slice_step(&self, dim: i64, range: impl SliceRange, step: impl Into<SymInt>) -> Tensor {
        let (start, end) = range.bounds();
        aten!("slice.Tensor", Loc::caller(); self, dim, start, end, step.into())
    }

    /// Splits a dimension into views of `split_size` elements. The last view may be smaller.
    ///
    /// PyTorch: `aten::split.Tensor`.
    ///
    /// # Errors
    /// The tensor is poisoned, or the dimension does not exist. If the size is symbolic, the number
    /// of views is recorded as a guard.
    #[track_caller]
    pub fn split(&self, split_size: impl Into<SymInt>, dim: i64) -> Result<Vec<Tensor>> {
        tensors(aten_outputs!("split.Tensor", Loc::caller(); self, split_size.into(), dim))
    }

    /// Splits a dimension into views of given lengths, which must add up to its size.
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

    /// Splits a dimension into at most `chunks` views of equal length. The last may be smaller.
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
