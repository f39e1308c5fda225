//! Diagonals, block matrices, grids and Cartesian products.

use super::calls::{aten_outputs, list, tensors};
use super::{aten, methods};
use crate::error::Result;
use crate::tensor::Tensor;
use maquette_ir::Loc;

methods! {
    /// The sum of the diagonal of a matrix.
    fn trace() = "trace";
    /// A matrix with this vector on a diagonal, or a diagonal of this matrix.
    fn diag(diagonal: i64) = "diag";
    /// Matrices with the last dimension on a diagonal, as two new dimensions.
    fn diag_embed(offset: i64, dim1: i64, dim2: i64) = "diag_embed";
    /// The subsets of `r` elements of a vector, one per row.
    fn combinations(r: i64, with_replacement: bool) = "combinations";
}

impl Tensor {
    /// A matrix with these matrices along its diagonal.
    ///
    /// PyTorch: `aten::block_diag`.
    #[track_caller]
    pub fn block_diag<'a>(tensors: impl IntoIterator<Item = &'a Tensor>) -> Tensor {
        aten!("block_diag", Loc::caller(); list(tensors))
    }

    /// The Cartesian product of vectors, one tuple per row.
    ///
    /// PyTorch: `aten::cartesian_prod`.
    #[track_caller]
    pub fn cartesian_prod<'a>(tensors: impl IntoIterator<Item = &'a Tensor>) -> Tensor {
        aten!("cartesian_prod", Loc::caller(); list(tensors))
    }

    /// Expands vectors to a grid. `indexing` is `ij`, or `xy`, which exchanges the first two
    /// dimensions.
    ///
    /// PyTorch: `aten::meshgrid.indexing`.
    ///
    /// # Errors
    /// A tensor is poisoned, has more than one dimension, or another dtype than the first.
    #[track_caller]
    pub fn meshgrid<'a>(
        vectors: impl IntoIterator<Item = &'a Tensor>,
        indexing: &str,
    ) -> Result<Vec<Tensor>> {
        tensors(aten_outputs!("meshgrid.indexing", Loc::caller(); list(vectors), indexing))
    }
}
