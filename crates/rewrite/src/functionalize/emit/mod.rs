//! From values back to a graph.

mod results;

use crate::error::{Reason, Result};
use crate::functionalize::lift::Lifted;
use crate::functionalize::lift::memory_ssa::{LiftedStmt, MemorySsa, StorageOrigin};
use crate::functionalize::value_graph::{
    CallArg, CallKey, Id, Kind, Layouts, Meta, MetaId, Name, Node, ResultKind, SpecId,
};
use indexmap::IndexSet;
use maquette_ir::Loc;
use maquette_ir::copy_cost::SymbolicCount;
use maquette_ir::fault_injection::{Fault, fault_injected};
use maquette_ir::functional_ops;
use maquette_ir::functional_program::{FunctionalGraph, Output, RewriteStats};
use maquette_ir::graph::{
    Arg, Graph, GraphBuilder, ResultSpec, StrId, TensorType, TypeId, ValueId, ValueType,
};
use maquette_ir::sym::{Expr, SymTable, SymbolId, SymbolKind};
use rustc_hash::{FxBuildHasher, FxHashMap};
use smallvec::SmallVec;
use std::rc::Rc;

type Calls = IndexSet<CallKey, FxBuildHasher>;

struct Emit<'a> {
    graph: &'a Graph,
    memory: MemorySsa,
    builder: GraphBuilder,
    /// By node.
    values: Vec<SmallVec<[ValueId; 1]>>,
    types: FxHashMap<MetaId, TypeId>,
    /// Places as arguments: nodes may share lists.
    specs: FxHashMap<SpecId, [Arg; 3]>,
    calls: Rc<Calls>,
    /// By call.
    result_strides: Rc<Vec<Option<Layouts>>>,
    /// What is returned: values, then places.
    results: Vec<Arg>,
    layouts: Vec<Arg>,
    /// Values that may have other strides where they are made than their types say.
    relayout_bound: SymbolicCount,
    /// The statements of the program's assertions and effects.
    effects: Vec<u32>,
}

pub(crate) fn emit(graph: &Graph, lifted: Lifted, stats: RewriteStats) -> Result<FunctionalGraph> {
    let Lifted { mut memory, outputs, output_values } = lifted;
    let mut e = Emit {
        graph,
        builder: GraphBuilder::new(graph.name()),
        values: Vec::new(),
        types: FxHashMap::default(),
        specs: FxHashMap::default(),
        calls: Rc::new(std::mem::take(&mut memory.interner.calls)),
        result_strides: Rc::new(std::mem::take(&mut memory.interner.result_strides)),
        results: Vec::new(),
        layouts: Vec::new(),
        relayout_bound: SymbolicCount::default(),
        effects: Vec::new(),
        memory,
    };
    e.values.resize(e.memory.value_graph.nodes.len(), SmallVec::new());
    e.builder.reserve(e.memory.stmts.len());
    e.enter()?;
    for stmt in std::mem::take(&mut e.memory.stmts) {
        match stmt {
            LiftedStmt::Node(id) => e.node(id)?,
            LiftedStmt::Bind { symbol, value, source, .. } => {
                let value = e.value(value)?;
                e.builder.bind(symbol, value, source);
            }
            LiftedStmt::Assert { .. } if fault_injected(Fault::AssertionsLeftOut) => {}
            LiftedStmt::Assert { cond, message, at } => {
                e.effects.push(at);
                e.builder.assert_(cond, message.map(|m| e.memory.interner.str(m)));
            }
        }
    }
    let memories = e.memory.shared.clone();
    let mut mutations = e.mutations()?;
    let mut given = outputs
        .iter()
        .zip(&output_values)
        .map(|(o, f)| e.output(o, f))
        .collect::<Result<Vec<_>>>()?;
    let results = e.results.len();
    mutations.iter_mut().for_each(|m| m.layout = m.layout.map(|p| p + results));
    given.iter_mut().for_each(|o| shift(o, results));
    let outputs: Vec<Arg> = e.results.iter().chain(&e.layouts).copied().collect();
    let graph = e.builder.finish(&e.memory.interner.symbols, &outputs)?;
    let relayout_bound = e.relayout_bound;
    let MemorySsa { absolute_offsets, eager, interner, .. } = e.memory;
    let constant = eager.copied.as_constant().is_some() && relayout_bound.as_constant().is_some();
    let symbols = if constant { SymTable::new() } else { interner.symbols };
    Ok(FunctionalGraph {
        absolute_offsets,
        eager,
        relayout_bound,
        symbols,
        graph,
        memories,
        mutations,
        outputs: given,
        stats,
    })
}

/// Places come after results, whose number is known in the end.
fn shift(o: &mut Output, by: usize) {
    match o {
        Output::Result { layout, .. } | Output::Alias { layout, .. } => {
            *layout = layout.map(|p| p + by)
        }
        Output::Shared { storage_layout, layout, .. } => {
            (*storage_layout, *layout) = (*storage_layout + by, *layout + by)
        }
        Output::List(l) => l.iter_mut().for_each(|o| shift(o, by)),
    }
}

impl Emit<'_> {
    /// Inputs and constants, all of them, with the names and types they have, and the guards.
    fn enter(&mut self) -> Result<()> {
        let graph = self.graph;
        let (mut inputs, mut consts): (FxHashMap<u32, usize>, FxHashMap<u32, usize>) =
            Default::default();
        for (at, node) in self.memory.value_graph.nodes.iter().enumerate() {
            match node {
                Node::Input(i) => drop(inputs.insert(*i, at)),
                Node::Const(i) => drop(consts.insert(*i, at)),
                _ => {}
            }
        }
        for i in 0..graph.inputs().len() + self.memory.shared.len() {
            let node = inputs.get(&(i as u32)).copied();
            let value = match (graph.inputs().get(i), node) {
                (Some(&v), _) => {
                    let ty = self.original_type(graph.value_type(v));
                    self.builder.input(ty, Some(&graph.value_name(v).to_string()))
                }
                (None, _) => {
                    let number = (i - graph.inputs().len()) as u32;
                    let row = self
                        .memory
                        .storages
                        .iter()
                        .find(|s| s.origin == StorageOrigin::Shared(number))
                        .map(|s| s.base);
                    let ty = self.value_type(Kind::Tensor(
                        row.ok_or(Reason::Internal("memory that inputs share is lost"))?,
                    ))?;
                    self.builder.input(ty, Some("memory"))
                }
            };
            node.into_iter().for_each(|at| self.values[at].push(value));
        }
        for (i, c) in graph.consts().iter().enumerate() {
            let ValueType::Tensor(ty) = self.original_type(graph.value_type(c.value())) else {
                return Err(Reason::Internal("a constant that is no tensor").into());
            };
            let value = self.builder.constant(
                ty,
                c.source().clone(),
                Some(&graph.value_name(c.value()).to_string()),
            );
            consts.get(&(i as u32)).into_iter().for_each(|at| self.values[*at].push(value));
        }
        graph.guards().iter().for_each(|&g| self.builder.guard(g));
        Ok(())
    }

    fn original_type(&mut self, ty: ValueType) -> ValueType {
        match ty {
            ValueType::Tensor(ty) => {
                ValueType::Tensor(self.builder.intern_type(self.graph.type_of(ty).clone()))
            }
            other => other,
        }
    }

    fn value_type(&mut self, kind: Kind) -> Result<ValueType> {
        Ok(match kind {
            Kind::Tensor(m) => ValueType::Tensor(self.tensor_type(m)?),
            Kind::Int(e) => ValueType::Int(e),
            Kind::Float => ValueType::Float,
            Kind::Bool => ValueType::Bool,
            Kind::Str => ValueType::Str,
            Kind::Tuple => return Err(Reason::Internal("a tuple is no value").into()),
        })
    }

    fn tensor_type(&mut self, m: MetaId) -> Result<TypeId> {
        if let Some(ty) = self.types.get(&m) {
            return Ok(*ty);
        }
        let interner = &mut self.memory.interner;
        let Meta { dtype, device, layout, sizes } = interner.metas[m.index()].clone();
        let plain = TensorType::contiguous(dtype, &sizes, &mut interner.symbols)
            .map_err(|_| Reason::Internal("strides overflow"))?;
        let ty = self.builder.intern_type(TensorType { device, layout, ..plain });
        self.types.insert(m, ty);
        Ok(ty)
    }

    fn value(&self, id: Id) -> Result<ValueId> {
        let (of, i) = match self.memory.value_graph.node(id) {
            Node::Proj(i, of) => (*of, *i as usize),
            _ => (id, 0),
        };
        Ok(self.values[of.index()]
            .get(i)
            .copied()
            .ok_or(Reason::Internal("a value is used before it is made"))?)
    }

    fn view_args(&mut self, spec: SpecId) -> [Arg; 3] {
        if let Some(known) = self.specs.get(&spec) {
            return *known;
        }
        let number = spec;
        let spec = &self.memory.interner.specs[spec.index()];
        let sizes: SmallVec<[Arg; 4]> = spec.dims().iter().map(|d| Arg::Int(d.size)).collect();
        let strides: SmallVec<[Arg; 4]> = spec.dims().iter().map(|d| Arg::Int(d.stride)).collect();
        let args =
            [self.builder.list(&sizes), self.builder.list(&strides), Arg::Int(spec.offset())];
        self.specs.insert(number, args);
        args
    }

    fn node(&mut self, id: Id) -> Result<()> {
        let origin = self.memory.value_graph.origins[id.index()];
        let made = match self.memory.value_graph.node(id).clone() {
            Node::View(spec, base) => {
                let [sizes, strides, offset] = self.view_args(spec);
                let (op, ty) =
                    (self.builder.intern(functional_ops::VIEW), self.value_type(origin.kind)?);
                let base = Arg::Value(self.value(base)?);
                self.builder.node(
                    op,
                    &[base, sizes, strides, offset],
                    &[],
                    &[ResultSpec::Value(ty)],
                    origin.loc,
                )
            }
            Node::Scatter(spec, base, from) => {
                let [sizes, strides, offset] = self.view_args(spec);
                let (op, ty) =
                    (self.builder.intern(functional_ops::SCATTER), self.value_type(origin.kind)?);
                let (base, from) = (Arg::Value(self.value(base)?), Arg::Value(self.value(from)?));
                self.builder.node(
                    op,
                    &[base, from, sizes, strides, offset],
                    &[],
                    &[ResultSpec::Value(ty)],
                    origin.loc,
                )
            }
            Node::Call(call, operands) => {
                let (calls, result_strides) = (self.calls.clone(), self.result_strides.clone());
                let (t, recorded) = (&calls[call.index()], &result_strides[call.index()]);
                let mut values = operands
                    .iter()
                    .map(|&o| self.value(o))
                    .collect::<Result<SmallVec<[ValueId; 4]>>>()?;
                for ((value, &id), strides) in values.iter_mut().zip(&operands).zip(&t.layouts) {
                    if let Some(meta) = self.memory.value_graph.meta(id) {
                        *value = self.strided(*value, meta, strides.as_deref(), origin.loc)?;
                    }
                }
                let operands = values;
                let name = self.str(t.op);
                let (mut args, mut op) = (SmallVec::<[Arg; 8]>::new(), name);
                if t.mutates {
                    op = self.builder.intern(functional_ops::CALL);
                    args.push(Arg::Str(name));
                }
                for call_arg in &t.args {
                    args.push(self.arg(call_arg, &operands));
                }
                let kwargs: SmallVec<[(StrId, Arg); 2]> =
                    t.kwargs.iter().map(|(n, s)| (self.str(*n), self.arg(s, &operands))).collect();
                let mut types: SmallVec<[SmallVec<[ValueType; 1]>; 2]> = SmallVec::new();
                let mut hints = recorded.iter().flatten();
                // others lie in one way wherever operands do
                let unknown = recorded.is_none() && !t.layouts.is_empty();
                for r in &t.results {
                    let typed = |&k| {
                        let strides = hints.next().and_then(Option::as_deref);
                        let declared = strides.filter(|strides| self.is_known_with(k, strides));
                        if let Kind::Tensor(m) = k
                            && (unknown || strides.is_some() && declared.is_none())
                            && !fault_injected(Fault::AllStridesKnown)
                        {
                            self.relayout_bound
                                .add(&self.memory.interner.metas[m.index()].sizes, 1);
                        }
                        self.strided_type(k, declared)
                    };
                    types.push(r.kinds().iter().map(typed).collect::<Result<_>>()?);
                }
                let specs: SmallVec<[ResultSpec<'_>; 2]> = t
                    .results
                    .iter()
                    .zip(&types)
                    .map(|(r, types)| match r {
                        ResultKind::Value(_) => ResultSpec::Value(types[0]),
                        ResultKind::List(_) => ResultSpec::List(types),
                        ResultKind::Absent => ResultSpec::Absent,
                    })
                    .collect();
                let made = self.builder.node(op, &args, &kwargs, &specs, origin.loc);
                if t.effect {
                    self.effects.push(t.serial.saturating_sub(1));
                    self.builder.set_effect(made.node);
                }
                if t.copies {
                    self.builder.set_copies(made.node);
                }
                made
            }
            Node::Input(_) | Node::Const(_) | Node::Proj(..) => return Ok(()),
        };
        self.values[id.index()] = made.values.iter().collect();
        Ok(())
    }

    /// Whether strides are known where a value is: they have no symbols but those that calls bring,
    /// and those of the value's sizes.
    fn is_known_with(&self, kind: Kind, strides: &[Expr]) -> bool {
        let Kind::Tensor(meta) = kind else { return false };
        let interner = &self.memory.interner;
        let known: Vec<_> = interner.metas[meta.index()]
            .sizes
            .iter()
            .flat_map(|e| interner.symbols.free_symbols(*e))
            .collect();
        let is_known =
            |s: &SymbolId| known.contains(s) || interner.symbols.kind(*s) == SymbolKind::Backed;
        strides.iter().all(|e| interner.symbols.free_symbols(*e).iter().all(is_known))
    }

    /// The type of a value; row-major if there are no strides.
    fn strided_type(&mut self, kind: Kind, strides: Option<&[Expr]>) -> Result<ValueType> {
        let (ValueType::Tensor(row_major), Some(strides)) = (self.value_type(kind)?, strides)
        else {
            return self.value_type(kind);
        };
        let plain = self
            .builder
            .tensor_type(row_major)
            .cloned()
            .ok_or(Reason::Internal("a type is lost"))?;
        Ok(ValueType::Tensor(
            self.builder.intern_type(TensorType { strides: strides.into(), ..plain }),
        ))
    }

    /// The same elements with strides; row-major if there are none.
    fn strided(
        &mut self,
        value: ValueId,
        meta: MetaId,
        strides: Option<&[Expr]>,
        loc: Option<Loc>,
    ) -> Result<ValueId> {
        let ValueType::Tensor(ty) = self.strided_type(Kind::Tensor(meta), strides)? else {
            return Ok(value);
        };
        let strides_of = |b: &GraphBuilder, ty| b.tensor_type(ty).map(|t| t.strides.clone());
        let strides = strides_of(&self.builder, ty).ok_or(Reason::Internal("a type is lost"))?;
        if matches!(self.builder.value_type(value), Some(ValueType::Tensor(own)) if strides_of(&self.builder, own).as_ref() == Some(&strides))
        {
            return Ok(value);
        }
        let numbers: SmallVec<[Arg; 4]> = strides.iter().map(|&e| Arg::Int(e)).collect();
        let (op, list) =
            (self.builder.intern(functional_ops::STRIDED), self.builder.list(&numbers));
        let made = self.builder.node(
            op,
            &[Arg::Value(value), list],
            &[],
            &[ResultSpec::Value(ValueType::Tensor(ty))],
            loc,
        );
        Ok(made.values.get(0).ok_or(Reason::Internal("a node without a value"))?)
    }

    fn str(&mut self, name: Name) -> StrId {
        self.builder.intern(self.memory.interner.str(name))
    }

    fn arg(&mut self, call_arg: &CallArg, operands: &[ValueId]) -> Arg {
        match call_arg {
            CallArg::Operand(i) => Arg::Value(operands[*i as usize]),
            CallArg::None => Arg::None,
            CallArg::Int(e) => Arg::Int(*e),
            CallArg::Float(x) => Arg::Float(*x),
            CallArg::Bool(b) => Arg::Bool(*b),
            CallArg::Str(s) => Arg::Str(self.str(*s)),
            CallArg::DType(d) => Arg::DType(*d),
            CallArg::Device(d) => Arg::Device(*d),
            CallArg::Layout(l) => Arg::Layout(*l),
            CallArg::MemoryFormat(m) => Arg::MemoryFormat(*m),
            CallArg::List(l) => {
                let elements: SmallVec<[Arg; 8]> =
                    l.iter().map(|s| self.arg(s, operands)).collect();
                self.builder.list(&elements)
            }
        }
    }

    /// An argument without values, with strings of the new graph.
    fn plain(&mut self, arg: Arg) -> Arg {
        if let Arg::Str(s) = arg { Arg::Str(self.builder.intern(self.graph.str(s))) } else { arg }
    }
}
