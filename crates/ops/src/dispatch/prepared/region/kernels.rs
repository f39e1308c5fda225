//! The kernels of compositions.
//!
//! A composition names sizes by symbols. So the pass that fuses, every region of the same
//! operators, and every size of a call ask for one kernel, which is made once in a process.
//! Compositions that have no kernel are kept, too.
//!
//! **Cost:** a look-up hashes and compares a composition, which has a few entries for each operator
//! of the region.

use maquette_ir::fault_injection;
use maquette_ir::loops::Composition;
use maquette_kernels::LoopKernel;
use rustc_hash::FxHashMap;
use std::cell::Cell;
use std::sync::{LazyLock, Mutex, PoisonError};

/// The most compositions of which the kernels are kept. A full table is cleared: a program needs
/// few, and executables keep those that they use.
const MAX_KEPT: usize = 1024;

type Kept = FxHashMap<Composition, Option<LoopKernel>>;

static KEPT: LazyLock<Mutex<Kept>> = LazyLock::new(Mutex::default);

thread_local! {
    static COMPOSED: Cell<u64> = const { Cell::new(0) };
}

/// How many nests this thread has composed for fused regions.
#[doc(hidden)]
pub fn composed_nests() -> u64 {
    COMPOSED.get()
}

/// The kernel of a composition; `None` if there is none. `example` are the values of its symbols in
/// a launch.
pub(super) fn kernel_of(composition: &Composition, example: &[i64]) -> Option<LoopKernel> {
    let kept = || KEPT.lock().unwrap_or_else(PoisonError::into_inner);
    let make = || {
        COMPOSED.set(COMPOSED.get() + 1);
        composition.compose(example).ok().map(LoopKernel::composed)
    };
    if fault_injection::is_on() {
        return make();
    }
    if let Some(known) = kept().get(composition) {
        return known.clone();
    }
    let kernel = make();
    let mut kept = kept();
    if kept.len() >= MAX_KEPT {
        kept.clear();
    }
    kept.insert(composition.clone(), kernel.clone());
    kernel
}
