//! Products of matrices and vectors by [`product`](crate::product()).

use super::{Special, SpecialRun};
use crate::error::Result;
use crate::gemm::{Epilogue, Float, SmallMatrices, SmallProduct, product_on};
use crate::isa::Isa;
use crate::layout::for_each;
use crate::thread_pool;
use crate::view::{Dims, View, ViewMut, numel};
use maquette_ir::loops::recognise::Product;
use maquette_ir::{DType, Scalar};

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

    fn plan(
        &self,
        isa: Isa,
        operands: &[View<'_>],
        numbers: &[Scalar],
        results: &[ViewMut<'_>],
    ) -> Option<Box<dyn SpecialRun>> {
        match results.first()?.dtype() {
            DType::F32 => small::<f32>(self, isa, operands, numbers, results),
            DType::F64 => small::<f64>(self, isa, operands, numbers, results),
            _ => None,
        }
    }
}

/// The plan of a small product of class `F`, or of a batch of them.
fn small<F: Float>(
    of: &Product,
    isa: Isa,
    operands: &[View<'_>],
    numbers: &[Scalar],
    results: &[ViewMut<'_>],
) -> Option<Box<dyn SpecialRun>> {
    let ([a, b, added @ ..], [out]) = (operands, results) else { return None };
    let number = |is_given: bool, at: usize| match is_given {
        true => numbers.get(at).map(|x| x.to_f64()),
        false => Some(1.0),
    };
    let factors = [number(of.has_alpha, 0)?, number(of.has_addend, 1)?];
    let addend = match of.has_addend {
        true => Some(added.first()?.expand(out.sizes()).ok()?),
        false => None,
    };
    // The addend is not read where its factor is 0.
    if factors[1] == 0.0 {
        return None;
    }
    let batch = a.rank() - if of.is_row { 1 } else { 2 };
    // The strides of the rows and columns of each matrix; those that it lacks have one element.
    let of_a = match a.strides().get(batch..)? {
        [inner] => [0, *inner],
        own => [*own.first()?, *own.get(1)?],
    };
    let of_b = match b.strides().get(batch..)? {
        [inner] => [*inner, 0],
        own => [*own.first()?, *own.get(1)?],
    };
    let of_out = |v: &View<'_>| -> Option<[i64; 2]> {
        let own = v.strides().get(batch..)?;
        let row = if of.is_row { 0 } else { *own.first()? };
        let column = if of.is_column { 0 } else { *own.last()? };
        Some([row, column])
    };
    let of_addend = addend.as_ref().map_or(Some([0; 2]), of_out)?;
    let strides = [of_a, of_b, of_out(out)?, of_addend].map(|own| own.map(|s| s as isize));
    let size = |v: &View<'_>, at: usize| v.sizes().get(at).map(|n| *n as usize);
    let m = if of.is_row { 1 } else { size(a, batch)? };
    let n = if of.is_column { 1 } else { size(b, batch + 1)? };
    let sizes = [m, n, size(b, batch)?];
    let rows = (!of.is_row).then_some(m as i64);
    let columns = (!of.is_column).then_some(n as i64);
    let of_out = rows.into_iter().chain(columns);
    let fits = a.sizes().last() == b.sizes().get(batch)
        && out.sizes().get(batch..).is_some_and(|own| own.iter().copied().eq(of_out));
    if !fits {
        return None;
    }
    let batches = Dims::from_slice(out.sizes().get(..batch)?);
    if sizes.contains(&0) || numel(&batches).saturating_mul(m * n * sizes[2]) > SMALL_BATCH {
        return None;
    }
    let of_batch = |v: &View<'_>| Dims::from_slice(&v.strides()[..batch]);
    let none = || Dims::from_elem(0, batch);
    let offsets =
        [of_batch(a), of_batch(b), of_batch(out), addend.as_ref().map_or_else(none, of_batch)];
    let product = SmallProduct::of(isa, sizes, strides, factors.map(F::from_f64))?;
    let has_addend = addend.is_some();
    Some(Box::new(Small { product, has_addend, batches, offsets }))
}

/// The most multiply-adds of a batch of small products, which stay on the caller's thread.
const SMALL_BATCH: usize = 4096;

/// Small products of one layout.
struct Small<F: 'static> {
    product: SmallProduct<F>,
    has_addend: bool,
    batches: Dims,
    /// The strides of A, B, C and the addend over the batches.
    offsets: [Dims; 4],
}

impl<F: Float> SpecialRun for Small<F> {
    unsafe fn run(&self, addresses: &[*mut u8]) -> Result<()> {
        let (a, b) = (addresses[0].cast::<F>(), addresses[1].cast::<F>());
        let (addend, c) = match self.has_addend {
            true => (addresses[2].cast(), addresses[3].cast::<F>()),
            false => (std::ptr::null_mut(), addresses[2].cast::<F>()),
        };
        if self.batches.is_empty() {
            // SAFETY: the caller's promise, for the layouts of the plan.
            unsafe { self.product.run(SmallMatrices { a, b, c, addend }) }
            return Ok(());
        }
        let [of_a, of_b, of_c, of_addend] = &self.offsets;
        for_each(&self.batches, [of_a, of_b, of_c, of_addend], |at| {
            let [a, b, c, addend] = [(a, 0), (b, 1), (c, 2), (addend, 3)]
                .map(|(p, i)| p.wrapping_offset(at[i] as isize));
            // SAFETY: as above.
            unsafe { self.product.run(SmallMatrices { a, b, c, addend }) }
        });
        Ok(())
    }
}
