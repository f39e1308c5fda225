//! The calling convention of functional graphs: a run has the same visible effects as a run of the
//! original, mutating program.
//!
//! A functional graph only computes values. After a run in new memory, this module writes the
//! mutations back to inputs and constants. It then gives each output the strides, aliases and
//! shared storage that the original program would return. A buffer plan writes the mutations
//! itself, and most outputs already have their final memory.

mod external_tensors;
mod outputs;

use crate::buffered;
use crate::copies::copy_for_write;
use crate::frame::{Frame, Semantics};
use crate::source_info::SourceInfo;
use external_tensors::ExternalTensors;
use maquette_ir::buffer_plan::BufferPlan;
use maquette_ir::copy_cost::Traffic;
use maquette_ir::functional_program::FunctionalGraph;
use maquette_ops::{Result, RunError, Value};
use outputs::{OutputBuilder, tensor};

/// Runs a functional graph in new memory, then writes its mutations back.
pub(crate) fn run_functional(
    program: &FunctionalGraph,
    inputs: &[Value],
    source_info: &SourceInfo<'_>,
) -> Result<Vec<Value>> {
    let external = ExternalTensors::new(program, inputs, source_info)?;
    external.check_sharing(program)?;
    let mut results = Frame::new(&program.graph, source_info, Semantics::Values)
        .run(&external.graph_inputs(inputs))?;
    // A result may alias an external tensor or an earlier result. Without a copy, a write-back
    // could overwrite a value before it is itself written back or returned.
    for i in 0..results.len() {
        if let Value::Tensor(t) = &results[i]
            && (external.any_shares_storage(t)
                || results[..i].iter().flat_map(Value::tensors).any(|u| u.shares_storage(t)))
        {
            results[i] = Value::Tensor(copy_for_write(t)?);
        }
    }
    let builder = OutputBuilder::new(&results, &external, &[]);
    for m in &program.mutations {
        let target = builder.view_at(external.get(m.target)?, m.layout)?;
        target.copy_(tensor(builder.result(m.result)?)?).ok()?;
    }
    outputs(program, builder)
}

/// Runs a functional graph in the memory of a buffer plan. Returns the outputs and the number of
/// written elements.
pub(crate) fn run_buffered(
    program: &FunctionalGraph,
    plan: &BufferPlan,
    inputs: &[Value],
    source_info: &SourceInfo<'_>,
) -> Result<(Vec<Value>, Traffic)> {
    if plan.graph != program.graph.digest() {
        return Err(RunError::OtherPlan { graph: program.graph.name().to_owned() }.into());
    }
    let external = ExternalTensors::new(program, inputs, source_info)?;
    external.check_sharing(program)?;
    let run = buffered::run(&program.graph, plan, &external.graph_inputs(inputs), source_info)?;
    let builder = OutputBuilder::new(&run.results, &external, &run.outputs);
    Ok((outputs(program, builder)?, run.traffic))
}

fn outputs(program: &FunctionalGraph, mut builder: OutputBuilder<'_>) -> Result<Vec<Value>> {
    program.outputs.iter().map(|o| builder.output(o)).collect()
}
