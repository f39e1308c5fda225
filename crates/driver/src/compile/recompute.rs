//! Programs that compute values again, to need less memory.
//!
//! Which memory a program needs is known when kernels are fused and buffers placed, for the sizes
//! of one call. The pass has an estimate. So the bound for the pass is the bound of the user in
//! proportion to both, and is lowered where the memory of the result is above the bound.

use super::explain::RecomputeExplanation;
use maquette_interp::SourceInfo;
use maquette_ir::buffer_plan::BufferPlan;
use maquette_ir::functional_program::FunctionalGraph;
use maquette_ops::library::Facts;
use maquette_ops::{Result, Value};
use maquette_rewrite::{ExecutionMode, Rematerialization, estimated_peak, rematerialize};
use maquette_runtime::Executable;
use maquette_runtime::memory_map::BufferMemory;
use std::borrow::Cow;

/// The most bounds that are tried for the pass.
const MAX_ATTEMPTS: usize = 4;

/// A program in planned memory, which computes values again as the options say. The memory counts
/// for the sizes of `inputs`.
///
/// # Errors
/// The program cannot be run.
pub(crate) fn recomputing(
    functional: &FunctionalGraph,
    plan: &BufferPlan,
    options: Rematerialization,
    inputs: &[Value],
) -> Result<(Executable, RecomputeExplanation)> {
    let executable = |functional: &FunctionalGraph, plan: &BufferPlan| {
        let (functional, plan) = (Cow::Borrowed(functional), Cow::Borrowed(plan));
        Executable::new(ExecutionMode::Buffered(functional, plan))
    };
    let mut best = executable(functional, plan)?;
    let bytes_before = memory_bytes(&best, inputs);
    let bound = options.bound();
    let mut found = RecomputeExplanation { operators: 0, bytes: bytes_before, bytes_before, bound };
    let mut attempt = options;
    if let Some(bound) = bound {
        attempt =
            attempt.with_bound(scaled(estimated_peak(functional, &Facts), bound, bytes_before));
    }
    for _ in 0..MAX_ATTEMPTS {
        if found.is_within_bound() == Some(true) {
            break;
        }
        // A program that cannot be changed runs as it is.
        let Ok(Some(made)) = rematerialize(functional, &Facts, &attempt) else { break };
        let next = executable(&made.program, &made.plan)?;
        let bytes = memory_bytes(&next, inputs);
        if bytes < found.bytes {
            best = next;
            found = RecomputeExplanation { operators: made.recomputed, bytes, ..found };
        }
        let (Some(bound), Some(tried)) = (bound, attempt.bound()) else { break };
        let lower = scaled(tried, bound, bytes).min(made.peak.saturating_sub(1));
        attempt = attempt.with_bound(lower);
    }
    Ok((best, found))
}

/// The bytes of memory that a run on these inputs needs, beside inputs, constants and outputs: the
/// arena, and what operators return at one time.
fn memory_bytes(executable: &Executable, inputs: &[Value]) -> u64 {
    let map = executable.memory_map(inputs, &SourceInfo::of_caller());
    let Some(map) = map.ok().flatten() else { return 0 };
    let returned = |kernel: usize| {
        let buffers = map.buffers.iter().filter(|b| b.memory == BufferMemory::Returned);
        let alive = buffers.filter(|b| b.lifetime.0 <= kernel && kernel <= b.lifetime.1);
        alive.fold(0u64, |sum, b| sum.saturating_add(b.bytes))
    };
    let most = (0..map.kernels.len()).map(returned).max().unwrap_or_default();
    map.arena_bytes.saturating_add(most)
}

/// `bytes` in the proportion of two numbers.
fn scaled(bytes: u64, numerator: u64, denominator: u64) -> u64 {
    let scaled = u128::from(bytes) * u128::from(numerator) / u128::from(denominator.max(1));
    u64::try_from(scaled).unwrap_or(u64::MAX)
}
