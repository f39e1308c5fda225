//! The calling convention of functional graphs: makes a run indistinguishable from one of the
//! program that mutates.
//!
//! The graph computes values. Afterwards, mutated inputs and constants are written, and each output
//! is laid out, aliased and shared as the original program returns it. In planned memory the plan
//! writes the mutations itself, and most outputs are already in place.

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
use maquette_ops::{Result, Value};
use outputs::{OutputBuilder, tensor};

/// Runs a functional graph in new memory, then writes its mutations.
pub(crate) fn run_functional(
    program: &FunctionalGraph,
    inputs: &[Value],
    source_info: &SourceInfo<'_>,
) -> Result<Vec<Value>> {
    let external = ExternalTensors::new(program, inputs, source_info)?;
    external.check_sharing(program)?;
    let mut results = Frame::new(&program.graph, source_info, Semantics::Values)
        .run(&external.graph_inputs(inputs))?;
    // a write must change no value that is still to be written or returned
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

/// Runs a functional graph in the memory of a plan. Returns the outputs, and how many elements
/// were written.
pub(crate) fn run_buffered(
    program: &FunctionalGraph,
    plan: &BufferPlan,
    inputs: &[Value],
    source_info: &SourceInfo<'_>,
) -> Result<(Vec<Value>, Traffic)> {
    let external = ExternalTensors::new(program, inputs, source_info)?;
    external.check_sharing(program)?;
    let run = buffered::run(&program.graph, plan, &external.graph_inputs(inputs), source_info)?;
    let builder = OutputBuilder::new(&run.results, &external, &run.outputs);
    Ok((outputs(program, builder)?, run.traffic))
}

fn outputs(program: &FunctionalGraph, mut builder: OutputBuilder<'_>) -> Result<Vec<Value>> {
    program.outputs.iter().map(|o| builder.output(o)).collect()
}
