//! Losses, distances, and the parts of networks beside them.

use super::calls::calls;
use super::methods;
use crate::aten::Reduction;
use crate::tensor::Tensor;
use maquette_ir::Scalar;
use maquette_ir::sym::SymInt;

methods! {
    /// Squared differences.
    fn mse_loss(target: &Tensor, reduction: Reduction) = "mse_loss";
    /// Absolute differences.
    fn l1_loss(target: &Tensor, reduction: Reduction) = "l1_loss";
    /// Squared differences below `beta`, absolute ones above, joined smoothly; of floats.
    fn smooth_l1_loss(target: &Tensor, reduction: Reduction, beta: f64) = "smooth_l1_loss";
    /// As [`Tensor::smooth_l1_loss`], times `delta`.
    fn huber_loss(target: &Tensor, reduction: Reduction, delta: f64) = "huber_loss";
    /// `log(1 + exp(-target self))`, of targets 1 and -1.
    fn soft_margin_loss(target: &Tensor, reduction: Reduction) = "soft_margin_loss";
    /// `target (log(target) - self)`, of log-probabilities; with `log_target`, the target holds
    /// logarithms too.
    fn kl_div(target: &Tensor, reduction: Reduction, log_target: bool) = "kl_div";
    /// `-target log(self) - (1 - target) log(1 - self)`, of probabilities.
    fn binary_cross_entropy(target: &Tensor, weight: Option<&Tensor>, reduction: Reduction) =
        "binary_cross_entropy";
    /// [`Tensor::binary_cross_entropy`] of the sigmoid of this tensor; `pos_weight` scales the
    /// positive class.
    fn binary_cross_entropy_with_logits(
        target: &Tensor,
        weight: Option<&Tensor>,
        pos_weight: Option<&Tensor>,
        reduction: Reduction,
    ) =
        "binary_cross_entropy_with_logits";
    /// `exp(self) - target self`, or `self - target log(self + eps)` where not `log_input`; `full`
    /// adds Stirling's approximation of `log(target!)`.
    fn poisson_nll_loss(
        target: &Tensor,
        log_input: bool,
        full: bool,
        eps: f64,
        reduction: Reduction,
    ) =
        "poisson_nll_loss";
    /// This distance where the target is 1, `max(0, margin - self)` where it is -1.
    fn hinge_embedding_loss(target: &Tensor, margin: f64, reduction: Reduction) =
        "hinge_embedding_loss";
    /// `max(0, -target (self - input2) + margin)`.
    fn margin_ranking_loss(input2: &Tensor, target: &Tensor, margin: f64, reduction: Reduction) =
        "margin_ranking_loss";
    /// How far `[N, D]` vectors are from pointing the same way (target 1), or from differing by
    /// `margin` in cosine (target -1).
    fn cosine_embedding_loss(input2: &Tensor, target: &Tensor, margin: f64, reduction: Reduction) =
        "cosine_embedding_loss";
    /// The true classes (a row ends at -1) against all others, both `[N, C]`.
    fn multilabel_margin_loss(target: &Tensor, reduction: Reduction) = "multilabel_margin_loss";
    /// The distances `[.., P, R]` in the `p`-norm of all pairs of vectors `[.., P, D]` and `[.., R,
    /// D]`.
    fn cdist(x2: &Tensor, p: f64) = "cdist";
    /// The distances `[N (N - 1) / 2]` in the `p`-norm of all pairs of rows `[N, D]`.
    fn pdist(p: f64) = "pdist";
    /// The `p`-norm of `self - x2 + eps` over the last dimension.
    fn pairwise_distance(x2: &Tensor, p: f64, eps: f64, keepdim: bool) = "pairwise_distance";
    /// The cosine of the angle to `x2` along a dimension.
    fn cosine_similarity(x2: &Tensor, dim: i64, eps: f64) = "cosine_similarity";
    /// `self` where positive, else times `weight`, of one element or one a channel.
    fn prelu(weight: &Tensor) = "prelu";
    /// `self[i] weight[o, i, j] input2[j] + bias[o]` over the last dimensions.
    fn bilinear(input2: &Tensor, weight: &Tensor, bias: Option<&Tensor>) = "bilinear";
}

calls! {
    /// By how much each row `[N, D]` is not nearer to `positive` than to `negative` by `margin`, in
    /// the `p`-norm.
    fn triplet_margin_loss(
        positive: &Tensor,
        negative: &Tensor,
        margin: f64,
        p: f64,
        eps: f64,
        swap: bool,
        reduction: Reduction,
    ) =
        "triplet_margin_loss", positive, negative, margin, p, eps, swap, reduction;
    /// The `p`-norm of the difference to `other`, of all elements.
    fn dist(other: &Tensor, p: impl Into<Scalar>) = "dist", other, p.into();
    /// `max(0, margin - self[y] + self[c])^p` over the classes `c` other than the true one `y`;
    /// scores `[N, C]`, classes `[N]`, `p` 1 or 2.
    fn multi_margin_loss(
        target: &Tensor,
        p: impl Into<Scalar>,
        margin: impl Into<Scalar>,
        weight: Option<&Tensor>,
        reduction: Reduction,
    ) =
        "multi_margin_loss", target, p.into(), margin.into(), weight, reduction;
    /// Minus the log-probability `[N, C]` of the true class `[N]`, weighted by class;
    /// `ignore_index` counts for nothing.
    fn nll_loss(
        target: &Tensor,
        weight: Option<&Tensor>,
        reduction: Reduction,
        ignore_index: impl Into<SymInt>,
    ) =
        "nll_loss", target, weight, reduction, ignore_index.into();
    /// As [`Tensor::nll_loss`], of images `[N, C, H, W]`.
    fn nll_loss2d(
        target: &Tensor,
        weight: Option<&Tensor>,
        reduction: Reduction,
        ignore_index: impl Into<SymInt>,
    ) =
        "nll_loss2d", target, weight, reduction, ignore_index.into();
    /// [`Tensor::nll_loss`] of the log-softmax of scores `[N, C, ..]`. The target holds classes
    /// `[N, ..]` or probabilities of the scores' sizes.
    fn cross_entropy_loss(
        target: &Tensor,
        weight: Option<&Tensor>,
        reduction: Reduction,
        ignore_index: impl Into<SymInt>,
        label_smoothing: f64,
    ) =
        "cross_entropy_loss", target, weight, reduction, ignore_index.into(), label_smoothing;
}
