//! Exported programs.

use super::call_lock::CallLock;
use super::constraints::{self, RangeConstraint};
use super::signature::Signature;
use super::state::ModuleTensors;
use maquette_interp::{Interpreter, SourceInfo};
use maquette_ir::Loc;
use maquette_ir::graph::{Graph, InputRole, Stmt};
use maquette_ops::library::Facts;
use maquette_ops::module::Slot;
use maquette_ops::{Result, Tensor, Tree, Value};
use maquette_rewrite::{ExternalTensor, FunctionalGraph};
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
    /// For a program that writes tensors of its own: its calls run one after another.
    turns: Option<CallLock>,
    /// By parameter and buffer: its name, what it is, and which of `state`.
    names: Vec<(String, Slot, usize)>,
    /// What the inputs of the graph are called.
    labels: Vec<String>,
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
            interface: traced.interface.clone(),
            turns: writes_own(&functional, state.len()).then(|| CallLock::new(graph.name())),
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
    /// A program can be called from several threads. Calls of a program that writes its own buffers
    /// run one after another, so that each sees those before it; calls of any other program run in
    /// parallel. Inputs that the program writes are exclusively the call's while it runs: if two
    /// calls are given one such tensor, or somebody holds a guard of it, one of them is refused
    /// before anything is written. A failed call writes no buffer and no input.
    ///
    /// A kernel that waits for another thread's call of the same program waits for ever; a kernel
    /// that calls the program itself is refused.
    ///
    /// # Errors
    /// An input is not of the dtype, device, rank, sizes or strides that the program is for, or
    /// shares memory with another that the program writes; somebody else accesses an input or a
    /// buffer that the program writes; a guard or an assertion does not hold; an operator fails; a
    /// kernel of a call that writes buffers calls the program again.
    #[track_caller]
    pub fn call(&self, inputs: I) -> Result<O> {
        let source_info = SourceInfo { input_names: &self.labels, call_site: Loc::caller() };
        let run = || {
            let _turn = self.turns.as_ref().map(CallLock::take).transpose()?;
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
                Condition { cond, message: None, loc: graph.guard_loc(i) }
            })
            .collect()
    }

    /// What the program asserts when it runs, in order.
    pub fn assertions(&self) -> Vec<Condition> {
        let graph = self.graph();
        let assertion = |(at, stmt): (usize, &Stmt)| match stmt {
            Stmt::Assert { cond, message } => Some(Condition {
                cond: graph.symbols().display_bool(*cond).to_string(),
                message: message.map(|m| graph.str(m).to_owned()),
                loc: graph.stmt_loc(at),
            }),
            Stmt::Node(_) | Stmt::Bind { .. } => None,
        };
        graph.body().iter().enumerate().filter_map(assertion).collect()
    }

    /// The parameters and buffers that the program owns, by name. A call that writes one writes it
    /// here.
    pub fn state(&self) -> impl Iterator<Item = (&str, Slot, &Tensor)> {
        self.names
            .iter()
            .filter_map(|(name, slot, at)| Some((name.as_str(), *slot, self.state.get(*at)?)))
    }
}

/// Whether a program writes tensors that it owns: constants, and the first `state` inputs.
fn writes_own(program: &FunctionalGraph, state: usize) -> bool {
    program.mutations.iter().any(|m| match m.target {
        ExternalTensor::Input(i) => i < state,
        ExternalTensor::Const(_) => true,
        ExternalTensor::SharedMemory(k) => {
            program.memories.get(k).is_some_and(|m| m.inputs.iter().any(|i| *i < state))
        }
    })
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
