//! Exported programs.

use super::constraints::{self, RangeConstraint};
use super::signature::Signature;
use super::state::ModuleTensors;
use maquette_interp::{Interpreter, SourceInfo};
use maquette_ir::Loc;
use maquette_ir::graph::{Graph, InputRole, Stmt};
use maquette_ops::library::Facts;
use maquette_ops::module::Slot;
use maquette_ops::{Result, Tensor, Tree, Value};
use maquette_rewrite::FunctionalGraph;
use maquette_trace::{Interface, TracedProgram};
use std::fmt;
use std::marker::PhantomData;

/// An exported program from inputs `I` to outputs `O`: a functional graph, and the tensors that it
/// needs. Displays as its signature and graph.
pub struct Program<I, O> {
    functional: FunctionalGraph,
    signature: Signature,
    interface: Interface,
    /// The tensors that the program passes as the first inputs of the graph.
    state: Vec<Tensor>,
    /// The name, slot and index in `state` of each parameter and buffer. Tied tensors have equal
    /// indices.
    names: Vec<(String, Slot, usize)>,
    /// The names of the graph's inputs.
    labels: Vec<String>,
    guard_locs: Vec<Loc>,
    assert_locs: Vec<Loc>,
    types: PhantomData<fn(I) -> O>,
}

/// A condition that must hold in every call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Condition {
    /// The condition, over the symbols of the graph.
    pub cond: String,
    /// The message of the program's assertion.
    pub message: Option<String>,
    /// The line of the traced program.
    pub loc: Option<Loc>,
}

impl<I: Tree, O: Tree> Program<I, O> {
    /// `traced` is the traced program, with the tensors of the module. `state` are the exported
    /// program's own tensors.
    pub(crate) fn new(
        traced: &TracedProgram,
        functional: FunctionalGraph,
        module_tensors: &ModuleTensors,
        state: Vec<Tensor>,
    ) -> Program<I, O> {
        let graph = &functional.graph;
        let mut names: Vec<(String, Slot, usize)> = Vec::new();
        for (at, n) in module_tensors.0.iter().enumerate() {
            let place = traced.state.iter().position(|s| s.given_indices.contains(&at));
            names.extend(place.map(|place| (n.name.clone(), n.slot, place)));
        }
        let mut labels: Vec<String> = Vec::new();
        for (i, v) in graph.inputs().iter().take(state.len()).enumerate() {
            let own = names.iter().find(|(.., at)| *at == i);
            let name =
                own.map_or_else(|| graph.value_name(*v).to_string(), |(name, ..)| name.clone());
            names.extend(own.is_none().then(|| (name.clone(), Slot::Buffer, i)));
            labels.push(name);
        }
        labels.extend(traced.interface.input_labels().map(ToOwned::to_owned));
        Program {
            signature: Signature::of(traced, &functional, module_tensors, &labels),
            assert_locs: assert_locs(traced, graph),
            guard_locs: traced.guard_locs.clone(),
            interface: traced.interface.clone(),
            functional,
            state,
            names,
            labels,
            types: PhantomData,
        }
    }

    /// Runs the program on real tensors, operator by operator. Inputs are mutated, and outputs
    /// alias inputs, as in the original program. Buffers are mutated in the program's own copies,
    /// so that the next call sees the new values.
    ///
    /// # Errors
    /// The dtype, device, rank, sizes or strides of an input differ from those of the program, an
    /// input shares memory with another one that the program mutates, a guard or an assertion does
    /// not hold, or an operator fails.
    #[track_caller]
    pub fn call(&self, inputs: I) -> Result<O> {
        let source_info = SourceInfo {
            guard_locs: &self.guard_locs,
            assert_locs: &self.assert_locs,
            input_names: &self.labels,
            call_site: Loc::caller(),
        };
        let run = || {
            let state = self.state.iter().cloned().map(Value::Tensor);
            let given: Vec<Value> = state.chain(self.interface.flatten_inputs(&inputs)?).collect();
            let interpreter = Interpreter::new(&self.functional).with_source_info(source_info);
            let outputs = interpreter.run(&given)?.results;
            O::unflatten(&self.interface.out_spec, &mut outputs.into_iter())
        };
        run().map_err(|e| source_info.locate(e))
    }
}

impl<I, O> Program<I, O> {
    /// The functional graph. Its inputs are the parameters, the buffers, and then the inputs of a
    /// call.
    pub fn graph(&self) -> &Graph {
        &self.functional.graph
    }

    /// The graph in Graphviz's DOT language, as [`Graph::to_dot`] draws it. Parameters and buffers
    /// look different from inputs.
    pub fn to_dot(&self) -> String {
        let role = |input: usize| match self.names.iter().find(|(.., at)| *at == input) {
            Some((_, Slot::Parameter, _)) => InputRole::Parameter,
            Some((_, Slot::Buffer, _)) => InputRole::Buffer,
            None => InputRole::Argument,
        };
        self.functional.graph.to_dot_with(&Facts, &role)
    }

    /// The functional graph with its calling convention: the mutations and aliases that its results
    /// stand for.
    pub fn functional(&self) -> &FunctionalGraph {
        &self.functional
    }

    /// The meaning of the graph's inputs and results.
    pub fn signature(&self) -> &Signature {
        &self.signature
    }

    /// The ranges of the program's symbolic sizes; empty if all sizes are constant.
    pub fn range_constraints(&self) -> Vec<RangeConstraint> {
        constraints::ranges(self.graph(), &self.labels)
    }

    /// The guards: the conditions on sizes under which the trace is valid. A call that violates one
    /// fails.
    pub fn guards(&self) -> Vec<Condition> {
        let graph = self.graph();
        let guards = graph.guards().iter().enumerate();
        guards
            .map(|(i, &g)| {
                let cond = graph.symbols().display_bool(g).to_string();
                Condition { cond, message: None, loc: self.guard_locs.get(i).copied() }
            })
            .collect()
    }

    /// The assertions of the program, in order.
    pub fn assertions(&self) -> Vec<Condition> {
        let asserts = asserts(self.graph()).enumerate();
        asserts
            .map(|(i, (cond, message))| Condition {
                cond,
                message,
                loc: self.assert_locs.get(i).copied(),
            })
            .collect()
    }

    /// The parameters and buffers that the program owns, by name. A call mutates these tensors.
    pub fn state(&self) -> impl Iterator<Item = (&str, Slot, &Tensor)> {
        self.names
            .iter()
            .filter_map(|(name, slot, at)| Some((name.as_str(), *slot, self.state.get(*at)?)))
    }
}

/// The assertions in a graph's body: condition and message.
fn asserts(graph: &Graph) -> impl Iterator<Item = (String, Option<String>)> {
    graph.body().iter().filter_map(|stmt| match stmt {
        Stmt::Assert { cond, message } => Some((
            graph.symbols().display_bool(*cond).to_string(),
            message.map(|m| graph.str(m).to_owned()),
        )),
        _ => None,
    })
}

/// The source lines of a functional graph's assertions. Their order may differ from that in the
/// traced graph.
fn assert_locs(traced: &TracedProgram, graph: &Graph) -> Vec<Loc> {
    let mut known: Vec<_> = asserts(&traced.graph).zip(&traced.assert_locs).collect();
    let mut locs = Vec::new();
    for assertion in asserts(graph) {
        let Some(at) = known.iter().position(|(a, _)| *a == assertion) else { return Vec::new() };
        locs.push(*known.remove(at).1);
    }
    locs
}

impl<I, O> fmt::Display for Program<I, O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}\n{}", self.signature, self.functional.graph)
    }
}

impl<I, O> fmt::Debug for Program<I, O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Program")
            .field("graph", &self.functional.graph.name())
            .finish_non_exhaustive()
    }
}
