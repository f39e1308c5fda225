//! The pass `select-plan`.

use crate::{Compilation, PassOptions, WhyUnplanned, target};
use maquette_ir::program_form::ProgramForm;
use maquette_ops::Result;
use maquette_rewrite::select_plan;
use std::mem;

/// Plans the memory of a program that was made functional. Without a plan that is known to copy as
/// little as the original program, the original is the program.
pub(crate) fn run(compilation: &mut Compilation, options: &PassOptions<'_>) -> Result<()> {
    let Some(original) = compilation.original.take() else { return Ok(()) };
    let program = mem::replace(&mut compilation.program, ProgramForm::Original(original));
    let (ProgramForm::Functional(functional), ProgramForm::Original(original)) =
        (program, &compilation.program)
    else {
        return Ok(());
    };
    match select_plan(original, functional, target::OPERATORS, &options.functionalize) {
        Ok(Some((program, plan))) => compilation.program = ProgramForm::planned(program, plan),
        Ok(None) => compilation.why_unplanned = Some(WhyUnplanned::Copies),
        Err(e) => compilation.why_unplanned = Some(WhyUnplanned::Refused(e)),
    }
    Ok(())
}
