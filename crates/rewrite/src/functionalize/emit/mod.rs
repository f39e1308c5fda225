//! Emission: builds the functional graph and its calling convention from a lifted program.

mod calls;
mod results;

use crate::error::{Reason, Result};
use crate::functionalize::lift::Lifted;
use crate::functionalize::lift::memory_ssa::{LiftedStmt, MemorySsa, StorageOrigin};
use crate::functionalize::value_graph::{CallKey, Id, Kind, Layouts, Meta, MetaId, Node, SpecId};
use indexmap::IndexSet;
use maquette_ir::copy_cost::SymbolicCount;
use maquette_ir::fault_injection::{Fault, fault_injected};
use maquette_ir::functional_ops;
use maquette_ir::functional_program::{FunctionalGraph, Output, RewriteStats};
use maquette_ir::graph::{
    Arg, Graph, GraphBuilder, NodeId, ResultSpec, StrId, TensorType, TypeId, ValueId, ValueType,
};
use maquette_ir::schema::Schema;
use maquette_ir::sym::SymTable;
use rustc_hash::{FxBuildHasher, FxHashMap};
use smallvec::SmallVec;
use std::rc::Rc;
use std::sync::Arc;

type Calls = IndexSet<CallKey, FxBuildHasher>;

/// An assertion, or a call with an effect.
struct Effect {
    /// The statement of the program to which it belongs.
    statement: u32,
    /// Whether it checks what the statement is about to do.
    is_check: bool,
}

impl Effect {
    /// Whether it takes place before a statement writes.
    fn precedes(&self, statement: u32) -> bool {
        self.statement < statement || self.is_check && self.statement == statement
    }
}

/// The state of emission.
struct Emit<'a> {
    graph: &'a Graph,
    memory: MemorySsa,
    builder: GraphBuilder,
    /// By node of the value graph: the emitted values.
    values: Vec<SmallVec<[ValueId; 1]>>,
    types: FxHashMap<MetaId, TypeId>,
    /// The arguments sizes, strides and offset of each view. Nodes share the lists.
    specs: FxHashMap<SpecId, [Arg; 3]>,
    /// By interned name: the string of the new graph.
    names: Vec<Option<StrId>>,
    view_op: StrId,
    scatter_op: StrId,
    calls: Rc<Calls>,
    /// By call: the strides of its results in eager execution, if recorded.
    result_strides: Rc<Vec<Option<Layouts>>>,
    /// The values that the graph returns.
    results: Vec<Arg>,
    /// The layouts that the graph returns after the values.
    layouts: Vec<Arg>,
    /// The elements of results that a run may have to copy into the strides of their types.
    relayout_bound: SymbolicCount,
    unknown_strides: Vec<NodeId>,
    /// The program's assertions and effects.
    effects: Vec<Effect>,
}

/// The functional graph of a lifted program. `schemas` are those of the graph's operators.
pub(crate) fn emit(
    graph: &Graph,
    lifted: Lifted,
    schemas: &[(&str, Arc<Schema>)],
    stats: RewriteStats,
) -> Result<FunctionalGraph> {
    let Lifted { mut memory, outputs, output_values } = lifted;
    let mut builder = GraphBuilder::new(graph.name());
    let mut e = Emit {
        graph,
        names: vec![None; memory.interner.names.len()],
        view_op: builder.intern(functional_ops::VIEW),
        scatter_op: builder.intern(functional_ops::SCATTER),
        builder,
        values: Vec::new(),
        types: FxHashMap::default(),
        specs: FxHashMap::default(),
        calls: Rc::new(std::mem::take(&mut memory.interner.calls)),
        result_strides: Rc::new(std::mem::take(&mut memory.interner.result_strides)),
        results: Vec::new(),
        layouts: Vec::new(),
        relayout_bound: SymbolicCount::default(),
        unknown_strides: Vec::new(),
        effects: Vec::new(),
        memory,
    };
    e.values.resize(e.memory.value_graph.nodes.len(), SmallVec::new());
    e.builder.reserve(e.memory.stmts.len());
    e.enter()?;
    for stmt in std::mem::take(&mut e.memory.stmts) {
        match stmt {
            LiftedStmt::Node(id) => {
                let statement = e.memory.value_graph.origins[id.index()].statement as usize;
                e.node(id).map_err(|error| error.at_statement(graph, statement))?;
            }
            LiftedStmt::Bind { symbol, value, source, .. } => {
                let value = e.value(value)?;
                e.builder.bind(symbol, value, source);
            }
            LiftedStmt::Assert { .. } if fault_injected(Fault::AssertionsLeftOut) => {}
            LiftedStmt::Assert { cond, message, statement } => {
                e.effects.push(Effect { statement, is_check: true });
                let loc = graph.stmt_loc(statement as usize);
                e.builder.assert_(cond, message.map(|m| e.memory.interner.str(m)), loc);
            }
        }
    }
    let memories = e.memory.shared.clone();
    let mut mutations = e.mutations()?;
    let mut output_list = outputs
        .iter()
        .zip(&output_values)
        .map(|(o, f)| e.output(o, f))
        .collect::<Result<Vec<_>>>()?;
    let results = e.results.len();
    mutations.iter_mut().for_each(|m| m.layout = m.layout.map(|p| p + results));
    output_list.iter_mut().for_each(|o| shift_layouts(o, results));
    let outputs: Vec<Arg> = e.results.iter().chain(&e.layouts).copied().collect();
    for (op, schema) in schemas {
        let op = e.builder.intern(op);
        e.builder.bind_schema(op, schema.clone());
    }
    let graph = e.builder.finish(&e.memory.interner.symbols, &outputs)?;
    let (relayout_bound, unknown_strides) = (e.relayout_bound, e.unknown_strides);
    let MemorySsa { absolute_offsets, eager, interner, viewers, .. } = e.memory;
    let constant = eager.copied.as_constant().is_some() && relayout_bound.as_constant().is_some();
    let symbols = if constant { SymTable::new() } else { interner.symbols };
    Ok(FunctionalGraph {
        absolute_offsets,
        eager,
        relayout_bound,
        unknown_strides,
        viewers,
        symbols,
        graph,
        memories,
        mutations,
        outputs: output_list,
        stats,
    })
}

/// Turns numbers of layouts into positions among the graph's outputs. Layouts follow the results,
/// whose number is known only at the end.
fn shift_layouts(o: &mut Output, by: usize) {
    match o {
        Output::Result { layout, .. } | Output::Alias { layout, .. } => {
            *layout = layout.map(|p| p + by)
        }
        Output::Shared { storage_layout, layout, .. } => {
            (*storage_layout, *layout) = (*storage_layout + by, *layout + by)
        }
        Output::List(l) => l.iter_mut().for_each(|o| shift_layouts(o, by)),
    }
}

impl Emit<'_> {
    /// Emits the guards, and all inputs and constants with their names and types.
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
                        row.ok_or(Reason::Internal("memory that inputs share has no storage"))?,
                    ))?;
                    self.builder.input(ty, Some("memory"))
                }
            };
            node.into_iter().for_each(|at| self.values[at].push(value));
        }
        for (i, c) in graph.consts().iter().enumerate() {
            let ValueType::Tensor(ty) = self.original_type(graph.value_type(c.value())) else {
                return Err(Reason::Internal("a constant is not a tensor").into());
            };
            let value = self.builder.constant(
                ty,
                c.source().clone(),
                Some(&graph.value_name(c.value()).to_string()),
            );
            consts.get(&(i as u32)).into_iter().for_each(|at| self.values[*at].push(value));
        }
        let guards = graph.guards().iter().enumerate();
        guards.for_each(|(i, &guard)| self.builder.guard(guard, graph.guard_loc(i)));
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
            Kind::Tuple => return Err(Reason::Internal("a tuple has no value type").into()),
        })
    }

    fn tensor_type(&mut self, m: MetaId) -> Result<TypeId> {
        if let Some(ty) = self.types.get(&m) {
            return Ok(*ty);
        }
        let interner = &mut self.memory.interner;
        let Meta { dtype, device, layout, sizes } = interner.metas[m.index()].clone();
        let plain = TensorType::contiguous(dtype, &sizes, &mut interner.symbols)
            .map_err(|_| Reason::Overflow("the strides of a tensor"))?;
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
            .ok_or_else(|| Reason::Internal("a value is used before it is emitted"))?)
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
        let graph = self.graph;
        let call = origin.call.map(|node| graph.info(node)).unwrap_or_default();
        let made = match self.memory.value_graph.node(id).clone() {
            Node::View(spec, base) => {
                let [sizes, strides, offset] = self.view_args(spec);
                let (op, ty) = (self.view_op, self.value_type(origin.kind)?);
                let base = Arg::Value(self.value(base)?);
                self.builder.node(
                    op,
                    &[base, sizes, strides, offset],
                    &[],
                    &[ResultSpec::Value(ty)],
                    call,
                )
            }
            Node::Scatter(spec, base, from) => {
                let [sizes, strides, offset] = self.view_args(spec);
                let (op, ty) = (self.scatter_op, self.value_type(origin.kind)?);
                let (base, from) = (Arg::Value(self.value(base)?), Arg::Value(self.value(from)?));
                self.builder.node(
                    op,
                    &[base, from, sizes, strides, offset],
                    &[],
                    &[ResultSpec::Value(ty)],
                    call,
                )
            }
            Node::Call(id, operands) => self.call(id, &operands, call)?,
            Node::Input(_) | Node::Const(_) | Node::Proj(..) => return Ok(()),
        };
        self.values[id.index()] = made.values.iter().collect();
        Ok(())
    }
}
