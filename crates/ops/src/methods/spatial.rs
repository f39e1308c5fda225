//! Images and volumes: resampling, sampling by grids, padding, patches, regions, rearrangements.

use super::calls::{aten_outputs, calls, results};
use super::methods;
use crate::dispatch::value::Value;
use crate::tensor::Tensor;
use crate::tensor::meta::IntoDims;
use maquette_ir::Loc;
use maquette_ir::sym::SymInt;

methods! {
    /// Blocks of `downscale_factor` pixels to either side as channels: the inverse of
    /// [`Tensor::pixel_shuffle`].
    fn pixel_unshuffle(downscale_factor: i64) = "pixel_unshuffle";
    /// Channels `[N, C, …]` of `groups` groups interleaved.
    fn channel_shuffle(groups: i64) = "channel_shuffle";
    /// The first half of a dimension times the sigmoid of the second. Floats.
    fn glu(dim: i64) = "glu";
    /// Images `[N, C, H, W]` or volumes read where the grid `[N, H', W', 2]` says, in coordinates
    /// from -1 to 1. Modes: 0 linear, 1 nearest, 2 cubic; outside is 0 zero, 1 the border, 2
    /// reflected.
    fn grid_sampler(
        grid: &Tensor,
        interpolation_mode: i64,
        padding_mode: i64,
        align_corners: bool,
    ) =
        "grid_sampler";
}

calls! {
    /// Signals `[N, C, L]` resampled to `output_size` by straight lines. Floats.
    fn upsample_linear1d(output_size: impl IntoDims, align_corners: bool) =
        "upsample_linear1d", Value::from_dims(output_size), align_corners;
    /// Images `[N, C, H, W]` resampled to `output_size` by straight lines. Floats, or u8.
    fn upsample_bilinear2d(output_size: impl IntoDims, align_corners: bool) =
        "upsample_bilinear2d", Value::from_dims(output_size), align_corners;
    /// Volumes `[N, C, D, H, W]` resampled to `output_size` by straight lines. Floats.
    fn upsample_trilinear3d(output_size: impl IntoDims, align_corners: bool) =
        "upsample_trilinear3d", Value::from_dims(output_size), align_corners;
    /// Images `[N, C, H, W]` resampled to `output_size` by cubic curves. Floats, or u8.
    fn upsample_bicubic2d(output_size: impl IntoDims, align_corners: bool) =
        "upsample_bicubic2d", Value::from_dims(output_size), align_corners;
    /// [`Tensor::upsample_bilinear2d`] without aliasing where the image shrinks. f32, f64 or u8.
    fn upsample_bilinear2d_aa(output_size: impl IntoDims, align_corners: bool) =
        "_upsample_bilinear2d_aa", Value::from_dims(output_size), align_corners;
    /// [`Tensor::upsample_bicubic2d`] without aliasing where the image shrinks. f32, f64 or u8.
    fn upsample_bicubic2d_aa(output_size: impl IntoDims, align_corners: bool) =
        "_upsample_bicubic2d_aa", Value::from_dims(output_size), align_corners;
    /// Images `[N, C, H, W]` resampled to `output_size` by the element whose middle is nearest.
    /// Floats, or u8.
    fn upsample_nearest_exact2d(output_size: impl IntoDims) =
        "_upsample_nearest_exact2d", Value::from_dims(output_size);
    /// The grid that these affine maps `[N, 2, 3]` or `[N, 3, 4]` make of images of `size`. Floats.
    fn affine_grid_generator(size: impl IntoDims, align_corners: bool) =
        "affine_grid_generator", Value::from_dims(size), align_corners;
    /// The patches of images `[N, C, H, W]` as columns `[N, C KH KW, L]`. Floats or bools.
    fn im2col(
        kernel_size: impl IntoDims,
        dilation: impl IntoDims,
        padding: impl IntoDims,
        stride: impl IntoDims,
    ) =
        "im2col", Value::from_dims(kernel_size), Value::from_dims(dilation),
        Value::from_dims(padding), Value::from_dims(stride);
    /// Columns `[N, C KH KW, L]` added up to images of `output_size`: the adjoint of
    /// [`Tensor::im2col`]. Floats or bools.
    fn col2im(
        output_size: impl IntoDims,
        kernel_size: impl IntoDims,
        dilation: impl IntoDims,
        padding: impl IntoDims,
        stride: impl IntoDims,
    ) =
        "col2im", Value::from_dims(output_size), Value::from_dims(kernel_size),
        Value::from_dims(dilation), Value::from_dims(padding), Value::from_dims(stride);
    /// `k` quarter turns in the plane of two dimensions, from the first towards the second.
    fn rot90(k: i64, dims: impl IntoDims) = "rot90", k, Value::from_dims(dims);
    /// The means of an even division of signals into `output_size`.
    fn adaptive_avg_pool1d(output_size: impl Into<SymInt>) =
        "adaptive_avg_pool1d", Value::from_dims(output_size.into());
    /// The means of an even division of volumes into `output_size`.
    fn adaptive_avg_pool3d(output_size: impl IntoDims) =
        "adaptive_avg_pool3d", Value::from_dims(output_size);
    /// The greatest of each window of volumes; an empty stride means the kernel's size.
    fn max_pool3d(kernel_size: impl IntoDims, stride: impl IntoDims, padding: impl IntoDims) =
        "max_pool3d", Value::from_dims(kernel_size), Value::from_dims(stride),
        Value::from_dims(padding);
    /// Images of `output_size`, zero but for these elements at the places `indices` that a pool
    /// gave. Floats; i64 places.
    fn max_unpool2d(indices: &Tensor, output_size: impl IntoDims) =
        "max_unpool2d", indices, Value::from_dims(output_size);
    /// Volumes of `output_size`, zero but for these elements at the places `indices` that a pool
    /// gave. Floats; i64 places.
    fn max_unpool3d(
        indices: &Tensor,
        output_size: impl IntoDims,
        stride: impl IntoDims,
        padding: impl IntoDims,
    ) =
        "max_unpool3d", indices, Value::from_dims(output_size), Value::from_dims(stride),
        Value::from_dims(padding);
}

/// Declares pools of one size that return the greatest elements and their places.
macro_rules! greatest {
    ($(
        $(#[$doc:meta])*
        fn $name:ident($($arg:ident : $ty:ty = $value:expr),* $(,)?) = $op:literal;
    )*) => {
        impl Tensor {
            $(
                $(#[$doc])*
                #[doc = concat!("\n\nPyTorch: `aten::", $op, "`.")]
                #[track_caller]
                pub fn $name(&self $(, $arg: $ty)*) -> (Tensor, Tensor) {
                    let call = aten_outputs!($op, Loc::caller(); self $(, $value)*);
                    let [values, indices] = results(call);
                    (values, indices)
                }
            )*
        }
    };
}

greatest! {
    /// The greatest of an even division of signals into `output_size`, and their places. Floats.
    fn adaptive_max_pool1d(output_size: i64 = Value::from_dims(output_size)) =
        "adaptive_max_pool1d";
    /// The greatest of an even division of images into `output_size`, and their places. Floats.
    fn adaptive_max_pool2d(output_size: impl IntoDims = Value::from_dims(output_size)) =
        "adaptive_max_pool2d";
    /// The greatest of an even division of volumes into `output_size`, and their places. Floats.
    fn adaptive_max_pool3d(output_size: impl IntoDims = Value::from_dims(output_size)) =
        "adaptive_max_pool3d";
    /// The greatest of `output_size` windows of images placed by `random_samples` `[N, C, 2]` from
    /// 0 to 1, and their places. Floats.
    fn fractional_max_pool2d(
        kernel_size: impl IntoDims = Value::from_dims(kernel_size),
        output_size: impl IntoDims = Value::from_dims(output_size),
        random_samples: &Tensor = random_samples,
    ) =
        "fractional_max_pool2d";
    /// The greatest of `output_size` windows of volumes placed by `random_samples` `[N, C, 3]` from
    /// 0 to 1, and their places. Floats.
    fn fractional_max_pool3d(
        kernel_size: impl IntoDims = Value::from_dims(kernel_size),
        output_size: impl IntoDims = Value::from_dims(output_size),
        random_samples: &Tensor = random_samples,
    ) =
        "fractional_max_pool3d";
}
