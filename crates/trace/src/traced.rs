//! A traced program.

use crate::inputs::LeafKind;
use crate::run::{Lines, run_with};
use maquette_ir::Loc;
use maquette_ir::graph::Graph;
use maquette_ops::tree::TreeSpec;
use maquette_ops::{Result, RunError, Tree, Value, tree};
use std::fmt;
use std::marker::PhantomData;

/// A graph with the shapes of what the program took and returned, their types forgotten.
#[derive(Clone, Debug)]
pub struct Program {
    /// The graph.
    pub graph: Graph,
    /// What became of each leaf of the input tree.
    pub inputs: Vec<LeafKind>,
    /// The shape of the input tree.
    pub in_spec: TreeSpec,
    /// The shape of the output tree. Its leaves are the graph's outputs, in order.
    pub out_spec: TreeSpec,
    /// The line of the program that took each guard of the graph, in the graph's order.
    pub guard_locs: Vec<Loc>,
    /// The line of the program that raised each assertion in the graph's body, in order.
    pub assert_locs: Vec<Loc>,
}

impl Program {
    /// Runs the graph on the leaves of an input tree of this shape, operator by operator, and gives the leaves of the output tree.
    ///
    /// # Errors
    /// As [`Traced::run`].
    #[track_caller]
    pub fn run(&self, spec: &TreeSpec, leaves: Vec<Value>) -> Result<Vec<Value>> {
        let lines = Lines { guards: &self.guard_locs, asserts: &self.assert_locs, run: Loc::caller() };
        self.run_from(spec, leaves, &lines).map_err(|e| lines.place(e))
    }

    fn run_from(&self, spec: &TreeSpec, leaves: Vec<Value>, lines: &Lines<'_>) -> Result<Vec<Value>> {
        if leaves.len() != self.inputs.len() {
            return Err(RunError::InputCount { expected: self.inputs.len(), found: leaves.len() }.into());
        }
        if *spec != self.in_spec {
            return Err(RunError::InputStructure.into());
        }
        let mut inputs = Vec::with_capacity(leaves.len());
        for (leaf, kind) in leaves.into_iter().zip(&self.inputs) {
            match kind {
                LeafKind::Input => inputs.push(leaf),
                LeafKind::Fixed { value, .. } if equal(value, &leaf) => {}
                LeafKind::Fixed { name, value } => {
                    let why = "numbers are constants of a trace, unless they are `SymInt`s of a symbolic one; trace again for other values";
                    return Err(RunError::Input {
                        input: name.clone(),
                        what: "the value".into(),
                        expected: value.kind().to_string(),
                        found: leaf.kind().to_string(),
                        why: Some(why.into()),
                    }
                    .into());
                }
            }
        }
        run_with(&self.graph, &inputs, lines)
    }
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
    program: Program,
    types: PhantomData<fn(I) -> O>,
}

impl<I: Tree, O: Tree> Traced<I, O> {
    pub(crate) fn new(program: Program) -> Traced<I, O> {
        Traced { program, types: PhantomData }
    }

    /// The graph.
    pub fn graph(&self) -> &Graph {
        &self.program.graph
    }

    /// The graph and what else was recorded.
    pub fn program(&self) -> &Program {
        &self.program
    }

    /// The graph and what else was recorded.
    pub fn into_program(self) -> Program {
        self.program
    }

    /// Runs the graph on real tensors, operator by operator, as the program would: the reference for every other way to run it.
    ///
    /// Everything the trace took for granted is checked: the inputs' metadata, guards, assertions, and the metadata of every result.
    ///
    /// # Errors
    /// The inputs are not those the graph was traced for, an operator fails, or its result is not what its fake kernel promised.
    #[track_caller]
    pub fn run(&self, inputs: I) -> Result<O> {
        let (spec, leaves) = tree::flatten(&inputs)?;
        let outputs = self.program.run(&spec, leaves.into_iter().map(|l| l.value).collect())?;
        O::unflatten(&self.program.out_spec, &mut outputs.into_iter())
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
