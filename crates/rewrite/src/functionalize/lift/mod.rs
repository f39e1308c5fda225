//! Lifting: translates a program that mutates into a value graph, by memory SSA.
//!
//! Each storage has a current version, which is an SSA value. A tensor of the program is a storage
//! and a view of it. An operator that reads the tensor reads this view of the current version. An
//! operator that writes the tensor makes a new version, in which the viewed elements are replaced.
//!
//! [`MemoryFacts`](maquette_ir::graph::MemoryFacts) tell which arguments an operator writes, and
//! which argument a result is a view of. The metadata that the trace recorded tell which elements
//! of the storage a view has.

use requirements::{Requirement, Requirements};
mod call;
mod eager_copies;
mod last_stores;
mod locate_view;
mod memory_order;
pub(crate) mod memory_ssa;
mod mutable_args;
mod promised_views;
pub(crate) mod requirements;
mod shared_memory;
mod storage_layout;

use crate::error::{Reason, Result, UnknownView};
use crate::functionalize::op_info::OpInfoCache;
use crate::functionalize::value_graph::{Id, Interner, Kind, MetaId, Name, Node, SpecId};
use maquette_ir::fault_injection::{Fault, fault_injected};
use maquette_ir::graph::{Arg, Graph, NodeId, OpFacts, Stmt, ValueId, ValueType, ViewSource};
use maquette_ir::sym::Expr;

use call::Call;
use memory_ssa::{Handle, LiftedStmt, MemorySsa, OutputRef, OutputValue, StorageOrigin};
use rustc_hash::FxHashMap;
use smallvec::SmallVec;

/// The lifted form of a graph value.
#[derive(Clone, Copy, Debug)]
pub(crate) enum LiftedValue {
    Tensor(Handle),
    Number(Id),
    /// A number whose expression is in the graph's types, so that nothing needs to compute it.
    Static(Expr),
}

/// The lifted program.
#[derive(Clone)]
pub(crate) struct Lifted {
    pub memory: MemorySsa,
    pub outputs: Vec<OutputRef>,
    /// The final value of each output.
    pub output_values: Vec<OutputValue>,
}

pub(crate) struct Lift<'g> {
    pub graph: &'g Graph,
    ops: OpInfoCache<'g>,
    pub memory: MemorySsa,
    /// By value of the graph: its lifted form, once it is lifted.
    pub values: Vec<Option<LiftedValue>>,
    /// By type of the graph: the metadata, and the region of memory once it has been computed.
    pub types: Vec<Option<(MetaId, Option<SpecId>)>>,
    /// By string of the graph: the interned name, once it is interned.
    names: Vec<Option<Name>>,
    /// The values from which `bind` statements read symbols, each with the node that the call
    /// returned, once it is lifted. A later version of the value, or a view of it, may mention the
    /// symbols.
    bind_sources: FxHashMap<ValueId, Option<Id>>,
    pub requirements: &'g Requirements,
    pub discovered: Vec<Requirement>,
}

/// Lifts a program. `forward_stores` enables store-to-load forwarding and dead-store elimination.
///
/// Also returns the requirements that lifting discovered. If there are any, the result is invalid,
/// and the caller must lift the program again with them.
pub(crate) fn lift(
    graph: &Graph,
    facts: &dyn OpFacts,
    requirements: &Requirements,
    forward_stores: bool,
) -> (Result<Lifted>, Vec<Requirement>) {
    let mut symbols = graph.symbols().clone();
    for &guard in graph.guards() {
        // A guard may contradict the known facts. Then no call passes it, so it can be ignored.
        let _ = symbols.assume(guard);
    }
    let source =
        |s: &Stmt| if let Stmt::Bind { value, .. } = s { Some((*value, None)) } else { None };
    let mut l = Lift {
        graph,
        bind_sources: graph.body().iter().filter_map(source).collect(),
        ops: OpInfoCache::new(facts),
        memory: MemorySsa::new(
            Interner::new(symbols),
            forward_stores,
            graph.node_count() + graph.inputs().len(),
        ),
        values: vec![None; graph.values().len()],
        types: vec![None; graph.type_count()],
        names: Vec::new(),
        requirements,
        discovered: Vec::new(),
    };
    (program(&mut l), l.discovered)
}

fn program(l: &mut Lift<'_>) -> Result<Lifted> {
    let graph = l.graph;
    for (i, &v) in graph.inputs().iter().enumerate() {
        l.bind_external(v, StorageOrigin::Input(i as u32), Node::Input(i as u32))?;
    }
    l.requirements.groups.iter().try_for_each(|group| l.bind_shared(group))?;
    for (i, c) in graph.consts().iter().enumerate() {
        l.bind_external(c.value(), StorageOrigin::Const(i as u32), Node::Const(i as u32))?;
    }
    for (position, stmt) in graph.body().iter().enumerate() {
        let statement = position as u32;
        l.memory.statement = statement;
        match *stmt {
            Stmt::Node(node) => {
                l.memory.call = Some(node);
                l.node(node).map_err(|e| e.at_statement(graph, position))?;
            }
            Stmt::Bind { symbol, value, source } => {
                let value = l.bind_source(value).map_err(|e| e.at_statement(graph, position))?;
                l.memory.stmts.push(LiftedStmt::Bind { symbol, value, source, statement });
            }
            Stmt::Assert { cond, message } => {
                let message = message.map(|m| l.memory.interner.name(graph.str(m)));
                l.memory.stmts.push(LiftedStmt::Assert { cond, message, statement });
            }
        }
    }
    (l.memory.statement, l.memory.call) = (graph.body().len() as u32, None);
    let outputs: Vec<OutputRef> =
        graph.outputs().iter().map(|&a| l.output_ref(a)).collect::<Result<_>>()?;
    let repeats = |ty| {
        let t = graph.type_of(ty);
        t.sizes.iter().zip(&t.strides).any(|(n, s)| *s == Expr::Int(0) && *n != Expr::Int(1))
    };
    l.memory.flush_external_stores();
    let output_values = l.memory.output_values(&outputs, &repeats);
    let symbols = Interner::new(Default::default());
    Ok(Lifted {
        memory: std::mem::replace(&mut l.memory, MemorySsa::new(symbols, false, 0)),
        outputs,
        output_values,
    })
}

/// A value that a call takes, and the number of the argument in which it occurs.
#[derive(Clone, Copy)]
pub(crate) struct Operand {
    pub arg: usize,
    pub value: ValueId,
}

type Operands = SmallVec<[Operand; 4]>;

/// For each result: the argument that it is or views.
type Aliases = SmallVec<[Option<usize>; 4]>;

/// The facts of an operator about the views that it returns.
#[derive(Clone, Copy)]
struct ViewFacts {
    /// What decides which elements a view has.
    source: ViewSource,
    /// A view has the elements of the first argument, in order.
    keep_elements: bool,
    /// The argument that requests a copy.
    copy_arg: Option<usize>,
    /// A view may have elements that its tensor does not have.
    may_exceed_base: bool,
}

impl Lift<'_> {
    pub(crate) fn kind(&mut self, ty: ValueType) -> Kind {
        match ty {
            ValueType::Tensor(ty) => Kind::Tensor(self.meta(ty)),
            ValueType::Int(e) => Kind::Int(e),
            ValueType::Float => Kind::Float,
            ValueType::Bool => Kind::Bool,
            ValueType::Str => Kind::Str,
        }
    }

    fn value(&mut self, v: ValueId) -> Result<Id> {
        Ok(match self.lifted(v)? {
            LiftedValue::Tensor(t) => self.memory.read(t),
            LiftedValue::Number(id) => id,
            LiftedValue::Static(_) => {
                return Err(Reason::Internal("a static integer is used as a computed value").into());
            }
        })
    }

    /// The node from which a `bind` statement reads: the value as the call returned it.
    fn bind_source(&self, v: ValueId) -> Result<Id> {
        let source = self.bind_sources.get(&v).copied().flatten();
        Ok(source
            .ok_or(Reason::Internal("a symbol is bound from a value that no call returned"))?)
    }

    /// Lifts a node: binds results that are views to the storages of their arguments, and adds any
    /// other operator as a call.
    fn node(&mut self, node: NodeId) -> Result<()> {
        let graph = self.graph;
        let op = graph.op_name(node);
        let operands = self.operands(node)?;
        let arg_count = operands.iter().map(|o| o.arg + 1).max().unwrap_or(0);
        let op_info = self.ops.info(graph, node, arg_count);
        if op_info.observes_storage {
            return Err(Reason::Storage { op: op.into() }.into());
        }
        let (observes_strides, uses_rng, has_effect) =
            (op_info.observes_strides, op_info.uses_rng, op_info.has_effect);
        let (absolute_offset, is_metadata_query, write_model) =
            (op_info.absolute_offset, op_info.is_metadata_query, op_info.write_model);
        let views = ViewFacts {
            source: op_info.view_source,
            keep_elements: op_info.keeps_elements,
            copy_arg: op_info.copy_arg,
            may_exceed_base: op_info.view_may_exceed_base,
        };
        let view_source = views.source;
        let aliases: Aliases = (0..graph.results(node).len()).map(|i| op_info.alias(i)).collect();
        let returns_view = aliases.iter().flatten().any(|arg| !op_info.writes(*arg));
        if returns_view && view_source == ViewSource::Kernel {
            return Err(Reason::UnknownView { op: op.into(), why: UnknownView::Overridden }.into());
        }
        let aliases: Aliases = if graph.copies(node) { SmallVec::new() } else { aliases };
        if returns_view && !std::mem::replace(&mut op_info.is_viewer, true) {
            self.memory.viewers.push((op.to_owned(), graph.loc(node)));
        }
        let alias = |i: usize| aliases.get(i).copied().flatten();
        let written: SmallVec<[usize; 2]> = (0..arg_count).filter(|&i| op_info.writes(i)).collect();
        let mutated = self.mutated_args(&operands, &written)?;
        self.check_mutated_args(op, &mutated)?;
        if let Some(offset) = absolute_offset {
            self.note_absolute_offset(node, offset, &operands);
        }
        let is_mutated = |arg: usize| mutated.iter().any(|(a, _)| *a == arg);
        let all_views = graph
            .results(node)
            .iter()
            .enumerate()
            .all(|(i, r)| r.values().is_empty() || alias(i).is_some());
        let effect = graph.has_effect(node) || has_effect;
        let is_view = all_views && mutated.is_empty() && !effect && !graph.results(node).is_empty();
        // the call stays, so that a run compares what the kernel returns with the types
        let is_promise = returns_view && view_source == ViewSource::Promise;
        if !is_view || is_promise {
            self.count_eager_copies(node, write_model, &operands, &mutated, |i| alias(i).is_none());
            if is_metadata_query && !effect && mutated.is_empty() && self.bind_static_results(node)
            {
                return Ok(());
            }
            let is_sequenced = effect && !fault_injected(Fault::EffectsUnordered)
                || uses_rng && !fault_injected(Fault::RandomCallsUnordered)
                || is_promise;
            let offsets = match is_promise {
                true => self.promised_offsets(node, &operands, &aliases)?,
                false => Box::default(),
            };
            let call = Call {
                operands: &operands,
                mutated: &mutated,
                observes_strides,
                offsets,
                serial: if is_sequenced { self.memory.statement + 1 } else { 0 },
            };
            self.call(node, call, |i| alias(i).is_some_and(is_mutated))?;
        }
        self.bind_views(node, &operands, &aliases, views)
    }

    /// The operands of a node in order, those in lists and keyword arguments included.
    fn operands(&mut self, node: NodeId) -> Result<Operands> {
        let graph = self.graph;
        let mut operands = Operands::new();
        for (i, &a) in graph.args(node).iter().enumerate() {
            graph.for_each_leaf(a, &mut |leaf| operands.extend(self.operand(i, leaf)));
        }
        for &(name, a) in graph.kwargs(node) {
            let index = self.ops.keyword_index(graph, graph.op(node), name).ok_or_else(|| {
                Reason::Keyword { op: graph.op_name(node).into(), name: graph.str(name).into() }
            })?;
            graph.for_each_leaf(a, &mut |leaf| operands.extend(self.operand(index, leaf)));
        }
        Ok(operands)
    }

    /// The tensors among the operands that occur in the given (written) arguments.
    fn mutated_args(
        &self,
        operands: &[Operand],
        written: &[usize],
    ) -> Result<SmallVec<[(usize, Handle); 2]>> {
        let is_tensor = |v| matches!(self.graph.value_type(v), ValueType::Tensor(_));
        operands
            .iter()
            .filter(|o| written.contains(&o.arg) && is_tensor(o.value))
            .map(|o| match self.lifted(o.value)? {
                LiftedValue::Tensor(t) => Ok((o.arg, t)),
                LiftedValue::Number(_) | LiftedValue::Static(_) => {
                    Err(Reason::Internal("a mutated argument is not a tensor").into())
                }
            })
            .collect()
    }

    /// An absolute offset counts from the start of the storage (`as_strided`). The start of an
    /// external tensor's storage is known only if the run checks where the tensor begins. `offset`
    /// is the number of the argument.
    fn note_absolute_offset(&mut self, node: NodeId, offset: usize, operands: &[Operand]) {
        let graph = self.graph;
        let by_name = graph
            .kwargs(node)
            .iter()
            .any(|&(name, _)| self.ops.keyword_index(graph, graph.op(node), name) == Some(offset));
        if graph.args(node).len() > offset || by_name {
            let is_external = |o: &Operand| match self.lifted(o.value) {
                Ok(LiftedValue::Tensor(t)) => {
                    self.memory.storages[t.storage].origin != StorageOrigin::Fresh
                }
                _ => false,
            };
            self.memory.absolute_offsets |= operands.first().is_some_and(is_external);
        }
    }

    /// Binds the results that are arguments or views of arguments.
    fn bind_views(
        &mut self,
        node: NodeId,
        operands: &[Operand],
        aliases: &Aliases,
        views: ViewFacts,
    ) -> Result<()> {
        let graph = self.graph;
        let op = graph.op_name(node);
        for (r, alias) in graph.results(node).iter().zip(aliases) {
            let Some(arg) = *alias else { continue };
            let malformed = |detail| Reason::Malformed { op: op.into(), detail };
            let of = operands.iter().find(|o| o.arg == arg).ok_or_else(|| {
                malformed("it returns an argument, or a view of one, that the call does not have")
            })?;
            let LiftedValue::Tensor(of) = self.lifted(of.value)? else {
                let detail = "it returns an argument, or a view of one, that is not a tensor";
                return Err(malformed(detail).into());
            };
            for v in r.values().iter() {
                if let Some(symbol) = self.symbol_bound_from(v) {
                    return Err(Reason::SizeFromView { op: op.into(), symbol }.into());
                }
                // The operator returns a view only if it can, and this call must have copied.
                if views.keep_elements
                    && let Some(why) = self.copy_cause(node, v, of, views.copy_arg)?
                {
                    return Err(Reason::Copies { op: op.into(), why }.into());
                }
                if views.source == ViewSource::Promise {
                    self.check_within_operand(v, of, op)?;
                }
                self.view(v, of, op, views.may_exceed_base)?;
            }
        }
        Ok(())
    }

    /// The name of a symbol that a `bind` statement reads from a value.
    fn symbol_bound_from(&self, v: ValueId) -> Option<String> {
        if !self.bind_sources.contains_key(&v) {
            return None;
        }
        self.graph.body().iter().find_map(|stmt| match *stmt {
            Stmt::Bind { symbol, value, .. } if value == v => {
                Some(self.graph.symbols().name(symbol).to_owned())
            }
            _ => None,
        })
    }

    fn operand(&self, arg: usize, leaf: Arg) -> Option<Operand> {
        match leaf {
            Arg::Value(value) if self.static_number(value).is_none() => {
                Some(Operand { arg, value })
            }
            _ => None,
        }
    }

    fn static_number(&self, v: ValueId) -> Option<Expr> {
        if let Some(Some(LiftedValue::Static(e))) = self.values.get(v.index()) {
            Some(*e)
        } else {
            None
        }
    }

    /// Binds the results of a metadata query, such as `aten::sym_size`, to the expressions in their
    /// types. Returns `false` if a result is not an integer, or if a symbol is bound from it.
    fn bind_static_results(&mut self, node: NodeId) -> bool {
        let graph = self.graph;
        let number = |v: ValueId| match graph.value_type(v) {
            ValueType::Int(e) => Some((v, e)),
            _ => None,
        };
        let Some(numbers) = graph
            .result_values(node)
            .map(number)
            .collect::<Option<SmallVec<[(ValueId, Expr); 1]>>>()
        else {
            return false;
        };
        if numbers.iter().any(|(v, _)| self.bind_sources.contains_key(v)) {
            return false;
        }
        numbers.iter().for_each(|&(v, e)| self.set(v, LiftedValue::Static(e)));
        true
    }

    fn output_ref(&mut self, arg: Arg) -> Result<OutputRef> {
        Ok(match arg {
            Arg::Value(v) => match self.lifted(v)? {
                LiftedValue::Tensor(t) => OutputRef::Tensor(t),
                LiftedValue::Number(id) => OutputRef::Number(id),
                LiftedValue::Static(e) => OutputRef::Plain(Arg::Int(e)),
            },
            Arg::List(list) => OutputRef::List(
                self.graph.list(list).iter().map(|&a| self.output_ref(a)).collect::<Result<_>>()?,
            ),
            plain => OutputRef::Plain(plain),
        })
    }
}
