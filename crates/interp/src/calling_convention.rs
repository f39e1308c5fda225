//! The calling convention of functional graphs: a run has the same visible effects as a run of the
//! original, mutating program.
//!
//! A functional graph only computes values. After a run in new memory, this module writes the
//! mutations back to inputs and constants. It then gives each output the strides, aliases and
//! shared storage that the original program would return. A buffer plan writes the mutations
//! itself, and most outputs already have their final memory.

use crate::buffered;
use crate::frame::{Frame, Semantics};
use maquette_invoke::{
    ExternalTensors, OutputBuilder, SourceInfo, copy_for_write, mutated, storage_id,
};
use maquette_ir::buffer_plan::BufferPlan;
use maquette_ir::copy_cost::Traffic;
use maquette_ir::functional_program::FunctionalGraph;
use maquette_ops::{Result, RunBorrow, RunError, Value, mode};

/// Runs a functional graph in new memory, then writes its mutations back. The run borrows all
/// external tensors from its start to its end.
pub(crate) fn run_functional(
    program: &FunctionalGraph,
    inputs: &[Value],
    source_info: &SourceInfo<'_>,
) -> Result<(Vec<Value>, RunBorrow)> {
    let mut external = ExternalTensors::of_program(program, inputs, source_info)?;
    let mut borrow = RunBorrow::default();
    external.borrow(&program.graph, &mutated(program), source_info, &mut borrow)?;
    let semantics = Semantics::Values { unknown_strides: &program.unknown_strides };
    let mut results = Frame::new(&program.graph, source_info, semantics)
        .run(external.graph_inputs(), external.consts())?;
    // A result may alias an external tensor or an earlier result. Without a copy, a write-back
    // could overwrite a value before it is itself written back or returned.
    let mut storages = external.storages();
    for result in &mut results {
        if let Value::Tensor(t) = result
            && storage_id(t).is_some_and(|id| storages.contains(&id))
        {
            *result = Value::Tensor(copy_for_write(t)?);
        }
        storages.extend(result.tensors().filter_map(storage_id));
    }
    let builder = OutputBuilder::new(&results, &external, &[]);
    for m in &program.mutations {
        let target = builder.view_at(external.get(m.target)?, m.layout)?;
        let value = builder.result(m.result)?.tensor()?;
        mode::with_builtin_kernels(|| target.copy_(value).ok().map(drop))?;
    }
    Ok((outputs(program, builder)?, borrow))
}

/// Runs a functional graph in the memory of a buffer plan. Returns the outputs and the number of
/// written elements.
pub(crate) fn run_buffered(
    program: &FunctionalGraph,
    plan: &BufferPlan,
    inputs: &[Value],
    source_info: &SourceInfo<'_>,
) -> Result<(Vec<Value>, Traffic, RunBorrow)> {
    if plan.graph != program.graph.digest() {
        return Err(RunError::OtherPlan { graph: program.graph.name().to_owned() }.into());
    }
    let mut external = ExternalTensors::of_program(program, inputs, source_info)?;
    let mut borrow = RunBorrow::default();
    external.borrow(&program.graph, &mutated(program), source_info, &mut borrow)?;
    let run = buffered::run(program, plan, &external, source_info)?;
    let builder = OutputBuilder::new(&run.results, &external, &run.outputs);
    Ok((outputs(program, builder)?, run.traffic, borrow))
}

fn outputs(program: &FunctionalGraph, mut builder: OutputBuilder<'_>) -> Result<Vec<Value>> {
    program.outputs.iter().map(|o| builder.output(o)).collect()
}
