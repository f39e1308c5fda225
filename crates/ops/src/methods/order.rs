//! Order, counting and sets: medians, quantiles, searches, histograms, distinct elements, bags.

use super::calls::{aten_outputs, calls, results, tensors};
use super::reductions::pairs;
use super::{Operand, aten, methods};
use crate::dispatch::value::{Outputs, Value};
use crate::error::Result;
use crate::tensor::Tensor;
use maquette_ir::sym::SymInt;
use maquette_ir::{Loc, Scalar};

methods! {
    /// The lower median of all elements; NaN where there is one.
    fn median() = "median";
    /// As [`Tensor::median`], NaN left out.
    fn nanmedian() = "nanmedian";
    /// Dimension 0 in order.
    fn msort() = "msort";
    /// The positions of nonzero elements, a row each, as [`Tensor::nonzero`].
    fn argwhere() = "argwhere";
    /// Where each element would go among `boundaries`, which are in order; before equals. `i64`.
    fn bucketize(boundaries: &Tensor) = "bucketize.Tensor";
    /// How often each integer from 0 up occurs. The size depends on the data.
    fn bincount() = "bincount";
    /// The correlations of the variables in rows.
    fn corrcoef() = "corrcoef";
    /// The covariances of the variables in rows, divided by the number of observations less one.
    fn cov() = "cov";
    /// The mean of all elements, NaN left out; of floats.
    fn nanmean() = "nanmean";
    /// Whether elements agree with those of `other` within tolerances: `|self - other| <= atol +
    /// rtol * |other|`.
    fn isclose(other: &Tensor, rtol: f64, atol: f64, equal_nan: bool) = "isclose";
}

calls! {
    /// The first `size` positions of nonzero elements, a row each, filled up with `fill_value`.
    fn nonzero_static(size: impl Into<SymInt>, fill_value: i64) =
        "nonzero_static", size.into(), fill_value;
    /// How many elements fall into each of `bins` bins of equal width from `min` to `max`; of
    /// floats.
    fn histc(bins: i64, min: impl Into<Scalar>, max: impl Into<Scalar>) =
        "histc", bins, min.into(), max.into();
    /// Whether each element is among those of `test_elements`.
    fn isin(test_elements: &Tensor) = "isin.Tensor_Tensor", test_elements;
    /// Consecutive segments of a dimension, of these lengths, combined: `sum`, `mean`, `max`, `min`
    /// or `prod`; of floats.
    fn segment_reduce(reduce: &str, lengths: &Tensor, axis: i64) =
        "segment_reduce", reduce, lengths, (), (), axis;
    /// The slices of a dimension, each scaled down to a `p`-norm of at most `maxnorm`.
    fn renorm(p: impl Into<Scalar>, dim: i64, maxnorm: impl Into<Scalar>) =
        "renorm", p.into(), dim, maxnorm.into();
    /// [`Tensor::renorm`] in place.
    fn renorm_(p: impl Into<Scalar>, dim: i64, maxnorm: impl Into<Scalar>) =
        "renorm_", p.into(), dim, maxnorm.into();
}

pairs! {
    /// The lower median along a dimension, and where it is; the first NaN where there is one.
    fn median_dim(dim: i64, keepdim: bool) = "median.dim", dim, keepdim;
    /// As [`Tensor::median_dim`], NaN left out.
    fn nanmedian_dim(dim: i64, keepdim: bool) = "nanmedian.dim", dim, keepdim;
    /// The most frequent element along a dimension, the least of several, and where it is last.
    fn mode(dim: i64, keepdim: bool) = "mode", dim, keepdim;
    /// The `k`-th least along a dimension, from 1, and where it is first.
    fn kthvalue(k: impl Into<SymInt>, dim: i64, keepdim: bool) = "kthvalue", k.into(), dim, keepdim;
    /// How many elements fall into each of `bins` bins of equal width over the range of the data,
    /// and the edges of the bins; of floats.
    fn histogram(bins: i64) = "histogram.bin_ct", bins;
}

/// Methods with three results, all poisoned where the call fails.
macro_rules! triples {
    ($(
        $(#[$doc:meta])*
        fn $name:ident($($arg:ident : $ty:ty),* $(,)?) = $op:literal, $($value:expr),*;
    )*) => {
        impl Tensor {
            $(
                $(#[$doc])*
                #[doc = concat!("\n\nPyTorch: `aten::", $op, "`.")]
                #[track_caller]
                pub fn $name(&self, $($arg: $ty),*) -> (Tensor, Tensor, Tensor) {
                    results::<3>(aten_outputs!($op, Loc::caller(); self, $($value),*)).into()
                }
            )*
        }
    };
}

triples! {
    /// The distinct elements in order, for each element its place among them, and how often each
    /// occurs. Sizes depend on the data.
    fn unique() = "_unique2", true, true, true;
    /// As [`Tensor::unique`], of the slices of a dimension.
    fn unique_dim(dim: i64) = "unique_dim", dim, true, true, true;
    /// As [`Tensor::unique`], of runs of equal neighbours, in the order they have.
    fn unique_consecutive() = "unique_consecutive", true, true;
    /// As [`Tensor::unique_consecutive`], of the slices of a dimension.
    fn unique_dim_consecutive(dim: i64) = "unique_dim_consecutive", dim, true, true;
}

fn truth(out: Result<Outputs>) -> Result<bool> {
    out?.first().map_or_else(
        || Err(crate::Error::value("expected one bool as the result, found none")),
        Value::bool,
    )
}

impl Tensor {
    /// Where `values`, elements or a number, would go in this sequence, which is in order along its
    /// last dimension: before equals, or after them where `right`. `i64`.
    ///
    /// PyTorch: `aten::searchsorted.Tensor`, `aten::searchsorted.Scalar`.
    #[track_caller]
    pub fn searchsorted(&self, values: impl Into<Operand>, right: bool) -> Tensor {
        match values.into().0 {
            Value::Tensor(t) => aten!("searchsorted.Tensor", Loc::caller(); self, t, false, right),
            number => aten!("searchsorted.Scalar", Loc::caller(); self, number, false, right),
        }
    }

    /// The elements below which shares `q` (a number, or a vector of the same dtype) of a dimension
    /// lie; of all elements where there is no dimension. `interpolation` between two: `linear`,
    /// `lower`, `higher`, `midpoint` or `nearest`. Of `f32` and `f64`.
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

    /// As [`Tensor::quantile`], NaN left out.
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

    /// Sums (mode 0), means (1) or maxima (2) of rows of this matrix: of those at `indices`, a bag
    /// from each of `offsets` to the next.
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

    /// Whether sizes and elements agree with those of `other`.
    ///
    /// PyTorch: `aten::equal`.
    ///
    /// # Errors
    /// The data cannot be read: in a trace, above all.
    #[track_caller]
    pub fn equal(&self, other: &Tensor) -> Result<bool> {
        truth(aten_outputs!("equal", Loc::caller(); self, other))
    }

    /// Whether [`Tensor::isclose`] holds everywhere.
    ///
    /// PyTorch: `aten::allclose`.
    ///
    /// # Errors
    /// Dtypes differ, sizes do not broadcast, or the data cannot be read: in a trace, above all.
    #[track_caller]
    pub fn allclose(&self, other: &Tensor, rtol: f64, atol: f64, equal_nan: bool) -> Result<bool> {
        truth(aten_outputs!("allclose", Loc::caller(); self, other, rtol, atol, equal_nan))
    }
}
