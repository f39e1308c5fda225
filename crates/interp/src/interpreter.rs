//! The one entry: executes a program in one of its modes.

use crate::calling_convention;
use crate::external_tensors::ExternalTensors;
use crate::frame::{Frame, Semantics};
use crate::source_info::SourceInfo;
use maquette_ir::copy_cost::Traffic;
use maquette_ir::functional_program::{ExecutionMode, ExternalTensor};
use maquette_ir::graph::{Def, Graph, StrId, ValueId};
use maquette_ops::library::Facts;
use maquette_ops::{Error, Op, Result, RunBorrow, TraceError, Value, mode};
use rustc_hash::FxHashSet;

/// Executes a program, operator by operator.
#[derive(Clone, Debug)]
pub struct Interpreter<'a> {
    mode: ExecutionMode<'a>,
    source_info: Option<SourceInfo<'a>>,
}

/// The outcome of a run.
#[derive(Clone, Debug)]
pub struct Execution {
    /// The program's outputs.
    pub results: Vec<Value>,
    /// How many elements were written and copied; only counted in planned memory.
    pub traffic: Option<Traffic>,
}

impl<'a> Interpreter<'a> {
    /// An interpreter of a graph, a functional graph, or a functional graph with a plan.
    pub fn new(mode: impl Into<ExecutionMode<'a>>) -> Interpreter<'a> {
        Interpreter { mode: mode.into(), source_info: None }
    }

    /// Names the program's lines and inputs in errors.
    pub fn with_source_info(self, source_info: SourceInfo<'a>) -> Interpreter<'a> {
        Interpreter { source_info: Some(source_info), ..self }
    }

    /// Runs the program. Mutated inputs and constants are written, and outputs are new memory or
    /// views of inputs, in every mode as the original program would do.
    ///
    /// The run borrows all inputs and constants before its first operator: those that it writes
    /// exclusively, the others for reading. So runs that share what they write do not overlap, on
    /// however many threads: one of them is refused before anything is written. Runs that only read
    /// a tensor overlap freely. A kernel of the run reaches what the run writes through its
    /// arguments only; access through a handle that it kept or captured is refused.
    ///
    /// A run in planned memory that fails may leave values in memory that the program writes. Only
    /// memory that the program first writes behind the failed assertion or effect is unchanged.
    ///
    /// # Errors
    /// The inputs are not what the graph declares, a guard or an assertion does not hold, an
    /// operator is missing or fails, a result's metadata is not the declared one, a constant's
    /// contents are not there, the plan is of another graph, two inputs of a functional graph
    /// share memory that the program writes, or somebody else accesses an input that the run
    /// writes, or writes one that the run reads.
    #[track_caller]
    pub fn run(&self, inputs: &[Value]) -> Result<Execution> {
        let source_info = match self.source_info {
            Some(source_info) => source_info,
            None => SourceInfo::of_caller(),
        };
        if mode::is_active() {
            return Err(Error::from(TraceError::Run).at(source_info.call_site));
        }
        mode::without_modes(|| self.execute(inputs, &source_info))
            .map_err(|e| source_info.locate(e))
    }

    fn execute(&self, inputs: &[Value], source_info: &SourceInfo<'_>) -> Result<Execution> {
        let (mut results, traffic, borrow) = match &self.mode {
            ExecutionMode::Original(graph) => {
                let (results, borrow) = run_original(graph, inputs, source_info)?;
                (results, None, borrow)
            }
            ExecutionMode::Functional(program) => {
                let (results, borrow) =
                    calling_convention::run_functional(program, inputs, source_info)?;
                (results, None, borrow)
            }
            ExecutionMode::Buffered(program, plan) => {
                let (results, traffic, borrow) =
                    calling_convention::run_buffered(program, plan, inputs, source_info)?;
                (results, Some(traffic), borrow)
            }
        };
        results.iter_mut().for_each(|v| borrow.restore(v));
        Ok(Execution { results, traffic })
    }
}

/// Runs a graph on the tensors themselves, borrowed for all of the run.
fn run_original(
    graph: &Graph,
    inputs: &[Value],
    source_info: &SourceInfo<'_>,
) -> Result<(Vec<Value>, RunBorrow)> {
    let mut external = ExternalTensors::of_graph(graph, inputs, source_info)?;
    let borrow = external.borrow(graph, &written_externals(graph), source_info.call_site)?;
    let frame = Frame::new(graph, source_info, Semantics::Memory);
    Ok((frame.run(&external.graph_inputs(), external.consts())?, borrow))
}

/// The inputs and constants that a graph may write.
fn written_externals(graph: &Graph) -> FxHashSet<ExternalTensor> {
    let ops: FxHashSet<StrId> = graph.nodes().map(|node| graph.op(node)).collect();
    // most graphs write nothing, and need no search for aliases
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
