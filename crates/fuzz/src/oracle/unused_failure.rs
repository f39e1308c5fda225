//! Failures of calls that nothing uses.
//!
//! A functional graph leaves out a call without effects whose results and writes nothing uses. So
//! it may run where the eager program fails, if only the kernel of such a call fails, on its data.
//! The proof is a program: the eager program without that one call must do what the mode did. The
//! checks of a call, such as those of overlap, are no part of its kernel: a mode keeps them.

use super::mode::{Eager, Mode};
use super::outcome::{Comparison, Outcome};
use super::program::{Sizes, TestProgram};
use super::program_builder::{BuilderStmt, ProgramBuilder};
use super::shrink::{concrete_sizes, drop_stmt};
use super::subject::Subject;
use maquette_ir::graph::MemoryFacts;
use maquette_kernels::KernelError;
use maquette_ops::library::Facts;
use maquette_ops::{Error, ErrorKind, Result};

/// Whether `error`, the failure of the eager program, is that of the kernel of a call without
/// effects, and this call is all that keeps the program from doing what was found.
pub(super) fn only_an_unused_call_fails(
    program: &TestProgram,
    at: &Sizes,
    error: &Error,
    found: &Outcome,
) -> bool {
    let ErrorKind::Kernel(KernelError::IndexOutOfRange { .. } | KernelError::DivisionByZero) =
        error.kind()
    else {
        return false;
    };
    let program = TestProgram { sizes: vec![at.clone()], ..program.clone() };
    let Ok(mut builder) = ProgramBuilder::of(&program) else { return false };
    concrete_sizes(&mut builder);
    let has_no_effect = |i: &usize| match &builder.stmts[*i] {
        BuilderStmt::Call(call) => !Facts.has_effect(&call.op) && !Facts.uses_rng(&call.op),
        BuilderStmt::Bind(..) => false,
    };
    let without = |i: usize| {
        let mut builder = builder.clone();
        drop_stmt(&mut builder, i);
        builder.program().ok()
    };
    (0..builder.stmts.len()).filter(has_no_effect).filter_map(without).any(|program| {
        outcome(&program).is_ok_and(|eager| eager.difference(found, Comparison::ALL).is_ok())
    })
}

fn outcome(program: &TestProgram) -> Result<Outcome> {
    let at = program.sizes.first().cloned().unwrap_or_default();
    let reference = program.run_inputs(&at)?;
    let prepared = Eager.prepare(&Subject::new(program), &reference.inputs)?;
    Outcome::of(&reference, &*prepared)
}
