//! From a program that mutates to values: every storage has a version, which each write replaces
//! (memory SSA).
//!
//! A tensor of the program is a storage and a view of it; an operator that reads it reads that view
//! of the storage's version at the time, and one that writes it makes a new version, with the view
//! replaced. What an operator does to its arguments and which argument a result is a view of come
//! from [`MemoryFacts`](maquette_ir::graph::MemoryFacts); where a view lies, from the metadata that
//! the trace recorded.

use requirements::{Requirement, Requirements};
mod eager_copies;
mod last_stores;
mod locate_view;
mod memory_order;
pub(crate) mod memory_ssa;
mod mutable_args;
pub(crate) mod requirements;
mod shared_memory;
mod storage_layout;

use crate::error::{Reason, Result};
use crate::functionalize::op_info::OpInfoCache;
use crate::functionalize::value_graph::{
    CallArg, CallKey, Id, Interner, Kind, Layouts, MetaId, Node, ResultKind, SpecId,
};
use maquette_ir::fault_injection::{Fault, fault_injected};
use maquette_ir::graph::{Arg, Graph, NodeId, OpFacts, Res, Stmt, ValueId, ValueType};
use maquette_ir::sym::Expr;

use memory_ssa::{Handle, LiftedStmt, MemorySsa, OutputRef, OutputValue, StorageOrigin};
use rustc_hash::FxHashSet;
use smallvec::SmallVec;

#[derive(Clone, Copy, Debug)]
pub(crate) enum Binding {
    Tensor(Handle),
    Number(Id),
    /// A number that the graph's types tell.
    Static(Expr),
}

/// The program in values.
#[derive(Clone)]
pub(crate) struct Lifted {
    pub memory: MemorySsa,
    pub outputs: Vec<OutputRef>,
    /// Their values in the end, one for one.
    pub output_values: Vec<OutputValue>,
}

pub(crate) struct Lift<'g> {
    pub graph: &'g Graph,
    ops: OpInfoCache<'g>,
    pub memory: MemorySsa,
    pub bindings: Vec<Option<Binding>>,
    /// By type.
    pub types: Vec<Option<(MetaId, Option<SpecId>)>>,
    /// What symbols get their values from.
    sources: FxHashSet<ValueId>,
    pub requirements: &'g Requirements,
    pub discovered: Vec<Requirement>,
}

/// Lifts a program. With `forward_stores`, loads see the stores before them, and what nobody can
/// see is not stored. What is learnt on the way makes the result void: the program is to be lifted
/// again.
pub(crate) fn lift(
    graph: &Graph,
    facts: &dyn OpFacts,
    requirements: &Requirements,
    forward_stores: bool,
) -> (Result<Lifted>, Vec<Requirement>) {
    let mut symbols = graph.symbols().clone();
    for &guard in graph.guards() {
        // a guard that contradicts what is known is one that no call passes
        let _ = symbols.assume(guard);
    }
    let source = |s: &Stmt| if let Stmt::Bind { value, .. } = s { Some(*value) } else { None };
    let mut l = Lift {
        graph,
        sources: graph.body().iter().filter_map(source).collect(),
        ops: OpInfoCache::new(facts),
        memory: MemorySsa::new(
            Interner::new(symbols),
            forward_stores,
            graph.node_count() + graph.inputs().len(),
        ),
        bindings: vec![None; graph.values().len()],
        types: vec![None; graph.type_count()],
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
    for (at, stmt) in graph.body().iter().enumerate() {
        l.memory.at = at as u32;
        match *stmt {
            Stmt::Node(node) => {
                l.memory.loc = graph.loc(node);
                l.node(node).map_err(|e| e.at_statement(graph, at))?;
            }
            Stmt::Bind { symbol, value, source } => {
                let value = l.unordered_value(value).map_err(|e| e.at_statement(graph, at))?;
                l.memory.stmts.push(LiftedStmt::Bind { symbol, value, source, at: at as u32 });
            }
            Stmt::Assert { cond, message } => {
                let message = message.map(|m| l.memory.interner.name(graph.str(m)));
                l.memory.stmts.push(LiftedStmt::Assert { cond, message, at: at as u32 });
            }
        }
    }
    (l.memory.at, l.memory.loc) = (graph.body().len() as u32, None);
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

/// An operator's argument and what is done with it.
#[derive(Clone, Copy)]
pub(crate) struct Operand {
    pub arg: usize,
    pub value: ValueId,
}

type Operands = SmallVec<[Operand; 4]>;

/// By result: the argument that it is, or is a view of.
type Aliases = SmallVec<[Option<usize>; 4]>;

/// What is known of a call before it is made.
struct Call<'a> {
    operands: &'a [Operand],
    /// The arguments that are written, by number.
    mutated: &'a [(usize, Handle)],
    /// It may see the strides of its operands.
    observes_strides: bool,
    serial: u32,
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
        Ok(match self.binding(v)? {
            Binding::Tensor(t) => self.memory.read(t),
            Binding::Number(id) => id,
            Binding::Static(_) => {
                return Err(Reason::Internal("a static integer is used as a computed value").into());
            }
        })
    }

    /// A value as it was made, before its symbols are bound.
    fn unordered_value(&mut self, v: ValueId) -> Result<Id> {
        match self.binding(v)? {
            Binding::Tensor(t) if self.memory.storages[t.storage].pending_reorder.is_some() => {
                Ok(self.memory.storages[t.storage].version)
            }
            _ => self.value(v),
        }
    }

    /// A call of the program: views are bound to their storages, everything else is called.
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
        let (keeps_elements, is_metadata_query, write_model) =
            (op_info.keeps_elements, op_info.is_metadata_query, op_info.write_model);
        let aliases: Aliases = match graph.copies(node) {
            true => SmallVec::new(),
            false => (0..graph.results(node).len()).map(|i| op_info.alias(i)).collect(),
        };
        let alias = |i: usize| aliases.get(i).copied().flatten();
        let written: SmallVec<[usize; 2]> = (0..arg_count).filter(|&i| op_info.writes(i)).collect();
        let mutated = self.mutated_args(&operands, &written)?;
        self.check_mutated_args(op, &mutated)?;
        self.note_absolute_offset(node, &operands);
        let is_mutated = |arg: usize| mutated.iter().any(|(a, _)| *a == arg);
        let all_views = graph
            .results(node)
            .iter()
            .enumerate()
            .all(|(i, r)| r.values().is_empty() || alias(i).is_some());
        let effect = graph.has_effect(node) || has_effect;
        let is_view = all_views && mutated.is_empty() && !effect && !graph.results(node).is_empty();
        if !is_view {
            self.count_eager_copies(node, write_model, &operands, &mutated, |i| alias(i).is_none());
            if is_metadata_query && !effect && mutated.is_empty() && self.bind_static_results(node)
            {
                return Ok(());
            }
            let is_sequenced = effect && !fault_injected(Fault::EffectsUnordered)
                || uses_rng && !fault_injected(Fault::RandomCallsUnordered);
            let call = Call {
                operands: &operands,
                mutated: &mutated,
                observes_strides,
                serial: if is_sequenced { self.memory.at + 1 } else { 0 },
            };
            self.call(node, call, |i| alias(i).is_some_and(is_mutated))?;
        }
        self.bind_views(node, &operands, &aliases, keeps_elements)
    }

    /// The values that a call is given, in order, each with the number of its argument.
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

    /// The tensors among the operands that arguments of these numbers give to be written.
    fn mutated_args(
        &self,
        operands: &[Operand],
        written: &[usize],
    ) -> Result<SmallVec<[(usize, Handle); 2]>> {
        let is_tensor = |v| matches!(self.graph.value_type(v), ValueType::Tensor(_));
        operands
            .iter()
            .filter(|o| written.contains(&o.arg) && is_tensor(o.value))
            .map(|o| match self.binding(o.value)? {
                Binding::Tensor(t) => Ok((o.arg, t)),
                Binding::Number(_) | Binding::Static(_) => {
                    Err(Reason::Internal("a mutated argument is not a tensor").into())
                }
            })
            .collect()
    }

    /// An absolute offset counts from the start of the storage (`as_strided`). The start of an
    /// external tensor's storage is known only if the run checks where the tensor begins.
    fn note_absolute_offset(&mut self, node: NodeId, operands: &[Operand]) {
        let graph = self.graph;
        if self.ops.names_absolute_offset(graph, node) {
            let is_external = |o: &Operand| match self.binding(o.value) {
                Ok(Binding::Tensor(t)) => {
                    self.memory.storages[t.storage].origin != StorageOrigin::Fresh
                }
                _ => false,
            };
            self.memory.absolute_offsets |= operands.first().is_some_and(is_external);
        }
    }

    /// Binds results that are, or are views of, arguments.
    fn bind_views(
        &mut self,
        node: NodeId,
        operands: &[Operand],
        aliases: &Aliases,
        keeps_elements: bool,
    ) -> Result<()> {
        let graph = self.graph;
        let op = graph.op_name(node);
        for (r, alias) in graph.results(node).iter().zip(aliases) {
            let Some(arg) = *alias else { continue };
            let of = operands.iter().find(|o| o.arg == arg).ok_or(Reason::Internal(
                "a result is a view of an argument that the call does not have",
            ))?;
            let Binding::Tensor(of) = self.binding(of.value)? else {
                return Err(Reason::Internal(
                    "a result is a view of an argument that is not a tensor",
                )
                .into());
            };
            for v in r.values().iter() {
                if keeps_elements && let Some(why) = self.copy_cause(node, v, of)? {
                    return Err(Reason::Copies { op: op.into(), why }.into());
                }
                self.view(v, of, op)?;
            }
        }
        Ok(())
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
        if let Some(Some(Binding::Static(e))) = self.bindings.get(v.index()) {
            Some(*e)
        } else {
            None
        }
    }

    /// Binds the results of a node that describes its arguments to what their types say, unless
    /// symbols get their values from them.
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
        if numbers.iter().any(|(v, _)| self.sources.contains(v)) {
            return false;
        }
        numbers.iter().for_each(|&(v, e)| self.bind(v, Binding::Static(e)));
        true
    }

    /// A call, on the values that its operands have; the tensors that it writes have others
    /// afterwards. Results that `is_written` are none of its own.
    fn call(
        &mut self,
        node: NodeId,
        call: Call<'_>,
        is_written: impl Fn(usize) -> bool,
    ) -> Result<()> {
        let Call { operands, mutated, observes_strides, serial } = call;
        let (graph, op) = (self.graph, self.graph.op_name(node));
        let ids: SmallVec<[Id; 4]> =
            operands.iter().map(|o| self.value(o.value)).collect::<Result<_>>()?;
        let mut number = 0;
        let args: SmallVec<[CallArg; 8]> =
            graph.args(node).iter().map(|&a| self.call_arg(a, &mut number)).collect();
        let mut kwargs = Vec::with_capacity(graph.kwargs(node).len());
        for &(name, a) in graph.kwargs(node) {
            let name = self.memory.interner.name(graph.str(name));
            kwargs.push((name, self.call_arg(a, &mut number)));
        }
        let mut leaves: SmallVec<[Option<ValueId>; 4]> = SmallVec::new();
        let mut results: SmallVec<[ResultKind; 2]> = SmallVec::new();
        for (_, r) in graph.results(node).iter().enumerate().filter(|(i, _)| !is_written(*i)) {
            let kinds: SmallVec<[Kind; 4]> =
                r.values().iter().map(|v| self.kind(graph.value_type(v))).collect();
            leaves.extend(r.values().iter().map(Some));
            results.push(match r {
                Res::Value(_) => ResultKind::Value(kinds[0]),
                Res::List(_) => ResultKind::List(kinds.into_boxed_slice()),
                Res::Absent => ResultKind::Absent,
            });
        }
        for (_, t) in mutated {
            results.push(ResultKind::Value(Kind::Tensor(t.meta)));
            leaves.push(None);
        }
        let layouts = if observes_strides {
            operands.iter().map(|o| self.recorded_strides(o.value)).collect()
        } else {
            Box::default()
        };
        let strides: Layouts =
            leaves.iter().map(|v| v.and_then(|v| self.recorded_strides(v))).collect();
        let strides =
            Some(if strides.iter().all(Option::is_none) { Box::default() } else { strides });
        let key = CallKey {
            op: self.memory.interner.name(op),
            args: args.into_boxed_slice(),
            kwargs: kwargs.into(),
            mutates: !mutated.is_empty(),
            effect: graph.has_effect(node),
            copies: graph.copies(node),
            results: results.into_boxed_slice(),
            layouts,
            serial,
        };
        let kinds: SmallVec<[Kind; 4]> = key.kinds().collect();
        let kind = key.kind();
        let call = self.memory.interner.call(key, strides);
        let id = self.memory.add(Node::Call(call, ids), kind);
        let mut written = mutated.iter();
        for (i, (leaf, &of)) in leaves.iter().zip(&kinds).enumerate() {
            let value = if kind == Kind::Tuple {
                self.memory.add(Node::Proj(i as u32, id), of)
            } else {
                id
            };
            match leaf {
                Some(v) => self.bind_new_storage(*v, value, StorageOrigin::Fresh)?,
                None => {
                    let (_, t) = *written.next().ok_or(Reason::Internal(
                        "a call returns more mutated values than it has mutated arguments",
                    ))?;
                    self.memory.write(t, value, op)?;
                }
            }
        }
        Ok(())
    }

    /// The strides of a tensor that is not row-major, written as sizes are.
    fn recorded_strides(&mut self, v: ValueId) -> Option<Box<[Expr]>> {
        let graph = self.graph;
        match graph.value_type(v) {
            ValueType::Tensor(ty) if !graph.is_contiguous(ty) => {
                let symbols = &mut self.memory.interner.symbols;
                Some(graph.type_of(ty).strides.iter().map(|e| symbols.simplify(*e)).collect())
            }
            _ => None,
        }
    }

    /// An argument, whose values are those operands of the call that come next.
    fn call_arg(&mut self, given: Arg, number: &mut u32) -> CallArg {
        match given {
            Arg::Value(v) => match self.static_number(v) {
                Some(e) => CallArg::Int(e),
                None => {
                    *number += 1;
                    CallArg::Operand(*number - 1)
                }
            },
            Arg::List(list) => CallArg::List(
                self.graph.list(list).iter().map(|&a| self.call_arg(a, number)).collect(),
            ),
            Arg::None => CallArg::None,
            Arg::Int(e) => CallArg::Int(e),
            Arg::Float(x) => CallArg::Float(x),
            Arg::Bool(b) => CallArg::Bool(b),
            Arg::Str(s) => CallArg::Str(self.memory.interner.name(self.graph.str(s))),
            Arg::DType(d) => CallArg::DType(d),
            Arg::Device(d) => CallArg::Device(d),
            Arg::Layout(l) => CallArg::Layout(l),
            Arg::MemoryFormat(m) => CallArg::MemoryFormat(m),
        }
    }

    fn output_ref(&mut self, arg: Arg) -> Result<OutputRef> {
        Ok(match arg {
            Arg::Value(v) => match self.binding(v)? {
                Binding::Tensor(t) => OutputRef::Tensor(t),
                Binding::Number(id) => OutputRef::Number(id),
                Binding::Static(e) => OutputRef::Plain(Arg::Int(e)),
            },
            Arg::List(list) => OutputRef::List(
                self.graph.list(list).iter().map(|&a| self.output_ref(a)).collect::<Result<_>>()?,
            ),
            plain => OutputRef::Plain(plain),
        })
    }
}
