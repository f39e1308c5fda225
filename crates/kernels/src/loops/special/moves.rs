//! Fills, copies, padding and selections by [`fill`], [`copy`] and the block kernels of
//! [`index`](crate::index).

use super::{Special, SpecialRun};
use crate::copy::{CopyPlan, DenseFill, copy, fill};
use crate::error::Result;
use crate::index::{self, Gather, RowMajorSelect};
use crate::isa::Isa;
use crate::view::{Dims, Ptr, View, ViewMut, numel};
use maquette_ir::Scalar;
use maquette_ir::loops::recognise::{Fill, Pad, Select};

/// The number that fills.
fn value(fill: Fill, numbers: &[Scalar]) -> Option<Scalar> {
    match fill {
        Fill::Constant(value) => Some(value),
        Fill::Number(at) => numbers.get(at).copied(),
    }
}

impl Special for Fill {
    fn run(
        &self,
        _: Isa,
        _: &[View<'_>],
        numbers: &[Scalar],
        results: &mut [ViewMut<'_>],
    ) -> Result<bool> {
        let (Some(value), [out]) = (value(*self, numbers), results) else {
            return Ok(false);
        };
        fill(out, value)?;
        Ok(true)
    }

    fn plan(
        &self,
        _: Isa,
        _: &[View<'_>],
        numbers: &[Scalar],
        results: &[ViewMut<'_>],
    ) -> Option<Box<dyn SpecialRun>> {
        let (value, [out]) = (value(*self, numbers)?, results) else { return None };
        Some(Box::new(Filled(DenseFill::of(out)?, value)))
    }
}

struct Filled(DenseFill, Scalar);

impl SpecialRun for Filled {
    unsafe fn run(&self, addresses: &[*mut u8]) -> Result<()> {
        // SAFETY: the caller's promise, for the layout of the plan.
        unsafe { self.0.run_at(addresses[0], self.1) }
    }
}

/// Copies each element.
#[derive(Debug)]
pub(super) struct Copy;

impl Special for Copy {
    fn run(
        &self,
        _: Isa,
        operands: &[View<'_>],
        _: &[Scalar],
        results: &mut [ViewMut<'_>],
    ) -> Result<bool> {
        let ([x], [out]) = (operands, results) else { return Ok(false) };
        copy(x, out)?;
        Ok(true)
    }

    fn plan(
        &self,
        _: Isa,
        operands: &[View<'_>],
        _: &[Scalar],
        results: &[ViewMut<'_>],
    ) -> Option<Box<dyn SpecialRun>> {
        let ([x], [out]) = (operands, results) else { return None };
        Some(Box::new(CopyPlan::new(x, out).ok()?))
    }
}

impl SpecialRun for CopyPlan {
    unsafe fn run(&self, addresses: &[*mut u8]) -> Result<()> {
        // SAFETY: the caller's promise, for the layouts of the plan.
        unsafe { self.run_at(addresses[0], addresses[1]) }
    }
}

impl Special for Select {
    fn run(
        &self,
        _: Isa,
        operands: &[View<'_>],
        _: &[Scalar],
        results: &mut [ViewMut<'_>],
    ) -> Result<bool> {
        let ([x, index], [out]) = (operands, results) else { return Ok(false) };
        // Without an element, no index is read.
        if out.numel() > 0 {
            let kernel = if self.of_slices { index::select } else { index::gather };
            kernel(x, self.dim, index, out)?;
        }
        Ok(true)
    }

    fn plan(
        &self,
        _: Isa,
        operands: &[View<'_>],
        _: &[Scalar],
        results: &[ViewMut<'_>],
    ) -> Option<Box<dyn SpecialRun>> {
        let ([x, index], [out]) = (operands, results) else { return None };
        Some(match (out.numel(), self.of_slices) {
            (0, _) => return None,
            (_, true) => Box::new(RowMajorSelect::of(x, self.dim, index, out)?),
            (_, false) => Box::new(Gather::new(x, self.dim, index, out).ok()?),
        })
    }
}

impl SpecialRun for RowMajorSelect {
    unsafe fn run(&self, addresses: &[*mut u8]) -> Result<()> {
        // SAFETY: the caller's promise, for the layouts of the plan.
        unsafe { RowMajorSelect::run(self, [0, 1, 2].map(|i| Ptr(addresses[i]))) }
    }
}

impl SpecialRun for Gather {
    unsafe fn run(&self, addresses: &[*mut u8]) -> Result<()> {
        // SAFETY: as above.
        unsafe { Gather::run(self, [0, 1, 2].map(|i| Ptr(addresses[i]))) }
    }
}

impl Special for Pad {
    fn run(
        &self,
        _: Isa,
        operands: &[View<'_>],
        numbers: &[Scalar],
        results: &mut [ViewMut<'_>],
    ) -> Result<bool> {
        let ([x], [out]) = (operands, results) else { return Ok(false) };
        let Some(value) = value(self.value, numbers) else { return Ok(false) };
        // The part of the output that has elements of the operand: where it begins in both.
        let (mut from, mut to, mut sizes) = (0i64, 0i64, Dims::new());
        for (d, (n, m)) in x.sizes().iter().zip(out.sizes()).enumerate() {
            let number = self.before.iter().find(|(dim, _)| *dim == d).map(|(_, at)| *at);
            let before = number.and_then(|at| numbers.get(at)).map_or(0, |n| n.to_i64());
            let (skip, start) = (before.saturating_neg().max(0).min(*n), before.clamp(0, *m));
            from += skip * x.strides()[d];
            to += start * out.strides()[d];
            sizes.push((*n - skip).min(*m - start));
        }
        let strides = Dims::from_slice(out.strides());
        if numel(&sizes) != out.numel() {
            fill(out, value)?;
        }
        if numel(&sizes) == 0 {
            return Ok(true);
        }
        // SAFETY: in each dimension, both parts are inside their views: `skip + size <= n` and
        // `start + size <= m`.
        unsafe {
            let from = x.as_ptr().offset(from as isize * x.dtype().size() as isize);
            let to = out.as_ptr().cast_mut().offset(to as isize * out.dtype().size() as isize);
            let from = View::from_raw(from, x.dtype(), &sizes, x.strides());
            copy(&from, &mut ViewMut::from_raw(to, out.dtype(), &sizes, &strides))?;
        }
        Ok(true)
    }
}
