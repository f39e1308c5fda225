//! Calls of kernels of fused operators.
//!
//! A composition names sizes by symbols. So the pass that fuses, every region of the same
//! operators, and every size of a call ask for one kernel, which is made once in a process.
//! Compositions that have no kernel are kept, too.
//!
//! **Cost:** a look-up hashes and compares a composition, which has a few entries for each operator
//! of the region.

use super::operand::{views, views_mut};
use super::{Kernel, Operands, PreparedCall, Results};
use crate::library::Op;
use crate::operator::loops::NestLaunch;
use maquette_ir::Scalar;
use maquette_ir::fault_injection;
use maquette_ir::fused::FusionKind;
use maquette_ir::kernel_def::{KernelBody, KernelDef};
use maquette_ir::loops::{AxisId, Composition};
use maquette_ir::sym::SymbolId;
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
fn kernel_of(composition: &Composition, example: &[i64]) -> Option<LoopKernel> {
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

/// A region with fewer rows than this is not computed by rows if each has more elements than
/// [`LONG_ROW`]: the operators alone divide a row among threads.
const FEW_ROWS: i64 = 8;
const LONG_ROW: i64 = 32_768;

/// What a launch binds to a kernel.
#[derive(Clone, Debug)]
pub struct KernelBinding {
    /// The values of the symbols.
    pub symbols: Vec<i64>,
    /// The numbers.
    pub numbers: Vec<Scalar>,
    /// The operands, in the order of the kernel.
    pub operands: Operands,
    /// The results, in the order of the kernel.
    pub results: Results,
}

impl PreparedCall {
    /// The call of a kernel of fused operators, of which `op` is the first. `None` if the CPU has no
    /// kernel for these layouts, or if the operators alone take less time.
    pub fn of_kernel(op: Op, kernel: &KernelDef, binding: KernelBinding) -> Option<PreparedCall> {
        let KernelBinding { symbols, numbers, operands, results } = binding;
        let computed = match &kernel.body {
            KernelBody::Elements(expr) => Kernel::pointwise(expr, &operands, &results, &[])?,
            KernelBody::Nest(composition) => {
                let launch = |composition: &Composition, symbols: &[i64]| {
                    let numbers = numbers.iter().copied().collect();
                    let composed = kernel_of(composition, symbols)?;
                    let is_by_rows = kernel.kind == FusionKind::Rows;
                    if is_by_rows && !runs_by_rows(&composed, kernel.outer, symbols) {
                        return None;
                    }
                    let mut launch = NestLaunch::composed(composed, symbols, numbers);
                    launch.plan(&views(&operands), &views_mut(&results)).ok()?;
                    Some(launch)
                };
                // Sizes may be equal without a proof.
                let launch = launch(composition, &symbols).or_else(|| {
                    let is_other = !symbols.is_empty();
                    let of_numbers = || launch(&composition.for_numbers(&symbols), &[]);
                    is_other.then(of_numbers).flatten()
                });
                Kernel::Nest(Box::new(launch?))
            }
        };
        Some(PreparedCall { op, kernel: computed, operands, results, own_strides: true })
    }
}

/// Whether the executor runs all stages row by row, and threads have enough rows.
fn runs_by_rows(kernel: &LoopKernel, rows: usize, symbols: &[i64]) -> bool {
    let (nest, outer) = (kernel.nest(), kernel.outer_axes());
    let value = |symbol: SymbolId| symbols.get(symbol.index()).copied();
    let extent = |axis: &AxisId| nest.symbols().eval(nest.extent(*axis), &value);
    let points = |axes: &[AxisId]| {
        axes.iter().map(|a| extent(a).unwrap_or(i64::MAX)).fold(1i64, i64::saturating_mul)
    };
    let all = nest.stages().iter().map(|stage| points(&stage.over)).max().unwrap_or(0);
    let count = points(outer);
    outer.len() >= rows && (count >= FEW_ROWS || all / count.max(1) <= LONG_ROW)
}
