//! Programs without a plan, which run operator by operator.

use crate::outputs::OutputSlots;
use maquette_interp::{ExecutionMode, Interpreter};
use maquette_invoke::{Bindings, ExternalTensors, SourceInfo};
use maquette_ir::Loc;
use maquette_ir::graph::Graph;
use maquette_ops::{Access, Result, RunBorrow, RunInput, RunTensor, Tensor, Value};
use std::sync::Arc;

/// Runs a program.
///
/// # Errors
/// As [`Executable::run`](crate::Executable::run).
pub(crate) fn run(
    mode: &ExecutionMode<'_>,
    inputs: &[Value],
    source_info: &SourceInfo<'_>,
) -> Result<Vec<Value>> {
    Ok(Interpreter::new(mode).with_source_info(*source_info).run(inputs)?.results)
}

/// The graph of a program, and the external tensors of a run.
fn external_tensors<'m>(
    mode: &'m ExecutionMode<'_>,
    inputs: &[Value],
    source_info: &SourceInfo<'_>,
) -> Result<(&'m Graph, ExternalTensors)> {
    Ok(match mode {
        ExecutionMode::Original(graph) => {
            (&**graph, ExternalTensors::of_graph(graph, inputs, source_info)?)
        }
        ExecutionMode::Functional(program) | ExecutionMode::Buffered(program, _) => {
            (&program.graph, ExternalTensors::of_program(program, inputs, source_info)?)
        }
    })
}

/// Runs a program and copies its results. The outputs are checked and borrowed before anything is
/// written.
///
/// # Errors
/// As [`Executable::run_into`](crate::Executable::run_into).
pub(crate) fn run_into(
    mode: &ExecutionMode<'_>,
    inputs: &[Value],
    outputs: &[Tensor],
    source_info: &SourceInfo<'_>,
) -> Result<()> {
    let program = match mode {
        ExecutionMode::Original(_) => None,
        ExecutionMode::Functional(program) | ExecutionMode::Buffered(program, _) => {
            Some(&**program)
        }
    };
    let (graph, external) = external_tensors(mode, inputs, source_info)?;
    let mut bindings = Bindings::new(graph, source_info.input_names);
    bindings.bind_inputs(external.graph_inputs())?;
    let slots = OutputSlots::unplanned(graph, program, &bindings);
    slots.check(graph, outputs, &external, source_info)?;
    let mut given = outputs.to_vec();
    let mut borrow = RunBorrow::default();
    borrow.take(&mut borrowed(&mut given, source_info.call_site))?;
    let run = Interpreter::new(mode).with_source_info(*source_info).run(inputs)?;
    slots.copy(&run.results, &given)
}

/// The outputs, borrowed exclusively.
fn borrowed(given: &mut [Tensor], loc: Loc) -> Vec<RunTensor<'_>> {
    let output = |(i, tensor): (usize, _)| {
        let input = RunInput { role: "output", name: i.to_string().into(), loc };
        RunTensor { tensor, access: Access::Write, input: Arc::new(input) }
    };
    given.iter_mut().enumerate().map(output).collect()
}
