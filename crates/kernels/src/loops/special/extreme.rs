//! Two extremes of one operand: a minimum or maximum with its index by
//! [`minmax_with_index`](crate::minmax_with_index()), and both by [`reduce`](crate::reduce()).

use super::Special;
use super::template::{Folded, found};
use crate::error::Result;
use crate::isa::Isa;
use crate::reduce::{ReduceOp, minmax_with_index, reduce_on};
use crate::view::{View, ViewMut};
use maquette_ir::Scalar;
use maquette_ir::loops::LoopNest;
use maquette_ir::loops::fold::Fold;
use maquette_ir::loops::named::{self, Reduction};
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
    let (folded, fold) = Folded::of(nest)?;
    if folded.out != folded.x {
        return None;
    }
    match (fold, &folded.dims[..]) {
        (Fold::ArgMin | Fold::ArgMax, &[dim]) => {
            let max = *fold == Fold::ArgMax;
            let matches = folded.is_nest(nest, |nest, of| named::extreme(nest, max, of));
            found(matches, Extremes::Indexed { max, dim })
        }
        (Fold::Min, _) => {
            let matches = folded.is_nest(nest, |nest, of| {
                let min = named::reduce(nest, Reduction::Min, of)?;
                Ok([min, named::reduce(nest, Reduction::Max, of)?])
            });
            found(matches, Extremes::Both(folded.dims))
        }
        _ => None,
    }
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
