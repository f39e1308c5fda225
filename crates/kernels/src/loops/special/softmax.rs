//! Softmax and its logarithm by [`softmax`](crate::softmax()) and
//! [`log_softmax`](crate::log_softmax()).

use super::{Special, SpecialRun, is_of_one_dtype};
use crate::error::Result;
use crate::isa::Isa;
use crate::math::Float;
use crate::row_loops::DenseRows;
use crate::softmax::{dense, dense_rows};
use crate::view::{Ptr, View, ViewMut};
use crate::{log_softmax, softmax};
use maquette_ir::loops::LoopNest;
use maquette_ir::loops::recognise::Softmax;
use maquette_ir::{DType, Scalar};
use std::marker::PhantomData;

/// Whether the kernel has the bits of a softmax: it reads and writes one dtype.
pub(super) fn computes(nest: &LoopNest) -> bool {
    is_of_one_dtype(nest)
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

    fn plan(
        &self,
        isa: Isa,
        operands: &[View<'_>],
        _: &[Scalar],
        results: &[ViewMut<'_>],
    ) -> Option<Box<dyn SpecialRun>> {
        let ([x], [out]) = (operands, results) else { return None };
        let (rows, log) = (dense_rows(x, self.dim, out)?, self.log);
        Some(match x.dtype() {
            DType::F64 => Box::new(Rows::<f64> { isa, rows, log, class: PhantomData }),
            _ => Box::new(Rows::<f32> { isa, rows, log, class: PhantomData }),
        })
    }
}

/// Dense rows of class `A`.
struct Rows<A> {
    isa: Isa,
    rows: DenseRows,
    log: bool,
    class: PhantomData<A>,
}

impl<A: Float> SpecialRun for Rows<A> {
    unsafe fn run(&self, addresses: &[*mut u8]) -> Result<()> {
        let addresses = [Ptr(addresses[0].cast::<A>()), Ptr(addresses[1].cast())];
        // SAFETY: the caller's promise, for the rows of the plan.
        unsafe { dense(self.isa, self.rows, addresses, self.log) }
    }
}
