//! Layer norm by [`layer_norm`](crate::layer_norm()).

use super::{Special, same};
use crate::error::Result;
use crate::isa::Isa;
use crate::view::{View, ViewMut};
use crate::{LayerNorm, layer_norm};
use maquette_ir::Scalar;
use maquette_ir::loops::fold::Fold;
use maquette_ir::loops::{LoopBuilder, LoopNest, StageKind, named};
use maquette_ir::sym::SymTable;
use std::sync::Arc;

#[derive(Debug)]
struct Normalization {
    normalized: usize,
    has_weight: bool,
    has_bias: bool,
}

pub(super) fn matches(nest: &LoopNest) -> Option<Arc<dyn Special>> {
    let ([x, parameters @ ..], [_, mean, _], [first, ..]) =
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
        let mut template = LoopBuilder::new(SymTable::new());
        let input = template.input(x.dtype, x.sizes.len());
        let mut rest = parameters.iter();
        let mut parameter = |is_present: bool| {
            let operand = rest.next().filter(|_| is_present)?;
            Some(template.input(operand.dtype, operand.sizes.len()))
        };
        let (weight, bias) = match has_weight {
            true => (parameter(true), parameter(has_bias)),
            false => (None, parameter(has_bias)),
        };
        let eps = Some(template.number(x.dtype.accumulator()));
        let (weight, bias) = (weight.as_ref(), bias.as_ref());
        let of = named::RowNorm { x: &input, normalized, weight, bias, eps, statistics };
        let results = named::layer_norm(&mut template, of).ok()?;
        let template = template.finish(&results).ok()?;
        let special = Normalization { normalized, has_weight, has_bias };
        same(nest, &template).then(|| Arc::new(special) as Arc<dyn Special>)
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
        let mut parameters = parameters.iter().cloned();
        let weight = self.has_weight.then(|| parameters.next()).flatten();
        let bias = self.has_bias.then(|| parameters.next()).flatten();
        let (mean, rstd) = (Some(mean.reborrow()), Some(rstd.reborrow()));
        let parts = LayerNorm { weight, bias, mean, rstd };
        layer_norm(x, self.normalized, eps.to_f64(), parts, out)?;
        Ok(true)
    }
}
