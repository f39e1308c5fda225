//! Reductions of one operand by [`reduce`](crate::reduce()).

use super::{Special, SpecialRun};
use crate::error::Result;
use crate::isa::Isa;
use crate::reduce::{DenseReduction, ReduceOp, reduce_on};
use crate::view::{Ptr, View, ViewMut};
use maquette_ir::loops::named::Reduction;
use maquette_ir::loops::{LoopNest, recognise};
use maquette_ir::{DType, Scalar};
use smallvec::SmallVec;

#[derive(Debug)]
pub(super) struct Reduce {
    op: ReduceOp,
    dims: SmallVec<[usize; 4]>,
}

impl Reduce {
    /// The executor of a reduction; `None` if the kernel rounds otherwise.
    pub fn of(nest: &LoopNest, of: &recognise::Reduce) -> Option<Reduce> {
        let ([x], [result]) = (nest.operands(), nest.results()) else { return None };
        let op = kernel_of(of.reduction, x.dtype, nest.dtype(*result)?)?;
        Some(Reduce { op, dims: of.dims.clone() })
    }
}

/// The kernel's operation; `None` if the kernel rounds otherwise.
fn kernel_of(op: Reduction, x: DType, out: DType) -> Option<ReduceOp> {
    Some(match op {
        Reduction::Mean if out == DType::Bool => return None,
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

    fn plan(
        &self,
        isa: Isa,
        operands: &[View<'_>],
        _: &[Scalar],
        results: &[ViewMut<'_>],
    ) -> Option<Box<dyn SpecialRun>> {
        let ([x], [out]) = (operands, results) else { return None };
        let of = DenseReduction::of(self.op, x, &self.dims, out)?;
        Some(Box::new(DenseRows { isa, of }))
    }
}

struct DenseRows {
    isa: Isa,
    of: DenseReduction,
}

impl SpecialRun for DenseRows {
    unsafe fn run(&self, addresses: &[*mut u8]) -> Result<()> {
        // SAFETY: the caller's promise, for the layouts of the plan.
        unsafe { self.of.run(self.isa, [Ptr(addresses[0]), Ptr(addresses[1])]) }
    }
}
