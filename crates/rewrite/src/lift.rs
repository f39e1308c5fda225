//! From a program that mutates to values: every storage has a version, which each write replaces (memory SSA).
//!
//! A tensor of the program is a storage and a view of it; an operator that reads it reads that view of the storage's version at the time, and one
//! that writes it makes a new version, with the view replaced. What an operator does to its arguments and which argument a result is a view of
//! come from [`MemoryFacts`]; where a view lies, from the metadata that the trace recorded.

use crate::dag::{Given, Id, Kind, MetaId, Node, Session, Slot, SpecId, Template};
use crate::error::{Reason, Result};
use crate::memory::{Final, Handle, Item, Leaving, Memory, Owner};
use maquette_ir::graph::{Arg, ArgEffect, Graph, MemoryFacts, NodeId, Res, Stmt, ValueId, ValueType};
use maquette_ir::mutant::mutant;
use maquette_ir::sym::Expr;
use maquette_ir::view::Tri;
use smallvec::SmallVec;

#[derive(Clone, Copy, Debug)]
pub(crate) enum Binding {
    Tensor(Handle),
    Number(Id),
}

/// Inputs that see one memory, and which elements of it the program is known to reach besides theirs.
#[derive(Clone, Debug)]
pub(crate) struct Group {
    pub inputs: Vec<usize>,
    pub start: i64,
    pub end: i64,
}

impl Group {
    pub fn of(inputs: Vec<usize>) -> Group {
        Group { inputs, start: i64::MAX, end: 0 }
    }
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
    facts: &'g dyn MemoryFacts,
    pub memory: Memory,
    pub bindings: Vec<Option<Binding>>,
    /// By type.
    pub types: Vec<Option<(MetaId, Option<SpecId>)>>,
}

pub(crate) fn lift(graph: &Graph, facts: &dyn MemoryFacts, shared: &[Group]) -> Result<Lifted> {
    let mut symbols = graph.symbols().clone();
    for &guard in graph.guards() {
        // a guard that contradicts what is known is one that no call passes
        let _ = symbols.assume(guard);
    }
    let mut l = Lift {
        graph,
        facts,
        memory: Memory::new(Session::new(symbols)),
        bindings: vec![None; graph.values().len()],
        types: vec![None; graph.type_count()],
    };
    for (i, &v) in graph.inputs().iter().enumerate() {
        l.enter(v, Owner::Input(i as u32), Node::Input(i as u32))?;
    }
    shared.iter().try_for_each(|group| l.share(group))?;
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
            Stmt::Assert { cond, message } => l.memory.items.push(Item::Assert { cond, message }),
        }
    }
    (l.memory.at, l.memory.loc) = (graph.body().len() as u32, None);
    let outputs: Vec<Leaving> = graph.outputs().iter().map(|&a| l.leaving(a)).collect::<Result<_>>()?;
    let repeats = |ty| {
        let t = graph.type_of(ty);
        t.sizes.iter().zip(&t.strides).any(|(n, s)| *s == Expr::Int(0) && *n != Expr::Int(1))
    };
    let finals = l.memory.finals(&outputs, &repeats);
    Ok(Lifted { memory: l.memory, outputs, finals })
}

/// The one view whose offset counts from the start of the storage, wherever its tensor begins.
const AS_STRIDED: &str = "aten::as_strided";
/// Checks in the run that two places share no element.
const APART: &str = "ir::apart";

/// An operator's argument and what is done with it.
struct Operand {
    arg: usize,
    value: ValueId,
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
        let (graph, facts) = (self.graph, self.facts);
        let op = graph.op_name(node);
        let mut operands: Vec<Operand> = Vec::new();
        let mut ids: Vec<Id> = Vec::new();
        let mut take = |l: &mut Self, arg: usize, given: Arg| l.slot(given, arg, &mut operands, &mut ids);
        let args: Box<[Slot]> = graph.args(node).iter().enumerate().map(|(i, &a)| take(self, i, a)).collect::<Result<_>>()?;
        let mut kwargs = Vec::new();
        for &(name, a) in graph.kwargs(node) {
            let index = facts.arg_index(op, graph.str(name)).ok_or(Reason::Internal("an operator has no argument of this name"))?;
            let name = self.memory.session.name(graph.str(name));
            kwargs.push((name, take(self, index, a)?));
        }
        let writes =
            |o: &&Operand| facts.arg_effect(op, o.arg) == ArgEffect::Write && matches!(graph.value_type(o.value), ValueType::Tensor(_));
        let mutated: SmallVec<[(usize, Handle); 2]> = operands
            .iter()
            .filter(writes)
            .map(|o| match self.binding(o.value)? {
                Binding::Tensor(t) => Ok((o.arg, t)),
                Binding::Number(_) => Err(Reason::Internal("a number is written").into()),
            })
            .collect::<Result<_>>()?;
        self.apart(op, &mutated)?;
        if op == AS_STRIDED && graph.args(node).len() > 3 {
            let outside = |o: &Operand| match self.binding(o.value) {
                Ok(Binding::Tensor(t)) => self.memory.storages[t.storage].owner != Owner::Fresh,
                _ => false,
            };
            self.memory.absolute |= operands.first().is_some_and(outside);
        }
        // The argument that each result is, or is a view of.
        let alias = |i: usize| facts.result_aliases(op, i).filter(|_| !graph.copies(node));
        let is_mutated = |arg: usize| mutated.iter().any(|(a, _)| *a == arg);
        let all_views = graph.results(node).iter().enumerate().all(|(i, r)| r.values().is_empty() || alias(i).is_some());
        let effect = graph.has_effect(node) || facts.ordered(op);
        let mut leaves: SmallVec<[Option<ValueId>; 4]> = SmallVec::new();
        let is_view = all_views && mutated.is_empty() && !effect && !graph.results(node).is_empty();
        if !is_view {
            let mut results: Vec<Given> = Vec::new();
            for (i, r) in graph.results(node).iter().enumerate() {
                if alias(i).is_some_and(is_mutated) {
                    continue;
                }
                let kinds: Box<[Kind]> = r.values().iter().map(|v| self.kind(graph.value_type(v))).collect();
                leaves.extend(r.values().iter().map(Some));
                results.push(match r {
                    Res::Value(_) => Given::Value(kinds[0]),
                    Res::List(_) => Given::List(kinds),
                    Res::Absent => Given::Absent,
                });
            }
            for (_, t) in &mutated {
                results.push(Given::Value(Kind::Tensor(t.meta)));
                leaves.push(None);
            }
            let opaque = facts.opaque(op);
            let layouts = operands.iter().map(|o| self.layout(o.value).filter(|_| opaque)).collect();
            let placed = effect && !mutant("lift: effects are like other calls")
                || facts.random(op) && !mutant("lift: random numbers are like others");
            let serial = if placed { self.memory.at + 1 } else { 0 };
            let template = Template {
                op: self.memory.session.name(op),
                args,
                kwargs: kwargs.into(),
                mutates: !mutated.is_empty(),
                effect: graph.has_effect(node),
                copies: graph.copies(node),
                results: results.into(),
                layouts,
                serial,
            };
            let kinds: SmallVec<[Kind; 4]> = template.kinds().collect();
            let kind = template.kind();
            let call = self.memory.session.call(template);
            let id = self.memory.add(Node::Call(call, ids.into()), kind);
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
        }
        for (i, r) in graph.results(node).iter().enumerate() {
            let Some(arg) = alias(i) else { continue };
            let of = operands.iter().find(|o| o.arg == arg).ok_or(Reason::Internal("a view of an argument that was not given"))?;
            let Binding::Tensor(of) = self.binding(of.value)? else { return Err(Reason::Internal("a view of a number").into()) };
            for v in r.values().iter() {
                self.view(v, of, op)?;
            }
        }
        Ok(())
    }

    /// The strides of a tensor that is not row-major.
    fn layout(&self, v: ValueId) -> Option<Box<[Expr]>> {
        match self.graph.value_type(v) {
            ValueType::Tensor(ty) if !self.graph.is_contiguous(ty) => Some(self.graph.type_of(ty).strides.to_vec().into()),
            _ => None,
        }
    }

    /// Two tensors that one operator writes to must not meet: the order of its writes would decide. Where sizes decide, it is checked in the run.
    fn apart(&mut self, op: &str, mutated: &[(usize, Handle)]) -> Result<()> {
        for (i, (second, a)) in mutated.iter().enumerate() {
            for (first, b) in mutated.iter().take(i).filter(|(_, b)| a.storage == b.storage) {
                match self.memory.session.disjoint(a.spec, b.spec) {
                    _ if mutant("lift: arguments that are written may overlap") => {}
                    Tri::Yes => {}
                    Tri::No => return Err(Reason::AliasedMutableArgs { op: op.into() }.into()),
                    Tri::Unknown => self.check_apart([*b, *a], [*first, *second]),
                }
            }
        }
        Ok(())
    }

    fn check_apart(&mut self, tensors: [Handle; 2], args: [usize; 2]) {
        let session = &mut self.memory.session;
        let place = |session: &Session, t: Handle| {
            let spec = &session.specs[t.spec.index()];
            let numbers = [spec.offset()].into_iter().chain(spec.sizes()).chain(spec.dims().iter().map(|d| d.stride));
            Slot::List(numbers.map(Slot::Int).collect())
        };
        let names = args.map(|a| Slot::Str(session.name(&format!("argument {a}"))));
        let [first, second] = tensors.map(|t| place(session, t));
        let [first_name, second_name] = names;
        let template = Template {
            op: session.name(APART),
            args: Box::from([first, second, first_name, second_name]),
            kwargs: Box::default(),
            mutates: false,
            effect: true,
            copies: false,
            results: Box::default(),
            layouts: Box::default(),
            serial: self.memory.at + 1,
        };
        let call = session.call(template);
        self.memory.add(Node::Call(call, Box::default()), Kind::Tuple);
    }

    fn slot(&mut self, given: Arg, arg: usize, operands: &mut Vec<Operand>, ids: &mut Vec<Id>) -> Result<Slot> {
        Ok(match given {
            Arg::Value(value) => {
                operands.push(Operand { arg, value });
                ids.push(self.value(value)?);
                Slot::Operand(ids.len() as u32 - 1)
            }
            Arg::List(list) => Slot::List(self.graph.list(list).iter().map(|&a| self.slot(a, arg, operands, ids)).collect::<Result<_>>()?),
            Arg::None => Slot::None,
            Arg::Int(e) => Slot::Int(e),
            Arg::Float(x) => Slot::Float(x),
            Arg::Bool(b) => Slot::Bool(b),
            Arg::Str(s) => Slot::Str(self.memory.session.name(self.graph.str(s))),
            Arg::DType(d) => Slot::DType(d),
            Arg::Device(d) => Slot::Device(d),
            Arg::Layout(l) => Slot::Layout(l),
            Arg::MemoryFormat(m) => Slot::MemoryFormat(m),
        })
    }

    fn leaving(&mut self, arg: Arg) -> Result<Leaving> {
        Ok(match arg {
            Arg::Value(v) => match self.binding(v)? {
                Binding::Tensor(t) => Leaving::Tensor(t),
                Binding::Number(id) => Leaving::Number(id),
            },
            Arg::List(list) => Leaving::List(self.graph.list(list).iter().map(|&a| self.leaving(a)).collect::<Result<_>>()?),
            plain => Leaving::Plain(plain),
        })
    }
}
