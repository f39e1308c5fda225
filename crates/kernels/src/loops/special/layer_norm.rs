//! Layer norm by [`layer_norm`](crate::layer_norm()).

use super::{Special, SpecialRun};
use crate::error::Result;
use crate::isa::Isa;
use crate::layer_norm::RowNorm;
use crate::math::Float;
use crate::row_loops::DenseRows;
use crate::view::{Ptr, View, ViewMut};
use crate::{LayerNorm, layer_norm};
use maquette_ir::loops::recognise;
use maquette_ir::{DType, Scalar};

impl Special for recognise::LayerNorm {
    fn run(
        &self,
        _: Isa,
        operands: &[View<'_>],
        numbers: &[Scalar],
        results: &mut [ViewMut<'_>],
    ) -> Result<bool> {
        let ([x, parameters @ ..], [eps], [out, mean, rstd]) = (operands, numbers, results) else {
            return Ok(false);
        };
        // The kernel writes no statistics of rows of no elements.
        if x.numel() == 0 {
            return Ok(false);
        }
        let mut parameters = parameters.iter();
        let weight = self.has_weight.then(|| parameters.next()).flatten();
        let bias = self.has_bias.then(|| parameters.next()).flatten();
        let parts = LayerNorm { weight, bias, mean: Some(mean), rstd: Some(rstd) };
        layer_norm(x, self.normalized, eps.to_f64(), parts, out)?;
        Ok(true)
    }

    fn plan(
        &self,
        isa: Isa,
        operands: &[View<'_>],
        numbers: &[Scalar],
        results: &[ViewMut<'_>],
    ) -> Option<Box<dyn SpecialRun>> {
        let ([x, parameters @ ..], [eps], [out, statistics @ ..]) = (operands, numbers, results)
        else {
            return None;
        };
        let rows = DenseRows::of(x, x.rank().checked_sub(self.normalized)?, out)?;
        // Rows without both parameters or neither are rare.
        let has_parameters = match (self.has_weight, self.has_bias) {
            (true, true) => true,
            (false, false) => false,
            _ => return None,
        };
        let is_dense = |v: &View<'_>| v.dtype() == x.dtype() && v.is_contiguous();
        let are_dense = parameters.iter().all(|v| is_dense(v) && v.numel() == rows.len())
            && statistics.iter().all(|v| is_dense(v) && v.numel() == rows.count());
        let eps = eps.to_f64();
        are_dense.then(|| -> Box<dyn SpecialRun> {
            match x.dtype() {
                DType::F64 => Box::new(Rows { isa, rows, eps, has_parameters }),
                _ => Box::new(Rows { isa, rows, eps: eps as f32, has_parameters }),
            }
        })
    }
}

/// Dense rows of class `A`.
struct Rows<A> {
    isa: Isa,
    rows: DenseRows,
    eps: A,
    has_parameters: bool,
}

impl<A: Float> SpecialRun for Rows<A> {
    unsafe fn run(&self, addresses: &[*mut u8]) -> Result<()> {
        let Rows { isa, rows, eps, has_parameters } = *self;
        let at = |i: usize| Ptr(addresses[i].cast::<A>());
        let first = if has_parameters { 3 } else { 1 };
        // SAFETY: the caller's promise: the parameters have the elements of a row.
        let parameters = has_parameters
            .then(|| unsafe { (at(1).slice(0, rows.len()), at(2).slice(0, rows.len())) });
        let norm = RowNorm { isa, eps, parameters, statistics: [at(first + 1), at(first + 2)] };
        // SAFETY: the caller's promise, for the rows of the plan.
        unsafe { norm.dense(rows, [at(0), at(first)]) }
    }
}
