//! Two extremes of one operand: a minimum or maximum with its index by
//! [`minmax_with_index`](crate::minmax_with_index()), and both by [`reduce`](crate::reduce()).

use super::{Special, same};
use crate::error::Result;
use crate::isa::Isa;
use crate::reduce::{ReduceOp, minmax_with_index, reduce_on};
use crate::view::{View, ViewMut};
use maquette_ir::Scalar;
use maquette_ir::loops::fold::Fold;
use maquette_ir::loops::named::{self, Reduced, Reduction};
use maquette_ir::loops::{Axes, LoopBuilder, LoopNest, StageKind};
use maquette_ir::sym::SymTable;
use smallvec::SmallVec;
use std::sync::Arc;

#[derive(Debug)]
enum Extremes {
    /// Along a dimension, with the indices.
    Indexed { max: bool, dim: usize },
    /// The minimum and the maximum over dimensions.
    Both(SmallVec<[usize; 4]>),
}

pub(super) fn matches(nest: &LoopNest) -> Option<Arc<dyn Special>> {
    let ([x], [result, _], [first, ..]) = (nest.operands(), nest.results(), nest.stages()) else {
        return None;
    };
    let StageKind::Reduce { along, fold, .. } = &first.kind else { return None };
    let rank = x.sizes.len();
    let dims: SmallVec<[usize; 4]> =
        along.iter().map(|a| a.index()).filter(|d| *d < rank).collect();
    let keep = !dims.is_empty() && first.axes().len() == rank;
    let mut template = LoopBuilder::new(SymTable::new());
    let input = template.input(x.dtype, rank);
    let along: Axes = dims.iter().map(|d| input.axes[*d]).collect();
    let of = Reduced { x: &input, along: &along, keep, out: nest.dtype(*result)? };
    if of.out != x.dtype {
        return None;
    }
    let (results, special) = match (fold, &dims[..]) {
        (Fold::ArgMin | Fold::ArgMax, [dim]) => {
            let max = *fold == Fold::ArgMax;
            (named::extreme(&mut template, max, of).ok()?, Extremes::Indexed { max, dim: *dim })
        }
        (Fold::Min, _) => {
            let min = named::reduce(&mut template, Reduction::Min, of).ok()?;
            let max = named::reduce(&mut template, Reduction::Max, of).ok()?;
            ([min, max], Extremes::Both(dims))
        }
        _ => return None,
    };
    let template = template.finish(&results).ok()?;
    same(nest, &template).then(|| Arc::new(special) as Arc<dyn Special>)
}

impl Special for Extremes {
    fn run(
        &self,
        isa: Isa,
        operands: &[View<'_>],
        _: &[Scalar],
        results: &mut [ViewMut<'_>],
    ) -> Result<bool> {
        let ([x], [first, second]) = (operands, results) else { return Ok(false) };
        match self {
            Extremes::Indexed { max, dim } => minmax_with_index(*max, x, *dim, first, second)?,
            Extremes::Both(dims) => {
                reduce_on(isa, ReduceOp::Min, x, dims, first)?;
                reduce_on(isa, ReduceOp::Max, x, dims, second)?;
            }
        }
        Ok(true)
    }
}
