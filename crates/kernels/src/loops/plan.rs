//! Plans: all that a launch finds from the layouts of its tensors and the values of sizes.

use super::KERNEL;
use super::access::Base;
use super::launch::{Launch, Symbols, count};
use super::moves;
use super::packed::OperandPhase;
use super::product::{Pace, PackedOperand, ProductPlan, is_product, joined_pace, run_joined};
use super::schedule::Panels;
use super::stage::{PanelContext, Planner, StagePlan, Stop};
use crate::error::{KernelError, Result};
use crate::isa::Isa;
use crate::pointwise::frame::{Failure, FailureKind};
use crate::scratch::with_scratch;
use crate::thread_pool;
use crate::view::{Ptr, View, ViewMut};
use maquette_device::Layout;
use maquette_ir::Scalar;
use maquette_ir::fault_injection::{Fault, fault_injected};
use maquette_ir::loops::{LaunchScalar, LoopNest, outer_axes};
use maquette_ir::scalar_expr::ScalarExpr;
use smallvec::SmallVec;
use std::fmt;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

/// A loop nest for operands and results of given layouts: extents, strides, panels, the steps of
/// every stage, and their places in scratch memory. It has no address and no number, so that one
/// plan serves every launch with these layouts, on any thread and instruction set.
pub struct LaunchPlan {
    pub(super) nest: Arc<LoopNest>,
    pub(super) extents: SmallVec<[i64; 8]>,
    pub(super) phases: Vec<Phase>,
    /// The phases that run together: each range is one phase, or products of one left factor.
    runs: SmallVec<[(Range<usize>, Pace); 2]>,
    pub(super) stages: Vec<StagePlan>,
    /// The layouts of the operands, then of the results.
    pub(super) layouts: SmallVec<[Layout; 4]>,
    /// The launch scalars, and which of them a launch gives.
    scalars: SmallVec<[Scalar; 4]>,
    given: SmallVec<[usize; 2]>,
    /// Whether the numbers of a launch are taken as [bits](moves).
    moves_bits: bool,
    /// The bytes of each tensor that a phase leaves to later ones.
    pub(super) kept: Vec<usize>,
    /// The operands of each packed form: those of factors, then of [values](OperandPhase).
    pub(super) packs: SmallVec<[SmallVec<[usize; 1]>; 2]>,
    /// The first phase, if its values can be packed.
    pub(super) of_operands: Option<OperandPhase>,
}

/// Stages that are computed together.
pub(super) struct Phase {
    pub stages: Range<usize>,
    panels: Panels,
    /// The bytes of scratch memory of a task.
    bytes: usize,
    /// The panels that a task takes at least.
    grain: usize,
    /// A product with the maps that follow it, if these are the stages.
    pub product: Option<ProductPlan>,
}

impl fmt::Debug for LaunchPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LaunchPlan").field("layouts", &self.layouts).finish_non_exhaustive()
    }
}

/// A launch of a plan.
pub(super) struct Run<'a> {
    pub plan: &'a LaunchPlan,
    pub isa: Isa,
    pub scalars: &'a [Scalar],
    /// Element 0 of each operand, of each result, and of what phases leave to later ones.
    pub addresses: &'a [Ptr<u8>],
    pub packed: &'a [Option<&'a PackedOperand>],
}

/// The phases that run together.
fn runs(phases: &[Phase]) -> SmallVec<[(Range<usize>, Pace); 2]> {
    let mut runs: SmallVec<[(Range<usize>, Pace); 2]> = SmallVec::new();
    for (at, phase) in phases.iter().enumerate() {
        let joined = runs.last().and_then(|(run, pace)| {
            let products = phases.get(run.clone())?.iter().map(|p| p.product.as_ref());
            let products = products.collect::<Option<SmallVec<[&ProductPlan; 4]>>>()?;
            joined_pace(&products, *pace, phase.product.as_ref()?)
        });
        match (joined, runs.last_mut()) {
            (Some(pace), Some(last)) => *last = (last.0.start..at + 1, pace),
            _ => runs.push((at..at + 1, Pace::Free)),
        }
    }
    runs
}

impl Phase {
    /// Plans the phase that begins with stage `from`.
    fn new(
        launch: &Launch<'_>,
        moved: &[Option<ScalarExpr>],
        done: &mut (Vec<StagePlan>, Vec<usize>),
        from: usize,
    ) -> Result<Phase> {
        let (nest, before) = (launch.nest, std::mem::take(done));
        if is_product(nest, from) {
            let panels = Panels::whole();
            let mut planner = Planner::new(launch, &panels, moved, before, from..from + 1);
            let product = Some(ProductPlan::new(&mut planner)?);
            let Planner { stages, kept, bytes, phase, .. } = planner;
            *done = (stages, kept);
            return Ok(Phase { stages: phase, panels, bytes, grain: 1, product });
        }
        let count = nest.stages().len();
        let to = (from + 1..count).find(|s| is_product(nest, *s)).unwrap_or(count);
        let panels = Panels::new(launch, &outer_axes(nest, from..to), from..to);
        let mut planner = Planner::new(launch, &panels, moved, before, from..to);
        planner.plan()?;
        let Planner { stages, kept, bytes, .. } = planner;
        *done = (stages, kept);
        let grain = panels.grain(launch, from..to);
        Ok(Phase { stages: from..to, panels, bytes, grain, product: None })
    }
}

impl LaunchPlan {
    pub(super) fn new(
        nest: &Arc<LoopNest>,
        moved: &[Option<ScalarExpr>],
        symbols: Symbols<'_>,
        operands: &[View<'_>],
        results: &[ViewMut<'_>],
    ) -> Result<LaunchPlan> {
        let launch = Launch::new(nest, symbols, operands, results)?;
        let (mut phases, mut done) = (Vec::<Phase>::new(), (Vec::new(), Vec::new()));
        while done.0.len() < nest.stages().len() {
            let from = done.0.len();
            phases.push(Phase::new(&launch, moved, &mut done, from)?);
        }
        let mut packs: SmallVec<[SmallVec<[usize; 1]>; 2]> = SmallVec::new();
        for product in phases.iter_mut().filter_map(|p| p.product.as_mut()) {
            if let Some(operand) = product.number_packed(packs.len()) {
                packs.push(SmallVec::from_iter([operand]));
            }
        }
        let (stages, kept) = done;
        let layouts: SmallVec<[Layout; 4]> =
            launch.operands.iter().chain(&launch.results).cloned().collect();
        let of_operands = OperandPhase::of(nest, &phases, &stages, (layouts.len(), &kept));
        packs.extend(of_operands.as_ref().map(|phase| phase.operands.clone()));
        let scalars = nest.scalars().iter().enumerate();
        let is_given = |s: &LaunchScalar| matches!(s, LaunchScalar::Number(_));
        Ok(LaunchPlan {
            nest: Arc::clone(nest),
            layouts,
            scalars: launch.scalars()?,
            given: scalars.filter(|(_, s)| is_given(s)).map(|(i, _)| i).collect(),
            moves_bits: moves::takes_bits(moved),
            extents: launch.extents,
            runs: runs(&phases),
            phases,
            stages,
            kept,
            packs,
            of_operands,
        })
    }

    /// The plan for results that have exactly the memory of operands, with the same addresses:
    /// `pairs` of an operand and a result. `None` if a stage would read what another one has
    /// overwritten: only the maps that follow a product read and write element by element.
    pub(super) fn overwriting(mut self, pairs: &[(usize, usize)]) -> Option<LaunchPlan> {
        let operands = self.layouts.len() - self.nest.results().len();
        for &(k, j) in pairs {
            let of_operand = self.layouts.get(..operands)?.get(k)?;
            if of_operand != self.layouts.get(operands + j)? {
                return None;
            }
        }
        let pairs: SmallVec<[_; 2]> = pairs.iter().map(|&(k, j)| (k, operands + j)).collect();
        let [.., last @ Phase { product: Some(_), .. }] = &mut self.phases[..] else { return None };
        // Earlier phases have read the operand by then, but may not write the result.
        let earlier = self.stages.iter().take(last.stages.start).flat_map(|s| &s.outputs);
        let is_written =
            |base: Base| matches!(base, Base::Memory(at) if pairs.iter().any(|(_, j)| *j == at));
        if earlier.map(|output| output.buffer.base).any(is_written)
            && !fault_injected(Fault::EarlierValuesInOperands)
        {
            return None;
        }
        let product = last.product.as_mut()?;
        let overwrites = product.overwrite(&self.nest, &pairs);
        // What the last product overwrites, earlier ones may read as a whole.
        self.runs = (0..self.phases.len()).map(|at| (at..at + 1, Pace::Free)).collect();
        overwrites.then_some(self)
    }

    /// The stages of each phase, and how many of them run on parts of a product.
    #[cfg(test)]
    pub(super) fn phases(&self) -> Vec<(usize, usize)> {
        let maps = |p: &Phase| p.product.as_ref().map_or(0, |_| p.stages.len() - 1);
        self.phases.iter().map(|p| (p.stages.len(), maps(p))).collect()
    }

    /// The phases that run together.
    #[cfg(test)]
    pub(super) fn runs(&self) -> &[(Range<usize>, Pace)] {
        &self.runs
    }

    /// Whether a product's maps run as one chain.
    #[cfg(test)]
    pub(super) fn has_chain(&self) -> bool {
        self.phases.iter().filter_map(|p| p.product.as_ref()).any(|p| p.has_chain())
    }

    /// Whether operands and results have the layouts of the plan.
    pub fn fits(&self, operands: &[View<'_>], results: &[ViewMut<'_>]) -> bool {
        let views = || operands.iter().chain(results.iter().map(|r| r.as_view()));
        self.layouts.len() == operands.len() + results.len()
            && self.nest.results().len() == results.len()
            && self.layouts.iter().zip(views()).all(|(layout, v)| v.has_layout(layout))
    }

    /// Computes the results, as [`LoopKernel::run_on`](super::LoopKernel::run_on).
    ///
    /// # Errors
    /// The operands and results do not [fit](LaunchPlan::fits), or as for
    /// [`LoopKernel::run`](super::LoopKernel::run).
    pub fn run(
        &self,
        isa: Isa,
        operands: &[View<'_>],
        numbers: &[Scalar],
        results: &mut [ViewMut<'_>],
    ) -> Result<()> {
        if !self.fits(operands, results) {
            let message = "the plan is of other layouts";
            return Err(KernelError::argument(KERNEL, message));
        }
        // SAFETY: they fit.
        unsafe { self.run_fitting(isa, operands, numbers, results) }
    }

    /// As [`LaunchPlan::run`].
    ///
    /// # Safety
    /// The operands and results [fit](LaunchPlan::fits).
    pub(super) unsafe fn run_fitting(
        &self,
        isa: Isa,
        operands: &[View<'_>],
        numbers: &[Scalar],
        results: &mut [ViewMut<'_>],
    ) -> Result<()> {
        let views = operands.iter().chain(results.iter().map(|r| r.as_view()));
        let addresses: SmallVec<[*mut u8; 8]> = views.map(|v| v.as_ptr().cast_mut()).collect();
        // SAFETY: views of the plan's layouts are valid, and those of results are exclusive.
        unsafe { self.run_at(isa, &addresses, numbers) }
    }

    /// Computes the results. `addresses` are those of element 0 of each operand, then of each
    /// result. Maps and folds of short rows allocate nothing but scratch memory, which the thread
    /// keeps.
    ///
    /// # Errors
    /// As for [`LoopKernel::run`](super::LoopKernel::run); another number of addresses.
    ///
    /// # Safety
    /// With the layouts of the plan, the addresses satisfy the contracts of [`View::from_raw`] and
    /// [`ViewMut::from_raw`] during the call. No result overlaps another result, or an operand but
    /// that of a pair of the plan.
    pub unsafe fn run_at(&self, isa: Isa, addresses: &[*mut u8], numbers: &[Scalar]) -> Result<()> {
        // SAFETY: the caller's promise.
        unsafe { self.run_packed_at(isa, addresses, numbers, &[]) }
    }

    /// As [`LaunchPlan::run_at`], with those of [`LaunchPlan::packs`] that are given in packed
    /// form. They were packed from the operands as they are now, and the addresses of these are
    /// valid all the same. The bits are those of a launch without packed forms.
    ///
    /// # Errors
    /// As for [`LaunchPlan::run_at`]; a packed form is of another plan.
    ///
    /// # Safety
    /// As for [`LaunchPlan::run_at`].
    pub unsafe fn run_packed_at(
        &self,
        isa: Isa,
        addresses: &[*mut u8],
        numbers: &[Scalar],
        packed: &[Option<&PackedOperand>],
    ) -> Result<()> {
        count("addresses", self.layouts.len(), addresses.len())?;
        let scalars = self.scalars_with(numbers)?;
        let mut addresses: SmallVec<[Ptr<u8>; 8]> = addresses.iter().map(|a| Ptr(*a)).collect();
        let values = self.packed_values(packed, numbers)?;
        let phases = |addresses: &[Ptr<u8>]| -> Result<()> {
            let run = Run { plan: self, isa, scalars: &scalars, addresses, packed };
            // The first phase is not a product, so it runs alone.
            let mut runs = self.runs.iter().skip(usize::from(values.is_some()));
            runs.try_for_each(|(phases, pace)| match &self.phases[phases.clone()] {
                [phase] => run.phase(phase),
                phases => run.joined(phases, *pace),
            })
        };
        let mut kept = &self.kept[..];
        if let (Some(values), Some(of_operands)) = (values, &self.of_operands) {
            let (done, rest) = kept.split_at(of_operands.kept);
            push_addresses(&mut addresses, done, values.as_ptr().cast_mut().cast());
            kept = rest;
        }
        if kept.is_empty() {
            return phases(&addresses);
        }
        with_scratch::<f64, _>(KERNEL, total(kept).div_ceil(8), |scratch| {
            push_addresses(&mut addresses, kept, scratch.as_mut_ptr().cast());
            phases(&addresses)
        })?
    }

    /// The scalars of a launch with these numbers.
    pub(super) fn scalars_with(&self, numbers: &[Scalar]) -> Result<SmallVec<[Scalar; 4]>> {
        count("numbers", self.given.len(), numbers.len())?;
        let mut scalars = self.scalars.clone();
        for (&at, &number) in self.given.iter().zip(numbers) {
            scalars[at] = match self.moves_bits {
                true => moves::number(self.nest.scalars()[at], number),
                false => number,
            };
        }
        Ok(scalars)
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

/// A number of bytes, rounded up to a cache line.
fn aligned(bytes: usize) -> usize {
    bytes.checked_next_multiple_of(64).unwrap_or(usize::MAX)
}

/// The bytes of tensors of these sizes one after another, each aligned to a cache line.
pub(super) fn total(kept: &[usize]) -> usize {
    kept.iter().fold(0usize, |n, bytes| n.saturating_add(aligned(*bytes)))
}

/// Adds the addresses of these tensors, the first of which is `at`.
pub(super) fn push_addresses(to: &mut SmallVec<[Ptr<u8>; 8]>, kept: &[usize], mut at: *mut u8) {
    for bytes in kept {
        to.push(Ptr(at));
        at = at.wrapping_add(aligned(*bytes));
    }
}

impl Run<'_> {
    /// Calls `f` with what takes the failures of stages, and returns the first of them.
    fn first_failure(
        &self,
        f: impl FnOnce(&(dyn Fn(usize, Failure) + Sync)) -> Result<()>,
    ) -> Result<()> {
        let first: Mutex<Option<(usize, Failure)>> = Mutex::new(None);
        f(&|stage: usize, failure: Failure| {
            let (new, mut first) =
                ((stage, failure), first.lock().unwrap_or_else(PoisonError::into_inner));
            *first = Some(first.map_or(new, |first| first.min(new)));
        })?;
        match first.into_inner().unwrap_or_else(PoisonError::into_inner) {
            None => Ok(()),
            Some((_, failure)) => Err(self.plan.error(failure)),
        }
    }

    /// Computes the products of some phases, which need no scratch memory of a task.
    fn joined(&self, phases: &[Phase], pace: Pace) -> Result<()> {
        let products = phases.iter().filter_map(|phase| phase.product.as_ref());
        let products: SmallVec<[&ProductPlan; 4]> = products.collect();
        let panels = Panels::whole();
        let panel = panels.panel(0);
        let cx = PanelContext::new(self, &panels, &panel, Ptr(std::ptr::null_mut()));
        self.first_failure(|failed| run_joined(&cx, &products, pace, failed))
    }

    /// Computes the stages of a phase.
    pub fn phase(&self, phase: &Phase) -> Result<()> {
        self.first_failure(|failed| self.panels(phase, failed))
    }

    fn panels(&self, phase: &Phase, failed: &(dyn Fn(usize, Failure) + Sync)) -> Result<()> {
        thread_pool::ranges(phase.panels.count, phase.grain, 1, &|from, to| {
            with_scratch::<f64, _>(KERNEL, phase.bytes.div_ceil(8), |scratch| {
                let memory = Ptr(scratch.as_mut_ptr().cast());
                for index in from..to {
                    let panel = phase.panels.panel(index);
                    let cx = PanelContext::new(self, &phase.panels, &panel, memory);
                    if let Some(product) = &phase.product {
                        product.run(&cx, failed)?;
                    } else if let Err(stop) = cx.phase(phase.stages.clone()) {
                        match *stop {
                            (_, Stop::Error(error)) => return Err(error),
                            (stage, Stop::Failure(failure)) => failed(stage, failure),
                        }
                    }
                }
                Ok(())
            })?
        })
    }
}
