//! The nests with which specialisations compare.

use super::Special;
use maquette_ir::DType;
use maquette_ir::loops::fold::Fold;
use maquette_ir::loops::named::{Input, Reduced};
use maquette_ir::loops::{Axes, LoopBuilder, LoopError, LoopNest, StageKind, StageOutput};
use maquette_ir::sym::SymTable;
use smallvec::SmallVec;
use std::sync::Arc;

/// Whether a nest is the one that `build` makes of operands with the same dtypes and ranks.
pub(super) fn is_nest<const N: usize>(
    nest: &LoopNest,
    build: impl FnOnce(&mut LoopBuilder, &[Input]) -> Result<[StageOutput; N], LoopError>,
) -> bool {
    let mut template = LoopBuilder::new(SymTable::new());
    let operands = nest.operands().iter();
    let inputs: SmallVec<[Input; 3]> =
        operands.map(|o| template.input(o.dtype, o.sizes.len())).collect();
    let Ok(results) = build(&mut template, &inputs) else { return false };
    template.finish(&results).is_ok_and(|template| same(nest, &template))
}

/// Whether two nests are the same computation.
fn same(a: &LoopNest, b: &LoopNest) -> bool {
    a.stages().len() == b.stages().len()
        && a.axes().len() == b.axes().len()
        && a.to_string() == b.to_string()
}

/// A specialisation, if it matches.
pub(super) fn found(matches: bool, special: impl Special + 'static) -> Option<Arc<dyn Special>> {
    matches.then(|| Arc::new(special) as Arc<dyn Special>)
}

/// The parameters of a nest whose first stage folds its only operand along some axes.
pub(super) struct Folded {
    /// The dtype of the operand.
    pub x: DType,
    /// The folded dimensions of the operand.
    pub dims: SmallVec<[usize; 4]>,
    /// Whether the output has a dimension of size 1 in the place of each.
    keep: bool,
    /// The dtype of the first result.
    pub out: DType,
}

impl Folded {
    /// The parameters, and the fold.
    pub fn of(nest: &LoopNest) -> Option<(Folded, &Fold)> {
        let ([x], [result, ..], [first, ..]) = (nest.operands(), nest.results(), nest.stages())
        else {
            return None;
        };
        let StageKind::Reduce { along, fold, .. } = &first.kind else { return None };
        let rank = x.sizes.len();
        // The fold of one element is along an axis of its own.
        let dims: SmallVec<[usize; 4]> =
            along.iter().map(|a| a.index()).filter(|d| *d < rank).collect();
        let keep = !dims.is_empty() && first.axes().len() == rank;
        Some((Folded { x: x.dtype, dims, keep, out: nest.dtype(*result)? }, fold))
    }

    /// Whether the nest is the one that `build` makes with these parameters.
    pub fn is_nest<const N: usize>(
        &self,
        nest: &LoopNest,
        build: impl FnOnce(&mut LoopBuilder, Reduced<'_>) -> Result<[StageOutput; N], LoopError>,
    ) -> bool {
        is_nest(nest, |template, inputs| {
            let x = &inputs[0];
            let along: Axes = self.dims.iter().map(|d| x.axes[*d]).collect();
            build(template, Reduced { x, along: &along, keep: self.keep, out: self.out })
        })
    }
}
