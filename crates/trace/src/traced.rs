//! A traced program.

use crate::inputs::{LeafKind, part_label};
use crate::state::State;
use maquette_interp::Interpreter;
use maquette_invoke::SourceInfo;
use maquette_ir::Loc;
use maquette_ir::graph::Graph;
use maquette_ops::tree::TreeSpec;
use maquette_ops::{Op, Result, RunError, Tree, Value, mode, tree};
use std::fmt;
use std::marker::PhantomData;

/// The input and output trees of a program, without their Rust types.
#[derive(Clone, Debug)]
pub struct Interface {
    /// For each leaf of the input tree: an input of the graph, or a constant.
    pub inputs: Vec<LeafKind>,
    /// The name of each leaf of the input tree: the given name, or its path, `caches.0.keys`.
    pub labels: Vec<String>,
    /// The shape of the input tree.
    pub in_spec: TreeSpec,
    /// The shape of the output tree. Its leaves are the program's outputs, in order.
    pub out_spec: TreeSpec,
}

impl Interface {
    /// Selects the graph's inputs among the leaves of an input tree, in order. The other leaves are
    /// numbers, which must be those of the trace.
    ///
    /// # Errors
    /// The tree is not shaped as the traced one, or a number differs.
    pub fn flatten_inputs<I: Tree>(&self, inputs: &I) -> Result<Vec<Value>> {
        let (spec, leaves) = tree::flatten(inputs)?;
        if let Some((path, expected, found)) = self.in_spec.difference(&spec) {
            return Err(
                RunError::InputStructure { input: part_label(&path), expected, found }.into()
            );
        }
        let mut inputs = Vec::with_capacity(leaves.len());
        for ((leaf, kind), label) in leaves.into_iter().zip(&self.inputs).zip(&self.labels) {
            match kind {
                LeafKind::Input => inputs.push(leaf.value),
                LeafKind::Fixed(value) if equal(value, &leaf.value) => {}
                LeafKind::Fixed(value) => {
                    let why = "a trace is specialized to numbers, except `SymInt`s of a symbolic \
                        trace; trace again for other values";
                    return Err(RunError::Input {
                        input: label.clone(),
                        what: "the value".into(),
                        expected: value.kind().to_string(),
                        found: leaf.value.kind().to_string(),
                        why: Some(why.into()),
                    }
                    .into());
                }
            }
        }
        Ok(inputs)
    }

    /// The names of the leaves that are inputs of the graph.
    pub fn input_labels(&self) -> impl Iterator<Item = &str> {
        self.inputs
            .iter()
            .zip(&self.labels)
            .filter(|(kind, _)| matches!(kind, LeafKind::Input))
            .map(|(_, label)| label.as_str())
    }
}

/// A traced graph with its input and output trees and its source lines.
#[derive(Clone, Debug)]
pub struct TracedProgram {
    /// The graph.
    pub graph: Graph,
    /// The program's own tensors, which are the first inputs of the graph.
    pub state: Vec<State>,
    /// The other inputs, and the outputs.
    pub interface: Interface,
    /// Builtin operators that the program called and of which the graph has only the parts, because
    /// the dispatcher called these: composites that were differentiated or cast, and norms that
    /// update statistics. The graph is that of the program as long as nothing overrides them.
    pub decomposed: Vec<Op>,
    /// Whether the trace recorded derivatives. Where the program also writes memory that inputs or
    /// captured tensors share, the graph is that of calls in which the same ones share it.
    pub differentiated: bool,
}

fn equal(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Int(a), Value::Int(b)) => a.as_i64().is_some() && a.as_i64() == b.as_i64(),
        (Value::Float(a), Value::Float(b)) => a.to_bits() == b.to_bits(),
        (Value::Bool(a), Value::Bool(b)) => a == b,
        _ => false,
    }
}

/// A traced program from inputs `I` to outputs `O`. Displays as graph text.
pub struct Traced<I, O> {
    program: TracedProgram,
    types: PhantomData<fn(I) -> O>,
}

impl<I: Tree, O: Tree> Traced<I, O> {
    pub(crate) fn new(program: TracedProgram) -> Traced<I, O> {
        Traced { program, types: PhantomData }
    }

    /// The graph.
    pub fn graph(&self) -> &Graph {
        &self.program.graph
    }

    /// The graph with everything else that the trace recorded.
    pub fn program(&self) -> &TracedProgram {
        &self.program
    }

    /// The graph with everything else that the trace recorded.
    pub fn into_program(self) -> TracedProgram {
        self.program
    }

    /// The program with another graph, which a pass has made of its own: it has the same inputs and
    /// outputs.
    #[must_use]
    pub fn with_graph(&self, graph: Graph) -> Traced<I, O> {
        Traced::new(TracedProgram { graph, ..self.program.clone() })
    }

    /// Runs the graph on real tensors, operator by operator, as the program would. This is the
    /// reference for all other execution modes.
    ///
    /// The run checks every assumption of the trace: the metadata of inputs, guards, assertions,
    /// and the metadata of every result.
    ///
    /// # Errors
    /// The inputs do not fit the graph, a guard or an assertion does not hold, an operator fails,
    /// or the metadata of a result differs from what its fake kernel promised. An input or a
    /// captured tensor requires a gradient, and the run is not inside of `no_grad`. The run is
    /// inside of a trace or of `autocast`.
    #[track_caller]
    pub fn run(&self, inputs: I) -> Result<O> {
        let TracedProgram { graph, state, interface, .. } = &self.program;
        let labels: Vec<String> = state
            .iter()
            .map(|_| String::new())
            .chain(interface.input_labels().map(ToOwned::to_owned))
            .collect();
        let source_info = SourceInfo { input_names: &labels, call_site: Loc::caller() };
        let run = || {
            let own = state.iter().map(|s| Value::Tensor(s.tensor.clone()));
            let given: Vec<Value> = own.chain(interface.flatten_inputs(&inputs)?).collect();
            let run = Interpreter::new(graph).with_source_info(source_info).run(&given)?;
            O::unflatten(&interface.out_spec, &mut run.results.into_iter())
        };
        run().map_err(|e| mode::failed(source_info.locate(e)))
    }
}

impl<I, O> Clone for Traced<I, O> {
    fn clone(&self) -> Self {
        Traced { program: self.program.clone(), types: PhantomData }
    }
}

impl<I, O> fmt::Display for Traced<I, O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.program.graph.fmt(f)
    }
}

impl<I, O> fmt::Debug for Traced<I, O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Traced").field("graph", &self.program.graph.name()).finish_non_exhaustive()
    }
}
