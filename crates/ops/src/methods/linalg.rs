//! Linear algebra, over batches of matrices in the last two dimensions. Factorisations, systems and
//! determinants take f32 and f64.

use super::calls::{aten_outputs, calls, list, results};
use super::{aten, methods};
use crate::dispatch::value::Value;
use crate::tensor::Tensor;
use crate::tensor::meta::IntoDims;
use maquette_ir::{Loc, Scalar};

methods! {
    /// The lower triangle `L` with `L Lᵀ` this matrix, or the upper one; an error where it is not
    /// positive-definite.
    fn linalg_cholesky(upper: bool) = "linalg_cholesky";
    /// `x` such that `L Lᵀ x` is this tensor.
    fn cholesky_solve(factor: &Tensor, upper: bool) = "cholesky_solve";
    /// The inverse of the matrix whose Cholesky factor this is.
    fn cholesky_inverse(upper: bool) = "cholesky_inverse";
    /// The inverse; an error where a matrix is singular.
    fn linalg_inv() = "linalg_inv";
    /// The inverse; an error where a matrix is singular.
    fn inverse() = "inverse";
    /// The determinant.
    fn linalg_det() = "linalg_det";
    /// `x` such that this matrix times `x` is `b`; an error where it is singular.
    fn linalg_solve(b: &Tensor) = "linalg_solve";
    /// The `n`th power; negative ones are powers of the inverse.
    fn linalg_matrix_power(n: i64) = "linalg_matrix_power";
    /// The cross product along a dimension of size 3.
    fn linalg_cross(other: &Tensor, dim: i64) = "linalg_cross";
    /// The inner product along a dimension.
    fn linalg_vecdot(y: &Tensor, dim: i64) = "linalg_vecdot";
    /// The product of the reflections below the diagonal, as `geqrf` leaves them.
    fn linalg_householder_product(tau: &Tensor) = "linalg_householder_product";
    /// The inner products of all vectors in the last dimensions.
    fn inner(other: &Tensor) = "inner";
    /// Every element times the whole of `other`.
    fn kron(other: &Tensor) = "kron";
}

calls! {
    /// `x` such that a triangle of this matrix times `x` is `b`, or `x` times it where not `left`.
    fn linalg_solve_triangular(b: &Tensor, upper: bool, left: bool, unitriangular: bool) =
        "linalg_solve_triangular", b, upper, left, unitriangular;
    /// The norm of matrices of order 1, -1, infinity or its negative.
    fn linalg_matrix_norm(ord: impl Into<Scalar>, dim: impl IntoDims, keepdim: bool) =
        "linalg_matrix_norm", ord.into(), Value::from_dims(dim), keepdim;
    /// The Frobenius norm of matrices.
    fn linalg_frobenius_norm(dim: impl IntoDims, keepdim: bool) =
        "linalg_matrix_norm.str_ord", "fro", Value::from_dims(dim), keepdim;
    /// The `p`-norm of all elements.
    fn norm(p: impl Into<Scalar>) = "norm.Scalar", p.into();
    /// The `p`-norm over these dimensions; none means all.
    fn norm_dim(p: impl Into<Scalar>, dim: impl IntoDims, keepdim: bool) =
        "norm.ScalarOpt_dim", p.into(), Value::from_dims(dim), keepdim;
    /// Sums over pairs of dimensions of this tensor and `other`.
    fn tensordot(other: &Tensor, dims_self: impl IntoDims, dims_other: impl IntoDims) =
        "tensordot", other, Value::from_dims(dims_self), Value::from_dims(dims_other);
}

impl Tensor {
    /// Products and sums by labels of dimensions: `Tensor::einsum("bij,bjk->bik", [&x, &y])`.
    ///
    /// PyTorch: `aten::einsum`.
    #[track_caller]
    pub fn einsum<'a>(equation: &str, tensors: impl IntoIterator<Item = &'a Tensor>) -> Tensor {
        aten!("einsum", Loc::caller(); equation, list(tensors))
    }

    /// The product of matrices, in the cheapest order.
    ///
    /// PyTorch: `aten::linalg_multi_dot`.
    #[track_caller]
    pub fn linalg_multi_dot<'a>(tensors: impl IntoIterator<Item = &'a Tensor>) -> Tensor {
        aten!("linalg_multi_dot", Loc::caller(); list(tensors))
    }

    /// Orthogonal `Q` and upper triangular `R` whose product this is; `mode` is `reduced`,
    /// `complete`, or `r` for `R` alone.
    ///
    /// PyTorch: `aten::linalg_qr`.
    #[track_caller]
    pub fn linalg_qr(&self, mode: &str) -> (Tensor, Tensor) {
        results::<2>(aten_outputs!("linalg_qr", Loc::caller(); self, mode)).into()
    }

    /// A permutation, a unit lower and an upper triangle, whose product this is.
    ///
    /// PyTorch: `aten::linalg_lu`.
    #[track_caller]
    pub fn linalg_lu(&self) -> (Tensor, Tensor, Tensor) {
        results::<3>(aten_outputs!("linalg_lu", Loc::caller(); self)).into()
    }

    /// The sign of the determinant and the logarithm of its absolute value.
    ///
    /// PyTorch: `aten::linalg_slogdet`.
    #[track_caller]
    pub fn linalg_slogdet(&self) -> (Tensor, Tensor) {
        results::<2>(aten_outputs!("linalg_slogdet", Loc::caller(); self)).into()
    }
}
