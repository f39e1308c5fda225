//! Softmax and its logarithm by [`softmax`](crate::softmax()) and
//! [`log_softmax`](crate::log_softmax()).

use super::Special;
use super::template::{found, is_nest};
use crate::error::Result;
use crate::isa::Isa;
use crate::view::{View, ViewMut};
use crate::{log_softmax, softmax};
use maquette_ir::Scalar;
use maquette_ir::loops::{LoopNest, StageKind, named};
use std::sync::Arc;

#[derive(Debug)]
struct Softmax {
    dim: usize,
    log: bool,
}

pub(super) fn matches(nest: &LoopNest) -> Option<Arc<dyn Special>> {
    let ([x], [result], [first, ..]) = (nest.operands(), nest.results(), nest.stages()) else {
        return None;
    };
    let StageKind::Reduce { along, .. } = &first.kind else { return None };
    let (dim, out) = (along.first()?.index(), nest.dtype(*result)?);
    // The kernel reads and writes one dtype, and a tensor of at least one dimension.
    if x.dtype != out || !out.is_float() || dim >= x.sizes.len() {
        return None;
    }
    [false, true].into_iter().find_map(|log| {
        let build = if log { named::log_softmax } else { named::softmax };
        let matches = is_nest(nest, |nest, inputs| {
            Ok([build(nest, &inputs[0], inputs[0].axes[dim], out)?.into()])
        });
        found(matches, Softmax { dim, log })
    })
}

impl Special for Softmax {
    fn run(
        &self,
        _: Isa,
        operands: &[View<'_>],
        _: &[Scalar],
        results: &mut [ViewMut<'_>],
    ) -> Result<bool> {
        let ([x], [out]) = (operands, results) else { return Ok(false) };
        let kernel = if self.log { log_softmax } else { softmax };
        kernel(x, self.dim, out)?;
        Ok(true)
    }
}
