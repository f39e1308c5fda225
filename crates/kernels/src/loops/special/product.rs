//! Products of matrices and vectors by [`product`](crate::product()).

use super::Special;
use super::template::{found, is_nest};
use crate::error::Result;
use crate::gemm::{Epilogue, product_on};
use crate::isa::Isa;
use crate::thread_pool;
use crate::view::{View, ViewMut};
use maquette_ir::Scalar;
use maquette_ir::loops::named::{self, Addend};
use maquette_ir::loops::{LoopNest, StageKind};
use std::sync::Arc;

#[derive(Debug)]
struct Product {
    /// Whether the left factor is a vector.
    is_row: bool,
    /// Whether the right factor is a vector.
    is_column: bool,
    has_alpha: bool,
    has_addend: bool,
}

pub(super) fn matches(nest: &LoopNest) -> Option<Arc<dyn Special>> {
    let (operands, [result], [first, ..]) = (nest.operands(), nest.results(), nest.stages()) else {
        return None;
    };
    let StageKind::Contract { along } = &first.kind else { return None };
    let (out, [a, b, added @ ..]) = (nest.dtype(*result)?, operands) else { return None };
    let contracted = along.first()?;
    let at_b = &first.loads.get(1)?.at;
    let batch = at_b.indices().iter().position(|i| *i == (*contracted).into())?;
    let is_same_dtype = operands.iter().all(|operand| operand.dtype == out);
    let [own_a, own_b] = [a, b].map(|operand| operand.sizes.len().checked_sub(batch));
    if !is_same_dtype || !(1..=2).contains(&own_a?) {
        return None;
    }
    let (has_alpha, has_addend) = (!nest.scalars().is_empty(), !added.is_empty());
    let matches = is_nest(nest, |nest, inputs| {
        let accumulator = out.accumulator();
        let alpha = has_alpha.then(|| nest.number(accumulator));
        let addend = inputs.get(2).map(|of| Addend { beta: nest.number(accumulator), of });
        let (a, b) = (&inputs[0], &inputs[1]);
        Ok([named::product(nest, &named::Product { a, b, batch, alpha, addend, out })?])
    });
    let (is_row, is_column) = (own_a == Some(1), own_b == Some(1));
    found(matches, Product { is_row, is_column, has_alpha, has_addend })
}

impl Special for Product {
    fn run(
        &self,
        isa: Isa,
        operands: &[View<'_>],
        numbers: &[Scalar],
        results: &mut [ViewMut<'_>],
    ) -> Result<bool> {
        let ([a, b, added @ ..], [out]) = (operands, results) else { return Ok(false) };
        let mut epilogue = Epilogue::default();
        if self.has_alpha {
            // The sum of no products is not multiplied: its nest has no factor.
            let (Some(alpha), false) = (numbers.first(), a.sizes().last() == Some(&0)) else {
                return Ok(false);
            };
            epilogue.alpha = *alpha;
        }
        if self.has_addend {
            let (Some(beta), Some(addend)) = (numbers.get(1), added.first()) else {
                return Ok(false);
            };
            // The kernel does not read an addend whose factor is 0.
            if !beta.to_bool() {
                return Ok(false);
            }
            epilogue.beta = *beta;
            epilogue.addend = Some(addend.clone());
        }
        let threads = thread_pool::num_threads();
        if !self.is_row && !self.is_column {
            product_on(isa, threads, a, b, &epilogue, out)?;
            return Ok(true);
        }
        // A vector is a matrix of one row or column.
        let batch = a.rank() - if self.is_row { 1 } else { 2 };
        let a = if self.is_row { a.unsqueeze(batch) } else { a.clone() };
        let b = if self.is_column { b.unsqueeze(batch + 1) } else { b.clone() };
        if let Some(addend) = epilogue.addend.take() {
            let mut addend = addend.expand(out.sizes())?;
            if self.is_row {
                addend = addend.unsqueeze(batch);
            }
            epilogue.addend =
                Some(if self.is_column { addend.unsqueeze(batch + 1) } else { addend });
        }
        let mut rows = if self.is_row { out.unsqueeze(batch) } else { out.reborrow() };
        let mut matrix = if self.is_column { rows.unsqueeze(batch + 1) } else { rows.reborrow() };
        product_on(isa, threads, &a, &b, &epilogue, &mut matrix)?;
        Ok(true)
    }
}
