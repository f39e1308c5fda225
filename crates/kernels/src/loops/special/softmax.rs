//! Softmax and its logarithm by [`softmax`](crate::softmax()) and
//! [`log_softmax`](crate::log_softmax()).

use super::{Special, same};
use crate::error::Result;
use crate::isa::Isa;
use crate::view::{View, ViewMut};
use crate::{log_softmax, softmax};
use maquette_ir::Scalar;
use maquette_ir::loops::{LoopBuilder, LoopNest, StageKind, named};
use maquette_ir::sym::SymTable;
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
        let mut template = LoopBuilder::new(SymTable::new());
        let input = template.input(x.dtype, x.sizes.len());
        let build = if log { named::log_softmax } else { named::softmax };
        let result = build(&mut template, &input, *input.axes.get(dim)?, out).ok()?;
        let template = template.finish(&[result.into()]).ok()?;
        same(nest, &template).then(|| Arc::new(Softmax { dim, log }) as Arc<dyn Special>)
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
