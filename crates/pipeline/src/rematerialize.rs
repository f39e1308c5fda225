//! The pass `rematerialize`: values are computed again, to need less memory.
//!
//! Which memory a program needs is known when kernels are fused and buffers placed, for the sizes
//! of one call. The pass of `maquette-rewrite` has an estimate. So the bound for the pass is the
//! bound of the caller in proportion to both, and is lowered where the memory of the result is
//! above the bound. The rest of the list runs for each program that is measured. A caller who
//! measures nothing gets the bound of the estimate.

use crate::{Compilation, Pass, PassOptions, target, unobserved};
use maquette_ir::buffer_plan::BufferPlan;
use maquette_ir::functional_program::FunctionalGraph;
use maquette_ir::program_form::{PlannedProgram, ProgramForm};
use maquette_ops::{Error, Result};
use maquette_rewrite::{Rematerialization, Rematerialized, estimated_peak, rematerialize};
use std::fmt;

/// The most bounds that are tried for the pass.
const MAX_ATTEMPTS: usize = 4;

/// What a program computes again, and the memory that it needs for that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecomputeExplanation {
    /// How many operators run again.
    pub operators: usize,
    /// The bytes of memory beside inputs, constants and outputs, for the sizes of the call that
    /// compiled the program; where sizes depend on data, until the first of them is known.
    pub bytes: u64,
    /// The same if nothing were computed again.
    pub bytes_before: u64,
    /// The bound that was asked for.
    pub bound: Option<u64>,
}

impl RecomputeExplanation {
    /// Whether the memory keeps to the bound, if there is one.
    pub fn is_within_bound(&self) -> Option<bool> {
        self.bound.map(|bound| self.bytes <= bound)
    }
}

impl fmt::Display for RecomputeExplanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let RecomputeExplanation { operators, bytes, bytes_before, bound } = self;
        let run = if *operators == 1 { "operator runs" } else { "operators run" };
        write!(f, "{operators} {run} again, for {bytes} bytes in place of {bytes_before}")?;
        match (bound, self.is_within_bound()) {
            (Some(bound), Some(true)) => write!(f, ", within the bound of {bound}"),
            (Some(bound), _) => write!(
                f,
                "; the bound of {bound} cannot be reached: the other values must not be computed \
                    again, or take as much memory to compute"
            ),
            (None, _) => Ok(()),
        }
    }
}

/// Computes values of a program in planned memory again, if the options ask for it.
///
/// # Errors
/// The caller cannot measure a program.
pub(crate) fn run(compilation: &mut Compilation, options: &PassOptions<'_>) -> Result<()> {
    if let ProgramForm::Planned(planned) = &mut compilation.program
        && let Some(asked) = options.rematerialize
    {
        let (made, found) = match options.measure {
            Some(measure) => {
                let bytes = |program: &FunctionalGraph, plan: &BufferPlan| {
                    measure(rest(program.clone(), plan.clone(), options)?)
                };
                measured(planned, asked, &bytes)?
            }
            None => estimated(planned, asked)?,
        };
        if let Some(Rematerialized { program, plan, .. }) = made {
            **planned = PlannedProgram::new(program, plan);
        }
        compilation.recomputed = Some(found);
    }
    Ok(())
}

/// A program as the last pass leaves it.
///
/// # Errors
/// The program is not valid.
fn rest(
    program: FunctionalGraph,
    plan: BufferPlan,
    options: &PassOptions<'_>,
) -> Result<ProgramForm> {
    let compilation = Compilation::of(ProgramForm::planned(program, plan));
    Ok(compilation.run(Pass::Rematerialize.later(), options, &mut unobserved)?.program)
}

/// A program that keeps to the bound, as it is estimated; `None` if the program stays as it is.
///
/// # Errors
/// The program is not valid.
fn estimated(
    planned: &PlannedProgram,
    asked: Rematerialization,
) -> Result<(Option<Rematerialized>, RecomputeExplanation)> {
    let made = rematerialize(&planned.program, target::OPERATORS, &asked).map_err(Error::other)?;
    let bound = asked.bound();
    let found = match &made {
        Some(Rematerialized { recomputed: operators, peak, peak_before, .. }) => {
            RecomputeExplanation {
                operators: *operators,
                bytes: *peak,
                bytes_before: *peak_before,
                bound,
            }
        }
        None => {
            let bytes = estimated_peak(&planned.program, target::OPERATORS);
            RecomputeExplanation { operators: 0, bytes, bytes_before: bytes, bound }
        }
    };
    Ok((made, found))
}

/// The program that needs the least memory of those that were tried for the bound; `None` if the
/// program stays as it is.
///
/// # Errors
/// That of `bytes`, which measures a program.
fn measured(
    planned: &PlannedProgram,
    asked: Rematerialization,
    bytes: &dyn Fn(&FunctionalGraph, &BufferPlan) -> Result<u64>,
) -> Result<(Option<Rematerialized>, RecomputeExplanation)> {
    let PlannedProgram { program, plan, .. } = planned;
    let bytes_before = bytes(program, plan)?;
    let bound = asked.bound();
    let mut best = None;
    let mut found = RecomputeExplanation { operators: 0, bytes: bytes_before, bytes_before, bound };
    let mut attempt = asked;
    if let Some(bound) = bound {
        let peak = estimated_peak(program, target::OPERATORS);
        attempt = attempt.with_bound(scaled(peak, bound, bytes_before));
    }
    for _ in 0..MAX_ATTEMPTS {
        if found.is_within_bound() == Some(true) {
            break;
        }
        // A program that cannot be changed stays as it is.
        let Ok(Some(made)) = rematerialize(program, target::OPERATORS, &attempt) else { break };
        let (bytes, peak) = (bytes(&made.program, &made.plan)?, made.peak);
        if bytes < found.bytes {
            found = RecomputeExplanation { operators: made.recomputed, bytes, ..found };
            best = Some(made);
        }
        let (Some(bound), Some(tried)) = (bound, attempt.bound()) else { break };
        let lower = scaled(tried, bound, bytes).min(peak.saturating_sub(1));
        attempt = attempt.with_bound(lower);
    }
    Ok((best, found))
}

/// `bytes` in the proportion of two numbers.
fn scaled(bytes: u64, numerator: u64, denominator: u64) -> u64 {
    let scaled = u128::from(bytes) * u128::from(numerator) / u128::from(denominator.max(1));
    u64::try_from(scaled).unwrap_or(u64::MAX)
}
