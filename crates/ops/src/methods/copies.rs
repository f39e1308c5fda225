//! Copies, conversions, joins, padding and rearrangements.

use super::calls::{calls, list};
use super::index::SliceRange;
use super::{aten, methods};
use crate::dispatch::value::Value;
use crate::tensor::Tensor;
use crate::tensor::meta::IntoDims;
use maquette_ir::sym::SymInt;
use maquette_ir::{DType, Device, Loc, MemoryFormat, Scalar};

methods! {
    /// A copy in new memory. (Rust's `clone` returns another handle to the same memory.)
    fn clone_tensor() = "clone";
    /// The tensor itself if it is row-major, else a row-major copy.
    fn contiguous() = "contiguous";
    /// Copies `src`, broadcast and converted, into this tensor, and returns this tensor.
    fn copy_(src: &Tensor) = "copy_";
    /// Converts to a dtype. Returns the tensor itself if it has that dtype.
    fn to_dtype(dtype: DType) = "to.dtype";
    /// Converts to the dtype and device of `other`.
    fn to_other(other: &Tensor) = "to.other";
    /// Converts to the dtype of `other`.
    fn type_as(other: &Tensor) = "type_as";
    /// The lower triangle of matrices, zero above `diagonal`.
    fn tril(diagonal: i64) = "tril";
    /// The upper triangle of matrices, zero below `diagonal`.
    fn triu(diagonal: i64) = "triu";
    /// [`Tensor::tril`] in place.
    fn tril_(diagonal: i64) = "tril_";
    /// [`Tensor::triu`] in place.
    fn triu_(diagonal: i64) = "triu_";
    /// A copy with its diagonal replaced by `src`.
    fn diagonal_scatter(src: &Tensor, offset: i64, dim1: i64, dim2: i64) = "diagonal_scatter";
    /// The elements for which `mask` is true, as a vector. Its size depends on the data.
    fn masked_select(mask: &Tensor) = "masked_select";
    /// The positions of the nonzero elements, one per row. Their number depends on the data.
    fn nonzero() = "nonzero";
    /// A copy in which successive elements of `source` replace those for which `mask` is true.
    fn masked_scatter(mask: &Tensor, source: &Tensor) = "masked_scatter";
    /// [`Tensor::masked_scatter`] in place.
    fn masked_scatter_(mask: &Tensor, source: &Tensor) = "masked_scatter_";
    /// Rearranges channels into an image that is `upscale_factor` times as high and as wide.
    fn pixel_shuffle(upscale_factor: i64) = "pixel_shuffle";
}

calls! {
    /// A copy in new memory, in the given memory format.
    fn clone_as(format: MemoryFormat) = "clone", format;
    /// Copies to a device. Returns the tensor itself if it is on that device.
    fn to_device(device: Device) = "to.dtype_layout", (), (), device;
    /// Repeats the tensor `repeats[d]` times along each dimension `d`.
    fn repeat(repeats: impl IntoDims) = "repeat", Value::from_dims(repeats);
    /// As [`Tensor::repeat`]. Missing leading entries count as 1.
    fn tile(dims: impl IntoDims) = "tile", Value::from_dims(dims);
    /// Rotates by `shifts` along `dims`; with one shift and no dims, the flattened tensor.
    fn roll(shifts: impl IntoDims, dims: impl IntoDims) =
        "roll", Value::from_dims(shifts), Value::from_dims(dims);
    /// Reverses these dimensions.
    fn flip(dims: impl IntoDims) = "flip", Value::from_dims(dims);
    /// Pads with `value`. `pad` has the amounts before and after each dimension, the last dimension
    /// first. Negative amounts crop.
    fn constant_pad_nd(pad: impl IntoDims, value: impl Into<Scalar>) =
        "constant_pad_nd", Value::from_dims(pad), value.into();
    /// Pads in a mode: `constant`, `reflect`, `replicate` or `circular`.
    fn pad(pad: impl IntoDims, mode: &str, value: Option<f64>) =
        "pad", Value::from_dims(pad), mode, value;
    /// A copy with element `index` of a dimension replaced by `src`.
    fn select_scatter(src: &Tensor, dim: i64, index: impl Into<SymInt>) =
        "select_scatter", src, dim, index.into();
    /// Resamples to `output_size` by the nearest element.
    fn upsample_nearest2d(output_size: impl IntoDims) =
        "upsample_nearest2d", Value::from_dims(output_size);
}

impl Tensor {
    #[doc(hidden)]
    pub fn _to_copy(&self, dtype: DType, device: Device, format: MemoryFormat) -> Tensor {
        aten!("_to_copy", Loc::caller(); self, dtype, (), device, (), false, format)
    }

    /// A copy with a range of a dimension replaced by `src`.
    ///
    /// PyTorch: `aten::slice_scatter`.
    #[track_caller]
    pub fn slice_scatter(&self, src: &Tensor, dim: i64, range: impl SliceRange) -> Tensor {
        let (start, end) = range.bounds();
        aten!("slice_scatter", Loc::caller(); self, src, dim, start, end)
    }

    /// Concatenates tensors along a dimension.
    ///
    /// PyTorch: `aten::cat`.
    #[track_caller]
    pub fn cat<'a>(tensors: impl IntoIterator<Item = &'a Tensor>, dim: i64) -> Tensor {
        aten!("cat", Loc::caller(); list(tensors), dim)
    }

    /// Stacks tensors of equal sizes along a new dimension.
    ///
    /// PyTorch: `aten::stack`.
    #[track_caller]
    pub fn stack<'a>(tensors: impl IntoIterator<Item = &'a Tensor>, dim: i64) -> Tensor {
        aten!("stack", Loc::caller(); list(tensors), dim)
    }
}
