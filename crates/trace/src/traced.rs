//! A traced program.

use crate::inputs::{LeafKind, part_label};
use crate::state::State;
use maquette_interp::{Interpreter, SourceInfo};
use maquette_ir::Loc;
use maquette_ir::graph::Graph;
use maquette_ops::tree::TreeSpec;
use maquette_ops::{Result, RunError, Tree, Value, mode, tree};
use std::fmt;
use std::marker::PhantomData;

/// The shapes of what a program takes and returns, their types forgotten.
#[derive(Clone, Debug)]
pub struct Interface {
    /// What became of each leaf of the input tree.
    pub inputs: Vec<LeafKind>,
    /// What each leaf of the input tree is called: as it was named, or its path in the tree,
    /// `caches.0.keys`.
    pub labels: Vec<String>,
    /// The shape of the input tree.
    pub in_spec: TreeSpec,
    /// The shape of the output tree. Its leaves are the program's outputs, in order.
    pub out_spec: TreeSpec,
}

impl Interface {
    /// The graph's inputs among the leaves of an input tree, in order. The other leaves are numbers
    /// that the program was traced with.
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
                    let why = "numbers are constants of a trace, unless they are `SymInt`s of a \
                        symbolic one; trace again for other values";
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

    /// What the graph's inputs among the leaves are called.
    pub fn input_labels(&self) -> impl Iterator<Item = &str> {
        self.inputs
            .iter()
            .zip(&self.labels)
            .filter(|(kind, _)| matches!(kind, LeafKind::Input))
            .map(|(_, label)| label.as_str())
    }
}

/// A graph with the shapes of what the program took and returned.
#[derive(Clone, Debug)]
pub struct TracedProgram {
    /// The graph.
    pub graph: Graph,
    /// The first inputs of the graph, where they are tensors of the program's own.
    pub state: Vec<State>,
    /// What it takes besides, and what it returns.
    pub interface: Interface,
    /// The line of the program that took each guard of the graph, in the graph's order.
    pub guard_locs: Vec<Loc>,
    /// The line of the program that raised each assertion in the graph's body, in order.
    pub assert_locs: Vec<Loc>,
}

fn equal(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Int(a), Value::Int(b)) => a.as_i64().is_some() && a.as_i64() == b.as_i64(),
        (Value::Float(a), Value::Float(b)) => a.to_bits() == b.to_bits(),
        (Value::Bool(a), Value::Bool(b)) => a == b,
        _ => false,
    }
}

/// A program from inputs `I` to outputs `O`, as a graph. Displays as the graph's text.
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

    /// The graph and what else was recorded.
    pub fn program(&self) -> &TracedProgram {
        &self.program
    }

    /// The graph and what else was recorded.
    pub fn into_program(self) -> TracedProgram {
        self.program
    }

    /// Runs the graph on real tensors, operator by operator, as the program would: the reference
    /// for every other way to run it.
    ///
    /// Everything the trace took for granted is checked: the inputs' metadata, guards, assertions,
    /// and the metadata of every result.
    ///
    /// # Errors
    /// The inputs are not those the graph was traced for, an operator fails, or its result is not
    /// what its fake kernel promised.
    #[track_caller]
    pub fn run(&self, inputs: I) -> Result<O> {
        let TracedProgram { graph, state, interface, guard_locs, assert_locs } = &self.program;
        let labels: Vec<String> = state
            .iter()
            .map(|_| String::new())
            .chain(interface.input_labels().map(ToOwned::to_owned))
            .collect();
        let source_info =
            SourceInfo { guard_locs, assert_locs, input_names: &labels, call_site: Loc::caller() };
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
