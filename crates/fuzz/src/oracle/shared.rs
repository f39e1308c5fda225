//! One compiled function for all runs of a program, on any thread.

use super::mode::{Mode, PreparedProgram, RunResult};
use super::model;
use super::program::TestProgram;
use super::subject::Subject;
use maquette_check::values::FlatValues;
use maquette_driver::{CompileOptions, Compiled};
use maquette_ops::{Result, Tensor};
use std::sync::Arc;

/// More than the programs that the sizes of one program of the oracle need.
const PROGRAMS: usize = 64;

type Function = Box<dyn Fn(Vec<Tensor>) -> Result<FlatValues> + Send + Sync>;

/// The mode that calls the program as a compiled function, which compiles itself at its calls. All
/// preparations share the function, so that several threads can check the program at the same time.
pub struct SharedMode {
    compiled: Arc<Compiled<Vec<Tensor>, Result<FlatValues>, Function>>,
}

impl SharedMode {
    /// The mode for this program, and no other.
    pub fn of(program: &TestProgram) -> SharedMode {
        let graph = program.graph.clone();
        let run: Function =
            Box::new(move |inputs| model::call_all(&graph, &inputs).map(FlatValues));
        let compiled = CompileOptions::new().recompile_limit(PROGRAMS).compile(run);
        SharedMode { compiled: Arc::new(compiled) }
    }
}

impl Mode for SharedMode {
    fn name(&self) -> &'static str {
        "shared"
    }

    fn keeps_nans(&self, program: &TestProgram) -> bool {
        program.only_moves()
    }

    fn prepare(&self, _program: &Subject<'_>, _sample: &[Tensor]) -> Result<PreparedProgram> {
        let compiled = self.compiled.clone();
        Ok(Box::new(move |inputs| Ok(RunResult::from(compiled.call(inputs.to_vec())?.0))))
    }

    fn serves_all_sizes(&self, _program: &TestProgram) -> bool {
        true
    }
}
