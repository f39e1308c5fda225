//! Variances and vector norms by [`reduce`](crate::reduce()).

use super::{Special, is_of_one_dtype};
use crate::error::Result;
use crate::isa::Isa;
use crate::reduce::{ReduceOp, mean_by_f64, reduce_on};
use crate::view::{View, ViewMut};
use maquette_ir::Scalar;
use maquette_ir::loops::LoopNest;
use maquette_ir::loops::recognise::{Norm, Variance};

impl Special for Variance {
    fn run(
        &self,
        isa: Isa,
        operands: &[View<'_>],
        numbers: &[Scalar],
        results: &mut [ViewMut<'_>],
    ) -> Result<bool> {
        let ([x], [out, means @ ..]) = (operands, results) else { return Ok(false) };
        let given = self.correction.map(Scalar::Int).or(numbers.first().copied());
        let Some(correction) = given.map(Scalar::to_f64) else { return Ok(false) };
        let op = match self.root {
            true => ReduceOp::Std { correction },
            false => ReduceOp::Var { correction },
        };
        reduce_on(isa, op, x, &self.dims, out)?;
        means.iter_mut().try_for_each(|mean| mean_by_f64(isa, x, &self.dims, mean))?;
        Ok(true)
    }
}

/// Whether the kernel has the bits of a norm: it does not round the elements to a narrow output's
/// dtype.
pub(super) fn computes_norm(nest: &LoopNest) -> bool {
    let out = nest.results().first().and_then(|result| nest.dtype(*result));
    is_of_one_dtype(nest) || out.is_some_and(|out| out.accumulator() == out)
}

impl Special for Norm {
    fn run(
        &self,
        isa: Isa,
        operands: &[View<'_>],
        _: &[Scalar],
        results: &mut [ViewMut<'_>],
    ) -> Result<bool> {
        let ([x], [out]) = (operands, results) else { return Ok(false) };
        // The kernel takes the magnitude of one element, whose power could overflow.
        let is_power = self.p.is_finite() && self.p != 0.0 && self.p != 1.0;
        let sizes = || self.dims.iter().filter_map(|d| x.sizes().get(*d));
        if is_power && sizes().all(|size| *size == 1) {
            return Ok(false);
        }
        reduce_on(isa, ReduceOp::Norm(self.p), x, &self.dims, out)?;
        Ok(true)
    }
}
