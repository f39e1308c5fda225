//! From a program that mutates to values: every storage has a version, which each write replaces (memory SSA).
//!
//! A tensor of the program is a storage and a view of it; an operator that reads it reads that view of the storage's version at the time, and one
//! that writes it makes a new version, with the view replaced. What an operator does to its arguments and which argument a result is a view of
//! come from [`MemoryFacts`](maquette_ir::graph::MemoryFacts); where a view lies, from the metadata that the trace recorded.

use crate::beforehand::{Beforehand, Learnt};
use crate::dag::{Given, Hint, Id, Kind, Layouts, MetaId, Node, Session, Slot, SpecId, Template};
use crate::error::{Reason, Result};
use crate::memory::{Final, Handle, Item, Leaving, Memory, Owner, Storage};
use crate::told::Told;
use maquette_ir::graph::{Arg, Graph, NodeId, OpFacts, Res, Stmt, ValueId, ValueType};
use maquette_ir::fault_injection::fault_injected;
use maquette_ir::sym::Expr;
use maquette_ir::view::TriBool;
use rustc_hash::FxHashSet;
use smallvec::SmallVec;

#[derive(Clone, Copy, Debug)]
pub(crate) enum Binding {
    Tensor(Handle),
    Number(Id),
    /// A number that the graph's types tell.
    Told(Expr),
}

/// The program in values.
#[derive(Clone)]
pub(crate) struct Lifted {
    pub memory: Memory,
    pub outputs: Vec<Leaving>,
    /// Their values in the end, one for one.
    pub finals: Vec<Final>,
}

pub(crate) struct Lift<'g> {
    pub graph: &'g Graph,
    told: Told<'g>,
    pub memory: Memory,
    pub bindings: Vec<Option<Binding>>,
    /// By type.
    pub types: Vec<Option<(MetaId, Option<SpecId>)>>,
    /// What symbols get their values from.
    sources: FxHashSet<ValueId>,
    pub known: &'g Beforehand,
    pub learnt: Vec<Learnt>,
}

/// Lifts a program. Where it `forwards`, loads see the stores before them, and what nobody can see is not stored. What is learnt on the way makes
/// the result void: the program is to be lifted again.
pub(crate) fn lift(graph: &Graph, facts: &dyn OpFacts, known: &Beforehand, forwards: bool) -> (Result<Lifted>, Vec<Learnt>) {
    let mut symbols = graph.symbols().clone();
    for &guard in graph.guards() {
        // a guard that contradicts what is known is one that no call passes
        let _ = symbols.assume(guard);
    }
    let source = |s: &Stmt| if let Stmt::Bind { value, .. } = s { Some(*value) } else { None };
    let mut l = Lift {
        graph,
        sources: graph.body().iter().filter_map(source).collect(),
        told: Told::new(facts),
        memory: Memory::new(Session::new(symbols), forwards, graph.node_count() + graph.inputs().len()),
        bindings: vec![None; graph.values().len()],
        types: vec![None; graph.type_count()],
        known,
        learnt: Vec::new(),
    };
    (program(&mut l), l.learnt)
}

fn program(l: &mut Lift<'_>) -> Result<Lifted> {
    let graph = l.graph;
    for (i, &v) in graph.inputs().iter().enumerate() {
        l.enter(v, Owner::Input(i as u32), Node::Input(i as u32))?;
    }
    l.known.groups.iter().try_for_each(|group| l.share(group))?;
    for (i, c) in graph.consts().iter().enumerate() {
        l.enter(c.value(), Owner::Const(i as u32), Node::Const(i as u32))?;
    }
    for (at, stmt) in graph.body().iter().enumerate() {
        l.memory.at = at as u32;
        match *stmt {
            Stmt::Node(node) => {
                l.memory.loc = graph.loc(node);
                l.node(node).map_err(|e| e.at(graph.loc(node)))?;
            }
            Stmt::Bind { symbol, value, source } => {
                let value = l.made(value)?;
                l.memory.items.push(Item::Bind { symbol, value, source, at: at as u32 });
            }
            Stmt::Assert { cond, message } => {
                let message = message.map(|m| l.memory.session.name(graph.str(m)));
                l.memory.items.push(Item::Assert { cond, message, at: at as u32 });
            }
        }
    }
    (l.memory.at, l.memory.loc) = (graph.body().len() as u32, None);
    let outputs: Vec<Leaving> = graph.outputs().iter().map(|&a| l.leaving(a)).collect::<Result<_>>()?;
    let repeats = |ty| {
        let t = graph.type_of(ty);
        t.sizes.iter().zip(&t.strides).any(|(n, s)| *s == Expr::Int(0) && *n != Expr::Int(1))
    };
    l.memory.settle();
    let finals = l.memory.finals(&outputs, &repeats);
    let symbols = Session::new(Default::default());
    Ok(Lifted { memory: std::mem::replace(&mut l.memory, Memory::new(symbols, false, 0)), outputs, finals })
}

/// The one view whose offset counts from the start of the storage, wherever its tensor begins.
pub(crate) const AS_STRIDED: &str = "aten::as_strided";
/// Checks in the run that two places share no element.
pub(crate) const APART: &str = "ir::apart";
/// Checks in the run that no two elements of a tensor share their place.
pub(crate) const DISTINCT: &str = "ir::distinct";

/// An operator's argument and what is done with it.
#[derive(Clone, Copy)]
pub(crate) struct Operand {
    pub arg: usize,
    pub value: ValueId,
}

type Operands = SmallVec<[Operand; 4]>;

/// What is known of a call before it is made.
struct Call<'a> {
    operands: &'a [Operand],
    /// The arguments that are written, by number.
    mutated: &'a [(usize, Handle)],
    /// It may see the strides of its operands.
    opaque: bool,
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
            Binding::Told(_) => return Err(Reason::Internal("a number that types tell is computed").into()),
        })
    }

    /// A value as it was made, before its symbols are bound.
    fn made(&mut self, v: ValueId) -> Result<Id> {
        match self.binding(v)? {
            Binding::Tensor(t) if self.memory.storages[t.storage].pending.is_some() => Ok(self.memory.storages[t.storage].version),
            _ => self.value(v),
        }
    }

    fn node(&mut self, node: NodeId) -> Result<()> {
        let graph = self.graph;
        let op = graph.op_name(node);
        let mut operands = Operands::new();
        for (i, &a) in graph.args(node).iter().enumerate() {
            graph.for_each_leaf(a, &mut |leaf| operands.extend(self.operand(i, leaf)));
        }
        for &(name, a) in graph.kwargs(node) {
            let unknown = || Reason::Keyword { op: op.into(), name: graph.str(name).into() };
            let index = self.told.keyword(graph, graph.op(node), name).ok_or_else(unknown)?;
            graph.for_each_leaf(a, &mut |leaf| operands.extend(self.operand(index, leaf)));
        }
        let numbers = operands.iter().map(|o| o.arg + 1).max().unwrap_or(0);
        let operator = self.told.operator(graph, node, numbers);
        if operator.sees_storage {
            return Err(Reason::Storage { op: op.into() }.into());
        }
        let (opaque, random, ordered) = (operator.opaque, operator.random, operator.ordered);
        let (keeps, describes, write_model) = (operator.keeps, operator.describes, operator.write_model);
        // The argument that each result is, or is a view of.
        let aliases: SmallVec<[Option<usize>; 4]> = match graph.copies(node) {
            true => SmallVec::new(),
            false => (0..graph.results(node).len()).map(|i| operator.alias(i)).collect(),
        };
        let alias = |i: usize| aliases.get(i).copied().flatten();
        let written: SmallVec<[usize; 2]> = (0..numbers).filter(|&i| operator.writes(i)).collect();
        let writes = |o: &&Operand| written.contains(&o.arg) && matches!(graph.value_type(o.value), ValueType::Tensor(_));
        let mutated: SmallVec<[(usize, Handle); 2]> = operands
            .iter()
            .filter(writes)
            .map(|o| match self.binding(o.value)? {
                Binding::Tensor(t) => Ok((o.arg, t)),
                Binding::Number(_) | Binding::Told(_) => Err(Reason::Internal("a number is written").into()),
            })
            .collect::<Result<_>>()?;
        self.written_once(op, &mutated)?;
        let named = graph.args(node).len() > 3 || graph.kwargs(node).iter().any(|(name, _)| graph.str(*name) == "storage_offset");
        if op == AS_STRIDED && named {
            let outside = |o: &Operand| match self.binding(o.value) {
                Ok(Binding::Tensor(t)) => self.memory.storages[t.storage].owner != Owner::Fresh,
                _ => false,
            };
            self.memory.absolute |= operands.first().is_some_and(outside);
        }
        let is_mutated = |arg: usize| mutated.iter().any(|(a, _)| *a == arg);
        let all_views = graph.results(node).iter().enumerate().all(|(i, r)| r.values().is_empty() || alias(i).is_some());
        let effect = graph.has_effect(node) || ordered;
        let is_view = all_views && mutated.is_empty() && !effect && !graph.results(node).is_empty();
        if !is_view {
            self.count(node, write_model, &operands, &mutated, |i| alias(i).is_none());
            if describes && !effect && mutated.is_empty() && self.told_by_types(node) {
                return Ok(());
            }
            let placed =
                effect && !fault_injected("lift: effects are like other calls") || random && !fault_injected("lift: random numbers are like others");
            let call = Call { operands: &operands, mutated: &mutated, opaque, serial: if placed { self.memory.at + 1 } else { 0 } };
            self.call(node, call, |i| alias(i).is_some_and(is_mutated))?;
        }
        for (i, r) in graph.results(node).iter().enumerate() {
            let Some(arg) = alias(i) else { continue };
            let of = operands.iter().find(|o| o.arg == arg).ok_or(Reason::Internal("a view of an argument that was not given"))?;
            let Binding::Tensor(of) = self.binding(of.value)? else { return Err(Reason::Internal("a view of a number").into()) };
            for v in r.values().iter() {
                if keeps && !self.is_in_order(v, of)? {
                    return Err(Reason::Copies { op: op.into() }.into());
                }
                self.view(v, of, op)?;
            }
        }
        Ok(())
    }

    fn operand(&self, arg: usize, leaf: Arg) -> Option<Operand> {
        match leaf {
            Arg::Value(value) if self.told_number(value).is_none() => Some(Operand { arg, value }),
            _ => None,
        }
    }

    fn told_number(&self, v: ValueId) -> Option<Expr> {
        if let Some(Some(Binding::Told(e))) = self.bindings.get(v.index()) { Some(*e) } else { None }
    }

    /// Binds the results of a node that describes its arguments to what their types say, unless symbols get their values from them.
    fn told_by_types(&mut self, node: NodeId) -> bool {
        let graph = self.graph;
        let number = |v: ValueId| match graph.value_type(v) {
            ValueType::Int(e) => Some((v, e)),
            _ => None,
        };
        let Some(numbers) = graph.result_values(node).map(number).collect::<Option<SmallVec<[(ValueId, Expr); 1]>>>() else { return false };
        if numbers.iter().any(|(v, _)| self.sources.contains(v)) {
            return false;
        }
        numbers.iter().for_each(|&(v, e)| self.bind(v, Binding::Told(e)));
        true
    }

    /// A call, on the values that its operands have; the tensors that it writes have others afterwards. Results that `is_written` are none of
    /// its own.
    fn call(&mut self, node: NodeId, call: Call<'_>, is_written: impl Fn(usize) -> bool) -> Result<()> {
        let Call { operands, mutated, opaque, serial } = call;
        let (graph, op) = (self.graph, self.graph.op_name(node));
        let ids: SmallVec<[Id; 4]> = operands.iter().map(|o| self.value(o.value)).collect::<Result<_>>()?;
        let mut number = 0;
        let args: SmallVec<[Slot; 8]> = graph.args(node).iter().map(|&a| self.slot(a, &mut number)).collect();
        let mut kwargs = Vec::with_capacity(graph.kwargs(node).len());
        for &(name, a) in graph.kwargs(node) {
            let name = self.memory.session.name(graph.str(name));
            kwargs.push((name, self.slot(a, &mut number)));
        }
        let mut leaves: SmallVec<[Option<ValueId>; 4]> = SmallVec::new();
        let mut results: SmallVec<[Given; 2]> = SmallVec::new();
        for (_, r) in graph.results(node).iter().enumerate().filter(|(i, _)| !is_written(*i)) {
            let kinds: SmallVec<[Kind; 4]> = r.values().iter().map(|v| self.kind(graph.value_type(v))).collect();
            leaves.extend(r.values().iter().map(Some));
            results.push(match r {
                Res::Value(_) => Given::Value(kinds[0]),
                Res::List(_) => Given::List(kinds.into_boxed_slice()),
                Res::Absent => Given::Absent,
            });
        }
        for (_, t) in mutated {
            results.push(Given::Value(Kind::Tensor(t.meta)));
            leaves.push(None);
        }
        let layouts = if opaque { operands.iter().map(|o| self.layout(o.value)).collect() } else { Box::default() };
        let strides: Layouts = leaves.iter().map(|v| v.and_then(|v| self.layout(v))).collect();
        let strides = Hint(Some(if strides.iter().all(Option::is_none) { Box::default() } else { strides }));
        let template = Template {
            op: self.memory.session.name(op),
            args: args.into_boxed_slice(),
            kwargs: kwargs.into(),
            mutates: !mutated.is_empty(),
            effect: graph.has_effect(node),
            copies: graph.copies(node),
            results: results.into_boxed_slice(),
            layouts,
            strides,
            serial,
        };
        let kinds: SmallVec<[Kind; 4]> = template.kinds().collect();
        let kind = template.kind();
        let call = self.memory.session.call(template);
        let id = self.memory.add(Node::Call(call, ids), kind);
        let mut written = mutated.iter();
        for (i, (leaf, &of)) in leaves.iter().zip(&kinds).enumerate() {
            let value = if kind == Kind::Tuple { self.memory.add(Node::Proj(i as u32, id), of) } else { id };
            match leaf {
                Some(v) => self.own(*v, value, Owner::Fresh)?,
                None => {
                    let (_, t) = *written.next().ok_or(Reason::Internal("more values than were written"))?;
                    self.memory.write(t, value, op)?;
                }
            }
        }
        Ok(())
    }

    /// The strides of a tensor that is not row-major, written as sizes are.
    fn layout(&mut self, v: ValueId) -> Option<Box<[Expr]>> {
        let graph = self.graph;
        match graph.value_type(v) {
            ValueType::Tensor(ty) if !graph.is_contiguous(ty) => {
                let symbols = &mut self.memory.session.symbols;
                Some(graph.type_of(ty).strides.iter().map(|e| symbols.simplify(*e)).collect())
            }
            _ => None,
        }
    }

    /// Elements that one operator writes to must not meet: the order of its writes would decide. Where sizes decide, it is checked in the run.
    fn written_once(&mut self, op: &str, mutated: &[(usize, Handle)]) -> Result<()> {
        for (i, (second, a)) in mutated.iter().enumerate() {
            self.stored_once(op, *a)?;
            // elements that are known to meet are refused by the write
            if self.memory.session.injective(a.spec) == TriBool::Unknown && !fault_injected("lift: elements that are written may meet") {
                self.check_distinct(op, *a, *second);
            }
            for (first, b) in mutated.iter().take(i).filter(|(_, b)| a.storage == b.storage) {
                match self.memory.session.disjoint(a.spec, b.spec) {
                    _ if fault_injected("lift: arguments that are written may overlap") => {}
                    TriBool::Yes => {}
                    TriBool::No => return Err(Reason::AliasedMutableArgs { op: op.into() }.into()),
                    TriBool::Unknown => self.check_apart(op, [*b, *a], [*first, *second]),
                }
            }
        }
        Ok(())
    }

    /// A value has an element for each index. Where several of a tensor from outside share their place, a write to one is one to all of them, and
    /// the memory itself has to be the value.
    fn stored_once(&mut self, op: &str, t: Handle) -> Result<()> {
        let Storage { owner, place, written, .. } = self.memory.storages[t.storage];
        if written.is_some() || fault_injected("lift: elements of an input may meet") {
            return Ok(());
        }
        let viewed = |l: &Self| l.memory.session.text(&l.memory.session.specs[place.index()]);
        match (self.memory.session.injective(place), self.reach(t, place)) {
            (TriBool::Yes, _) => {}
            (_, Some(reach)) => {
                self.learnt.push(reach);
                return Err(Reason::Outside { op: op.into(), viewed: viewed(self) }.into());
            }
            (TriBool::No, None) => return Err(Reason::WriteToOverlappingView { op: op.into(), viewed: viewed(self) }.into()),
            (TriBool::Unknown, None) => {
                let spec = &self.memory.session.specs[place.index()];
                let lists = [spec.sizes().collect::<Vec<_>>(), spec.dims().iter().map(|d| d.stride).collect()];
                let [sizes, strides] = lists.map(|l| Slot::List(l.into_iter().map(Slot::Int).collect()));
                let outside = match owner {
                    Owner::Input(i) => self.graph.inputs().get(i as usize).copied(),
                    Owner::Const(i) => self.graph.consts().get(i as usize).map(|c| c.value()),
                    Owner::Memory(_) | Owner::Fresh => None,
                };
                let name = outside.map_or_else(|| op.to_owned(), |v| self.graph.value_name(v).to_string());
                let name = Slot::Str(self.memory.session.name(&name));
                self.checked(DISTINCT, Box::from([sizes, strides, name]));
            }
        }
        Ok(())
    }

    fn check_apart(&mut self, op: &str, tensors: [Handle; 2], args: [usize; 2]) {
        let session = &mut self.memory.session;
        let place = |t: Handle| {
            let spec = &session.specs[t.spec.index()];
            let numbers = [spec.offset()].into_iter().chain(spec.sizes()).chain(spec.dims().iter().map(|d| d.stride));
            Slot::List(numbers.map(Slot::Int).collect())
        };
        let [first, second] = tensors.map(place);
        let [first_name, second_name] = args.map(|a| Slot::Str(session.name(&self.told.name(op, a))));
        self.checked(APART, Box::from([first, second, first_name, second_name]));
    }

    /// Of the sizes and strides that the program sees, which are those that the eager error names.
    fn check_distinct(&mut self, op: &str, t: Handle, arg: usize) {
        let ty = self.graph.type_of(t.ty);
        let [sizes, strides] = [&ty.sizes, &ty.strides].map(|l| Slot::List(l.iter().copied().map(Slot::Int).collect()));
        let name = Slot::Str(self.memory.session.name(&self.told.name(op, arg)));
        self.checked(DISTINCT, Box::from([sizes, strides, name]));
    }

    /// A check in the run, in its place among effects.
    fn checked(&mut self, check: &str, args: Box<[Slot]>) {
        let template = Template {
            op: self.memory.session.name(check),
            args,
            kwargs: Box::default(),
            mutates: false,
            effect: true,
            copies: false,
            results: Box::default(),
            layouts: Box::default(),
            strides: Hint::default(),
            serial: self.memory.at + 1,
        };
        let call = self.memory.session.call(template);
        self.memory.add(Node::Call(call, SmallVec::new()), Kind::Tuple);
    }

    /// An argument, whose values are those operands of the call that come next.
    fn slot(&mut self, given: Arg, number: &mut u32) -> Slot {
        match given {
            Arg::Value(v) => match self.told_number(v) {
                Some(e) => Slot::Int(e),
                None => {
                    *number += 1;
                    Slot::Operand(*number - 1)
                }
            },
            Arg::List(list) => Slot::List(self.graph.list(list).iter().map(|&a| self.slot(a, number)).collect()),
            Arg::None => Slot::None,
            Arg::Int(e) => Slot::Int(e),
            Arg::Float(x) => Slot::Float(x),
            Arg::Bool(b) => Slot::Bool(b),
            Arg::Str(s) => Slot::Str(self.memory.session.name(self.graph.str(s))),
            Arg::DType(d) => Slot::DType(d),
            Arg::Device(d) => Slot::Device(d),
            Arg::Layout(l) => Slot::Layout(l),
            Arg::MemoryFormat(m) => Slot::MemoryFormat(m),
        }
    }

    fn leaving(&mut self, arg: Arg) -> Result<Leaving> {
        Ok(match arg {
            Arg::Value(v) => match self.binding(v)? {
                Binding::Tensor(t) => Leaving::Tensor(t),
                Binding::Number(id) => Leaving::Number(id),
                Binding::Told(e) => Leaving::Plain(Arg::Int(e)),
            },
            Arg::List(list) => Leaving::List(self.graph.list(list).iter().map(|&a| self.leaving(a)).collect::<Result<_>>()?),
            plain => Leaving::Plain(plain),
        })
    }
}
