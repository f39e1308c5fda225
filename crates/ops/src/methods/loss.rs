//! Losses and distances; `prelu` and `bilinear`.

use super::calls::calls;
use super::methods;
use crate::operator::Reduction;
use crate::tensor::Tensor;
use maquette_ir::Scalar;
use maquette_ir::sym::SymInt;

methods! {
    /// Squared differences.
    fn mse_loss(target: &Tensor, reduction: Reduction) = "mse_loss";
    /// Absolute differences.
    fn l1_loss(target: &Tensor, reduction: Reduction) = "l1_loss";
    /// Squared differences below `beta`, absolute differences above, with a continuous derivative.
    /// Floats.
    fn smooth_l1_loss(target: &Tensor, reduction: Reduction, beta: f64) = "smooth_l1_loss";
    /// As [`Tensor::smooth_l1_loss`], times `delta`.
    fn huber_loss(target: &Tensor, reduction: Reduction, delta: f64) = "huber_loss";
    /// `log(1 + exp(-target self))`, for targets 1 and -1.
    fn soft_margin_loss(target: &Tensor, reduction: Reduction) = "soft_margin_loss";
    /// The Kullback-Leibler divergence `target (log(target) - self)`, for log-probabilities `self`.
    /// With `log_target`, the target holds log-probabilities too.
    fn kl_div(target: &Tensor, reduction: Reduction, log_target: bool) = "kl_div";
    /// `-target log(self) - (1 - target) log(1 - self)`, for probabilities `self`.
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
    /// `exp(self) - target self` if `log_input`, else `self - target log(self + eps)`. `full` adds
    /// Stirling's approximation of `log(target!)`.
    fn poisson_nll_loss(
        target: &Tensor,
        log_input: bool,
        full: bool,
        eps: f64,
        reduction: Reduction,
    ) =
        "poisson_nll_loss";
    /// `self` for target 1, `max(0, margin - self)` for target -1.
    fn hinge_embedding_loss(target: &Tensor, margin: f64, reduction: Reduction) =
        "hinge_embedding_loss";
    /// `max(0, -target (self - input2) + margin)`.
    fn margin_ranking_loss(input2: &Tensor, target: &Tensor, margin: f64, reduction: Reduction) =
        "margin_ranking_loss";
    /// With the cosine `c` of each pair of vectors `[N, D]`: `1 - c` for target 1,
    /// `max(0, c - margin)` for target -1.
    fn cosine_embedding_loss(input2: &Tensor, target: &Tensor, margin: f64, reduction: Reduction) =
        "cosine_embedding_loss";
    /// The multi-class margin loss with several true classes per sample. The target `[N, C]` lists
    /// the true classes of each row, up to the first -1.
    fn multilabel_margin_loss(target: &Tensor, reduction: Reduction) = "multilabel_margin_loss";
    /// The distances `[.., P, R]` between all pairs of vectors `[.., P, D]` and `[.., R, D]`, in
    /// the `p`-norm.
    fn cdist(x2: &Tensor, p: f64) = "cdist";
    /// The distances `[N (N - 1) / 2]` between all pairs of rows `[N, D]`, in the `p`-norm.
    fn pdist(p: f64) = "pdist";
    /// The `p`-norm of `self - x2 + eps` over the last dimension.
    fn pairwise_distance(x2: &Tensor, p: f64, eps: f64, keepdim: bool) = "pairwise_distance";
    /// The cosine of the angle to `x2` along a dimension.
    fn cosine_similarity(x2: &Tensor, dim: i64, eps: f64) = "cosine_similarity";
    /// `self` if positive, else `weight self`. `weight` has one element, or one per channel.
    fn prelu(weight: &Tensor) = "prelu";
    /// `sum_ij self[i] weight[o, i, j] input2[j] + bias[o]` over the last dimensions.
    fn bilinear(input2: &Tensor, weight: &Tensor, bias: Option<&Tensor>) = "bilinear";
}

calls! {
    /// `max(0, d(self, positive) - d(self, negative) + margin)` for rows `[N, D]`, where `d` is the
    /// distance in the `p`-norm. With `swap`, the lesser of the distances of `negative` to `self`
    /// and to `positive` counts.
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
    /// The `p`-norm of `self - other`, over all elements.
    fn dist(other: &Tensor, p: impl Into<Scalar>) = "dist", other, p.into();
    /// The sum of `max(0, margin - self[y] + self[c])^p / C` over the classes `c` other than the
    /// true class `y`. The scores are `[N, C]`, the true classes `[N]`, and `p` is 1 or 2.
    fn multi_margin_loss(
        target: &Tensor,
        p: impl Into<Scalar>,
        margin: impl Into<Scalar>,
        weight: Option<&Tensor>,
        reduction: Reduction,
    ) =
        "multi_margin_loss", target, p.into(), margin.into(), weight, reduction;
    /// The negative log-likelihood: minus the log-probability in `[N, C]` of the true class in
    /// `[N]`, weighted by class. Samples with the class `ignore_index` do not count.
    fn nll_loss(
        target: &Tensor,
        weight: Option<&Tensor>,
        reduction: Reduction,
        ignore_index: impl Into<SymInt>,
    ) =
        "nll_loss", target, weight, reduction, ignore_index.into();
    /// As [`Tensor::nll_loss`], for images `[N, C, H, W]`.
    fn nll_loss2d(
        target: &Tensor,
        weight: Option<&Tensor>,
        reduction: Reduction,
        ignore_index: impl Into<SymInt>,
    ) =
        "nll_loss2d", target, weight, reduction, ignore_index.into();
    /// [`Tensor::nll_loss`] of the log-softmax of scores `[N, C, ..]`. The target holds classes
    /// `[N, ..]`, or probabilities with the sizes of the scores.
    fn cross_entropy_loss(
        target: &Tensor,
        weight: Option<&Tensor>,
        reduction: Reduction,
        ignore_index: impl Into<SymInt>,
        label_smoothing: f64,
    ) =
        "cross_entropy_loss", target, weight, reduction, ignore_index.into(), label_smoothing;
}
