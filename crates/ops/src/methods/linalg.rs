//! Linear algebra, over batches of matrices in the last two dimensions. Factorisations, systems and
//! determinants take f32 and f64.

use super::calls::{calls, list, tuple_calls};
use super::{aten, methods};
use crate::dispatch::value::Value;
use crate::tensor::Tensor;
use crate::tensor::meta::IntoDims;
use maquette_ir::{Loc, Scalar};

methods! {
    /// The Cholesky factor: the lower triangular `L` with `L Lᵀ = self`, or its transpose if
    /// `upper`. An error if a matrix is not positive-definite.
    fn linalg_cholesky(upper: bool) = "linalg_cholesky";
    /// Solves `L Lᵀ x = self`, given the Cholesky factor `factor`.
    fn cholesky_solve(factor: &Tensor, upper: bool) = "cholesky_solve";
    /// The inverse of the matrix whose Cholesky factor this is.
    fn cholesky_inverse(upper: bool) = "cholesky_inverse";
    /// The inverse. An error if a matrix is singular.
    fn linalg_inv() = "linalg_inv";
    /// The inverse. An error if a matrix is singular.
    fn inverse() = "inverse";
    /// The determinant.
    fn linalg_det() = "linalg_det";
    /// Solves `self x = b`. An error if a matrix is singular.
    fn linalg_solve(b: &Tensor) = "linalg_solve";
    /// The `n`-th power. A negative power is a power of the inverse.
    fn linalg_matrix_power(n: i64) = "linalg_matrix_power";
    /// The cross product along a dimension of size 3.
    fn linalg_cross(other: &Tensor, dim: i64) = "linalg_cross";
    /// The inner product along a dimension.
    fn linalg_vecdot(y: &Tensor, dim: i64) = "linalg_vecdot";
    /// The product of Householder reflections in the form of LAPACK's `geqrf`: below the diagonal,
    /// with scales `tau`.
    fn linalg_householder_product(tau: &Tensor) = "linalg_householder_product";
    /// The inner products of all vectors in the last dimensions.
    fn inner(other: &Tensor) = "inner";
    /// The Kronecker product.
    fn kron(other: &Tensor) = "kron";
}

calls! {
    /// Solves `A x = b`, or `x A = b` unless `left`, for the triangle `A` of this matrix.
    fn linalg_solve_triangular(b: &Tensor, upper: bool, left: bool, unitriangular: bool) =
        "linalg_solve_triangular", b, upper, left, unitriangular;
    /// The norm of matrices, of order 1, -1, infinity or negative infinity.
    fn linalg_matrix_norm(ord: impl Into<Scalar>, dim: impl IntoDims, keepdim: bool) =
        "linalg_matrix_norm", ord.into(), Value::from_dims(dim), keepdim;
    /// The Frobenius norm of matrices.
    fn linalg_frobenius_norm(dim: impl IntoDims, keepdim: bool) =
        "linalg_matrix_norm.str_ord", "fro", Value::from_dims(dim), keepdim;
    /// The `p`-norm of all elements.
    fn norm(p: impl Into<Scalar>) = "norm.Scalar", p.into();
    /// The `p`-norm over these dimensions, or over all if the list is empty.
    fn norm_dim(p: impl Into<Scalar>, dim: impl IntoDims, keepdim: bool) =
        "norm.ScalarOpt_dim", p.into(), Value::from_dims(dim), keepdim;
    /// The contraction of pairs of dimensions of this tensor and `other`.
    fn tensordot(other: &Tensor, dims_self: impl IntoDims, dims_other: impl IntoDims) =
        "tensordot", other, Value::from_dims(dims_self), Value::from_dims(dims_other);
}

impl Tensor {
    /// Einstein summation: `Tensor::einsum("bij,bjk->bik", [&x, &y])`.
    ///
    /// PyTorch: `aten::einsum`.
    #[track_caller]
    pub fn einsum<'a>(equation: &str, tensors: impl IntoIterator<Item = &'a Tensor>) -> Tensor {
        aten!("einsum", Loc::caller(); equation, list(tensors))
    }

    /// The product of a chain of matrices, in the order with the fewest multiplications.
    ///
    /// PyTorch: `aten::linalg_multi_dot`.
    #[track_caller]
    pub fn linalg_multi_dot<'a>(tensors: impl IntoIterator<Item = &'a Tensor>) -> Tensor {
        aten!("linalg_multi_dot", Loc::caller(); list(tensors))
    }
}

tuple_calls! {
    /// The QR decomposition: an orthogonal `Q` and an upper triangular `R`. `mode` is `reduced`,
    /// `complete`, or `r` for `R` alone.
    fn linalg_qr(mode: &str) -> (Tensor, Tensor) = "linalg_qr", mode;
    /// The LU decomposition with partial pivoting: a permutation matrix, a unit lower and an upper
    /// triangular matrix.
    fn linalg_lu() -> (Tensor, Tensor, Tensor) = "linalg_lu";
    /// The sign of the determinant, and the logarithm of its absolute value.
    fn linalg_slogdet() -> (Tensor, Tensor) = "linalg_slogdet";
}
