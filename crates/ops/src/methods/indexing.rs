//! Indexing by tensors: gather, scatter, and advanced indexing.

use super::aten;
use super::calls::{aten_outputs, calls};
use super::methods;
use crate::dispatch::value::Value;
use crate::error::Error;
use crate::tensor::Tensor;
use maquette_ir::sym::SymInt;
use maquette_ir::{Loc, Scalar};
use std::sync::Arc;

methods! {
    /// The elements at `index` along a dimension: `out[i][j] = self[index[i][j]][j]` for dimension
    /// 0.
    fn gather(dim: i64, index: &Tensor) = "gather";
    /// The slices at `index` along a dimension.
    fn index_select(dim: i64, index: &Tensor) = "index_select";
    /// The elements at `index` of the flattened tensor.
    fn take(index: &Tensor) = "take";
    /// A copy with `src` written at `index` along a dimension.
    fn scatter(dim: i64, index: &Tensor, src: &Tensor) = "scatter.src";
    /// [`Tensor::scatter`] in place.
    fn scatter_(dim: i64, index: &Tensor, src: &Tensor) = "scatter_.src";
    /// A copy with `src` added at `index` along a dimension.
    fn scatter_add(dim: i64, index: &Tensor, src: &Tensor) = "scatter_add";
    /// [`Tensor::scatter_add`] in place.
    fn scatter_add_(dim: i64, index: &Tensor, src: &Tensor) = "scatter_add_";
    /// A copy with `src` combined with the elements at `index`. `reduce` is `sum`, `prod`, `mean`,
    /// `amax` or `amin`.
    fn scatter_reduce(dim: i64, index: &Tensor, src: &Tensor, reduce: &str, include_self: bool) =
        "scatter_reduce.two";
    /// [`Tensor::scatter_reduce`] in place.
    fn scatter_reduce_(dim: i64, index: &Tensor, src: &Tensor, reduce: &str, include_self: bool) =
        "scatter_reduce_.two";
    /// A copy with the slices of `source` added to those at `index` of a dimension.
    fn index_add(dim: i64, index: &Tensor, source: &Tensor) = "index_add";
    /// [`Tensor::index_add`] in place.
    fn index_add_(dim: i64, index: &Tensor, source: &Tensor) = "index_add_";
    /// A copy with the slices of `source` at `index` of a dimension.
    fn index_copy(dim: i64, index: &Tensor, source: &Tensor) = "index_copy";
    /// [`Tensor::index_copy`] in place.
    fn index_copy_(dim: i64, index: &Tensor, source: &Tensor) = "index_copy_";
}

calls! {
    /// A copy with a number written at `index` along a dimension.
    fn scatter_value(dim: i64, index: &Tensor, value: impl Into<Scalar>) =
        "scatter.value", dim, index, value.into();
    /// [`Tensor::scatter_value`] in place.
    fn scatter_value_(dim: i64, index: &Tensor, value: impl Into<Scalar>) =
        "scatter_.value", dim, index, value.into();
    /// A copy with the slices at `index` of a dimension filled with a number.
    fn index_fill(dim: i64, index: &Tensor, value: impl Into<Scalar>) =
        "index_fill.int_Scalar", dim, index, value.into();
    /// [`Tensor::index_fill`] in place.
    fn index_fill_(dim: i64, index: &Tensor, value: impl Into<Scalar>) =
        "index_fill_.int_Scalar", dim, index, value.into();
}

/// Boxes an index list. `None` keeps the whole dimension.
fn optional(indices: &[Option<&Tensor>]) -> Value {
    Value::List(indices.iter().map(|i| Value::from(*i)).collect())
}

impl Tensor {
    /// The only element of a tensor of integers. In a trace it is an unbacked symbol, such as `u0`.
    /// If the call fails, it is a poisoned integer.
    ///
    /// PyTorch: `aten::item`.
    #[track_caller]
    pub fn item_int(&self) -> SymInt {
        let loc = Loc::caller();
        let found = aten_outputs!("item", loc; self)
            .and_then(|out| out.first().map_or_else(|| Err(Error::value("no number")), Value::int));
        found.unwrap_or_else(|e| SymInt::poison(Arc::new(e)))
    }

    /// Advanced indexing by positions and masks. Each entry indexes one dimension, or, for a mask,
    /// as many as the mask has; `None` keeps a dimension. [`Tensor::i`] also takes ranges and
    /// numbers.
    ///
    /// PyTorch: `aten::index.Tensor`.
    #[track_caller]
    pub fn index(&self, indices: &[Option<&Tensor>]) -> Tensor {
        aten!("index.Tensor", Loc::caller(); self, optional(indices))
    }

    /// A copy with `values` written to the elements that [`Tensor::index`] selects, or added to
    /// them if `accumulate`.
    ///
    /// PyTorch: `aten::index_put`.
    #[track_caller]
    pub fn index_put(
        &self,
        indices: &[Option<&Tensor>],
        values: &Tensor,
        accumulate: bool,
    ) -> Tensor {
        aten!("index_put", Loc::caller(); self, optional(indices), values, accumulate)
    }

    /// [`Tensor::index_put`] in place.
    ///
    /// PyTorch: `aten::index_put_`.
    #[track_caller]
    pub fn index_put_(
        &self,
        indices: &[Option<&Tensor>],
        values: &Tensor,
        accumulate: bool,
    ) -> Tensor {
        aten!("index_put_", Loc::caller(); self, optional(indices), values, accumulate)
    }
}
