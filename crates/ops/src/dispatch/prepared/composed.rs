//! Calls of kernels of fused operators.
//!
//! A kernel as data names sizes by symbols. So the pass that fuses, every region of the same
//! operators, and every size of a call ask for one kernel, which a device compiles once in a
//! process. Kernels that cannot be made are kept, too.
//!
//! **Cost:** a look-up hashes and compares a composition, which has a few entries for each operator
//! of the region.

use super::{BoundKernel, DeviceKernels, Operands, PreparedCall, Results, compiled};
use crate::library::Op;
use maquette_device::{Computation, Kernel};
use maquette_ir::fault_injection;
use maquette_ir::fused::FusionKind;
use maquette_ir::kernel_def::{KernelBody, KernelDef};
use maquette_ir::{Device, Scalar};
use rustc_hash::FxHashMap;
use smallvec::SmallVec;
use std::cell::Cell;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

/// The most kernels that are kept. A full table is cleared: a program needs few, and executables
/// keep those that they use.
const MAX_KEPT: usize = 1024;

/// What is kept of a kernel as data.
struct Kept {
    /// The computation, with the composed nest; `None` if there is none.
    computation: Option<Computation>,
    /// The kernels of devices.
    kernels: DeviceKernels,
}

static KEPT: LazyLock<Mutex<FxHashMap<KernelDef, Kept>>> = LazyLock::new(Mutex::default);

thread_local! {
    static COMPOSED: Cell<u64> = const { Cell::new(0) };
}

/// How many nests this thread has composed for fused regions.
#[doc(hidden)]
pub fn composed_nests() -> u64 {
    COMPOSED.get()
}

/// The computation of a kernel. `example` are the values of its symbols in a launch.
fn computation_of(def: &KernelDef, example: &[i64]) -> Option<Computation> {
    match &def.body {
        KernelBody::Elements(expr) => Some(Computation::Elements(Arc::new(expr.clone()))),
        KernelBody::Nest(composition) => {
            COMPOSED.set(COMPOSED.get() + 1);
            let nest = Arc::new(composition.compose(example).ok()?);
            let rows = (def.kind == FusionKind::Rows).then_some(def.outer);
            Some(Computation::Fused { nest, rows })
        }
    }
}

/// The kernel of a device, with its computation; `None` if there is none.
fn kernel_on(
    device: Device,
    def: &KernelDef,
    example: &[i64],
) -> Option<(Computation, Arc<dyn Kernel>)> {
    if fault_injection::is_on() {
        let computation = computation_of(def, example)?;
        let kernel = compiled(device, &computation)?;
        return Some((computation, kernel));
    }
    let kept = || KEPT.lock().unwrap_or_else(PoisonError::into_inner);
    let mut computation = None;
    if let Some(found) = kept().get(def) {
        let known = found.computation.clone()?;
        if let Some((_, kernel)) = found.kernels.iter().find(|(on, _)| *on == device) {
            return Some((known, kernel.clone()?));
        }
        computation = Some(known);
    }
    let computation = computation.or_else(|| computation_of(def, example));
    let kernel = computation.as_ref().and_then(|computation| compiled(device, computation));
    let mut kept = kept();
    if kept.len() >= MAX_KEPT {
        kept.clear();
    }
    let new = || Kept { computation: computation.clone(), kernels: SmallVec::new() };
    kept.entry(def.clone()).or_insert_with(new).kernels.push((device, kernel.clone()));
    Some((computation?, kernel?))
}

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
    /// The call of a kernel of fused operators on a device, of which `op` is the first. `None` if
    /// the device has no kernel for these layouts, or if the operators alone take less time.
    pub fn of_kernel(
        op: Op,
        device: Device,
        def: &KernelDef,
        binding: KernelBinding,
    ) -> Option<PreparedCall> {
        let KernelBinding { symbols, numbers, operands, results } = binding;
        let bind = |def: &KernelDef, symbols: &[i64]| {
            let (computation, kernel) = kernel_on(device, def, symbols)?;
            let symbols = symbols.iter().map(|n| Some(*n)).collect();
            let numbers = numbers.iter().copied().collect();
            BoundKernel::new(computation, kernel, (symbols, numbers), (&operands, &results))
        };
        // Sizes may be equal without a proof.
        let of_numbers = || match &def.body {
            KernelBody::Nest(composition) if !symbols.is_empty() => {
                let body = KernelBody::Nest(composition.for_numbers(&symbols));
                bind(&KernelDef { body, ..def.clone() }, &[])
            }
            _ => None,
        };
        let kernel = Some(bind(def, &symbols).or_else(of_numbers)?);
        Some(PreparedCall::new(op, device, kernel, (operands, results), true))
    }
}
