//! The state of one run of a graph: computed values and bound symbols.
//!
//! A frame checks every assumption of the trace: the metadata of inputs and results, guards,
//! assertions and the ranges of symbols. It drops a value after its last use, so that a run needs
//! no more memory than the eager program.

mod liveness;
mod results;

use maquette_invoke::metadata_check::LayoutPromise;
use maquette_invoke::{
    Bindings, Callable, PendingCheck, ResultRules, SourceInfo, argument_value, arguments,
    bound_number, in_window,
};
use maquette_ir::Loc;
use maquette_ir::functional_ops::Callee;
use maquette_ir::graph::{Arg, BindSource, Graph, NodeId, Stmt, StrId, ValueId};
use maquette_ir::sym::SymbolId;
use maquette_ops::{Args, Error, Op, Result, RunError, Tensor, Value};
use rustc_hash::FxHashMap;
use std::sync::Arc;

/// How a frame executes nodes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Semantics<'g> {
    /// Tensors have storage: operators mutate their arguments, and results must have the strides of
    /// their types.
    Memory,
    /// Tensors are values: an operator that mutates gets copies. Strides matter only to operators
    /// that observe them. The results of such an operator must have the strides of their types,
    /// unless the node is in `unknown_strides`.
    Values {
        /// Nodes whose types do not declare the strides of eager execution, in ascending order.
        unknown_strides: &'g [NodeId],
    },
}

/// The state of one run.
pub(crate) struct Frame<'g> {
    pub(crate) graph: &'g Graph,
    pub(crate) source_info: &'g SourceInfo<'g>,
    pub(crate) bindings: Bindings<'g>,
    values: Vec<Option<Value>>,
    /// By value: the statement after which it is dropped.
    last_use: Vec<usize>,
    /// The operators called so far, by name.
    ops: FxHashMap<StrId, Callable>,
    pending_checks: Vec<PendingCheck>,
    pub(crate) semantics: Semantics<'g>,
}

impl<'g> Frame<'g> {
    pub(crate) fn new(
        graph: &'g Graph,
        source_info: &'g SourceInfo<'g>,
        semantics: Semantics<'g>,
    ) -> Frame<'g> {
        Frame {
            graph,
            source_info,
            bindings: Bindings::new(graph, source_info.input_names),
            values: vec![None; graph.values().len()],
            last_use: liveness::last_uses(graph),
            ops: FxHashMap::default(),
            pending_checks: Vec::new(),
            semantics,
        }
    }

    /// Adds the graph's text around statement `at` to an error.
    pub(crate) fn in_window(&self, e: Error, at: usize) -> Error {
        in_window(self.graph, e, at)
    }

    /// Executes a `bind` or an `assert` statement at position `at` of the body.
    pub(crate) fn bind_or_assert(&mut self, at: usize, stmt: &Stmt) -> Result<()> {
        match *stmt {
            Stmt::Node(_) => Ok(()),
            Stmt::Bind { symbol, value, source } => self.bind(symbol, value, source),
            Stmt::Assert { .. } => self.bindings.check_assertion(at),
        }
    }

    /// Stores inputs and the contents of constants, binds the symbols of the inputs, and checks the
    /// inputs and the guards.
    pub(crate) fn bind_inputs(&mut self, inputs: &[Value], consts: &[Tensor]) -> Result<()> {
        let graph = self.graph;
        self.bindings.bind_inputs(inputs)?;
        for (&input, value) in graph.inputs().iter().zip(inputs) {
            self.set(input, value.clone());
        }
        for (c, contents) in graph.consts().iter().zip(consts) {
            self.set(c.value(), Value::Tensor(contents.clone()));
        }
        Ok(())
    }

    pub(crate) fn drop_value(&mut self, v: ValueId) {
        if let Some(slot) = self.values.get_mut(v.index()) {
            *slot = None;
        }
    }

    pub(crate) fn set(&mut self, v: ValueId, value: Value) {
        if let Some(slot) = self.values.get_mut(v.index()) {
            *slot = Some(value);
        }
    }

    fn get(&self, v: ValueId) -> Result<&Value> {
        let missing = || RunError::Undefined { value: self.graph.value_name(v).to_string() };
        Ok(self.values.get(v.index()).and_then(Option::as_ref).ok_or_else(missing)?)
    }

    pub(crate) fn value(&self, arg: Arg) -> Result<Value> {
        let int = |e| Ok(self.bindings.eval(e)?.into());
        argument_value(self.graph, arg, &|v| self.get(v).cloned(), &int)
    }

    /// Executes every statement and returns the graph's outputs.
    pub(crate) fn run(mut self, inputs: &[Value], consts: &[Tensor]) -> Result<Vec<Value>> {
        self.bind_inputs(inputs, consts)?;
        let graph = self.graph;
        for (at, stmt) in graph.body().iter().enumerate() {
            let result = match *stmt {
                Stmt::Node(node) => match self.semantics {
                    Semantics::Memory => self.node(node),
                    Semantics::Values { .. } => self.functional_node(node),
                },
                Stmt::Bind { .. } | Stmt::Assert { .. } => self.bind_or_assert(at, stmt),
            };
            result.map_err(|e| self.in_window(e, at))?;
            self.free_unused(at, stmt);
        }
        graph.outputs().iter().map(|&output| self.value(output)).collect()
    }

    /// The source line of a node, or the line that started the run if it is unknown.
    pub(crate) fn loc(&self, node: NodeId) -> Loc {
        self.graph.loc(node).unwrap_or(self.source_info.call_site)
    }

    /// Executes a node under [`Semantics::Memory`].
    ///
    /// An operator with an absolute storage offset, such as `aten::as_strided`, is refused on views
    /// of an input whose storage offset the graph does not know.
    pub(crate) fn node(&mut self, node: NodeId) -> Result<()> {
        let loc = self.loc(node);
        let Callable { op, absolute_offset_arg, chooses_views, .. } =
            self.callable(self.graph.op(node)).map_err(|e| e.at(loc))?;
        let arguments = self.arguments(op, node, self.graph.args(node), &|a| self.value(a))?;
        if let Some(offset) = absolute_offset_arg
            && let (Some(Value::Tensor(t)), Some(Value::Int(_))) =
                (arguments.first(), arguments.get(offset))
            && self.bindings.has_input_offset(t)
        {
            return Err(Error::from(RunError::AbsoluteOffset).at(loc));
        }
        let copies = self.graph.copies(node) && !chooses_views;
        let copied = if copies { arguments.clone() } else { Args::new() };
        let outputs = op.call_at(arguments, loc)?;
        if chooses_views {
            self.bindings.note_chosen_views(self.graph, node, &outputs)?;
        }
        let name: Arc<str> = op.name().into();
        let rules = ResultRules {
            returned: outputs.len(),
            promise: LayoutPromise::StridesAndOffset,
            copied: &copied,
        };
        self.set_results(node, outputs, rules).map_err(|e| e.in_call(&name, loc))
    }

    /// The operator that a node calls, through `ir::call` or directly.
    pub(crate) fn callee(&self, node: NodeId) -> Callee<'g> {
        Callee::of(self.graph, node)
    }

    /// As [`Callable::find`], looked up once in a run.
    pub(crate) fn callable(&mut self, id: StrId) -> Result<Callable> {
        if let Some(callable) = self.ops.get(&id) {
            return Ok(*callable);
        }
        let callable = Callable::find(self.graph, id)?;
        self.ops.insert(id, callable);
        Ok(callable)
    }

    /// A call's arguments in the order of the schema: the positional ones, then keyword arguments
    /// and defaults. `value` evaluates an argument.
    pub(crate) fn arguments(
        &self,
        op: Op,
        node: NodeId,
        positional: &[Arg],
        value: &dyn Fn(Arg) -> Result<Value>,
    ) -> Result<Args> {
        arguments(self.graph, op, node, positional, value)
    }

    /// Binds a symbol from a value, and repeats the checks that were waiting for symbols.
    fn bind(&mut self, symbol: SymbolId, v: ValueId, source: BindSource) -> Result<()> {
        let value = bound_number(self.graph, v, self.get(v)?, source)?;
        let (graph, call_site) = (self.graph, self.source_info.call_site);
        let in_call = |e: Error, node: Option<NodeId>| match node {
            Some(node) => {
                e.in_call(&graph.called_op(node).into(), graph.loc(node).unwrap_or(call_site))
            }
            None => e,
        };
        self.bindings.bind(symbol, value).map_err(|e| in_call(e, self.graph.producer(v)))?;
        for pending in std::mem::take(&mut self.pending_checks) {
            let PendingCheck { node, output, v, ref value, promise } = pending;
            match self.bindings.check_result(v, output, value, promise) {
                Ok(true) => {}
                Ok(false) => self.pending_checks.push(pending),
                Err(e) => return Err(in_call(e, Some(node))),
            }
        }
        Ok(())
    }
}
