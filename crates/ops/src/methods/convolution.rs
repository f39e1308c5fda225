//! Convolutions, plain and transposed, over one to three spatial dimensions.
//!
//! An input is a batch `[N, C, spatial…]`, or one sample `[C, spatial…]`. `stride`, `padding` and
//! `dilation` have one entry per spatial dimension, or one entry for all.

use super::calls::calls;
use crate::dispatch::value::Value;
use crate::tensor::Tensor;
use crate::tensor::meta::IntoDims;
use maquette_ir::sym::SymInt;

/// Declares plain convolutions. They differ only in the number of spatial dimensions.
macro_rules! convolutions {
    ($($(#[$doc:meta])* fn $name:ident = $op:literal;)*) => {
        calls! {
            $(
                $(#[$doc])*
                fn $name(
                    weight: &Tensor,
                    bias: Option<&Tensor>,
                    stride: impl IntoDims,
                    padding: impl IntoDims,
                    dilation: impl IntoDims,
                    groups: impl Into<SymInt>,
                ) =
                    $op, weight, bias, Value::from_dims(stride), Value::from_dims(padding),
                    Value::from_dims(dilation), groups.into();
            )*
        }
    };
}

/// Declares transposed convolutions. They differ only in the number of spatial dimensions.
macro_rules! transposed_convolutions {
    ($($(#[$doc:meta])* fn $name:ident = $op:literal;)*) => {
        calls! {
            $(
                $(#[$doc])*
                fn $name(
                    weight: &Tensor,
                    bias: Option<&Tensor>,
                    stride: impl IntoDims,
                    padding: impl IntoDims,
                    output_padding: impl IntoDims,
                    groups: impl Into<SymInt>,
                    dilation: impl IntoDims,
                ) =
                    $op, weight, bias, Value::from_dims(stride), Value::from_dims(padding),
                    Value::from_dims(output_padding), groups.into(), Value::from_dims(dilation);
            )*
        }
    };
}

convolutions! {
    /// The convolution of signals `[N, C, L]` with kernels `[O, C / groups, K]`.
    fn conv1d = "conv1d";
    /// The convolution of images `[N, C, H, W]` with kernels `[O, C / groups, KH, KW]`.
    fn conv2d = "conv2d";
    /// The convolution of volumes `[N, C, D, H, W]` with kernels `[O, C / groups, KD, KH, KW]`.
    fn conv3d = "conv3d";
}

transposed_convolutions! {
    /// The transposed convolution of signals with kernels `[C, O / groups, K]`.
    fn conv_transpose1d = "conv_transpose1d";
    /// The transposed convolution of images with kernels `[C, O / groups, KH, KW]`.
    fn conv_transpose2d = "conv_transpose2d.input";
    /// The transposed convolution of volumes with kernels `[C, O / groups, KD, KH, KW]`.
    fn conv_transpose3d = "conv_transpose3d.input";
}

calls! {
    /// [`Tensor::conv2d`] with a named padding: `valid` or `same`.
    fn conv2d_padded(
        weight: &Tensor,
        bias: Option<&Tensor>,
        stride: impl IntoDims,
        padding: &str,
        dilation: impl IntoDims,
        groups: impl Into<SymInt>,
    ) =
        "conv2d.padding", weight, bias, Value::from_dims(stride), padding,
        Value::from_dims(dilation), groups.into();
    /// The general convolution, of one to three spatial dimensions, plain or transposed.
    fn convolution(
        weight: &Tensor,
        bias: Option<&Tensor>,
        stride: impl IntoDims,
        padding: impl IntoDims,
        dilation: impl IntoDims,
        transposed: bool,
        output_padding: impl IntoDims,
        groups: impl Into<SymInt>,
    ) =
        "convolution", weight, bias, Value::from_dims(stride), Value::from_dims(padding),
        Value::from_dims(dilation), transposed, Value::from_dims(output_padding), groups.into();
}
