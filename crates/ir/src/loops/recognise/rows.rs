//! Computations along lines: softmax, layer norm, scans.

use super::template::is_nest;
use crate::loops::fold::Fold;
use crate::loops::named::{self, Input};
use crate::loops::{AxisId, LoopBuilder, LoopNest, StageKind};

/// The softmax of the lines along a dimension.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Softmax {
    /// The dimension.
    pub dim: usize,
    /// Whether the results are the logarithms.
    pub log: bool,
}

pub(super) fn softmax(nest: &LoopNest) -> Option<Softmax> {
    let ([x], [result], [first, ..]) = (nest.operands(), nest.results(), nest.stages()) else {
        return None;
    };
    let StageKind::Reduce { along, .. } = &first.kind else { return None };
    let (dim, out) = (along.first()?.index(), nest.dtype(*result)?);
    if !out.is_float() || dim >= x.sizes.len() {
        return None;
    }
    [false, true].into_iter().find_map(|log| {
        let build = if log { named::log_softmax } else { named::softmax };
        let matches = is_nest(nest, |nest, inputs| {
            Ok([build(nest, &inputs[0], inputs[0].axes[dim], out)?.into()])
        });
        matches.then_some(Softmax { dim, log })
    })
}

/// Layer norm over the last dimensions. Operands are the rows, the weight and the bias, as far as
/// they are there; results are the rows, their means, and the reciprocals of their deviations. The
/// number of a launch is epsilon.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LayerNorm {
    /// How many dimensions are normalized.
    pub normalized: usize,
    /// Whether there is a weight.
    pub has_weight: bool,
    /// Whether there is a bias.
    pub has_bias: bool,
}

pub(super) fn layer_norm(nest: &LoopNest) -> Option<LayerNorm> {
    let ([_, parameters @ ..], [_, mean, _], [first, ..]) =
        (nest.operands(), nest.results(), nest.stages())
    else {
        return None;
    };
    let StageKind::Reduce { along, fold: Fold::Moments, .. } = &first.kind else { return None };
    let (normalized, statistics) = (along.len(), nest.dtype(*mean)?);
    let present = match parameters.len() {
        0 => &[(false, false)][..],
        1 => &[(true, false), (false, true)],
        _ => &[(true, true)],
    };
    present.iter().find_map(|&(has_weight, has_bias)| {
        let matches = is_nest(nest, |nest, inputs| {
            let (x, mut rest) = (&inputs[0], inputs[1..].iter());
            let weight = has_weight.then(|| rest.next()).flatten();
            let bias = has_bias.then(|| rest.next()).flatten();
            let eps = Some(nest.number(x.dtype.accumulator()));
            named::layer_norm(nest, named::RowNorm { x, normalized, weight, bias, eps, statistics })
        });
        matches.then_some(LayerNorm { normalized, has_weight, has_bias })
    })
}

/// A scan of the lines along a dimension.
#[derive(Clone, Debug, PartialEq)]
pub enum Scan {
    /// Each element with those before it.
    Fold {
        /// How elements are combined: a sum or a product.
        fold: Fold,
        /// The dimension.
        dim: usize,
    },
    /// The extreme of each element and those before it, and its position.
    Extreme {
        /// Whether the extreme is the greatest.
        max: bool,
        /// The dimension.
        dim: usize,
    },
}

pub(super) fn scan(nest: &LoopNest) -> Option<Scan> {
    let ([x], [result, ..], [first, ..]) = (nest.operands(), nest.results(), nest.stages()) else {
        return None;
    };
    let StageKind::Scan { along, fold, .. } = &first.kind else { return None };
    let (rank, out) = (x.sizes.len(), nest.dtype(*result)?);
    // An element of a 0-d tensor is a line along an axis of its own.
    let dim = if rank == 0 { 0 } else { along.index() };
    if dim >= rank.max(1) {
        return None;
    }
    let along = |template: &mut LoopBuilder, x: &Input| -> AxisId {
        x.axes.get(dim).copied().unwrap_or_else(|| template.unit_axis())
    };
    match fold {
        Fold::Sum | Fold::Prod => {
            let matches = is_nest(nest, |template, inputs| {
                let along = along(template, &inputs[0]);
                Ok([named::scan(template, &inputs[0], along, fold.clone(), out)?])
            });
            matches.then(|| Scan::Fold { fold: fold.clone(), dim })
        }
        Fold::Of { .. } => [false, true].into_iter().find_map(|max| {
            let matches = is_nest(nest, |template, inputs| {
                let along = along(template, &inputs[0]);
                named::cumulative_extreme(template, &inputs[0], along, max)
            });
            matches.then_some(Scan::Extreme { max, dim })
        }),
        _ => None,
    }
}
