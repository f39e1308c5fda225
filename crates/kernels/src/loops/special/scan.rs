//! Cumulative sums, products and extremes by [`scan`](crate::scan()) and
//! [`cumulative_extreme`](crate::cumulative_extreme()).

use super::Special;
use super::template::{found, is_nest};
use crate::error::Result;
use crate::isa::Isa;
use crate::scan::{ScanOp, cumulative_extreme, scan};
use crate::view::{View, ViewMut};
use maquette_ir::Scalar;
use maquette_ir::loops::fold::Fold;
use maquette_ir::loops::named::{self, Input};
use maquette_ir::loops::{AxisId, LoopBuilder, LoopNest, StageKind};
use std::sync::Arc;

#[derive(Debug)]
enum Scan {
    Fold { op: ScanOp, dim: usize },
    Extreme { max: bool, dim: usize },
}

pub(super) fn matches(nest: &LoopNest) -> Option<Arc<dyn Special>> {
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
    let op = match fold {
        Fold::Sum => ScanOp::Sum,
        Fold::Prod => ScanOp::Prod,
        Fold::Of { .. } => {
            return [false, true].into_iter().find_map(|max| {
                let matches = is_nest(nest, |template, inputs| {
                    let along = along(template, &inputs[0]);
                    named::cumulative_extreme(template, &inputs[0], along, max)
                });
                found(matches, Scan::Extreme { max, dim })
            });
        }
        _ => return None,
    };
    let matches = is_nest(nest, |template, inputs| {
        let along = along(template, &inputs[0]);
        Ok([named::scan(template, &inputs[0], along, fold.clone(), out)?])
    });
    found(matches, Scan::Fold { op, dim })
}

impl Special for Scan {
    fn run(
        &self,
        _: Isa,
        operands: &[View<'_>],
        _: &[Scalar],
        results: &mut [ViewMut<'_>],
    ) -> Result<bool> {
        match (self, operands, results) {
            (Scan::Fold { op, dim }, [x], [out]) => scan(*op, x, *dim, out)?,
            (Scan::Extreme { max, dim }, [x], [values, positions]) => {
                cumulative_extreme(*max, x, *dim, values, positions)?;
            }
            _ => return Ok(false),
        }
        Ok(true)
    }
}
