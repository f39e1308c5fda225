//! The pass `concats`.

use crate::{Compilation, PassOptions, target};
use maquette_ir::buffer_plan::BufferPlan;
use maquette_ir::functional_program::FunctionalGraph;
use maquette_ir::program_form::{PlannedProgram, ProgramForm};
use maquette_ops::Result;
use maquette_rewrite::{decompose_concats, plan};

/// Makes concatenations stores of their parts. The program stays as it is if the plan would then
/// copy more than the program may.
pub(crate) fn run(compilation: &mut Compilation, _: &PassOptions<'_>) -> Result<()> {
    if let ProgramForm::Planned(planned) = &mut compilation.program
        && target::device_of(&planned.program, &planned.plan).is_some()
        && let Some((program, plan)) = with_parts_in_place(&planned.program)
    {
        **planned = PlannedProgram::new(program, plan);
    }
    Ok(())
}

/// A program whose concatenations are stores of their parts, with its plan. `None` if it has none,
/// or if the plan would copy more than the program may.
fn with_parts_in_place(program: &FunctionalGraph) -> Option<(FunctionalGraph, BufferPlan)> {
    let program = decompose_concats(program, target::OPERATORS).ok()??;
    let plan = plan(&program, target::OPERATORS).ok()?;
    program.within_eager_copies(&plan).then_some((program, plan))
}
