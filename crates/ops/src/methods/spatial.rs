//! Operators on images and volumes: resampling, grid sampling, patches, rearrangement of pixels.

use super::calls::calls;
use super::methods;
use crate::dispatch::value::Value;
use crate::tensor::Tensor;
use crate::tensor::meta::IntoDims;

methods! {
    /// Turns square blocks of `downscale_factor` pixels a side into channels: the inverse of
    /// [`Tensor::pixel_shuffle`].
    fn pixel_unshuffle(downscale_factor: i64) = "pixel_unshuffle";
    /// Interleaves the channels of `groups` groups in `[N, C, …]`.
    fn channel_shuffle(groups: i64) = "channel_shuffle";
    /// The gated linear unit: the first half of a dimension times the sigmoid of the second half.
    /// Floats.
    fn glu(dim: i64) = "glu";
    /// Samples images `[N, C, H, W]` at the coordinates in `grid` `[N, H', W', 2]`, or volumes
    /// likewise. Coordinates range from -1 to 1. `interpolation_mode`: 0 linear, 1 nearest,
    /// 2 cubic. `padding_mode`: 0 zeros, 1 the border, 2 reflection.
    fn grid_sampler(
        grid: &Tensor,
        interpolation_mode: i64,
        padding_mode: i64,
        align_corners: bool,
    ) =
        "grid_sampler";
}

calls! {
    /// Resamples signals `[N, C, L]` to `output_size` by linear interpolation. Floats.
    fn upsample_linear1d(output_size: impl IntoDims, align_corners: bool) =
        "upsample_linear1d", Value::from_dims(output_size), align_corners;
    /// Resamples images `[N, C, H, W]` to `output_size` by bilinear interpolation. Floats, or u8.
    fn upsample_bilinear2d(output_size: impl IntoDims, align_corners: bool) =
        "upsample_bilinear2d", Value::from_dims(output_size), align_corners;
    /// Resamples volumes `[N, C, D, H, W]` to `output_size` by trilinear interpolation. Floats.
    fn upsample_trilinear3d(output_size: impl IntoDims, align_corners: bool) =
        "upsample_trilinear3d", Value::from_dims(output_size), align_corners;
    /// Resamples images `[N, C, H, W]` to `output_size` by bicubic interpolation. Floats, or u8.
    fn upsample_bicubic2d(output_size: impl IntoDims, align_corners: bool) =
        "upsample_bicubic2d", Value::from_dims(output_size), align_corners;
    /// [`Tensor::upsample_bilinear2d`] with antialiasing if the image shrinks. f32, f64 or u8.
    fn upsample_bilinear2d_aa(output_size: impl IntoDims, align_corners: bool) =
        "_upsample_bilinear2d_aa", Value::from_dims(output_size), align_corners;
    /// [`Tensor::upsample_bicubic2d`] with antialiasing if the image shrinks. f32, f64 or u8.
    fn upsample_bicubic2d_aa(output_size: impl IntoDims, align_corners: bool) =
        "_upsample_bicubic2d_aa", Value::from_dims(output_size), align_corners;
    /// Resamples images `[N, C, H, W]` to `output_size` by the element with the nearest centre.
    /// Floats, or u8.
    fn upsample_nearest_exact2d(output_size: impl IntoDims) =
        "_upsample_nearest_exact2d", Value::from_dims(output_size);
    /// The sampling grid of affine maps `[N, 2, 3]` or `[N, 3, 4]` for images or volumes of `size`.
    /// See [`Tensor::grid_sampler`]. Floats.
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
    /// Sums columns `[N, C KH KW, L]` into images of `output_size`: the adjoint of
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
    /// Rotates by `k` quarter turns in the plane of two dimensions, from the first towards the
    /// second.
    fn rot90(k: i64, dims: impl IntoDims) = "rot90", k, Value::from_dims(dims);
}
