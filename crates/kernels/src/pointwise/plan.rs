//! Pointwise kernels for operands of given layouts: all of [`pointwise()`](super::pointwise()) that
//! does not depend on addresses, done once.

use super::evaluation::{Evaluation, Operands};
use crate::error::{KernelError, Result};
use crate::isa::Isa;
use crate::view::{Ptr, View, ViewMut};
use maquette_ir::scalar_expr::ScalarExpr;
use smallvec::SmallVec;

/// An expression, prepared for operands of given layouts. It has no address, so that one plan
/// serves every launch with these layouts, on any thread.
pub struct PointwisePlan {
    /// `None` if there are no elements.
    evaluation: Option<Evaluation>,
    operands: usize,
}

impl PointwisePlan {
    /// A plan for operands of the layouts of these, whose memory is not accessed. `in_place` has
    /// pairs of an input and of the output that has its memory; no other input overlaps an output.
    ///
    /// # Errors
    /// Counts, dtypes or sizes do not match, or the input of a pair has another layout than the
    /// output.
    pub fn new(
        expr: &ScalarExpr,
        inputs: &[View<'_>],
        outputs: &[ViewMut<'_>],
        in_place: &[(usize, usize)],
    ) -> Result<PointwisePlan> {
        let operands = inputs.len() + outputs.len();
        let Some(sizes) = super::check(expr, inputs, outputs)? else {
            return Ok(PointwisePlan { evaluation: None, operands });
        };
        let same = |&(k, j): &(usize, usize)| match (inputs.get(k), outputs.get(j)) {
            (Some(v), Some(out)) => {
                v.dtype() == out.dtype() && v.strides() == out.as_view().strides()
            }
            _ => false,
        };
        if !in_place.iter().all(same) {
            let message = "only an operand of the layout of the result is written in place";
            return Err(KernelError::argument("pointwise", message));
        }
        let only = match (in_place, outputs) {
            (&[(k, 0)], [_]) => Some(k),
            _ => None,
        };
        let views = inputs.iter().chain(outputs.iter().map(|o| o.as_view()));
        let strides: SmallVec<[&[i64]; 8]> = views.map(|v| v.strides()).collect();
        let layout = Operands {
            sizes: &sizes,
            strides: &strides,
            overlap: !in_place.is_empty(),
            in_place: only,
            coords: None,
            computed: &[],
        };
        Ok(PointwisePlan { evaluation: Evaluation::new(expr, &layout)?, operands })
    }

    /// Evaluates the expression for every element. `addresses` are those of element 0 of each
    /// input, then of each output.
    ///
    /// # Errors
    /// An integer is divided by zero: then the outputs are partly written. Another number of
    /// addresses.
    ///
    /// # Safety
    /// With the layouts of the plan, the addresses satisfy the contracts of [`View::from_raw`] and
    /// [`ViewMut::from_raw`] during the call. An output overlaps no input but that of a pair of the
    /// plan, which has exactly the output's memory.
    pub unsafe fn run_at(&self, addresses: &[*mut u8]) -> Result<()> {
        if addresses.len() != self.operands {
            let (expected, found) = (self.operands, addresses.len());
            return Err(KernelError::Count {
                kernel: "pointwise",
                what: "addresses",
                expected,
                found,
            });
        }
        let Some(evaluation) = &self.evaluation else { return Ok(()) };
        let bases: SmallVec<[Ptr<u8>; 8]> = addresses.iter().map(|a| Ptr(*a)).collect();
        match evaluation.run(Isa::detect(), &bases, None)? {
            None => Ok(()),
            Some(_) => Err(KernelError::DivisionByZero),
        }
    }
}
