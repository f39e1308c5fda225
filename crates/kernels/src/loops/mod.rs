//! The generic executor of [loop nests](maquette_ir::loops).
//!
//! A launch computes the stages of a nest one after another. The axes that all stages have in
//! common, each with an iteration of its own, are the outer axes; they are divided into panels that
//! fit the first caches. The stages of a panel run while its values are there: so a softmax reads
//! each row from memory once. Panels run on the threads of the pool. A nest without outer axes has
//! one panel, and its stages divide themselves. A contraction begins a phase of its own: the maps
//! that follow it run on finished parts of the product.
//!
//! Within a panel, the expression of a stage is evaluated in blocks, as a
//! [pointwise kernel](crate::pointwise()), with the folded axes innermost. Folds, scans and sorts
//! take rows of these values, or of memory where an expression is a load. Everything that depends
//! on layouts and sizes alone is found once and kept: strides, steps, and the places of results in
//! the scratch memory of a task. A launch with a known [plan](LaunchPlan) fills in addresses.
//!
//! **Bits** are those of the reference evaluator with the elementary functions of this crate
//! ([`KernelFunctions`]), for every instruction set, number of threads and layout of operands.
//! **Errors** are the first failure in the order of stages, then of a stage's points.

mod access;
mod contract;
mod fold;
mod functions;
mod hoist;
mod in_place;
mod kept_plans;
mod launch;
mod lines;
mod moves;
mod packed;
mod plan;
mod product;
mod rows;
mod scatter;
mod schedule;
mod special;
mod stage;
#[cfg(test)]
mod tests;
mod values;

pub use functions::KernelFunctions;
pub use plan::LaunchPlan;
pub use product::PackedOperand;
pub use special::{SpecialPlan, without_specialisations};

use crate::error::Result;
use crate::isa::Isa;
use crate::view::{View, ViewMut};
use kept_plans::Plans;
use maquette_ir::Scalar;
use maquette_ir::loops::{Index, LaunchScalar, LoopNest};
use maquette_ir::scalar_expr::ScalarExpr;
use maquette_ir::sym::{Expr, SymbolId};
use smallvec::SmallVec;
use special::Special;
use std::sync::Arc;

pub(crate) const KERNEL: &str = "loops";

/// A loop nest, prepared to be launched. It keeps the plans of its last launches, and clones share
/// them.
#[derive(Clone, Debug)]
pub struct LoopKernel {
    nest: Arc<LoopNest>,
    symbols: SmallVec<[SymbolId; 4]>,
    plans: Arc<Plans>,
    special: Option<(&'static str, Arc<dyn Special>)>,
    /// The expressions of stages that only move elements, on their bits.
    moved: Arc<[Option<ScalarExpr>]>,
}

impl LoopKernel {
    /// Prepares a nest.
    pub fn new(nest: impl Into<Arc<LoopNest>>) -> LoopKernel {
        let nest = nest.into();
        LoopKernel { special: special::find(&nest), ..LoopKernel::composed(nest) }
    }

    /// Prepares a nest that is composed of others. The generic executor runs such a nest.
    pub fn composed(nest: impl Into<Arc<LoopNest>>) -> LoopKernel {
        let nest = nest.into();
        let (symbols, moved) = (symbols(&nest), moves::exprs(&nest).into());
        LoopKernel { nest, symbols, plans: Arc::default(), special: None, moved }
    }

    /// The name of the hand-tuned executor that runs the nest; `None` if the generic one does.
    pub fn specialisation(&self) -> Option<&'static str> {
        self.special.as_ref().map(|(name, _)| *name)
    }

    /// The nest.
    pub fn nest(&self) -> &Arc<LoopNest> {
        &self.nest
    }

    /// Computes the results. `symbols` is the value of a symbol, `numbers` are the values of the
    /// nest's [numbers](maquette_ir::loops::LaunchScalar::Number), in order. No result overlaps an
    /// operand or another result.
    ///
    /// # Errors
    /// An operand or result has another dtype or other sizes; a position is out of bounds, an
    /// integer is divided by zero, or an assertion does not hold. Then the results are partly
    /// written.
    pub fn run(
        &self,
        symbols: &(dyn Fn(SymbolId) -> Option<i64> + Sync),
        operands: &[View<'_>],
        numbers: &[Scalar],
        results: &mut [ViewMut<'_>],
    ) -> Result<()> {
        self.run_on(Isa::detect(), symbols, operands, numbers, results)
    }

    /// As [`LoopKernel::run`], on the given instruction set. It changes no bit.
    pub fn run_on(
        &self,
        isa: Isa,
        symbols: &(dyn Fn(SymbolId) -> Option<i64> + Sync),
        operands: &[View<'_>],
        numbers: &[Scalar],
        results: &mut [ViewMut<'_>],
    ) -> Result<()> {
        if self.special_run(isa, operands, numbers, results)? {
            return Ok(());
        }
        let plan = self.plan(symbols, operands, results)?;
        // SAFETY: the plan is of their layouts.
        unsafe { plan.run_fitting(isa, operands, numbers, results) }
    }

    /// As [`LoopKernel::run`], if a hand-tuned executor matches the nest and the layouts; otherwise
    /// `false`, with nothing written. It needs no values of symbols.
    ///
    /// # Errors
    /// As for [`LoopKernel::run`].
    pub fn run_specialised(
        &self,
        operands: &[View<'_>],
        numbers: &[Scalar],
        results: &mut [ViewMut<'_>],
    ) -> Result<bool> {
        self.special_run(Isa::detect(), operands, numbers, results)
    }

    fn special_run(
        &self,
        isa: Isa,
        operands: &[View<'_>],
        numbers: &[Scalar],
        results: &mut [ViewMut<'_>],
    ) -> Result<bool> {
        match &self.special {
            Some((_, special)) if !special::is_off() => {
                special.run(isa, operands, numbers, results)
            }
            _ => Ok(false),
        }
    }

    /// The plan of the hand-tuned executor for launches with these numbers, and with the layouts of
    /// these operands and results. The memory is not accessed. `None` if there is no such executor,
    /// or it has no plan for these layouts.
    pub fn special_plan(
        &self,
        operands: &[View<'_>],
        numbers: &[Scalar],
        results: &[ViewMut<'_>],
    ) -> Option<SpecialPlan> {
        self.special_plan_on(Isa::detect(), operands, numbers, results)
    }

    /// As [`LoopKernel::special_plan`], on the given instruction set. It changes no bit.
    pub(crate) fn special_plan_on(
        &self,
        isa: Isa,
        operands: &[View<'_>],
        numbers: &[Scalar],
        results: &[ViewMut<'_>],
    ) -> Option<SpecialPlan> {
        let (_, special) = self.special.as_ref().filter(|_| !special::is_off())?;
        let run = special.plan(isa, operands, numbers, results)?;
        Some(SpecialPlan::new(operands.len() + results.len(), run))
    }

    /// The plan of launches with the layouts of these operands and results, and these values of
    /// symbols. The memory is not accessed.
    ///
    /// # Errors
    /// As for [`LoopKernel::run`], as far as they depend on layouts and sizes.
    pub fn plan(
        &self,
        symbols: &(dyn Fn(SymbolId) -> Option<i64> + Sync),
        operands: &[View<'_>],
        results: &[ViewMut<'_>],
    ) -> Result<Arc<LaunchPlan>> {
        self.plans.find(&self.symbols, symbols, operands, results, || {
            LaunchPlan::new(&self.nest, &self.moved, symbols, operands, results)
        })
    }

    /// As [`LoopKernel::plan`], for results that have exactly the memory of operands: `pairs` of an
    /// operand and a result. `None` if the kernel does not support that.
    ///
    /// # Errors
    /// As for [`LoopKernel::plan`].
    pub fn plan_over(
        &self,
        symbols: &(dyn Fn(SymbolId) -> Option<i64> + Sync),
        operands: &[View<'_>],
        results: &[ViewMut<'_>],
        pairs: &[(usize, usize)],
    ) -> Result<Option<Arc<LaunchPlan>>> {
        if self.special.is_some() {
            return Ok(None);
        }
        let plan = LaunchPlan::new(&self.nest, &self.moved, symbols, operands, results)?;
        Ok(plan.overwriting(pairs).map(Arc::new))
    }
}

/// The symbols on which the sizes and positions of a nest depend.
fn symbols(nest: &LoopNest) -> SmallVec<[SymbolId; 4]> {
    let mut symbols: SmallVec<[SymbolId; 4]> = SmallVec::new();
    let mut add = |e: Expr| symbols.extend(nest.symbols().free_symbols(e));
    nest.axes().iter().for_each(|e| add(*e));
    nest.operands().iter().flat_map(|o| &o.sizes).for_each(|e| add(*e));
    for scalar in nest.scalars() {
        if let LaunchScalar::Size(e) = scalar {
            add(*e);
        }
    }
    for index in nest.stages().iter().flat_map(|s| &s.loads).flat_map(|l| l.at.indices()) {
        if let Index::Affine(affine) = index {
            add(affine.start);
            affine.terms.iter().for_each(|(_, stride)| add(*stride));
        }
    }
    symbols.sort_unstable();
    symbols.dedup();
    symbols
}
