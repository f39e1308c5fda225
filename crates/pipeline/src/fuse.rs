//! The pass `fuse`.

use crate::{Compilation, PassOptions, target};
use maquette_ir::Device;
use maquette_ir::buffer_plan::BufferPlan;
use maquette_ir::functional_program::FunctionalGraph;
use maquette_ir::fused::{FusedProgram, NoFusionReason, Refusal};
use maquette_ir::program_form::ProgramForm;
use maquette_ops::Result;
use maquette_rewrite::{fuse, plan};
use std::result::Result as StdResult;

/// Fuses the operators of a program in planned memory, for the kernels of the target.
pub(crate) fn run(compilation: &mut Compilation, _: &PassOptions<'_>) -> Result<()> {
    if let ProgramForm::Planned(planned) = &mut compilation.program
        && let Some(device) = target::device_of(&planned.program, &planned.plan)
    {
        match fused(&planned.program, device) {
            Ok(fused) => planned.fused = Some(fused),
            Err(refusals) => planned.refusals = refusals,
        }
    }
    Ok(())
}

/// The fused form of a program with its plan. If the plan would copy more than the program may,
/// products that share a factor stay apart. If that copies too much, too, only elementwise
/// operators are fused, which can be written over an operand.
///
/// # Errors
/// Why nothing is fused. No reasons if the pass fails, which is a defect of the library.
fn fused(
    program: &FunctionalGraph,
    device: Device,
) -> StdResult<(FusedProgram, BufferPlan), Vec<Refusal>> {
    let mut kernels = target::kernels(&program.graph, device);
    let (mut refusals, mut apart) = (Vec::new(), Vec::new());
    for (joins_products, only_elements) in [(true, false), (false, false), (false, true)] {
        if !joins_products && !only_elements && apart.is_empty() {
            continue;
        }
        kernels = kernels.joining_products(joins_products).only_elements(only_elements);
        let mut fused = fuse(program.clone(), &kernels).map_err(|_| Vec::new())?;
        if fused.regions.is_empty() {
            return Err(fused.refusals);
        }
        let plan = plan(&fused.program, target::OPERATORS).map_err(|_| Vec::new())?;
        if fused.program.within_eager_copies(&plan) {
            fused.refusals.append(&mut apart);
            fused.refusals.sort_by_key(|r| r.consumer);
            return Ok((fused, plan));
        }
        let graph = &fused.original.graph;
        let given_up = fused.regions.iter();
        refusals = given_up.flat_map(|r| r.refusals(graph, NoFusionReason::Written)).collect();
        refusals.extend(fused.refusals);
        apart.extend(fused.joined.iter().map(|pair| pair.refusal(NoFusionReason::Written)));
    }
    refusals.append(&mut apart);
    refusals.sort_by_key(|r| r.consumer);
    Err(refusals)
}
