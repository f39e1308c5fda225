//! Products of matrices and vectors by [`product`](crate::product()).

use super::{Special, same};
use crate::error::Result;
use crate::gemm::{Epilogue, product_on};
use crate::isa::Isa;
use crate::thread_pool;
use crate::view::{View, ViewMut};
use maquette_ir::Scalar;
use maquette_ir::loops::named::{self, Addend};
use maquette_ir::loops::{LoopBuilder, LoopNest, StageKind};
use maquette_ir::sym::SymTable;
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
    let mut template = LoopBuilder::new(SymTable::new());
    let [a, b] = [a, b].map(|o| template.input(o.dtype, o.sizes.len()));
    let added = added.first().map(|o| template.input(o.dtype, o.sizes.len()));
    let is_same_dtype = [&a, &b].iter().chain(&added.as_ref()).all(|x| x.dtype == out);
    if !is_same_dtype || !(1..=2).contains(&a.axes.len().checked_sub(batch)?) {
        return None;
    }
    let accumulator = out.accumulator();
    let alpha = (!nest.scalars().is_empty()).then(|| template.number(accumulator));
    let addend = (added.as_ref()).map(|of| Addend { beta: template.number(accumulator), of });
    let (has_alpha, has_addend) = (alpha.is_some(), addend.is_some());
    let of = named::Product { a: &a, b: &b, batch, alpha, addend, out };
    let result = named::product(&mut template, &of).ok()?;
    let (is_row, is_column) = (a.axes.len() == batch + 1, b.axes.len() == batch + 1);
    let template = template.finish(&[result]).ok()?;
    same(nest, &template)
        .then(|| Arc::new(Product { is_row, is_column, has_alpha, has_addend }) as Arc<dyn Special>)
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
