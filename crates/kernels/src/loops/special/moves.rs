//! Fills, copies, padding and selections by [`fill`], [`copy`] and the block kernels of
//! [`index`](crate::index).

use super::template::{found, is_nest};
use super::{Special, SpecialRun};
use crate::copy::{CopyPlan, DenseFill, copy, fill};
use crate::error::Result;
use crate::index::{self, Gather, RowMajorSelect};
use crate::isa::Isa;
use crate::view::{Dims, Ptr, View, ViewMut, numel};
use maquette_ir::loops::named::{self, Number};
use maquette_ir::loops::{
    Axes, Index, LaunchScalar, LoopBuilder, LoopNest, Operand, ScalarId, Stage,
};
use maquette_ir::scalar_expr::Op;
use maquette_ir::{DType, Scalar};
use smallvec::SmallVec;
use std::sync::Arc;

/// The operands and the stage of a nest that has one stage and one result.
fn one_stage(nest: &LoopNest) -> Option<(&[Operand], &Stage)> {
    match (nest.stages(), nest.results()) {
        ([stage], [_]) => Some((nest.operands(), stage)),
        _ => None,
    }
}

/// Adds an axis for each of the stage, and the launch scalars of the nest.
fn axes_and_scalars(template: &mut LoopBuilder, nest: &LoopNest, stage: &Stage) -> Axes {
    for scalar in nest.scalars() {
        template.scalar(*scalar);
    }
    let sizes = stage.over.iter().map(|_| template.new_size()).collect::<Vec<_>>();
    sizes.into_iter().map(|size| template.axis(size)).collect()
}

/// The number that fills, or which of the launch's numbers.
#[derive(Debug)]
enum Fill {
    Constant(Scalar),
    Number(usize),
}

pub(super) fn matches_fill(nest: &LoopNest) -> Option<Arc<dyn Special>> {
    let ([], stage) = one_stage(nest)? else { return None };
    let [only] = stage.expr.instrs() else { return None };
    let (value, fill) = match only.op {
        Op::Const(value) => (Number::Constant(value), Fill::Constant(value)),
        Op::Launch(k) => {
            let is_number = |s: &&LaunchScalar| matches!(s, LaunchScalar::Number(_));
            let before = nest.scalars().iter().take(k as usize).filter(is_number).count();
            (Number::Launch(ScalarId(k)), Fill::Number(before))
        }
        _ => return None,
    };
    let matches = is_nest(nest, |template, _| {
        let over = axes_and_scalars(template, nest, stage);
        Ok([named::fill(template, &over, value, only.dtype)?.into()])
    });
    found(matches, fill)
}

impl Fill {
    fn value(&self, numbers: &[Scalar]) -> Option<Scalar> {
        match self {
            Fill::Constant(value) => Some(*value),
            Fill::Number(at) => numbers.get(*at).copied(),
        }
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
        let (Some(value), [out]) = (self.value(numbers), results) else {
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
        let (value, [out]) = (self.value(numbers)?, results) else { return None };
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

#[derive(Debug)]
struct Copy;

pub(super) fn matches_copy(nest: &LoopNest) -> Option<Arc<dyn Special>> {
    let ([_], _) = one_stage(nest)? else { return None };
    let out = nest.dtype(*nest.results().first()?)?;
    let matches = is_nest(nest, |nest, inputs| Ok([named::copy(nest, &inputs[0], out)?.into()]));
    found(matches, Copy)
}

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

/// The elements, or the slices, of an operand at an index along a dimension.
#[derive(Debug)]
struct Select {
    dim: usize,
    of_slices: bool,
}

pub(super) fn matches_select(nest: &LoopNest) -> Option<Arc<dyn Special>> {
    let ([_, index], stage) = one_stage(nest)? else { return None };
    if !matches!(index.dtype, DType::I64 | DType::I32) {
        return None;
    }
    let load = stage.loads.iter().find(|load| !load.at.is_affine())?;
    let dim = load.at.indices().iter().position(|i| *i == Index::Computed)?;
    let is_select = is_nest(nest, |nest, inputs| {
        Ok([named::select(nest, &inputs[0], dim, &inputs[1])?.into()])
    });
    let is_gather = || {
        is_nest(nest, |nest, inputs| Ok([named::gather(nest, &inputs[0], dim, &inputs[1])?.into()]))
    };
    found(is_select, Select { dim, of_slices: true })
        .or_else(|| found(is_gather(), Select { dim, of_slices: false }))
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

#[derive(Debug)]
struct Pad {
    /// The padded dimensions, each with its place among the numbers of a launch.
    before: SmallVec<[(usize, usize); 4]>,
    value: Option<Scalar>,
    value_at: usize,
}

pub(super) fn matches_pad(nest: &LoopNest) -> Option<Arc<dyn Special>> {
    let ([x], stage) = one_stage(nest)? else { return None };
    let [load] = &stage.loads[..] else { return None };
    let is_number = |s: &LaunchScalar| matches!(s, LaunchScalar::Number(_));
    if load.at.is_affine() || !nest.scalars().iter().all(is_number) {
        return None;
    }
    // The numbers are those of the padded dimensions, in order, and the value is the last.
    let dims: SmallVec<[usize; 4]> = load.at.computed_dims().collect();
    let before: Vec<(usize, ScalarId)> =
        dims.iter().enumerate().map(|(i, d)| (*d, ScalarId(i as u32))).collect();
    let value = match nest.scalars().len() - dims.len().min(nest.scalars().len()) {
        1 => Number::Launch(ScalarId(dims.len() as u32)),
        0 => Number::Constant(stage.expr.instrs().iter().find_map(|i| match i.op {
            Op::Const(value) if i.dtype == x.dtype => Some(value),
            _ => None,
        })?),
        _ => return None,
    };
    let matches = is_nest(nest, |template, inputs| {
        let over = axes_and_scalars(template, nest, stage);
        Ok([named::pad(template, &inputs[0], &over, &before, value)?.into()])
    });
    let constant = match value {
        Number::Constant(value) => Some(value),
        Number::Launch(_) => None,
    };
    let pad = Pad {
        before: before.iter().map(|(d, s)| (*d, s.index())).collect(),
        value: constant,
        value_at: dims.len(),
    };
    found(matches, pad)
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
        let Some(value) = self.value.or(numbers.get(self.value_at).copied()) else {
            return Ok(false);
        };
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
