//! Which operators compute in which precision: PyTorch's lists for the CPU.
//!
//! The lists name operators as PyTorch does; names that the table does not have are left out. An
//! overload counts where PyTorch lists it.

/// The dtype in which an operator computes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Policy {
    /// In the lower precision.
    Lower,
    /// In `f32`.
    F32,
    /// In `f32` if an operand has more than the lower precision, else in that.
    Promote,
}

/// The policy of an operator.
pub(super) fn policy(op: &str) -> Option<Policy> {
    let name = op.strip_prefix("aten::")?;
    let lists = [(LOWER, Policy::Lower), (F32, Policy::F32), (PROMOTE, Policy::Promote)];
    lists.into_iter().find(|(list, _)| list.binary_search(&name).is_ok()).map(|(_, policy)| policy)
}

/// All lists.
pub(crate) fn lists() -> [&'static [&'static str]; 3] {
    [LOWER, F32, PROMOTE]
}

/// Sorted, as the other lists.
const LOWER: &[&str] = &[
    "addbmm",
    "addmm",
    "baddbmm",
    "bmm",
    "conv1d",
    "conv1d.padding",
    "conv2d",
    "conv2d.padding",
    "conv3d",
    "conv3d.padding",
    "conv_transpose1d",
    "conv_transpose2d.input",
    "conv_transpose3d.input",
    "linalg_vecdot",
    "linear",
    "matmul",
    "mm",
    "prelu",
    "scaled_dot_product_attention",
];

const F32: &[&str] = &[
    "adaptive_avg_pool3d",
    "adaptive_max_pool3d",
    "avg_pool3d",
    "binary_cross_entropy",
    "binary_cross_entropy_with_logits",
    "cdist",
    "cholesky_inverse",
    "cholesky_solve",
    "cosine_embedding_loss",
    "cross_entropy_loss",
    "fractional_max_pool2d",
    "fractional_max_pool3d",
    "geqrf",
    "grid_sampler",
    "grid_sampler_2d",
    "grid_sampler_3d",
    "hinge_embedding_loss",
    "huber_loss",
    "inverse",
    "kl_div",
    "l1_loss",
    "linalg_cholesky",
    "linalg_cholesky_ex",
    "linalg_householder_product",
    "linalg_inv",
    "linalg_inv_ex",
    "linalg_qr",
    "linalg_solve",
    "margin_ranking_loss",
    "max_pool3d",
    "max_unpool2d",
    "max_unpool3d",
    "mse_loss",
    "multi_margin_loss",
    "multilabel_margin_loss",
    "multilabel_margin_loss_forward",
    "nanquantile",
    "nanquantile.scalar",
    "nll_loss",
    "nll_loss2d",
    "orgqr",
    "ormqr",
    "poisson_nll_loss",
    "prod",
    "prod.dim_int",
    "quantile",
    "quantile.scalar",
    "reflection_pad1d",
    "reflection_pad2d",
    "replication_pad1d",
    "replication_pad2d",
    "replication_pad3d",
    "smooth_l1_loss",
    "soft_margin_loss",
    "trace",
    "triangular_solve",
    "triplet_margin_loss",
];

const PROMOTE: &[&str] = &["cat", "index_copy", "stack"];
