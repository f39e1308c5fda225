//! Matrix products, normalization and attention.

use super::calls::{aten_outputs, calls, results, tuple_calls};
use super::methods;
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
    /// The outer product of two vectors.
    fn outer(vec2: &Tensor) = "outer";
    /// The product of vectors, matrices, or batches that broadcast.
    fn matmul(other: &Tensor) = "matmul";
    /// `self + mat1 mat2`.
    fn addmm(mat1: &Tensor, mat2: &Tensor) = "addmm";
    /// `self + batch1 batch2`, of batches of matrices.
    fn baddbmm(batch1: &Tensor, batch2: &Tensor) = "baddbmm";
    /// `self weightᵀ + bias` over the last dimension.
    fn linear(weight: &Tensor, bias: Option<&Tensor>) = "linear";
    /// The rows of this matrix at `indices`.
    fn embedding(indices: &Tensor) = "embedding";
    /// The one-hot encoding of integers, with `num_classes` as a new last dimension. With -1, the
    /// number of classes is the greatest element plus one.
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
    /// Layer normalization over the last dimensions, whose sizes are `normalized_shape`.
    fn layer_norm(
        normalized_shape: impl IntoDims,
        weight: Option<&Tensor>,
        bias: Option<&Tensor>,
        eps: f64,
    ) =
        "layer_norm", Value::from_dims(normalized_shape), weight, bias, eps;
    /// Group normalization: over groups of channels.
    fn group_norm(num_groups: i64, weight: Option<&Tensor>, bias: Option<&Tensor>, eps: f64) =
        "group_norm", num_groups, weight, bias, eps;
    /// Batch normalization by given statistics of each channel, as in evaluation.
    fn batch_norm(
        weight: Option<&Tensor>,
        bias: Option<&Tensor>,
        running_mean: &Tensor,
        running_var: &Tensor,
        eps: f64,
    ) =
        "batch_norm", weight, bias, running_mean, running_var, false, 0.0, eps, false;
    /// `softmax(self keyᵀ scale + attn_mask) value`. A bool mask selects the visible keys, a float
    /// mask is added to the scores. The scale defaults to `1 / sqrt(width)`. With `enable_gqa`
    /// (grouped-query attention), a head of `key` and `value` may serve several heads of `self`.
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

tuple_calls! {
    /// [`Tensor::layer_norm`], with the mean and the reciprocal standard deviation of each row.
    fn native_layer_norm(
        normalized_shape: impl IntoDims,
        weight: Option<&Tensor>,
        bias: Option<&Tensor>,
        eps: f64,
    ) -> (Tensor, Tensor, Tensor) =
        "native_layer_norm", Value::from_dims(normalized_shape), weight, bias, eps;
}

impl Tensor {
    #[doc(hidden)]
    pub fn native_group_norm(
        &self,
        weight: Option<&Tensor>,
        bias: Option<&Tensor>,
        [n, c, space]: [SymInt; 3],
        group: i64,
        eps: f64,
    ) -> (Tensor, Tensor, Tensor) {
        results::<3>(aten_outputs!("native_group_norm", Loc::caller();
            self, weight, bias, n, c, space, group, eps
        ))
        .into()
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
        results::<3>(aten_outputs!("_native_batch_norm_legit_no_training", Loc::caller();
            self, weight, bias, mean, var, momentum, eps
        ))
        .into()
    }
}
