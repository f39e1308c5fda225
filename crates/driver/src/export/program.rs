//! Exported programs.

use super::call_lock::CallLock;
use super::caller::Caller;
use super::compiled::CompiledProgram;
use super::constraints::{self, RangeConstraint};
use super::signature::Signature;
use super::state::ModuleTensors;
use super::{functional_only, no_functional_form};
use crate::operators::{Guarded, add_ops};
use maquette_interp::Interpreter;
use maquette_ir::graph::{Graph, InputRole, Stmt};
use maquette_ir::program_form::ProgramForm;
use maquette_ir::{Device, Loc};
use maquette_ops::library::Facts;
use maquette_ops::module::Slot;
use maquette_ops::{Error, Op, Result, RunError, Tensor, Tree};
use maquette_pipeline::{WhyUnplanned, compile};
use maquette_rewrite::{ExternalTensor, FunctionalGraph, Options, Reason};
use maquette_trace::TracedProgram;
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

/// An exported program from inputs `I` to outputs `O`: a functional graph, and the tensors that it
/// needs. Displays as its signature and graph.
pub struct Program<I, O> {
    traced: Graph,
    functional: Arc<FunctionalGraph>,
    /// What calls run, with the operators as they are registered.
    running: Guarded<Running>,
    signature: Signature,
    caller: Arc<Caller>,
    /// Groups of the tensors in the state that are mutated and share memory.
    shared: Vec<Vec<usize>>,
    /// The name, slot and index in the state of each parameter and buffer. Tied tensors have equal
    /// indices.
    names: Vec<(String, Slot, usize)>,
    types: PhantomData<fn(I) -> O>,
}

/// What a call of a program runs.
enum Running {
    Functional(Arc<FunctionalGraph>),
    /// The program as it was traced: of a view, only a kernel knows which elements it has.
    AsTraced,
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
    /// `traced` is the traced program, with the tensors of the module. `functional` is that of the
    /// operators' generation `since`. `state` are the exported program's own tensors.
    pub(crate) fn new(
        traced: &TracedProgram,
        functional: FunctionalGraph,
        since: u64,
        module_tensors: &ModuleTensors,
        state: Vec<Tensor>,
        shared: Vec<Vec<usize>>,
    ) -> Program<I, O> {
        let functional = Arc::new(functional);
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
        let call_lock = writes_own(&functional, state.len()).then(|| CallLock::new(graph.name()));
        Program {
            signature: Signature::of(traced, &functional, module_tensors, &labels),
            traced: traced.graph.clone(),
            caller: Arc::new(Caller {
                interface: traced.interface.clone(),
                state,
                call_lock,
                labels,
            }),
            running: Guarded::new(
                Arc::new(Running::Functional(functional.clone())),
                operators(&traced.graph, Some(graph)),
                since,
            ),
            functional,
            shared,
            names,
            types: PhantomData,
        }
    }

    /// Runs the program on real tensors, operator by operator. Inputs are mutated, and outputs
    /// alias inputs, as in the original program. Buffers are mutated in the program's own copies,
    /// so that the next call sees the new values.
    ///
    /// Several threads can call one program. If the program mutates its own buffers, its calls run
    /// one after another, and each call sees the buffers that the previous call left. Calls of any
    /// other program run in parallel. A call borrows the inputs that it mutates exclusively. If
    /// another call or a guard has borrowed such an input, the call is refused before any write. A
    /// failed call mutates no buffer and no input.
    ///
    /// A kernel that calls the program whose call runs the kernel is refused. A kernel that waits
    /// for such a call on another thread deadlocks.
    ///
    /// # Errors
    /// The dtype, device, rank, sizes or strides of an input differ from those of the program, an
    /// input shares memory with another one that the program mutates, another access conflicts with
    /// an input or a buffer that the program mutates, a guard or an assertion does not hold, an
    /// operator fails, or a kernel calls a program whose buffers are being mutated by the call that
    /// runs the kernel. An input requires a gradient, and the call is not inside of `no_grad`. The
    /// call is inside of a trace or of `autocast`.
    #[track_caller]
    pub fn call(&self, inputs: I) -> Result<O> {
        let loc = Loc::caller();
        self.caller.call(&inputs, loc, |given, source_info| {
            let running = self.running.valid(|| self.functionalized(loc))?;
            let interpreter = match &*running {
                Running::Functional(functional) => Interpreter::new(&**functional),
                Running::AsTraced => Interpreter::new(&self.traced),
            };
            Ok(interpreter.with_source_info(*source_info).run(given)?.results)
        })
    }

    /// The functional graph of the operators as they are registered now, and these operators. That
    /// of a write depends on which functional operator computes what the write would.
    /// Where a view is only its kernel's to know, the traced program runs.
    fn functionalized(&self, loc: Loc) -> Result<(Running, Vec<Op>)> {
        let options = Options::new().sharing(self.shared.clone());
        let made = compile(&self.traced, &functional_only(options)).map_err(|e| e.at(loc))?;
        match (made.program, made.why_unplanned) {
            (ProgramForm::Functional(functional), _) => {
                let ops = operators(&self.traced, Some(&functional.graph));
                Ok((Running::Functional(Arc::new(functional)), ops))
            }
            (_, Some(WhyUnplanned::Refused(e))) if matches!(e.kind, Reason::UnknownView { .. }) => {
                Ok((Running::AsTraced, operators(&self.traced, None)))
            }
            (_, why) => Err(no_functional_form(why, loc)),
        }
    }

    /// Compiles the program for a device. Composites are decomposed, and values get the memory of a
    /// plan that copies no more than the original program. A program without such a plan runs
    /// operator by operator.
    ///
    /// The program is compiled again when an operator of it is overridden, or defined anew.
    ///
    /// The compiled program shares this program's parameters and buffers, and its calls take turns
    /// with this program's.
    ///
    /// # Errors
    /// The device is not the CPU, or as [`ExportOptions::export`](crate::ExportOptions::export).
    #[track_caller]
    pub fn compile(&self, device: Device) -> Result<CompiledProgram<I, O>> {
        let loc = Loc::caller();
        if device != Device::Cpu {
            return Err(Error::from(RunError::NoRuntime { device }).at(loc));
        }
        let options = Options::new().sharing(self.shared.clone());
        CompiledProgram::new(self.traced.clone(), options, self.caller.clone(), loc)
    }
}

/// The operators on which a traced graph and its functional graph, if there is one, depend.
fn operators(traced: &Graph, functional: Option<&Graph>) -> Vec<Op> {
    let mut ops = Vec::new();
    for graph in [Some(traced), functional].into_iter().flatten() {
        add_ops(graph, &mut ops);
    }
    ops
}

impl<I, O> Program<I, O> {
    /// The functional graph, as it was exported. Its inputs are the parameters, the buffers, and
    /// then the inputs of a call.
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

    /// The graph as it was traced, from which the functional graph is made. It has the operators as
    /// called, mutations included, and the constants that the program owns.
    pub fn traced_graph(&self) -> &Graph {
        &self.traced
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
        constraints::ranges(self.graph(), &self.caller.labels)
    }

    /// The guards: the conditions on sizes under which the trace is valid. A call that violates one
    /// fails.
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

    /// The assertions of the program, in order.
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

    /// The parameters and buffers that the program owns, by name. A call mutates these tensors.
    pub fn state(&self) -> impl Iterator<Item = (&str, Slot, &Tensor)> {
        self.names.iter().filter_map(|(name, slot, at)| {
            Some((name.as_str(), *slot, self.caller.state.get(*at)?))
        })
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
