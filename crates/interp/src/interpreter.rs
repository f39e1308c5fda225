//! The one entry: executes a program in one of its modes.

use crate::calling_convention;
use crate::frame::{Frame, Semantics};
use crate::source_info::SourceInfo;
use maquette_ir::copy_cost::Traffic;
use maquette_ir::functional_program::ExecutionMode;
use maquette_ops::{Error, Result, TraceError, Value, mode};

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
    /// A run in planned memory that fails may leave values in memory that the program writes. Only
    /// memory that the program first writes behind the failed assertion or effect is unchanged.
    ///
    /// # Errors
    /// The inputs are not what the graph declares, a guard or an assertion does not hold, an
    /// operator is missing or fails, a result's metadata is not the declared one, a constant's
    /// contents are not there, the plan is of another graph, or two inputs of a functional graph
    /// share memory that the program writes.
    #[track_caller]
    pub fn run(&self, inputs: &[Value]) -> Result<Execution> {
        let source_info = match self.source_info {
            Some(source_info) => source_info,
            None => SourceInfo::of_caller(),
        };
        if mode::is_active() {
            return Err(mode::failed(Error::from(TraceError::Run).at(source_info.call_site)));
        }
        mode::without_modes(|| self.execute(inputs, &source_info))
            .map_err(|e| source_info.locate(e))
    }

    fn execute(&self, inputs: &[Value], source_info: &SourceInfo<'_>) -> Result<Execution> {
        match &self.mode {
            ExecutionMode::Original(graph) => {
                let results = Frame::new(graph, source_info, Semantics::Memory).run(inputs)?;
                Ok(Execution { results, traffic: None })
            }
            ExecutionMode::Functional(program) => {
                let results = calling_convention::run_functional(program, inputs, source_info)?;
                Ok(Execution { results, traffic: None })
            }
            ExecutionMode::Buffered(program, plan) => {
                let (results, traffic) =
                    calling_convention::run_buffered(program, plan, inputs, source_info)?;
                Ok(Execution { results, traffic: Some(traffic) })
            }
        }
    }
}
