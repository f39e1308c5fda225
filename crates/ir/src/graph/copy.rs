//! Copies of a graph's parts into a builder, for passes that change some nodes and keep the others.

use super::{Arg, Graph, GraphBuilder, NodeId, Res, ResultSpec, TypeId, ValueId, ValueType};
use smallvec::SmallVec;

/// A copy of a graph under construction. The builder's expressions are those of the graph's symbol
/// table, or of a table that begins with a copy of it.
#[derive(Debug)]
pub struct GraphCopy<'g> {
    graph: &'g Graph,
    /// By value of the graph: its value in the builder.
    values: Vec<Option<ValueId>>,
}

impl<'g> GraphCopy<'g> {
    /// Adds the inputs, constants and guards of a graph to an empty builder.
    pub fn new(graph: &'g Graph, builder: &mut GraphBuilder) -> GraphCopy<'g> {
        let mut copy = GraphCopy { graph, values: vec![None; graph.values().len()] };
        for &input in graph.inputs() {
            let ty = type_in(builder, graph, input);
            let value = builder.input(ty, Some(&graph.value_name(input).to_string()));
            copy.set(input, value);
        }
        for constant in graph.consts() {
            let v = constant.value();
            if let ValueType::Tensor(ty) = type_in(builder, graph, v) {
                let name = graph.value_name(v).to_string();
                copy.set(v, builder.constant(ty, constant.source().clone(), Some(&name)));
            }
        }
        for (i, &guard) in graph.guards().iter().enumerate() {
            builder.guard(guard, graph.guard_loc(i));
        }
        copy
    }

    /// Makes `value` of the builder stand for `of`.
    pub fn set(&mut self, of: ValueId, value: ValueId) {
        if let Some(slot) = self.values.get_mut(of.index()) {
            *slot = Some(value);
        }
    }

    /// The value of the builder that stands for `v`; `None` before its definition.
    pub fn value(&self, v: ValueId) -> Option<ValueId> {
        self.values.get(v.index()).copied().flatten()
    }

    /// The type of a value, in the tables of the builder.
    pub fn type_of(&self, builder: &mut GraphBuilder, v: ValueId) -> ValueType {
        type_in(builder, self.graph, v)
    }

    /// An argument with values of the builder; `None` if it has a value that nothing defines yet.
    pub fn arg(&self, builder: &mut GraphBuilder, arg: Arg) -> Option<Arg> {
        Some(match arg {
            Arg::Value(v) => Arg::Value(self.value(v)?),
            Arg::Str(s) => Arg::Str(builder.intern(self.graph.str(s))),
            Arg::List(list) => {
                let elements = self.graph.list(list).iter();
                let elements = elements.map(|&a| self.arg(builder, a));
                let elements = elements.collect::<Option<SmallVec<[Arg; 8]>>>()?;
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

    /// The arguments that the graph returns; `None` as for [`GraphCopy::arg`].
    pub fn outputs(&self, builder: &mut GraphBuilder) -> Option<Vec<Arg>> {
        self.graph.outputs().iter().map(|&a| self.arg(builder, a)).collect()
    }

    /// Copies a node with its information, names, effect and schema. Returns the new node; `None`
    /// if it uses a value that nothing defines yet.
    pub fn node(&mut self, builder: &mut GraphBuilder, node: NodeId) -> Option<NodeId> {
        let graph = self.graph;
        let args = graph.args(node).iter().map(|&a| self.arg(builder, a));
        let args = args.collect::<Option<SmallVec<[Arg; 6]>>>()?;
        let kwargs = graph.kwargs(node).iter().map(|&(name, a)| {
            let name = builder.intern(graph.str(name));
            Some((name, self.arg(builder, a)?))
        });
        let kwargs = kwargs.collect::<Option<SmallVec<[_; 2]>>>()?;
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
        let created = builder.node(op, &args, &kwargs, &specs, graph.info(node));
        if let Some(effect) = graph.effect(node) {
            builder.set_effect(created.node, effect);
        }
        if graph.copies(node) {
            builder.set_copies(created.node);
        }
        for (of, value) in graph.result_values(node).zip(created.values.iter()) {
            builder.set_name(value, &graph.value_name(of).to_string());
            self.set(of, value);
        }
        Some(created.node)
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
