//! StorageCloner, conversions, joins and rearrangements.

use super::calls::{calls, list};
use super::index::SliceRange;
use super::{aten, methods};
use crate::dispatch::value::Value;
use crate::tensor::Tensor;
use crate::tensor::meta::IntoDims;
use maquette_ir::sym::SymInt;
use maquette_ir::{DType, Device, Loc, MemoryFormat, Scalar};

methods! {
    /// A copy in fresh memory. (`clone` makes another handle to the same memory.)
    fn clone_tensor() = "clone";
    /// Itself where it is row-major, else a row-major copy.
    fn contiguous() = "contiguous";
    /// Writes `src` into it, broadcast and converted; returns it.
    fn copy_(src: &Tensor) = "copy_";
    /// In another dtype; itself where it has that already.
    fn to_dtype(dtype: DType) = "to.dtype";
    /// In the dtype and on the device of `other`.
    fn to_other(other: &Tensor) = "to.other";
    /// In the dtype of `other`.
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
    /// The elements where `mask` is true, in one dimension; how many depends on the data.
    fn masked_select(mask: &Tensor) = "masked_select";
    /// The positions of nonzero elements, a row each; how many depends on the data.
    fn nonzero() = "nonzero";
    /// A copy with successive elements of `source` where `mask` is true.
    fn masked_scatter(mask: &Tensor, source: &Tensor) = "masked_scatter";
    /// [`Tensor::masked_scatter`] in place.
    fn masked_scatter_(mask: &Tensor, source: &Tensor) = "masked_scatter_";
    /// Channels regrouped into an image `upscale_factor` times as high and wide.
    fn pixel_shuffle(upscale_factor: i64) = "pixel_shuffle";
}

calls! {
    /// A copy in fresh memory, in this memory format.
    fn clone_as(format: MemoryFormat) = "clone", format;
    /// On another device; itself where it is there already.
    fn to_device(device: Device) = "to.dtype_layout", (), (), device;
    /// Repeated this often along each dimension.
    fn repeat(repeats: impl IntoDims) = "repeat", Value::from_dims(repeats);
    /// [`Tensor::repeat`], where missing leading entries count as 1.
    fn tile(dims: impl IntoDims) = "tile", Value::from_dims(dims);
    /// Rotated by `shifts` along `dims`; with one shift and no dims, as if it had one dimension.
    fn roll(shifts: impl IntoDims, dims: impl IntoDims) =
        "roll", Value::from_dims(shifts), Value::from_dims(dims);
    /// Reversed along these dimensions.
    fn flip(dims: impl IntoDims) = "flip", Value::from_dims(dims);
    /// With `value` added around it: two numbers for each dimension, the last dimension first.
    /// Negative numbers cut off.
    fn constant_pad_nd(pad: impl IntoDims, value: impl Into<Scalar>) =
        "constant_pad_nd", Value::from_dims(pad), value.into();
    /// Padded by a mode: `constant`, `reflect`, `replicate` or `circular`.
    fn pad(pad: impl IntoDims, mode: &str, value: Option<f64>) =
        "pad", Value::from_dims(pad), mode, value;
    /// A copy with element `index` of a dimension replaced by `src`.
    fn select_scatter(src: &Tensor, dim: i64, index: impl Into<SymInt>) =
        "select_scatter", src, dim, index.into();
    /// Resampled to `output_size` by taking the nearest element.
    fn upsample_nearest2d(output_size: impl IntoDims) =
        "upsample_nearest2d", Value::from_dims(output_size);
}

impl Tensor {
    pub(crate) fn _to_copy(&self, dtype: DType, device: Device, format: MemoryFormat) -> Tensor {
        aten!("_to_copy", Loc::caller(); self, dtype, (), device, (), false, format)
    }

    /// A copy with a part of a dimension replaced by `src`.
    ///
    /// PyTorch: `aten::slice_scatter`.
    #[track_caller]
    pub fn slice_scatter(&self, src: &Tensor, dim: i64, range: impl SliceRange) -> Tensor {
        let (start, end) = range.bounds();
        aten!("slice_scatter", Loc::caller(); self, src, dim, start, end)
    }

    /// Tensors one after another along a dimension.
    ///
    /// PyTorch: `aten::cat`.
    #[track_caller]
    pub fn cat<'a>(tensors: impl IntoIterator<Item = &'a Tensor>, dim: i64) -> Tensor {
        aten!("cat", Loc::caller(); list(tensors), dim)
    }

    /// Tensors of equal sizes along a new dimension.
    ///
    /// PyTorch: `aten::stack`.
    #[track_caller]
    pub fn stack<'a>(tensors: impl IntoIterator<Item = &'a Tensor>, dim: i64) -> Tensor {
        aten!("stack", Loc::caller(); list(tensors), dim)
    }
}
