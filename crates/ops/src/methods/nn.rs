//! Matrix products and what networks are made of.

use super::calls::{aten_outputs, calls, results};
use super::{aten, methods};
use crate::dispatch::value::Value;
use crate::tensor::Tensor;
use crate::tensor::meta::IntoDims;
use maquette_ir::sym::SymInt;
use maquette_ir::{Loc, Scalar};

methods! {
    /// The product of two matrices.
    fn mm(mat2: &Tensor) = "mm";
    /// The products of two batches of matrices.
    fn bmm(mat2: &Tensor) = "bmm";
    /// The product of a matrix and a vector.
    fn mv(vec: &Tensor) = "mv";
    /// The inner product of two vectors.
    fn dot(tensor: &Tensor) = "dot";
    /// The products of all pairs of elements of two vectors.
    fn outer(vec2: &Tensor) = "outer";
    /// The product of vectors, matrices, or batches that broadcast.
    fn matmul(other: &Tensor) = "matmul";
    /// `self + mat1 mat2`.
    fn addmm(mat1: &Tensor, mat2: &Tensor) = "addmm";
    /// `self + batch1 batch2`, of batches of matrices.
    fn baddbmm(batch1: &Tensor, batch2: &Tensor) = "baddbmm";
    /// `self weightᵀ + bias`, over the last dimension.
    fn linear(weight: &Tensor, bias: Option<&Tensor>) = "linear";
    /// Rows of this table at `indices`.
    fn embedding(indices: &Tensor) = "embedding";
    /// Each integer as a row of `num_classes` zeros with a 1 in its place; for -1, of as many as
    /// the data need.
    fn one_hot(num_classes: i64) = "one_hot";
}

calls! {
    /// `beta self + alpha mat1 mat2`.
    fn addmm_scaled(
        mat1: &Tensor,
        mat2: &Tensor,
        beta: impl Into<Scalar>,
        alpha: impl Into<Scalar>,
    ) =
        "addmm", mat1, mat2, beta.into(), alpha.into();
    /// A convolution of signals `[N, C, L]` or `[C, L]` with kernels `[O, C / groups, K]`.
    fn conv1d(
        weight: &Tensor,
        bias: Option<&Tensor>,
        stride: impl IntoDims,
        padding: impl IntoDims,
        dilation: impl IntoDims,
        groups: impl Into<SymInt>,
    ) =
        "conv1d", weight, bias, Value::from_dims(stride), Value::from_dims(padding),
        Value::from_dims(dilation), groups.into();
    /// A convolution of images `[N, C, H, W]` or `[C, H, W]` with kernels `[O, C / groups, KH,
    /// KW]`.
    fn conv2d(
        weight: &Tensor,
        bias: Option<&Tensor>,
        stride: impl IntoDims,
        padding: impl IntoDims,
        dilation: impl IntoDims,
        groups: impl Into<SymInt>,
    ) =
        "conv2d", weight, bias, Value::from_dims(stride), Value::from_dims(padding),
        Value::from_dims(dilation), groups.into();
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
    /// A transposed convolution of images with kernels `[C, O / groups, KH, KW]`.
    fn conv_transpose2d(
        weight: &Tensor,
        bias: Option<&Tensor>,
        stride: impl IntoDims,
        padding: impl IntoDims,
        output_padding: impl IntoDims,
        groups: impl Into<SymInt>,
        dilation: impl IntoDims,
    ) =
        "conv_transpose2d.input", weight, bias, Value::from_dims(stride), Value::from_dims(padding),
        Value::from_dims(output_padding), groups.into(), Value::from_dims(dilation);
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
    /// The greatest of each window; an empty stride means the kernel's size.
    fn max_pool1d(kernel_size: impl IntoDims, stride: impl IntoDims, padding: impl IntoDims) =
        "max_pool1d", Value::from_dims(kernel_size), Value::from_dims(stride),
        Value::from_dims(padding);
    /// The greatest of each window; an empty stride means the kernel's size.
    fn max_pool2d(kernel_size: impl IntoDims, stride: impl IntoDims, padding: impl IntoDims) =
        "max_pool2d", Value::from_dims(kernel_size), Value::from_dims(stride),
        Value::from_dims(padding);
    /// The mean of each window; an empty stride means the kernel's size.
    fn avg_pool1d(kernel_size: impl IntoDims, stride: impl IntoDims, padding: impl IntoDims) =
        "avg_pool1d", Value::from_dims(kernel_size), Value::from_dims(stride),
        Value::from_dims(padding);
    /// The mean of each window; an empty stride means the kernel's size.
    fn avg_pool2d(kernel_size: impl IntoDims, stride: impl IntoDims, padding: impl IntoDims) =
        "avg_pool2d", Value::from_dims(kernel_size), Value::from_dims(stride),
        Value::from_dims(padding);
    /// The means of an even division of each image into `output_size`.
    fn adaptive_avg_pool2d(output_size: impl IntoDims) =
        "adaptive_avg_pool2d", Value::from_dims(output_size);
    /// Normalised over the last dimensions, whose sizes are `normalized_shape`.
    fn layer_norm(
        normalized_shape: impl IntoDims,
        weight: Option<&Tensor>,
        bias: Option<&Tensor>,
        eps: f64,
    ) =
        "layer_norm", Value::from_dims(normalized_shape), weight, bias, eps;
    /// Normalised over groups of channels.
    fn group_norm(num_groups: i64, weight: Option<&Tensor>, bias: Option<&Tensor>, eps: f64) =
        "group_norm", num_groups, weight, bias, eps;
    /// Normalised by stored statistics of each channel: batch norm as it is evaluated.
    fn batch_norm(
        weight: Option<&Tensor>,
        bias: Option<&Tensor>,
        running_mean: &Tensor,
        running_var: &Tensor,
        eps: f64,
    ) =
        "batch_norm", weight, bias, running_mean, running_var, false, 0.0, eps, false;
    /// `softmax(self keyᵀ scale + attn_mask) value`. A mask is bool, true where attention is
    /// allowed, or added to the scores; the scale defaults to `1 / sqrt(width)`. With `enable_gqa`,
    /// heads of `key` and `value` may serve several of `self`.
    fn scaled_dot_product_attention(
        key: &Tensor,
        value: &Tensor,
        attn_mask: Option<&Tensor>,
        is_causal: bool,
        scale: Option<f64>,
        enable_gqa: bool,
    ) =
        "scaled_dot_product_attention", key, value, attn_mask, 0.0, is_causal, scale, enable_gqa;
}

impl Tensor {
    pub(crate) fn _adaptive_avg_pool2d(&self, output_size: &[SymInt]) -> Tensor {
        aten!("_adaptive_avg_pool2d", Loc::caller(); self, Value::from_dims(output_size))
    }

    /// The greatest of each window, and its position in the image.
    ///
    /// PyTorch: `aten::max_pool2d_with_indices`.
    #[track_caller]
    pub fn max_pool2d_with_indices(
        &self,
        kernel_size: impl IntoDims,
        stride: impl IntoDims,
        padding: impl IntoDims,
        dilation: impl IntoDims,
        ceil_mode: bool,
    ) -> (Tensor, Tensor) {
        let (kernel, stride) = (Value::from_dims(kernel_size), Value::from_dims(stride));
        let (padding, dilation) = (Value::from_dims(padding), Value::from_dims(dilation));
        let [values, indices] = results(aten_outputs!("max_pool2d_with_indices", Loc::caller();
            self, kernel, stride, padding, dilation, ceil_mode
        ));
        (values, indices)
    }

    /// [`Tensor::layer_norm`], with the mean and the reciprocal standard deviation of each row.
    ///
    /// PyTorch: `aten::native_layer_norm`.
    #[track_caller]
    pub fn native_layer_norm(
        &self,
        normalized_shape: impl IntoDims,
        weight: Option<&Tensor>,
        bias: Option<&Tensor>,
        eps: f64,
    ) -> (Tensor, Tensor, Tensor) {
        let shape = Value::from_dims(normalized_shape);
        let [y, mean, rstd] = results(
            aten_outputs!("native_layer_norm", Loc::caller(); self, shape, weight, bias, eps),
        );
        (y, mean, rstd)
    }

    pub(crate) fn native_group_norm(
        &self,
        weight: Option<&Tensor>,
        bias: Option<&Tensor>,
        [n, c, space]: [SymInt; 3],
        group: i64,
        eps: f64,
    ) -> (Tensor, Tensor, Tensor) {
        let [y, mean, rstd] = results(aten_outputs!("native_group_norm", Loc::caller();
            self, weight, bias, n, c, space, group, eps
        ));
        (y, mean, rstd)
    }

    pub(crate) fn _native_batch_norm_legit_no_training(
        &self,
        weight: Option<&Tensor>,
        bias: Option<&Tensor>,
        mean: &Tensor,
        var: &Tensor,
        momentum: f64,
        eps: f64,
    ) -> (Tensor, Tensor, Tensor) {
        let [y, m, v] =
            results(aten_outputs!("_native_batch_norm_legit_no_training", Loc::caller();
                self, weight, bias, mean, var, momentum, eps
            ));
        (y, m, v)
    }
}
