//! Pooling over one to three spatial dimensions.
//!
//! The positions that max pooling returns are `i64` indices into the row-major elements of one
//! channel.

use super::aten;
use super::calls::{calls, tuple_calls};
use crate::dispatch::value::Value;
use crate::tensor::Tensor;
use crate::tensor::meta::IntoDims;
use maquette_ir::Loc;
use maquette_ir::sym::SymInt;

/// Declares pools over windows. They differ in the combination of a window's elements and in the
/// number of spatial dimensions.
macro_rules! pools {
    ($($(#[$doc:meta])* fn $name:ident = $op:literal;)*) => {
        calls! {
            $(
                $(#[$doc])*
                #[doc = ""]
                #[doc = "An empty `stride` means that of the kernel's size."]
                fn $name(
                    kernel_size: impl IntoDims,
                    stride: impl IntoDims,
                    padding: impl IntoDims,
                ) =
                    $op, Value::from_dims(kernel_size), Value::from_dims(stride),
                    Value::from_dims(padding);
            )*
        }
    };
}

pools! {
    /// The greatest element of each window of signals `[N, C, L]`.
    fn max_pool1d = "max_pool1d";
    /// The greatest element of each window of images `[N, C, H, W]`.
    fn max_pool2d = "max_pool2d";
    /// The greatest element of each window of volumes `[N, C, D, H, W]`.
    fn max_pool3d = "max_pool3d";
    /// The mean of each window of signals `[N, C, L]`.
    fn avg_pool1d = "avg_pool1d";
    /// The mean of each window of images `[N, C, H, W]`.
    fn avg_pool2d = "avg_pool2d";
}

calls! {
    /// The means over an even division of signals `[N, C, L]` into `output_size` windows.
    fn adaptive_avg_pool1d(output_size: impl Into<SymInt>) =
        "adaptive_avg_pool1d", Value::from_dims(output_size.into());
    /// The means over an even division of images `[N, C, H, W]` into `output_size` windows.
    fn adaptive_avg_pool2d(output_size: impl IntoDims) =
        "adaptive_avg_pool2d", Value::from_dims(output_size);
    /// The means over an even division of volumes `[N, C, D, H, W]` into `output_size` windows.
    fn adaptive_avg_pool3d(output_size: impl IntoDims) =
        "adaptive_avg_pool3d", Value::from_dims(output_size);
    /// Images of `output_size` with these elements at the positions `indices` (`i64`) that max
    /// pooling returned, and zeros elsewhere. Floats.
    fn max_unpool2d(indices: &Tensor, output_size: impl IntoDims) =
        "max_unpool2d", indices, Value::from_dims(output_size);
    /// Volumes of `output_size` with these elements at the positions `indices` (`i64`) that max
    /// pooling returned, and zeros elsewhere. Floats.
    fn max_unpool3d(
        indices: &Tensor,
        output_size: impl IntoDims,
        stride: impl IntoDims,
        padding: impl IntoDims,
    ) =
        "max_unpool3d", indices, Value::from_dims(output_size), Value::from_dims(stride),
        Value::from_dims(padding);
}

tuple_calls! {
    /// The greatest element of each window of images `[N, C, H, W]`, and its position.
    fn max_pool2d_with_indices(
        kernel_size: impl IntoDims,
        stride: impl IntoDims,
        padding: impl IntoDims,
        dilation: impl IntoDims,
        ceil_mode: bool,
    ) -> (Tensor, Tensor) =
        "max_pool2d_with_indices", Value::from_dims(kernel_size), Value::from_dims(stride),
        Value::from_dims(padding), Value::from_dims(dilation), ceil_mode;
    /// The greatest elements of an even division of signals into `output_size` windows, and their
    /// positions. Floats.
    fn adaptive_max_pool1d(output_size: i64) -> (Tensor, Tensor) =
        "adaptive_max_pool1d", Value::from_dims(output_size);
    /// The greatest elements of an even division of images into `output_size` windows, and their
    /// positions. Floats.
    fn adaptive_max_pool2d(output_size: impl IntoDims) -> (Tensor, Tensor) =
        "adaptive_max_pool2d", Value::from_dims(output_size);
    /// The greatest elements of an even division of volumes into `output_size` windows, and their
    /// positions. Floats.
    fn adaptive_max_pool3d(output_size: impl IntoDims) -> (Tensor, Tensor) =
        "adaptive_max_pool3d", Value::from_dims(output_size);
    /// The greatest elements of `output_size` windows of images, and their positions.
    /// `random_samples` `[N, C, 2]`, from 0 to 1, places the windows. Floats.
    fn fractional_max_pool2d(
        kernel_size: impl IntoDims,
        output_size: impl IntoDims,
        random_samples: &Tensor,
    ) -> (Tensor, Tensor) =
        "fractional_max_pool2d", Value::from_dims(kernel_size), Value::from_dims(output_size),
        random_samples;
    /// The greatest elements of `output_size` windows of volumes, and their positions.
    /// `random_samples` `[N, C, 3]`, from 0 to 1, places the windows. Floats.
    fn fractional_max_pool3d(
        kernel_size: impl IntoDims,
        output_size: impl IntoDims,
        random_samples: &Tensor,
    ) -> (Tensor, Tensor) =
        "fractional_max_pool3d", Value::from_dims(kernel_size), Value::from_dims(output_size),
        random_samples;
}

impl Tensor {
    #[doc(hidden)]
    pub fn _adaptive_avg_pool2d(&self, output_size: &[SymInt]) -> Tensor {
        aten!("_adaptive_avg_pool2d", Loc::caller(); self, Value::from_dims(output_size))
    }
}
