//! Exported programs.

use super::constraints::{self, RangeConstraint};
use super::signature::Signature;
use super::state::ModuleTensors;
use maquette_interp::{Interpreter, SourceInfo};
use maquette_ir::Loc;
use maquette_ir::graph::{Graph, InputRole, Stmt};
use maquette_ops::library::Facts;
use maquette_ops::module::Slot;
use maquette_ops::{Result, Tensor, Tree, Value, mode};
use maquette_rewrite::FunctionalGraph;
use maquette_trace::{Interface, TracedProgram};
use std::fmt;
use std::marker::PhantomData;

/// A program from inputs `I` to outputs `O` that needs nothing but its graph and the tensors it
/// owns. Displays as its signature and graph.
pub struct Program<I, O> {
    functional: FunctionalGraph,
    signature: Signature,
    interface: Interface,
    /// The first inputs of the graph.
    state: Vec<Tensor>,
    /// By parameter and buffer: its name, what it is, and which of `state`.
    names: Vec<(String, Slot, usize)>,
    /// What the inputs of the graph are called.
    labels: Vec<String>,
    guard_locs: Vec<Loc>,
    assert_locs: Vec<Loc>,
    types: PhantomData<fn(I) -> O>,
}

/// Something that must hold in a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Condition {
    /// Over the symbols of the graph.
    pub cond: String,
    /// The words of the program that asserts it.
    pub message: Option<String>,
    /// The line of the program.
    pub loc: Option<Loc>,
}

impl<I: Tree, O: Tree> Program<I, O> {
    /// `traced` is the program as traced, with the tensors that it was traced with; `state` are
    /// those of the exported one.
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

    /// Runs the program on real tensors, operator by operator. Inputs that the program writes are
    /// written, outputs alias what they aliased; buffers that it writes are written in the
    /// program's own copy, and the next call sees them.
    ///
    /// # Errors
    /// An input is not of the dtype, device, rank, sizes or strides that the program is for, or
    /// shares memory with another that the program writes; a guard or an assertion does not hold;
    /// an operator fails.
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
        run().map_err(|e| mode::failed(source_info.locate(e)))
    }
}

impl<I, O> Program<I, O> {
    /// The graph, in which nothing mutates. Its inputs are parameters, buffers, then what the
    /// caller gives.
    pub fn graph(&self) -> &Graph {
        &self.functional.graph
    }

    /// The graph in Graphviz's DOT language, as [`Graph::to_dot`] draws it, with parameters and
    /// buffers told from inputs.
    pub fn to_dot(&self) -> String {
        let role = |input: usize| match self.names.iter().find(|(.., at)| *at == input) {
            Some((_, Slot::Parameter, _)) => InputRole::Parameter,
            Some((_, Slot::Buffer, _)) => InputRole::Buffer,
            None => InputRole::Argument,
        };
        self.functional.graph.to_dot_with(&Facts, &role)
    }

    /// The graph, and how its results become what the program leaves.
    pub fn functional(&self) -> &FunctionalGraph {
        &self.functional
    }

    /// What the graph's inputs and results are.
    pub fn signature(&self) -> &Signature {
        &self.signature
    }

    /// The sizes that the program is for; none if all sizes are plain numbers.
    pub fn range_constraints(&self) -> Vec<RangeConstraint> {
        constraints::ranges(self.graph(), &self.labels)
    }

    /// What the program took for granted of sizes when it was traced; a call for which it does not
    /// hold is refused.
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

    /// What the program asserts when it runs, in order.
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

    /// The parameters and buffers that the program owns, by name. A call that writes one writes it
    /// here.
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

/// The lines of the assertions of a functional graph, which may have them in another order than the
/// traced one.
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
