//! What runs a compiled program.
//!
//! The program runs compiled, in the memory of a buffer plan, where there is one that copies no
//! more than the eager program. Otherwise it runs as it was traced.

use super::explain::RecomputeExplanation;
use super::recompute::recomputing;
use crate::operators::add_ops;
use maquette_interp::SourceInfo;
use maquette_ops::library::Facts;
use maquette_ops::{Op, Result, Value};
use maquette_rewrite::{ExecutionMode, Options, Rematerialization, functionalize_in_place};
use maquette_runtime::Executable;
use maquette_trace::TracedProgram;

/// Runs a program on values.
#[derive(Debug)]
pub(crate) struct Executor {
    executable: Executable,
    description: String,
    recomputed: Option<RecomputeExplanation>,
}

impl Executor {
    /// Prepares a program. `shared` tells whether inputs share memory that the program writes. With
    /// options, values are computed again, for the sizes of `inputs`.
    ///
    /// # Errors
    /// The program cannot be run.
    pub(crate) fn new(
        program: &TracedProgram,
        shared: bool,
        options: Option<Rematerialization>,
        inputs: impl FnOnce() -> Vec<Value>,
    ) -> Result<Executor> {
        let as_traced = |why: &str| -> Result<Executor> {
            let nodes = count(program.graph.node_count(), "node");
            let mode = ExecutionMode::Original(std::borrow::Cow::Borrowed(&program.graph));
            Ok(Executor {
                executable: Executable::new(mode)?,
                description: format!("{nodes}, as traced: {why}"),
                recomputed: None,
            })
        };
        if shared {
            return as_traced("inputs share memory that the program writes");
        }
        match functionalize_in_place(&program.graph, &Facts, &Options::new()) {
            Ok(ExecutionMode::Buffered(functional, plan)) => {
                let description = format!(
                    "{}, in planned memory of {}",
                    count(functional.graph.node_count(), "node"),
                    count(plan.buffers.len(), "buffer")
                );
                let (executable, recomputed) = match options {
                    Some(options) => {
                        let (executable, recomputed) =
                            recomputing(&functional, &plan, options, &inputs())?;
                        (executable, Some(recomputed))
                    }
                    None => (Executable::new(ExecutionMode::Buffered(functional, plan))?, None),
                };
                Ok(Executor { executable, description, recomputed })
            }
            Ok(ExecutionMode::Original(_) | ExecutionMode::Functional(_)) => {
                as_traced("no plan is known to copy as little as the eager program")
            }
            Err(e) => as_traced(e.to_string().lines().next().unwrap_or_default()),
        }
    }

    /// Runs the program. The values are the inputs of its graph.
    ///
    /// # Errors
    /// As [`Executable::run`].
    pub(crate) fn run(&self, inputs: &[Value], source_info: &SourceInfo<'_>) -> Result<Vec<Value>> {
        self.executable.run(inputs, source_info)
    }

    /// The operators that a run calls.
    pub(crate) fn ops(&self) -> Vec<Op> {
        let mut ops = Vec::new();
        add_ops(self.executable.graph(), &mut ops);
        ops
    }

    /// What runs the program.
    pub(crate) fn executable(&self) -> &Executable {
        &self.executable
    }

    /// What is computed again, if it was asked for, and the program has a plan.
    pub(crate) fn recomputed(&self) -> Option<RecomputeExplanation> {
        self.recomputed
    }

    /// How the program runs, for `explain`.
    pub(crate) fn describe(&self) -> &str {
        &self.description
    }
}

fn count(n: usize, what: &str) -> String {
    format!("{n} {what}{}", if n == 1 { "" } else { "s" })
}
