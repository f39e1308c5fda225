//! Reductions of one operand by [`reduce`](crate::reduce()).

use super::{Special, same};
use crate::error::Result;
use crate::isa::Isa;
use crate::reduce::{ReduceOp, reduce_on};
use crate::view::{View, ViewMut};
use maquette_ir::loops::named::{self, Reduced, Reduction};
use maquette_ir::loops::{Axes, LoopBuilder, LoopNest, StageKind};
use maquette_ir::sym::SymTable;
use maquette_ir::{DType, Scalar};
use smallvec::SmallVec;
use std::sync::Arc;

#[derive(Debug)]
struct Reduce {
    op: ReduceOp,
    dims: SmallVec<[usize; 4]>,
}

pub(super) fn matches(nest: &LoopNest) -> Option<Arc<dyn Special>> {
    let ([x], [result], [first, ..]) = (nest.operands(), nest.results(), nest.stages()) else {
        return None;
    };
    let StageKind::Reduce { along, fold, .. } = &first.kind else { return None };
    let (rank, out) = (x.sizes.len(), nest.dtype(*result)?);
    let dims: SmallVec<[usize; 4]> =
        along.iter().map(|a| a.index()).filter(|d| *d < rank).collect();
    let keep = !dims.is_empty() && first.axes().len() == rank;
    Reduction::ALL.into_iter().filter(|op| op.fold() == *fold).find_map(|op| {
        let mut template = LoopBuilder::new(SymTable::new());
        let input = template.input(x.dtype, rank);
        let along: Axes = dims.iter().map(|d| input.axes[*d]).collect();
        let of = Reduced { x: &input, along: &along, keep, out };
        let result = named::reduce(&mut template, op, of).ok()?;
        let template = template.finish(&[result]).ok()?;
        let op = kernel_of(op, x.dtype, out)?;
        same(nest, &template)
            .then(|| Arc::new(Reduce { op, dims: dims.clone() }) as Arc<dyn Special>)
    })
}

/// The kernel's operation; `None` if the kernel rounds otherwise.
fn kernel_of(op: Reduction, x: DType, out: DType) -> Option<ReduceOp> {
    Some(match op {
        // A sum or product of bools is `any` or `all`.
        Reduction::Sum | Reduction::Prod | Reduction::Mean if out == DType::Bool => return None,
        // The kernel does not round the elements to a narrow output's dtype.
        Reduction::Sum | Reduction::Prod
            if x != out && out.accumulator() != out && out.is_float() =>
        {
            return None;
        }
        Reduction::Sum => ReduceOp::Sum,
        Reduction::Prod => ReduceOp::Prod,
        Reduction::Min => ReduceOp::Min,
        Reduction::Max => ReduceOp::Max,
        Reduction::Any => ReduceOp::Any,
        Reduction::All => ReduceOp::All,
        Reduction::Mean if x.is_float() => ReduceOp::Mean,
        Reduction::Mean => return None,
        Reduction::ArgMin => ReduceOp::ArgMin,
        Reduction::ArgMax => ReduceOp::ArgMax,
    })
}

impl Special for Reduce {
    fn run(
        &self,
        isa: Isa,
        operands: &[View<'_>],
        _: &[Scalar],
        results: &mut [ViewMut<'_>],
    ) -> Result<bool> {
        let ([x], [out]) = (operands, results) else { return Ok(false) };
        reduce_on(isa, self.op, x, &self.dims, out)?;
        Ok(true)
    }
}
