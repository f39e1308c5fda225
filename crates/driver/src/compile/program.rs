//! Makes a compiled program for a call: traces, prepares the executor and the guards.
//!
//! Sizes become symbols as [`DynamicSet`] says. A size of which the program then requires one
//! number is traced again as a number, so that the program is static in it. A trace that fails with
//! symbols which the user did not ask for is repeated without them.

use super::CompileOptions;
use super::call_inputs::{CallInputs, Signature};
use super::dynamic::DynamicSet;
use super::executor::{Executor, Prepared};
use super::guards::Guards;
use super::sharing::SharingGuard;
use crate::export::constraints;
use crate::given_outputs::{self, Given};
use crate::operators::{OperatorGuard, add_ops};
use maquette_invoke::SourceInfo;
use maquette_ir::Loc;
use maquette_ir::graph::{Arg, Graph, OpFacts};
use maquette_ir::sym::{MAX_SYMBOL_SIZE, Range, Rel, SymTable, SymbolId};
use maquette_ops::library::{Facts, generation};
use maquette_ops::{CompileError, Error, ErrorKind, GuardFailure, Result, TraceError, Tree, Value};
use maquette_pipeline::{AttentionExplanation, KeptComposite};
use maquette_runtime::LayoutStamp;
use maquette_runtime::memory_map::MemoryMap;
use maquette_runtime::profile::{Profile, ProfileOptions};
use maquette_trace::{Dim, LeafKind, TraceOptions, TracedProgram};
use std::collections::BTreeSet;

/// A program with the guards under which it is valid.
#[derive(Debug)]
pub(crate) struct GuardedProgram {
    /// Its number, in order of compilation.
    pub(crate) number: usize,
    /// Why it was compiled.
    pub(crate) reason: String,
    pub(crate) guards: Guards,
    pub(crate) executor: Executor,
    /// The program, decomposed.
    pub(crate) traced: TracedProgram,
    /// Why the program has no symbols, although it was to have some: the error of that trace.
    pub(crate) why_static: Option<Error>,
    /// The composites that stayed.
    pub(crate) kept: Vec<KeptComposite>,
    /// The attentions that were recognised, if it was allowed.
    pub(crate) attention: Option<AttentionExplanation>,
    /// The call that it was compiled for.
    pub(crate) signature: Signature,
    /// The sizes and integers that were to be symbols.
    pub(crate) dynamic: DynamicSet,
    /// The names of the graph's inputs.
    input_names: Vec<String>,
}

/// The traces of a function for one call.
struct Traces<'a, F> {
    f: &'a F,
    call: &'a CallInputs,
    options: &'a CompileOptions,
    loc: Loc,
    /// Whether inputs must begin at the samples' offsets.
    keep_offsets: bool,
}

impl GuardedProgram {
    /// Compiles `f` for a call from the line `loc`.
    ///
    /// # Errors
    /// The function cannot be traced, or a mark does not hold.
    pub(crate) fn new<I: Tree, O: Tree>(
        f: &impl Fn(I) -> O,
        call: &CallInputs,
        dynamic: DynamicSet,
        options: &CompileOptions,
        loc: Loc,
    ) -> Result<GuardedProgram> {
        let since = generation();
        options.check_marks(call)?;
        let mut traces = Traces { f, call, options, loc, keep_offsets: false };
        let mut settled = traces.settled::<I, O>(&dynamic);
        let offsets = match &settled {
            Ok(settled) => uses_offsets(&settled.traced.graph),
            Err(e) => matches!(e.kind(), ErrorKind::Trace(TraceError::Offset(_))),
        };
        if offsets {
            traces.keep_offsets = true;
            settled = traces.settled::<I, O>(&dynamic);
        }
        let Settled { traced, pinned, why_static } = settled?;
        let mut ops = Vec::new();
        add_ops(&traced.graph, &mut ops);
        let is_input = |(_, kind): &(usize, &LeafKind)| matches!(kind, LeafKind::Input);
        let leaves = traced.interface.inputs.iter().enumerate().filter(is_input);
        let leaves: Vec<usize> = leaves.map(|(leaf, _)| leaf).collect();
        let sharing = |graph: &_| SharingGuard::new(graph, traced.differentiated, &leaves, call);
        let inputs = || leaves.iter().filter_map(|leaf| call.values.get(*leaf).cloned()).collect();
        let prepared = Executor::prepare(&traced.graph, options, &sharing, &inputs)?;
        let Prepared { executor, graph, sharing, kept, attention, deciding } = prepared;
        ops.extend(deciding);
        ops.extend(&traced.decomposed);
        let traced = TracedProgram { graph, ..traced };
        add_ops(&traced.graph, &mut ops);
        for op in executor.ops() {
            if !ops.contains(&op) {
                ops.push(op);
            }
        }
        let operators = OperatorGuard::new(ops, since);
        let guards = Guards::new(&traced, sharing, operators, pinned, offsets)?;
        Ok(GuardedProgram {
            number: 0,
            reason: String::new(),
            guards,
            executor,
            why_static,
            kept,
            attention,
            signature: call.signature(),
            dynamic,
            input_names: traced.interface.input_labels().map(ToOwned::to_owned).collect(),
            traced,
        })
    }

    /// The inputs of the graph among the leaves of a call.
    fn inputs(&self, leaves: Vec<Value>) -> Vec<Value> {
        let leaves = leaves.into_iter().zip(&self.traced.interface.inputs);
        let inputs = leaves.filter(|(_, kind)| matches!(kind, LeafKind::Input));
        inputs.map(|(value, _)| value).collect()
    }

    /// Runs the program on the leaves of a call that its guards accept, and writes the results into
    /// given tensors.
    ///
    /// # Errors
    /// As [`Compiled::call_into`](super::Compiled::call_into).
    pub(crate) fn run_into(
        &self,
        leaves: Vec<Value>,
        given: Given<'_>,
        stamp: Option<LayoutStamp>,
        loc: Loc,
    ) -> Result<()> {
        let outputs = given_outputs::tensors(&self.traced.interface.out_spec, given)?;
        let source_info = SourceInfo { input_names: &self.input_names, call_site: loc };
        let (executable, inputs) = (self.executor.executable(), self.inputs(leaves));
        executable.run_stamped_into(&inputs, &outputs, stamp, &source_info)
    }

    /// Runs the program on the leaves of a call that its guards accept.
    ///
    /// # Errors
    /// As the function itself.
    pub(crate) fn run<O: Tree>(
        &self,
        leaves: Vec<Value>,
        stamp: Option<LayoutStamp>,
        loc: Loc,
    ) -> Result<O> {
        let source_info = SourceInfo { input_names: &self.input_names, call_site: loc };
        let outputs = self.executor.run(&self.inputs(leaves), stamp, &source_info)?;
        O::unflatten(&self.traced.interface.out_spec, &mut outputs.into_iter())
    }

    /// Profiles the program on the leaves of a call that its guards accept.
    ///
    /// # Errors
    /// As the function itself.
    pub(crate) fn profile(
        &self,
        leaves: Vec<Value>,
        options: &ProfileOptions,
        loc: Loc,
    ) -> Result<Profile> {
        let source_info = SourceInfo { input_names: &self.input_names, call_site: loc };
        self.executor.executable().profile(&self.inputs(leaves), options, &source_info)
    }

    /// The map of the memory in which the program runs on leaves that the guards accept.
    ///
    /// # Errors
    /// A size is too large for memory.
    pub(crate) fn memory_map(&self, leaves: Vec<Value>, loc: Loc) -> Result<Option<MemoryMap>> {
        let source_info = SourceInfo { input_names: &self.input_names, call_site: loc };
        self.executor.executable().memory_map(&self.inputs(leaves), &source_info)
    }

    /// The guard that a call breaks.
    pub(crate) fn failure(&self, call: &CallInputs) -> Option<GuardFailure> {
        self.guards.failure(call, self.number, &self.traced.interface.labels)
    }
}

/// Sizes of which the program requires one number: the leaf, the dimension, and the line.
type Pinned = Vec<(usize, usize, Option<Loc>)>;

/// A trace with the symbols that it needs.
struct Settled {
    traced: TracedProgram,
    pinned: Pinned,
    why_static: Option<Error>,
}

impl<F> Traces<'_, F> {
    /// Traces until no symbol that nobody asked for is pinned to a number.
    fn settled<I: Tree, O: Tree>(&self, dynamic: &DynamicSet) -> Result<Settled>
    where
        F: Fn(I) -> O,
    {
        let mut dynamic = self.options.automatic(dynamic);
        let (mut pinned, mut why_static): (Pinned, _) = (Vec::new(), None);
        loop {
            let traced = match self.trace::<I, O>(&dynamic) {
                Ok(traced) => traced,
                // what cannot be traced with symbols may be with numbers, whose error is plainer
                Err(e) if !dynamic.is_empty() => {
                    why_static = Some(e);
                    dynamic = DynamicSet::default();
                    continue;
                }
                Err(e) => return Err(e),
            };
            let mut now: Pinned = Vec::new();
            for (leaf, symbol) in size_symbols(&traced) {
                if dynamic.sizes.contains(&leaf)
                    && let Some(loc) = pin(&traced.graph, symbol)
                {
                    now.push((leaf.0, leaf.1, loc));
                }
            }
            if now.is_empty() {
                self.check_declared(&traced)?;
                return Ok(Settled { traced, pinned, why_static });
            }
            for (leaf, dim, _) in &now {
                dynamic.sizes.remove(&(*leaf, *dim));
            }
            pinned.extend(now);
        }
    }

    fn trace<I: Tree, O: Tree>(&self, dynamic: &DynamicSet) -> Result<TracedProgram>
    where
        F: Fn(I) -> O,
    {
        let options = self.options.trace.clone().guarded(true);
        let mut options: TraceOptions = options.keep_offsets(self.keep_offsets);
        let declared: BTreeSet<String> =
            options.dynamic_dims().iter().map(|(.., dim)| dim.name().to_owned()).collect();
        let mut names =
            (0..).map(|i| format!("s{i}")).filter(|name| !declared.contains(name.as_str()));
        for (&(leaf, dim), name) in dynamic.sizes.iter().zip(&mut names) {
            options = options.dynamic(leaf, dim, Dim::new(name));
        }
        for &leaf in &dynamic.integers {
            options = options.dynamic_integer(leaf);
        }
        let mut values = self.call.values.iter().cloned();
        let inputs = I::unflatten(&self.call.spec, &mut values)?;
        Ok(options.trace_at(self.f, inputs, self.loc)?.into_program())
    }

    /// # Errors
    /// The program requires one number of a size that the user declared dynamic, or restricts a
    /// range that the user declared.
    fn check_declared(&self, traced: &TracedProgram) -> Result<()> {
        let any = Range { lo: 0, hi: i64::MAX };
        let is_strict = |(_, _, dim): &&(usize, usize, Dim)| {
            let symbol = traced.graph.symbols().lookup(dim.name());
            let is_pinned = || symbol.is_some_and(|s| pin(&traced.graph, s).is_some());
            dim.range() != any || is_pinned()
        };
        let strict: Vec<(usize, usize, Dim)> =
            self.options.trace.dynamic_dims().iter().filter(is_strict).cloned().collect();
        constraints::check(traced, &strict).map_err(|e| Error::from(e).at(self.loc))
    }
}

/// The sizes of inputs that are symbols: the leaf and the dimension of each.
fn size_symbols(traced: &TracedProgram) -> Vec<((usize, usize), SymbolId)> {
    let graph = &traced.graph;
    let kinds = traced.interface.inputs.iter().enumerate();
    let leaves = kinds.filter(|(_, kind)| matches!(kind, LeafKind::Input)).map(|(leaf, _)| leaf);
    let mut symbols = Vec::new();
    for (leaf, &input) in leaves.zip(graph.inputs()) {
        let sizes = graph.tensor_type(input).map_or(&[][..], |ty| &ty.sizes);
        for (dim, &size) in sizes.iter().enumerate() {
            if let [symbol] = graph.symbols().free_symbols(size)[..] {
                symbols.push(((leaf, dim), symbol));
            }
        }
    }
    symbols
}

/// Whether the guards of a graph leave one value of a symbol, and the line of the guard that does.
#[expect(clippy::option_option, reason = "a guard may have no line")]
fn pin(graph: &Graph, symbol: SymbolId) -> Option<Option<Loc>> {
    let about = |guard: &usize| {
        let condition = graph.guards().get(*guard);
        condition.is_some_and(|c| graph.symbols().free_symbols_bool(*c).contains(&symbol))
    };
    let guards: Vec<usize> = (0..graph.guards().len()).filter(about).collect();
    if guards.is_empty() {
        return None;
    }
    let single = |table: &mut SymTable| {
        let expr = table.expr(symbol);
        let range = table.proven_range(symbol);
        let low = table.rel(Rel::Eq, expr, range.lo.into());
        range.single().is_some() || table.prove(low) == Some(true)
    };
    let mut table = graph.symbols().clone();
    for guard in guards {
        // facts that contradict each other hold for no call
        let _known = graph.guards().get(guard).map(|condition| table.assume(*condition));
        if single(&mut table) {
            return Some(graph.guard_loc(guard));
        }
    }
    None
}

/// Whether a graph names offsets from the start of a storage that exists before a run, as
/// `as_strided` can. The storages that a run makes begin where the graph says.
fn uses_offsets(graph: &Graph) -> bool {
    let in_external_memory = graph.in_external_memory(&Facts);
    graph.nodes().any(|node| {
        let op = graph.op_name(node);
        if Facts.observes_storage(op) {
            return true;
        }
        let Some(at) = Facts.absolute_offset_arg(op) else { return false };
        let is_given = graph.args(node).get(at).is_some_and(|arg| *arg != Arg::None)
            || !graph.kwargs(node).is_empty();
        let is_external = match graph.args(node).first() {
            Some(Arg::Value(v)) => in_external_memory.get(v.index()) != Some(&false),
            _ => true,
        };
        is_given && is_external
    })
}

impl CompileOptions {
    /// The symbols of a set that the marks leave to the rule.
    fn automatic(&self, dynamic: &DynamicSet) -> DynamicSet {
        let mut set = dynamic.clone();
        let declared = self.trace.dynamic_dims().iter().map(|&(leaf, dim, _)| (leaf, dim));
        for size in declared.chain(self.fixed.iter().chain(&self.unbacked).copied()) {
            set.sizes.remove(&size);
        }
        set
    }

    /// # Errors
    /// A size is declared static that does not exist, or that another mark declares. A size that a
    /// mark makes a symbol is too large for one.
    fn check_marks(&self, call: &CallInputs) -> Result<()> {
        let refuse = |text: String| Err(CompileError::Mark(text).into());
        let unlimited = |(.., dim): &&(usize, usize, Dim)| dim.range().in_practice() != dim.range();
        let declared = self.trace.dynamic_dims().iter().filter(unlimited);
        let declared = declared.map(|&(input, dim, _)| (input, dim));
        for (input, dim) in declared.chain(self.unbacked.iter().copied()) {
            let Some(Value::Tensor(t)) = call.values.get(input) else { continue };
            let size = t.sizes().get(dim).and_then(|n| n.as_i64());
            if let Some(n) = size.filter(|n| *n > MAX_SYMBOL_SIZE) {
                return refuse(format!(
                    "size {n} of dimension {dim} of input {input} is too large for a symbol, which \
                        is at most {MAX_SYMBOL_SIZE}; remove the mark, or declare a maximum"
                ));
            }
        }
        for &(input, dim) in &self.fixed {
            let rank = match call.values.get(input) {
                Some(Value::Tensor(t)) => t.dim(),
                Some(other) => {
                    return refuse(format!(
                        "`.static_({input}, {dim})` refers to {}, not a tensor",
                        other.kind()
                    ));
                }
                None => {
                    return refuse(format!(
                        "`.static_({input}, {dim})` refers to input {input}, but there are {} \
                            inputs",
                        call.values.len()
                    ));
                }
            };
            if dim >= rank {
                return refuse(format!(
                    "`.static_({input}, {dim})` is dimension {dim} of input {input}, which has \
                        {rank} dimensions"
                ));
            }
            let declared = self.trace.dynamic_dims().iter().any(|d| (d.0, d.1) == (input, dim));
            if declared || self.unbacked.contains(&(input, dim)) {
                return refuse(format!(
                    "dimension {dim} of input {input} is declared both static and {}",
                    if declared { "dynamic" } else { "unbacked" }
                ));
            }
        }
        Ok(())
    }
}
