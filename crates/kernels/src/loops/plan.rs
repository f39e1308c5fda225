//! Plans: all that a launch finds from the layouts of its tensors and the values of sizes.

use super::KERNEL;
use super::launch::{Launch, Layout, Symbols, count};
use super::moves;
use super::schedule::Panels;
use super::stage::{Planner, StagePlan, Stop};
use crate::error::{KernelError, Result};
use crate::isa::Isa;
use crate::pointwise::frame::{Failure, FailureKind};
use crate::scratch::with_scratch;
use crate::thread_pool;
use crate::view::{Ptr, View, ViewMut};
use maquette_ir::Scalar;
use maquette_ir::loops::{Axes, LaunchScalar, LoopNest};
use maquette_ir::scalar_expr::ScalarExpr;
use maquette_ir::sym::SymbolId;
use smallvec::SmallVec;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError, RwLock};

/// A loop nest for operands and results of given layouts: extents, strides, panels, the steps of
/// every stage, and their places in scratch memory. It has no address and no number, so that one
/// plan serves every launch with these layouts, on any thread and instruction set.
pub struct LaunchPlan {
    pub(super) nest: Arc<LoopNest>,
    pub(super) extents: SmallVec<[i64; 8]>,
    pub(super) panels: Panels,
    pub(super) stages: Vec<StagePlan>,
    /// The layouts of the operands, then of the results.
    layouts: SmallVec<[Layout; 4]>,
    /// The launch scalars, and which of them a launch gives.
    scalars: SmallVec<[Scalar; 4]>,
    given: SmallVec<[usize; 2]>,
    /// Whether the numbers of a launch are taken as [bits](moves).
    moves_bits: bool,
    /// The bytes of scratch memory of a task.
    bytes: usize,
    /// The panels that a task takes at least.
    grain: usize,
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
    /// Element 0 of each operand, then of each result.
    pub addresses: &'a [Ptr<u8>],
}

impl LaunchPlan {
    pub(super) fn new(
        nest: &Arc<LoopNest>,
        outer: &Axes,
        moved: &[Option<ScalarExpr>],
        symbols: Symbols<'_>,
        operands: &[View<'_>],
        results: &[ViewMut<'_>],
    ) -> Result<LaunchPlan> {
        let launch = Launch::new(nest, symbols, operands, results)?;
        let panels = Panels::new(&launch, outer);
        let mut planner = Planner::new(&launch, &panels, moved);
        planner.plan()?;
        let (stages, bytes) = (planner.stages, planner.bytes);
        let scalars = nest.scalars().iter().enumerate();
        let is_given = |s: &LaunchScalar| matches!(s, LaunchScalar::Number(_));
        Ok(LaunchPlan {
            nest: Arc::clone(nest),
            layouts: launch.operands.iter().chain(&launch.results).cloned().collect(),
            scalars: launch.scalars()?,
            given: scalars.filter(|(_, s)| is_given(s)).map(|(i, _)| i).collect(),
            moves_bits: moves::takes_bits(moved),
            grain: panels.grain(&launch),
            extents: launch.extents,
            panels,
            stages,
            bytes,
        })
    }

    /// Whether operands and results have the layouts of the plan.
    pub fn fits(&self, operands: &[View<'_>], results: &[ViewMut<'_>]) -> bool {
        let views = || operands.iter().chain(results.iter().map(|r| r.as_view()));
        self.layouts.len() == operands.len() + results.len()
            && self.nest.results().len() == results.len()
            && self.layouts.iter().zip(views()).all(|(layout, v)| layout.is_of(v))
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
    /// [`ViewMut::from_raw`] during the call. No result overlaps an operand or another result.
    pub unsafe fn run_at(&self, isa: Isa, addresses: &[*mut u8], numbers: &[Scalar]) -> Result<()> {
        count("addresses", self.layouts.len(), addresses.len())?;
        count("numbers", self.given.len(), numbers.len())?;
        let mut scalars = self.scalars.clone();
        for (&at, &number) in self.given.iter().zip(numbers) {
            scalars[at] = match self.moves_bits {
                true => moves::number(self.nest.scalars()[at], number),
                false => number,
            };
        }
        let addresses: SmallVec<[Ptr<u8>; 8]> = addresses.iter().map(|a| Ptr(*a)).collect();
        let run = Run { plan: self, isa, scalars: &scalars, addresses: &addresses };
        let first: Mutex<Option<(usize, Failure)>> = Mutex::new(None);
        let stopped = |stop: (usize, Stop)| match stop {
            (_, Stop::Error(error)) => Err(error),
            (stage, Stop::Failure(failure)) => {
                let (new, mut first) =
                    ((stage, failure), first.lock().unwrap_or_else(PoisonError::into_inner));
                *first = Some(first.map_or(new, |first| first.min(new)));
                Ok(())
            }
        };
        thread_pool::ranges(self.panels.count, self.grain, 1, &|from, to| {
            with_scratch::<f64, _>(KERNEL, self.bytes.div_ceil(8), |scratch| {
                let memory = Ptr(scratch.as_mut_ptr().cast());
                for index in from..to {
                    let panel = self.panels.panel(index);
                    if let Err(stop) = run.panel(&panel, memory) {
                        stopped(*stop)?;
                    }
                }
                Ok(())
            })?
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

/// The plans that a kernel keeps.
const KEPT: usize = 8;

/// The values of a nest's symbols.
type SymbolValues = SmallVec<[Option<i64>; 4]>;

/// The plans of the last layouts that a kernel was launched with, the newest first.
#[derive(Debug, Default)]
pub(super) struct Plans(RwLock<Vec<(SymbolValues, Arc<LaunchPlan>)>>);

impl Clone for Plans {
    fn clone(&self) -> Plans {
        Plans(RwLock::new(self.0.read().unwrap_or_else(PoisonError::into_inner).clone()))
    }
}

impl Plans {
    /// The kept plan of these layouts and symbols, or else one that `make` makes.
    pub fn find(
        &self,
        names: &[SymbolId],
        symbols: Symbols<'_>,
        operands: &[View<'_>],
        results: &[ViewMut<'_>],
        make: impl FnOnce() -> Result<LaunchPlan>,
    ) -> Result<Arc<LaunchPlan>> {
        let values: SymbolValues = names.iter().map(|s| symbols(*s)).collect();
        let plans = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let is_it = |(of, plan): &&(SymbolValues, Arc<LaunchPlan>)| {
            *of == values && plan.fits(operands, results)
        };
        if let Some((_, plan)) = plans.iter().find(is_it) {
            return Ok(Arc::clone(plan));
        }
        drop(plans);
        let plan = Arc::new(make()?);
        let mut plans = self.0.write().unwrap_or_else(PoisonError::into_inner);
        plans.truncate(KEPT - 1);
        plans.insert(0, (values, Arc::clone(&plan)));
        Ok(plan)
    }
}
