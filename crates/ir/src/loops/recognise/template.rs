//! The nests with which matchers compare.

use crate::DType;
use crate::loops::fold::Fold;
use crate::loops::named::{Input, Reduced};
use crate::loops::{Axes, LoopBuilder, LoopError, LoopNest, StageKind, StageOutput};
use crate::sym::SymTable;
use smallvec::SmallVec;

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

    /// As [`Folded::of`], of floats to floats.
    pub fn floats(nest: &LoopNest) -> Option<(Folded, &Fold)> {
        Folded::of(nest).filter(|(folded, _)| folded.x.is_float() && folded.out.is_float())
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
