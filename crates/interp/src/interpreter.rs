//! The entry point of the crate: executes a program in one of its modes.

use crate::calling_convention;
use crate::frame::{Frame, Semantics};
use maquette_invoke::{ExternalTensors, SourceInfo, check_overrides, outside_modes};
use maquette_ir::copy_cost::Traffic;
use maquette_ir::functional_program::{ExecutionMode, ExternalTensor};
use maquette_ir::graph::{Def, Graph, StrId, ValueId};
use maquette_ops::library::Facts;
use maquette_ops::{Op, Result, RunBorrow, Value};
use rustc_hash::FxHashSet;

/// Executes a program, operator by operator.
#[derive(Clone, Debug)]
pub struct Interpreter<'a> {
    mode: ExecutionMode<'a>,
    source_info: Option<SourceInfo<'a>>,
}

/// The result of a run.
#[derive(Clone, Debug)]
pub struct Execution {
    /// The program's outputs.
    pub results: Vec<Value>,
    /// The number of computed and copied elements. Only a run in planned memory counts them.
    pub traffic: Option<Traffic>,
}

impl<'a> Interpreter<'a> {
    /// An interpreter of a graph, a functional graph, or a functional graph with a buffer plan.
    pub fn new(mode: impl Into<ExecutionMode<'a>>) -> Interpreter<'a> {
        Interpreter { mode: mode.into(), source_info: None }
    }

    /// Sets the lines and input names that errors show.
    pub fn with_source_info(self, source_info: SourceInfo<'a>) -> Interpreter<'a> {
        Interpreter { source_info: Some(source_info), ..self }
    }

    /// Runs the program. In every mode, inputs and constants are mutated as the original program
    /// mutates them, and outputs alias the same tensors.
    ///
    /// The run borrows all inputs and constants before its first operator: exclusively if it
    /// mutates them, for reading otherwise. If another access conflicts with such a borrow, the run
    /// is refused before any write. Two runs that mutate the same tensor therefore never overlap,
    /// and runs that only read a tensor may overlap. A kernel accesses a tensor that the run
    /// mutates only through its arguments. Access through a handle that the kernel kept or captured
    /// is refused.
    ///
    /// A run in planned memory that fails may leave intermediate values in the memory that the
    /// program mutates. Only memory that the program first writes after the failed assertion or
    /// effect is unchanged.
    ///
    /// # Errors
    /// The inputs differ from the graph's declarations, a guard or an assertion does not hold, an
    /// operator is missing or fails, a result's metadata differs from its declaration, a constant
    /// has no contents, the plan belongs to another graph, inputs share memory that the program
    /// mutates otherwise than in the trace, or another access conflicts with a borrow of the run.
    /// An input or a constant requires a gradient, and the run is not inside of `no_grad`. A trace
    /// or `autocast` is running on this thread.
    #[track_caller]
    pub fn run(&self, inputs: &[Value]) -> Result<Execution> {
        let source_info = match self.source_info {
            Some(source_info) => source_info,
            None => SourceInfo::of_caller(),
        };
        outside_modes(&source_info, || self.execute(inputs, &source_info))
    }

    fn execute(&self, inputs: &[Value], source_info: &SourceInfo<'_>) -> Result<Execution> {
        let (mut results, traffic, borrow) = match &self.mode {
            ExecutionMode::Original(graph) => {
                check_overrides(graph, &[])?;
                let (results, borrow) = run_original(graph, inputs, source_info)?;
                (results, None, borrow)
            }
            ExecutionMode::Functional(program) => {
                check_overrides(&program.graph, &program.viewers)?;
                let (results, borrow) =
                    calling_convention::run_functional(program, inputs, source_info)?;
                (results, None, borrow)
            }
            ExecutionMode::Buffered(program, plan) => {
                check_overrides(&program.graph, &program.viewers)?;
                let (results, traffic, borrow) =
                    calling_convention::run_buffered(program, plan, inputs, source_info)?;
                (results, Some(traffic), borrow)
            }
        };
        results.iter_mut().for_each(|v| borrow.restore(v));
        Ok(Execution { results, traffic })
    }
}

/// Runs an original graph. The run borrows all external tensors from its start to its end.
fn run_original(
    graph: &Graph,
    inputs: &[Value],
    source_info: &SourceInfo<'_>,
) -> Result<(Vec<Value>, RunBorrow)> {
    let mut external = ExternalTensors::of_graph(graph, inputs, source_info)?;
    let mut borrow = RunBorrow::default();
    external.borrow(graph, &written_externals(graph), source_info, &mut borrow)?;
    let frame = Frame::new(graph, source_info, Semantics::Memory);
    Ok((frame.run(external.graph_inputs(), external.consts())?, borrow))
}

/// The inputs and constants that an original graph may mutate.
fn written_externals(graph: &Graph) -> FxHashSet<ExternalTensor> {
    let ops: FxHashSet<StrId> = graph.nodes().map(|node| graph.op(node)).collect();
    // Most graphs mutate nothing. They do not need the alias analysis.
    if !ops.iter().any(|op| Op::find(graph.str(*op)).is_ok_and(|op| op.is_mutable())) {
        return FxHashSet::default();
    }
    let external = |v: ValueId| match graph.def(v) {
        Def::Input(i) => Some(ExternalTensor::Input(i as usize)),
        Def::Const(i) => Some(ExternalTensor::Const(i as usize)),
        Def::Node(_) => None,
    };
    graph.written_externals(&Facts).into_iter().filter_map(external).collect()
}
