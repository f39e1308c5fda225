//! Reductions, running results, order. `_dim` takes dimensions and `keepdim`; without it, every
//! dimension is reduced.

use super::calls::{aten_outputs, calls, results};
use super::methods;
use crate::dispatch::value::Value;
use crate::tensor::Tensor;
use crate::tensor::meta::IntoDims;
use maquette_ir::sym::SymInt;
use maquette_ir::{DType, Loc, Scalar};

methods! {
    /// The sum; of integers and bools in `i64`.
    fn sum() = "sum";
    /// The product; of integers and bools in `i64`.
    fn prod() = "prod";
    /// As [`Tensor::prod`], along one dimension.
    fn prod_dim(dim: i64, keepdim: bool) = "prod.dim_int";
    /// The mean; of floats.
    fn mean() = "mean";
    /// The greatest element; NaN where there is one.
    fn max() = "max";
    /// The least element; NaN where there is one.
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
    /// How many elements are nonzero.
    fn count_nonzero() = "count_nonzero";
    /// The sum, NaN counted as 0.
    fn nansum() = "nansum";
    /// Running sums along a dimension; of integers and bools in `i64`.
    fn cumsum(dim: i64) = "cumsum";
    /// Running products along a dimension; of integers and bools in `i64`.
    fn cumprod(dim: i64) = "cumprod";
    /// The positions that sort a dimension; equal elements keep their order.
    fn argsort(dim: i64, descending: bool) = "argsort";
    /// The variance, divided by the number of elements less one.
    fn var() = "var";
}

calls! {
    /// As [`Tensor::sum`], over these dimensions.
    fn sum_dim(dim: impl IntoDims, keepdim: bool) =
        "sum.dim_IntList", Value::from_dims(dim), keepdim;
    /// As [`Tensor::sum_dim`], accumulated in and of this dtype.
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
    /// The variance over these dimensions, divided by their extent less `correction`.
    fn var_dim(dim: impl IntoDims, correction: impl Into<Scalar>, keepdim: bool) =
        "var.correction", Value::from_dims(dim), correction.into(), keepdim;
    /// The standard deviation over these dimensions, with `correction` as in [`Tensor::var_dim`].
    fn std_dim(dim: impl IntoDims, correction: impl Into<Scalar>, keepdim: bool) =
        "std.correction", Value::from_dims(dim), correction.into(), keepdim;
    /// The standard deviation of all elements, with `correction` as in [`Tensor::var_dim`].
    fn std(correction: impl Into<Scalar>) = "std.correction", (), correction.into();
    /// `(sum |x|^ord)^(1/ord)` over these dimensions; none means all.
    fn linalg_vector_norm(ord: impl Into<Scalar>, dim: impl IntoDims, keepdim: bool) =
        "linalg_vector_norm", ord.into(), Value::from_dims(dim), keepdim;
    /// How many elements are nonzero along a dimension.
    fn count_nonzero_dim(dim: impl IntoDims) = "count_nonzero.dim_IntList", Value::from_dims(dim);
}

/// Methods with two results, both poisoned where the call fails.
macro_rules! pairs {
    ($(
        $(#[$doc:meta])*
        fn $name:ident($($arg:ident : $ty:ty),* $(,)?) = $op:literal, $($value:expr),*;
    )*) => {
        impl Tensor {
            $(
                $(#[$doc])*
                #[doc = concat!("\n\nPyTorch: `aten::", $op, "`.")]
                #[track_caller]
                pub fn $name(&self, $($arg: $ty),*) -> (Tensor, Tensor) {
                    results::<2>(aten_outputs!($op, Loc::caller(); self, $($value),*)).into()
                }
            )*
        }
    };
}
pub(super) use pairs;

pairs! {
    /// The greatest along a dimension, and where it is.
    fn max_dim(dim: i64, keepdim: bool) = "max.dim", dim, keepdim;
    /// The least along a dimension, and where it is.
    fn min_dim(dim: i64, keepdim: bool) = "min.dim", dim, keepdim;
    /// The greatest so far along a dimension, and where it is.
    fn cummax(dim: i64) = "cummax", dim;
    /// The least so far along a dimension, and where it is.
    fn cummin(dim: i64) = "cummin", dim;
    /// A dimension in order, and where its elements were; equal elements keep their order.
    fn sort(dim: i64, descending: bool) = "sort", dim, descending;
    /// The `k` greatest (or least) along a dimension in order, and where they were.
    fn topk(k: impl Into<SymInt>, dim: i64, largest: bool) = "topk", k.into(), dim, largest;
    /// Variance and mean over these dimensions, with `correction` as in [`Tensor::var_dim`].
    fn var_mean(dim: impl IntoDims, correction: impl Into<Scalar>, keepdim: bool) =
        "var_mean.correction", Value::from_dims(dim), correction.into(), keepdim;
    /// Standard deviation and mean over these dimensions, with `correction` as in
    /// [`Tensor::var_dim`].
    fn std_mean(dim: impl IntoDims, correction: impl Into<Scalar>, keepdim: bool) =
        "std_mean.correction", Value::from_dims(dim), correction.into(), keepdim;
}
