//! The generic executor of [loop nests](maquette_ir::loops).
//!
//! A launch computes the stages of a nest one after another. The axes that all stages have in
//! common, each with an iteration of its own, are the outer axes; they are divided into panels that
//! fit the first caches. The stages of a panel run while its values are there: so a softmax reads
//! each row from memory once. Panels run on the threads of the pool. A nest without outer axes has
//! one panel, and its stages divide themselves.
//!
//! Within a panel, the expression of a stage is evaluated in blocks, as a
//! [pointwise kernel](crate::pointwise()), with the folded axes innermost. Folds, scans and sorts
//! then take whole rows. Everything that depends on sizes alone is found once a launch: strides,
//! steps, and the places of results in the scratch memory of a task.
//!
//! **Bits** are those of the reference evaluator with the elementary functions of this crate
//! ([`KernelFunctions`]), for every instruction set, number of threads and layout of operands.
//! **Errors** are the first failure in the order of stages, then of a stage's points.

mod access;
mod contract;
mod fold;
mod functions;
mod launch;
mod lines;
mod scatter;
mod schedule;
mod special;
mod stage;
#[cfg(test)]
mod tests;
mod values;

pub use functions::KernelFunctions;
pub use special::without_specialisations;

use crate::error::{KernelError, Result};
use crate::isa::Isa;
use crate::pointwise::frame::{Failure, FailureKind};
use crate::thread_pool;
use crate::view::{View, ViewMut};
use launch::Launch;
use maquette_ir::Scalar;
use maquette_ir::loops::{Axes, LoopNest};
use maquette_ir::sym::SymbolId;
use schedule::Panels;
use special::Special;
use stage::{PanelScratch, Plan};
use std::sync::{Arc, Mutex, PoisonError};

pub(crate) const KERNEL: &str = "loops";

/// A loop nest, prepared to be launched.
#[derive(Clone, Debug)]
pub struct LoopKernel {
    nest: LoopNest,
    outer: Axes,
    special: Option<(&'static str, Arc<dyn Special>)>,
}

impl LoopKernel {
    /// Prepares a nest.
    pub fn new(nest: LoopNest) -> LoopKernel {
        let outer = schedule::outer_axes(&nest);
        let special = special::find(&nest);
        LoopKernel { nest, outer, special }
    }

    /// The name of the hand-tuned executor that runs the nest; `None` if the generic one does.
    pub fn specialisation(&self) -> Option<&'static str> {
        self.special.as_ref().map(|(name, _)| *name)
    }

    /// The nest.
    pub fn nest(&self) -> &LoopNest {
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
        if let Some((_, special)) = &self.special
            && !special::is_off()
            && special.run(isa, operands, numbers, results)?
        {
            return Ok(());
        }
        let launch = Launch::new(&self.nest, isa, symbols, operands, numbers, results)?;
        let panels = Panels::new(&launch, &self.outer);
        let plan = Plan::new(&launch, &panels)?;
        let first: Mutex<Option<(usize, Failure)>> = Mutex::new(None);
        let grain = panels.grain(&launch);
        thread_pool::ranges(panels.count, grain, 1, &|from, to| {
            let mut scratch = PanelScratch::new(&plan)?;
            for index in from..to {
                let panel = panels.panel(&launch, index);
                if let Some(failure) = plan.run_panel(&launch, &panels, &panel, &mut scratch)? {
                    let mut first = first.lock().unwrap_or_else(PoisonError::into_inner);
                    *first = Some(first.map_or(failure, |first| first.min(failure)));
                }
            }
            Ok(())
        })?;
        match first.into_inner().unwrap_or_else(PoisonError::into_inner) {
            None => Ok(()),
            Some((_, failure)) => Err(self.error(failure)),
        }
    }

    fn error(&self, failure: Failure) -> KernelError {
        match failure.kind {
            FailureKind::DivisionByZero => KernelError::DivisionByZero,
            FailureKind::Index { position, dim, size } => {
                KernelError::IndexOutOfRange { index: position, size, dim }
            }
            FailureKind::Assertion(message) => {
                let message = self.nest.messages().get(message as usize).cloned();
                KernelError::Assertion(message.unwrap_or_default())
            }
        }
    }
}
