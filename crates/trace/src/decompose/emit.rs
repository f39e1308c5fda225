//! Builds the decomposed graph: copies statements, and records the parts of composites.

use crate::record::Recorder;
use crate::tracer::Tracer;
use maquette_interp::{FakeValues, match_results};
use maquette_ir::Loc;
use maquette_ir::graph::{
    Arg, Graph, GraphBuilder, NodeId, Res, ResultSpec, Stmt, TypeId, ValueId, ValueType,
};
use maquette_ir::sym::ScopeData;
use maquette_ops::{Op, Result, TraceError, TraceTag, Value};
use rustc_hash::FxHashMap;
use smallvec::SmallVec;
use std::rc::Rc;

/// A graph under construction. Expressions keep their ids, because its scope begins with a copy of
/// the symbol table of the original.
pub(super) struct Emitter<'g> {
    graph: &'g Graph,
    types: FakeValues<'g>,
    tracer: Rc<Tracer>,
    /// By value of the original graph: its value in the new one.
    values: Vec<Option<ValueId>>,
    /// The fake tensors of the values that composites use.
    operands: FxHashMap<ValueId, Value>,
}

impl<'g> Emitter<'g> {
    pub(super) fn new(graph: &'g Graph) -> Emitter<'g> {
        let types = FakeValues::new(graph, FxHashMap::default());
        let tag = TraceTag::new(graph.name());
        let recorder = Recorder::new(graph.name(), types.scope().clone(), tag.clone());
        let tracer = Tracer::new(tag, types.scope().clone(), recorder, None);
        let mut emitter = Emitter {
            graph,
            types,
            tracer,
            values: vec![None; graph.values().len()],
            operands: FxHashMap::default(),
        };
        emitter.enter();
        emitter
    }

    /// Adds the inputs, constants and guards of the original.
    fn enter(&mut self) {
        let (graph, mut recorder) = (self.graph, self.tracer.recorder());
        let builder = &mut recorder.builder;
        let mut own = Vec::new();
        for &input in graph.inputs() {
            let ty = type_in(builder, graph, input);
            own.push((input, builder.input(ty, Some(&graph.value_name(input).to_string()))));
        }
        for constant in graph.consts() {
            let v = constant.value();
            if let ValueType::Tensor(ty) = type_in(builder, graph, v) {
                let name = graph.value_name(v).to_string();
                own.push((v, builder.constant(ty, constant.source().clone(), Some(&name))));
            }
        }
        for (i, &guard) in graph.guards().iter().enumerate() {
            builder.guard(guard, graph.guard_loc(i));
        }
        drop(recorder);
        own.into_iter().for_each(|(of, value)| self.set(of, value));
    }

    fn set(&mut self, of: ValueId, value: ValueId) {
        if let Some(slot) = self.values.get_mut(of.index()) {
            *slot = Some(value);
        }
    }

    fn value(&self, v: ValueId) -> Result<ValueId> {
        let undefined = TraceError::Internal("a statement uses a value that nothing defines");
        self.values.get(v.index()).copied().flatten().ok_or_else(|| undefined.into())
    }

    fn arg(&self, builder: &mut GraphBuilder, arg: Arg) -> Result<Arg> {
        Ok(match arg {
            Arg::Value(v) => Arg::Value(self.value(v)?),
            Arg::Str(s) => Arg::Str(builder.intern(self.graph.str(s))),
            Arg::List(list) => {
                let elements = self.graph.list(list).iter();
                let elements = elements.map(|&a| self.arg(builder, a));
                let elements = elements.collect::<Result<SmallVec<[Arg; 8]>>>()?;
                builder.list(&elements)
            }
            Arg::None
            | Arg::Int(_)
            | Arg::Float(_)
            | Arg::Bool(_)
            | Arg::DType(_)
            | Arg::Device(_)
            | Arg::Layout(_)
            | Arg::MemoryFormat(_) => arg,
        })
    }

    /// Copies the statement at position `at` of the original.
    pub(super) fn copy(&mut self, at: usize, stmt: &Stmt) -> Result<()> {
        let tracer = self.tracer.clone();
        let mut recorder = tracer.recorder();
        match *stmt {
            Stmt::Node(node) => self.copy_node(&mut recorder.builder, node)?,
            Stmt::Bind { symbol, value, source } => {
                let value = self.value(value)?;
                recorder.bind_as(symbol, value, source);
            }
            Stmt::Assert { cond, message } => {
                self.types.assume(cond);
                let message = message.map(|m| self.graph.str(m));
                recorder.builder.assert_(cond, message, self.graph.stmt_loc(at));
            }
        }
        Ok(())
    }

    fn copy_node(&mut self, builder: &mut GraphBuilder, node: NodeId) -> Result<()> {
        let graph = self.graph;
        let args = graph.args(node).iter().map(|&a| self.arg(builder, a));
        let args = args.collect::<Result<SmallVec<[Arg; 6]>>>()?;
        let kwargs = graph.kwargs(node).iter().map(|&(name, a)| {
            let name = builder.intern(graph.str(name));
            Ok((name, self.arg(builder, a)?))
        });
        let kwargs = kwargs.collect::<Result<SmallVec<[_; 2]>>>()?;
        let types: SmallVec<[SmallVec<[ValueType; 2]>; 2]> = (graph.results(node).iter())
            .map(|result| values_of(*result).map(|v| type_in(builder, graph, v)).collect())
            .collect();
        let specs = graph.results(node).iter().zip(&types).map(|(result, types)| match result {
            Res::Absent => ResultSpec::Absent,
            Res::Value(_) => types.first().map_or(ResultSpec::Absent, |t| ResultSpec::Value(*t)),
            Res::List(_) => ResultSpec::List(types),
        });
        let specs: SmallVec<[ResultSpec<'_>; 2]> = specs.collect();
        let op = builder.intern(graph.op_name(node));
        if let Some(schema) = graph.bound_schema(graph.op(node)) {
            builder.bind_schema(op, schema.clone());
        }
        let created = builder.node(op, &args, &kwargs, &specs, graph.loc(node));
        if graph.has_effect(node) {
            builder.set_effect(created.node);
        }
        if graph.copies(node) {
            builder.set_copies(created.node);
        }
        for (of, value) in graph.result_values(node).zip(created.values.iter()) {
            builder.set_name(value, &graph.value_name(of).to_string());
            self.set(of, value);
        }
        Ok(())
    }

    /// Records the calls that a composite makes, in the place of its node.
    pub(super) fn decompose(&mut self, op: Op, node: NodeId) -> Result<()> {
        let (graph, tracer) = (self.graph, self.tracer.clone());
        let first = tracer.recorder().builder.node_count();
        let mut needed: SmallVec<[ValueId; 4]> = SmallVec::new();
        graph.for_each_operand(node, |v| needed.push(v));
        for v in needed {
            if !self.operands.contains_key(&v) {
                let value = match self.types.value(v) {
                    Value::Tensor(t) => Value::Tensor(tracer.recorder().traced(t, self.value(v)?)),
                    other => other,
                };
                self.operands.insert(v, value);
            }
        }
        let missing = || TraceError::Internal("an operand of a composite is missing");
        let operand = |v: ValueId| Ok(self.operands.get(&v).cloned().ok_or_else(missing)?);
        let args = self.types.arguments(op, node, graph.args(node), &operand)?;
        let outputs =
            tracer.call_composite(op, args, graph.loc(node).unwrap_or_else(Loc::caller))?;
        let mut recorder = tracer.recorder();
        let mut results: SmallVec<[(ValueId, ValueId); 2]> = SmallVec::new();
        match_results(graph, node, outputs, &mut |_, v, value| {
            results.push((v, recorder.value_of(value.tensor()?)?));
            Ok(())
        })?;
        recorder.builder.set_locs(first, graph.loc(node));
        for (of, value) in results {
            if recorder.builder.is_result_since(first, value) {
                recorder.builder.set_name(value, &graph.value_name(of).to_string());
            }
            self.set(of, value);
        }
        Ok(())
    }

    /// The graph.
    pub(super) fn finish(self) -> Result<Graph> {
        let mut recorder = self.tracer.recorder();
        let outputs = self.graph.outputs().iter().map(|&a| self.arg(&mut recorder.builder, a));
        let outputs = outputs.collect::<Result<Vec<Arg>>>()?;
        let ScopeData { table, .. } = self.types.scope().close();
        recorder.finish(&table, &[], &outputs)
    }
}

/// The values of a result.
fn values_of(result: Res) -> impl Iterator<Item = ValueId> {
    let (one, list) = match result {
        Res::Absent => (None, None),
        Res::Value(v) => (Some(v), None),
        Res::List(values) => (None, Some(values)),
    };
    one.into_iter().chain(list.into_iter().flat_map(|values| values.iter()))
}

/// The type of a value, in the tables of a builder.
fn type_in(builder: &mut GraphBuilder, graph: &Graph, v: ValueId) -> ValueType {
    match graph.value_type(v) {
        ValueType::Tensor(ty) => {
            let ty: TypeId = builder.intern_type(graph.type_of(ty).clone());
            ValueType::Tensor(ty)
        }
        other => other,
    }
}
