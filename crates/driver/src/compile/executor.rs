//! What runs a compiled program: the one place that knows how.
//!
//! The program runs on the interpreter, in the memory of a buffer plan where there is one that
//! copies no more than the eager program. Otherwise it runs as it was traced.

use maquette_interp::{Interpreter, SourceInfo};
use maquette_ir::functional_ops::{Callee, is_functional_op};
use maquette_ir::graph::Graph;
use maquette_ops::library::Facts;
use maquette_ops::{Op, Result, Value};
use maquette_rewrite::{ExecutionMode, Options, functionalize_in_place};
use maquette_trace::TracedProgram;

/// Runs a program on values.
#[derive(Debug)]
pub(crate) struct Executor {
    mode: ExecutionMode<'static>,
    /// Why the program runs as it was traced; empty if it does not.
    why_as_traced: String,
}

impl Executor {
    /// Prepares a program. `shared` tells whether inputs share memory that the program writes.
    ///
    /// # Errors
    /// The program cannot be run.
    pub(crate) fn new(program: &TracedProgram, shared: bool) -> Result<Executor> {
        let as_traced = |why: String| Executor {
            mode: ExecutionMode::Original(std::borrow::Cow::Owned(program.graph.clone())),
            why_as_traced: why,
        };
        if shared {
            return Ok(as_traced("inputs share memory that the program writes".to_owned()));
        }
        Ok(match functionalize_in_place(&program.graph, &Facts, &Options::new()) {
            Ok(ExecutionMode::Original(_)) => {
                as_traced("no plan is known to copy as little as the eager program".to_owned())
            }
            Ok(mode) => Executor { mode, why_as_traced: String::new() },
            Err(e) => {
                let error = e.to_string();
                as_traced(error.lines().next().unwrap_or_default().to_owned())
            }
        })
    }

    /// Runs the program. The values are the inputs of its graph.
    ///
    /// # Errors
    /// As [`Interpreter::run`].
    pub(crate) fn run(&self, inputs: &[Value], source_info: &SourceInfo<'_>) -> Result<Vec<Value>> {
        let interpreter = Interpreter::new(&self.mode).with_source_info(*source_info);
        Ok(interpreter.run(inputs)?.results)
    }

    /// The operators that a run calls.
    pub(crate) fn ops(&self) -> Vec<Op> {
        let graph = match &self.mode {
            ExecutionMode::Original(graph) => &**graph,
            ExecutionMode::Functional(program) | ExecutionMode::Buffered(program, _) => {
                &program.graph
            }
        };
        let mut ops = Vec::new();
        add_ops(graph, &mut ops);
        ops
    }

    /// How the program runs, for `explain`.
    pub(crate) fn describe(&self) -> String {
        match &self.mode {
            ExecutionMode::Original(graph) => {
                format!("{}, as traced: {}", count(graph.node_count(), "node"), self.why_as_traced)
            }
            ExecutionMode::Functional(program) => {
                format!("{}, functional", count(program.graph.node_count(), "node"))
            }
            ExecutionMode::Buffered(program, plan) => format!(
                "{}, in planned memory of {}",
                count(program.graph.node_count(), "node"),
                count(plan.buffers.len(), "buffer")
            ),
        }
    }
}

fn count(n: usize, what: &str) -> String {
    format!("{n} {what}{}", if n == 1 { "" } else { "s" })
}

/// Adds the operators that a graph calls, each once.
pub(crate) fn add_ops(graph: &Graph, ops: &mut Vec<Op>) {
    for node in graph.nodes() {
        let name = Callee::of(graph, node).op;
        if !is_functional_op(name)
            && let Ok(op) = Op::find(name)
            && !ops.contains(&op)
        {
            ops.push(op);
        }
    }
}
