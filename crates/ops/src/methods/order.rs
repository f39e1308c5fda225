//! Order statistics, searches, histograms, sets, and embedding bags.

use super::calls::{aten_outputs, calls, tensors, tuple_calls};
use super::{Operand, aten, methods};
use crate::dispatch::value::{Outputs, Value};
use crate::error::Result;
use crate::tensor::Tensor;
use maquette_ir::sym::SymInt;
use maquette_ir::{Loc, Scalar};

methods! {
    /// The lower median of all elements; NaN if any element is NaN.
    fn median() = "median";
    /// As [`Tensor::median`], without the NaN elements.
    fn nanmedian() = "nanmedian";
    /// Sorts along dimension 0.
    fn msort() = "msort";
    /// The positions of the nonzero elements, one per row, as [`Tensor::nonzero`].
    fn argwhere() = "argwhere";
    /// For each element, the first position in the sorted `boundaries` at which inserting it keeps
    /// the order. `i64`.
    fn bucketize(boundaries: &Tensor) = "bucketize.Tensor";
    /// The frequency of each integer from 0 to the greatest element. The size depends on the data.
    fn bincount() = "bincount";
    /// The correlation matrix of the variables. Each row is a variable.
    fn corrcoef() = "corrcoef";
    /// The covariance matrix of the variables, divided by the number of observations minus one.
    /// Each row is a variable.
    fn cov() = "cov";
    /// The mean of all elements that are not NaN. Floats.
    fn nanmean() = "nanmean";
    /// Whether each element is close to that of `other`: `|self - other| <= atol + rtol * |other|`.
    fn isclose(other: &Tensor, rtol: f64, atol: f64, equal_nan: bool) = "isclose";
}

calls! {
    /// The positions of the first `size` nonzero elements, one per row. Missing rows hold
    /// `fill_value`.
    fn nonzero_static(size: impl Into<SymInt>, fill_value: i64) =
        "nonzero_static", size.into(), fill_value;
    /// The number of elements in each of `bins` bins of equal width from `min` to `max`. Floats.
    fn histc(bins: i64, min: impl Into<Scalar>, max: impl Into<Scalar>) =
        "histc", bins, min.into(), max.into();
    /// Whether each element occurs in `test_elements`.
    fn isin(test_elements: &Tensor) = "isin.Tensor_Tensor", test_elements;
    /// Reduces consecutive segments of a dimension, whose lengths are `lengths`. `reduce` is `sum`,
    /// `mean`, `max`, `min` or `prod`. Floats.
    fn segment_reduce(reduce: &str, lengths: &Tensor, axis: i64) =
        "segment_reduce", reduce, lengths, (), (), axis;
    /// Scales down each slice of a dimension whose `p`-norm exceeds `maxnorm`, to that norm.
    fn renorm(p: impl Into<Scalar>, dim: i64, maxnorm: impl Into<Scalar>) =
        "renorm", p.into(), dim, maxnorm.into();
    /// [`Tensor::renorm`] in place.
    fn renorm_(p: impl Into<Scalar>, dim: i64, maxnorm: impl Into<Scalar>) =
        "renorm_", p.into(), dim, maxnorm.into();
}

tuple_calls! {
    /// The lower median along a dimension and its position; the first NaN if there is one.
    fn median_dim(dim: i64, keepdim: bool) -> (Tensor, Tensor) = "median.dim", dim, keepdim;
    /// As [`Tensor::median_dim`], without the NaN elements.
    fn nanmedian_dim(dim: i64, keepdim: bool) -> (Tensor, Tensor) = "nanmedian.dim", dim, keepdim;
    /// The most frequent element along a dimension (the least of several) and its last position.
    fn mode(dim: i64, keepdim: bool) -> (Tensor, Tensor) = "mode", dim, keepdim;
    /// The `k`-th smallest element along a dimension, counted from 1, and its first position.
    fn kthvalue(k: impl Into<SymInt>, dim: i64, keepdim: bool) -> (Tensor, Tensor) =
        "kthvalue", k.into(), dim, keepdim;
    /// The number of elements in each of `bins` bins of equal width over the range of the data, and
    /// the edges of the bins. Floats.
    fn histogram(bins: i64) -> (Tensor, Tensor) = "histogram.bin_ct", bins;
    /// The distinct elements in ascending order, the position of each input element among them, and
    /// their frequencies. Sizes depend on the data.
    fn unique() -> (Tensor, Tensor, Tensor) = "_unique2", true, true, true;
    /// As [`Tensor::unique`], for the slices of a dimension.
    fn unique_dim(dim: i64) -> (Tensor, Tensor, Tensor) = "unique_dim", dim, true, true, true;
    /// As [`Tensor::unique`], for runs of equal neighbours, in their original order.
    fn unique_consecutive() -> (Tensor, Tensor, Tensor) = "unique_consecutive", true, true;
    /// As [`Tensor::unique_consecutive`], for the slices of a dimension.
    fn unique_dim_consecutive(dim: i64) -> (Tensor, Tensor, Tensor) =
        "unique_dim_consecutive", dim, true, true;
}

/// The bool that a call returns.
fn truth(out: Result<Outputs>) -> Result<bool> {
    out?.first().map_or_else(
        || Err(crate::Error::value("expected one bool as the result, found none")),
        Value::bool,
    )
}

impl Tensor {
    /// The positions at which inserting `values` (a tensor or a number) keeps this tensor sorted
    /// along its last dimension: before equal elements, or after them if `right`. `i64`.
    ///
    /// PyTorch: `aten::searchsorted.Tensor`, `aten::searchsorted.Scalar`.
    #[track_caller]
    pub fn searchsorted(&self, values: impl Into<Operand>, right: bool) -> Tensor {
        match values.into().0 {
            Value::Tensor(t) => aten!("searchsorted.Tensor", Loc::caller(); self, t, false, right),
            number => aten!("searchsorted.Scalar", Loc::caller(); self, number, false, right),
        }
    }

    /// The quantiles `q` (a number, or a vector of the same dtype) along a dimension, or of all
    /// elements without a dimension. `interpolation` between two elements is `linear`, `lower`,
    /// `higher`, `midpoint` or `nearest`. `f32` and `f64`.
    ///
    /// PyTorch: `aten::quantile`, `aten::quantile.scalar`.
    #[track_caller]
    pub fn quantile(
        &self,
        q: impl Into<Operand>,
        dim: Option<i64>,
        keepdim: bool,
        interpolation: &str,
    ) -> Tensor {
        match q.into().0 {
            Value::Tensor(q) => {
                aten!("quantile", Loc::caller(); self, q, dim, keepdim, interpolation)
            }
            q => aten!("quantile.scalar", Loc::caller(); self, q, dim, keepdim, interpolation),
        }
    }

    /// As [`Tensor::quantile`], without the NaN elements.
    ///
    /// PyTorch: `aten::nanquantile`, `aten::nanquantile.scalar`.
    #[track_caller]
    pub fn nanquantile(
        &self,
        q: impl Into<Operand>,
        dim: Option<i64>,
        keepdim: bool,
        interpolation: &str,
    ) -> Tensor {
        match q.into().0 {
            Value::Tensor(q) => {
                aten!("nanquantile", Loc::caller(); self, q, dim, keepdim, interpolation)
            }
            q => aten!("nanquantile.scalar", Loc::caller(); self, q, dim, keepdim, interpolation),
        }
    }

    /// Reduces bags of rows of this matrix: by sum (mode 0), mean (1) or maximum (2). Bag `i` holds
    /// the rows at `indices[offsets[i]..offsets[i + 1]]`.
    ///
    /// PyTorch: `aten::embedding_bag`.
    #[track_caller]
    pub fn embedding_bag(&self, indices: &Tensor, offsets: &Tensor, mode: i64) -> Tensor {
        match tensors(
            aten_outputs!("embedding_bag", Loc::caller(); self, indices, offsets, false, mode),
        ) {
            Ok(mut all) if !all.is_empty() => all.swap_remove(0),
            Ok(_) => Tensor::poison(crate::Error::value(
                "expected four tensors as the results, found none",
            )),
            Err(e) => Tensor::poison(e),
        }
    }

    /// Whether sizes and elements equal those of `other`.
    ///
    /// PyTorch: `aten::equal`.
    ///
    /// # Errors
    /// The data cannot be read, for example in a trace.
    #[track_caller]
    pub fn equal(&self, other: &Tensor) -> Result<bool> {
        truth(aten_outputs!("equal", Loc::caller(); self, other))
    }

    /// Whether [`Tensor::isclose`] holds for all elements.
    ///
    /// PyTorch: `aten::allclose`.
    ///
    /// # Errors
    /// Dtypes differ, sizes do not broadcast, or the data cannot be read, for example in a trace.
    #[track_caller]
    pub fn allclose(&self, other: &Tensor, rtol: f64, atol: f64, equal_nan: bool) -> Result<bool> {
        truth(aten_outputs!("allclose", Loc::caller(); self, other, rtol, atol, equal_nan))
    }
}
