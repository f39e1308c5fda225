//! Softmax and its logarithm by [`softmax`](crate::softmax()) and
//! [`log_softmax`](crate::log_softmax()).

use super::template::{found, is_nest};
use super::{Special, SpecialRun};
use crate::error::Result;
use crate::isa::Isa;
use crate::math::Float;
use crate::row_loops::DenseRows;
use crate::softmax::{dense, dense_rows};
use crate::view::{Ptr, View, ViewMut};
use crate::{log_softmax, softmax};
use maquette_ir::loops::{LoopNest, StageKind, named};
use maquette_ir::{DType, Scalar};
use std::marker::PhantomData;
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
        let build = if log { named::log_softmax } else { named::softmax };
        let matches = is_nest(nest, |nest, inputs| {
            Ok([build(nest, &inputs[0], inputs[0].axes[dim], out)?.into()])
        });
        found(matches, Softmax { dim, log })
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
