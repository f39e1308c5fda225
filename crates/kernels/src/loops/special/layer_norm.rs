//! Layer norm by [`layer_norm`](crate::layer_norm()).

use super::Special;
use super::template::{found, is_nest};
use crate::error::Result;
use crate::isa::Isa;
use crate::view::{View, ViewMut};
use crate::{LayerNorm, layer_norm};
use maquette_ir::Scalar;
use maquette_ir::loops::fold::Fold;
use maquette_ir::loops::{LoopNest, StageKind, named};
use std::sync::Arc;

#[derive(Debug)]
struct Normalization {
    normalized: usize,
    has_weight: bool,
    has_bias: bool,
}

pub(super) fn matches(nest: &LoopNest) -> Option<Arc<dyn Special>> {
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
        found(matches, Normalization { normalized, has_weight, has_bias })
    })
}

impl Special for Normalization {
    fn run(
        &self,
        _: Isa,
        operands: &[View<'_>],
        numbers: &[Scalar],
        results: &mut [ViewMut<'_>],
    ) -> Result<bool> {
        let ([x, parameters @ ..], [eps], [out, mean, rstd]) = (operands, numbers, results) else {
            return Ok(false);
        };
        // The kernel writes no statistics of rows of no elements.
        if x.numel() == 0 {
            return Ok(false);
        }
        let mut parameters = parameters.iter();
        let weight = self.has_weight.then(|| parameters.next()).flatten();
        let bias = self.has_bias.then(|| parameters.next()).flatten();
        let parts = LayerNorm { weight, bias, mean: Some(mean), rstd: Some(rstd) };
        layer_norm(x, self.normalized, eps.to_f64(), parts, out)?;
        Ok(true)
    }
}
