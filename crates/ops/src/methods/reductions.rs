//! Reductions, scans and sorts.
//!
//! A method with the suffix `_dim` takes the dimensions to reduce and `keepdim`. The one without
//! reduces all dimensions.

use super::calls::{calls, tuple_calls};
use super::methods;
use crate::dispatch::value::Value;
use crate::tensor::Tensor;
use crate::tensor::meta::IntoDims;
use maquette_ir::sym::SymInt;
use maquette_ir::{DType, Scalar};

methods! {
    /// The sum. Integers and bools are summed in `i64`.
    fn sum() = "sum";
    /// The product. Integers and bools are multiplied in `i64`.
    fn prod() = "prod";
    /// As [`Tensor::prod`], along one dimension.
    fn prod_dim(dim: i64, keepdim: bool) = "prod.dim_int";
    /// The mean. Floats.
    fn mean() = "mean";
    /// The greatest element; NaN if any element is NaN.
    fn max() = "max";
    /// The least element; NaN if any element is NaN.
    fn min() = "min";
    /// Whether any element is nonzero.
    fn any() = "any";
    /// As [`Tensor::any`], along one dimension.
    fn any_dim(dim: i64, keepdim: bool) = "any.dim";
    /// Whether all elements are nonzero.
    fn all() = "all";
    /// As [`Tensor::all`], along one dimension.
    fn all_dim(dim: i64, keepdim: bool) = "all.dim";
    /// The position of the greatest element, or of the first NaN, in row-major order.
    fn argmax() = "argmax";
    /// As [`Tensor::argmax`], along one dimension.
    fn argmax_dim(dim: i64, keepdim: bool) = "argmax";
    /// The position of the least element, or of the first NaN, in row-major order.
    fn argmin() = "argmin";
    /// As [`Tensor::argmin`], along one dimension.
    fn argmin_dim(dim: i64, keepdim: bool) = "argmin";
    /// The number of nonzero elements.
    fn count_nonzero() = "count_nonzero";
    /// The sum of the elements that are not NaN.
    fn nansum() = "nansum";
    /// Cumulative sums along a dimension. Integers and bools are summed in `i64`.
    fn cumsum(dim: i64) = "cumsum";
    /// Cumulative products along a dimension. Integers and bools are multiplied in `i64`.
    fn cumprod(dim: i64) = "cumprod";
    /// The positions that sort a dimension. The sort is stable.
    fn argsort(dim: i64, descending: bool) = "argsort";
    /// The unbiased variance: divided by the number of elements minus one.
    fn var() = "var";
}

calls! {
    /// As [`Tensor::sum`], over these dimensions.
    fn sum_dim(dim: impl IntoDims, keepdim: bool) =
        "sum.dim_IntList", Value::from_dims(dim), keepdim;
    /// As [`Tensor::sum_dim`], with elements converted to `dtype` first.
    fn sum_dtype(dim: impl IntoDims, keepdim: bool, dtype: DType) =
        "sum.dim_IntList", Value::from_dims(dim), keepdim, dtype;
    /// As [`Tensor::mean`], over these dimensions.
    fn mean_dim(dim: impl IntoDims, keepdim: bool) = "mean.dim", Value::from_dims(dim), keepdim;
    /// The greatest over these dimensions.
    fn amax(dim: impl IntoDims, keepdim: bool) = "amax", Value::from_dims(dim), keepdim;
    /// The least over these dimensions.
    fn amin(dim: impl IntoDims, keepdim: bool) = "amin", Value::from_dims(dim), keepdim;
    /// `log(sum(exp(x)))` over these dimensions, without overflow.
    fn logsumexp(dim: impl IntoDims, keepdim: bool) = "logsumexp", Value::from_dims(dim), keepdim;
    /// The variance over these dimensions, divided by the number of elements minus `correction`.
    fn var_dim(dim: impl IntoDims, correction: impl Into<Scalar>, keepdim: bool) =
        "var.correction", Value::from_dims(dim), correction.into(), keepdim;
    /// The standard deviation over these dimensions, with `correction` as in [`Tensor::var_dim`].
    fn std_dim(dim: impl IntoDims, correction: impl Into<Scalar>, keepdim: bool) =
        "std.correction", Value::from_dims(dim), correction.into(), keepdim;
    /// The standard deviation of all elements, with `correction` as in [`Tensor::var_dim`].
    fn std(correction: impl Into<Scalar>) = "std.correction", (), correction.into();
    /// `(sum |x|^ord)^(1/ord)` over these dimensions, or over all if the list is empty.
    fn linalg_vector_norm(ord: impl Into<Scalar>, dim: impl IntoDims, keepdim: bool) =
        "linalg_vector_norm", ord.into(), Value::from_dims(dim), keepdim;
    /// The number of nonzero elements over these dimensions.
    fn count_nonzero_dim(dim: impl IntoDims) = "count_nonzero.dim_IntList", Value::from_dims(dim);
}

tuple_calls! {
    /// The greatest element along a dimension, and its position.
    fn max_dim(dim: i64, keepdim: bool) -> (Tensor, Tensor) = "max.dim", dim, keepdim;
    /// The least element along a dimension, and its position.
    fn min_dim(dim: i64, keepdim: bool) -> (Tensor, Tensor) = "min.dim", dim, keepdim;
    /// The cumulative maximum along a dimension, and its position.
    fn cummax(dim: i64) -> (Tensor, Tensor) = "cummax", dim;
    /// The cumulative minimum along a dimension, and its position.
    fn cummin(dim: i64) -> (Tensor, Tensor) = "cummin", dim;
    /// The elements sorted along a dimension, and their original positions. The sort is stable.
    fn sort(dim: i64, descending: bool) -> (Tensor, Tensor) = "sort", dim, descending;
    /// The `k` greatest elements along a dimension (the least unless `largest`), sorted, and their
    /// positions.
    fn topk(k: impl Into<SymInt>, dim: i64, largest: bool) -> (Tensor, Tensor) =
        "topk", k.into(), dim, largest;
    /// The variance and mean over these dimensions, with `correction` as in [`Tensor::var_dim`].
    fn var_mean(
        dim: impl IntoDims,
        correction: impl Into<Scalar>,
        keepdim: bool,
    ) -> (Tensor, Tensor) =
        "var_mean.correction", Value::from_dims(dim), correction.into(), keepdim;
    /// The standard deviation and mean over these dimensions, with `correction` as in
    /// [`Tensor::var_dim`].
    fn std_mean(
        dim: impl IntoDims,
        correction: impl Into<Scalar>,
        keepdim: bool,
    ) -> (Tensor, Tensor) =
        "std_mean.correction", Value::from_dims(dim), correction.into(), keepdim;
}
