//! Hand-tuned executors of nests that are common.
//!
//! [`recognise`](maquette_ir::loops::recognise) says which computation a nest is. The
//! specialisation of a computation is [`Special`] for its parameters. A specialisation gives the
//! bytes of the generic executor; `loops::tests::special` holds each against it.

mod attention;
mod convolution;
mod extreme;
mod layer_norm;
mod moves;
mod product;
mod reduce;
mod scan;
mod softmax;
mod statistics;
mod triangle;

use super::launch::count;
use crate::error::Result;
use crate::isa::Isa;
use crate::view::{View, ViewMut};
use maquette_ir::Scalar;
use maquette_ir::loops::LoopNest;
use maquette_ir::loops::recognise::{self, Recognised};
use std::cell::Cell;
use std::fmt::Debug;
use std::sync::Arc;

/// An executor of one nest.
pub(super) trait Special: Debug + Send + Sync {
    /// Computes the results, whose dtypes and sizes are those of the nest. Returns `false`, with
    /// nothing written, if it does not support the layout of the operands or results.
    fn run(
        &self,
        isa: Isa,
        operands: &[View<'_>],
        numbers: &[Scalar],
        results: &mut [ViewMut<'_>],
    ) -> Result<bool>;

    /// The executor for tensors of the layouts of these, whose memory is not accessed. `None` if
    /// [`Special::run`] computes such launches.
    fn plan(
        &self,
        _: Isa,
        _operands: &[View<'_>],
        _numbers: &[Scalar],
        _results: &[ViewMut<'_>],
    ) -> Option<Box<dyn SpecialRun>> {
        None
    }
}

/// A specialisation for tensors of given layouts: all that depends on them was found before.
pub(super) trait SpecialRun: Send + Sync {
    /// Computes the results. There is an address for each operand, then for each result.
    ///
    /// # Safety
    /// As [`SpecialPlan::run_at`].
    unsafe fn run(&self, addresses: &[*mut u8]) -> Result<()>;
}

/// A hand-tuned executor for operands and results of given layouts. Where tensors have a few
/// elements, to look at their layouts takes longer than to compute the results. A plan has done so
/// once. It runs the code that the executor runs on tensors of these layouts.
pub struct SpecialPlan {
    addresses: usize,
    run: Box<dyn SpecialRun>,
}

impl SpecialPlan {
    pub(super) fn new(addresses: usize, run: Box<dyn SpecialRun>) -> SpecialPlan {
        SpecialPlan { addresses, run }
    }

    /// Computes the results. `addresses` are those of element 0 of each operand, then of each
    /// result.
    ///
    /// # Errors
    /// As for [`LoopKernel::run`](super::LoopKernel::run); another number of addresses.
    ///
    /// # Safety
    /// As [`LaunchPlan::run_at`](super::LaunchPlan::run_at).
    #[inline]
    pub unsafe fn run_at(&self, addresses: &[*mut u8]) -> Result<()> {
        count("addresses", self.addresses, addresses.len())?;
        // SAFETY: the caller's promise.
        unsafe { self.run.run(addresses) }
    }
}

/// The specialisation of a nest, with its name. `None` if no kernel rounds as the nest does.
pub(super) fn find(nest: &LoopNest) -> Option<(&'static str, Arc<dyn Special>)> {
    let recognised = recognise::recognise(nest)?;
    let name = recognised.name();
    let special: Arc<dyn Special> = match recognised {
        Recognised::Softmax(_) if !softmax::computes(nest) => return None,
        Recognised::Norm(_) if !statistics::computes_norm(nest) => return None,
        Recognised::Softmax(of) => Arc::new(of),
        Recognised::Reduce(of) => Arc::new(reduce::Reduce::of(nest, &of)?),
        Recognised::Extremes(of) => Arc::new(of),
        Recognised::LayerNorm(of) => Arc::new(of),
        Recognised::Variance(of) => Arc::new(of),
        Recognised::Norm(of) => Arc::new(of),
        Recognised::Product(of) => Arc::new(of),
        Recognised::Convolution(of) => Arc::new(of),
        Recognised::Attention(of) => Arc::new(of),
        Recognised::Scan(of) => Arc::new(of),
        Recognised::Fill(of) => Arc::new(of),
        Recognised::Copy => Arc::new(moves::Copy),
        Recognised::Select(of) => Arc::new(of),
        Recognised::Pad(of) => Arc::new(of),
        Recognised::Triangle(of) => Arc::new(of),
    };
    Some((name, special))
}

/// Whether the result of a nest of one operand has its dtype.
fn is_of_one_dtype(nest: &LoopNest) -> bool {
    match (nest.operands(), nest.results()) {
        ([x], [result]) => nest.dtype(*result) == Some(x.dtype),
        _ => false,
    }
}

thread_local! {
    static GENERIC: Cell<bool> = const { Cell::new(false) };
}

/// Whether this thread launches nests by the generic executor alone.
pub(super) fn is_off() -> bool {
    GENERIC.get()
}

/// Runs `f` with all nests that this thread launches executed by the generic executor. The results
/// have the same bytes; so tests compare both.
pub fn without_specialisations<R>(f: impl FnOnce() -> R) -> R {
    struct Restore(bool);
    impl Drop for Restore {
        fn drop(&mut self) {
            GENERIC.set(self.0);
        }
    }
    let _restore = Restore(GENERIC.replace(true));
    f()
}
