//! Builds the graph in which each match is one operator.

use super::pattern::Match;
use super::scores::{Key, Mask};
use maquette_aten::attention_parts::{ATTENTION, OPPOSITE, TRANSPOSE};
use maquette_ir::graph::{
    Arg, FloatBits, Graph, GraphBuilder, GraphCopy, NodeId, NodeInfo, ResultSpec, Stmt, ValueId,
    ValueType,
};
use maquette_ops::{Error, Result};

/// The graph with an operator in the place of the last product of each match, and without the other
/// nodes of the matches.
///
/// # Errors
/// The graph is not valid.
pub(super) fn emit(graph: &Graph, found: &[Match]) -> Result<Graph> {
    let mut builder = GraphBuilder::new(graph.name());
    builder.reserve(graph.node_count());
    let copy = GraphCopy::new(graph, &mut builder);
    let mut emitter = Emitter { graph, builder, copy };
    // By node: whether it is left out, and the match whose last product it is.
    let mut removed = vec![false; graph.node_count()];
    let mut last: Vec<Option<&Match>> = vec![None; graph.node_count()];
    for attention in found {
        for node in &attention.removed {
            removed[node.index()] = true;
        }
        last[attention.last.index()] = Some(attention);
    }
    for (at, stmt) in graph.body().iter().enumerate() {
        match *stmt {
            Stmt::Node(node) => {
                let done = match last[node.index()] {
                    Some(attention) => emitter.attention(attention),
                    None if removed[node.index()] => Some(()),
                    None => emitter.copy.node(&mut emitter.builder, node).map(drop),
                };
                done.ok_or_else(undefined)?;
            }
            Stmt::Bind { symbol, value, source } => {
                let value = emitter.copy.value(value).ok_or_else(undefined)?;
                emitter.builder.bind(symbol, value, source);
            }
            Stmt::Assert { cond, message } => {
                let message = message.map(|m| graph.str(m));
                emitter.builder.assert_(cond, message, graph.stmt_loc(at));
            }
        }
    }
    let Emitter { mut builder, copy, .. } = emitter;
    let outputs = copy.outputs(&mut builder).ok_or_else(undefined)?;
    builder.finish(graph.symbols(), &outputs).map_err(Error::other)
}

fn undefined() -> Error {
    Error::msg("a statement uses a value that nothing defines")
}

struct Emitter<'g> {
    graph: &'g Graph,
    builder: GraphBuilder,
    copy: GraphCopy<'g>,
}

impl Emitter<'_> {
    /// Emits an attention. `None` if an operand is not defined.
    fn attention(&mut self, of: &Match) -> Option<()> {
        let (query, value) = (self.copy.value(of.query)?, self.copy.value(of.value)?);
        let key = match of.key {
            Key::Rows(key) => self.copy.value(key)?,
            Key::Columns(key) => self.transposed(key, self.graph.info(of.product))?,
        };
        let mask = match of.mask {
            None => Arg::None,
            Some(Mask::Added(mask) | Mask::Visible(mask)) => Arg::Value(self.copy.value(mask)?),
            Some(Mask::Hidden(mask, node)) => {
                let ty = self.copy.type_of(&mut self.builder, mask);
                let mask = self.copy.value(mask)?;
                let info = self.graph.info(node);
                Arg::Value(self.call(OPPOSITE, &[Arg::Value(mask)], ty, info)?)
            }
        };
        let result = self.graph.result_values(of.last).next()?;
        let ty = self.copy.type_of(&mut self.builder, result);
        let scale = Arg::Float(FloatBits::from(of.scale));
        let args = [Arg::Value(query), Arg::Value(key), Arg::Value(value), mask, scale];
        let nodes: Vec<NodeId> = of.nodes().collect();
        let attended = self.call(ATTENTION, &args, ty, self.graph.info_of(&nodes))?;
        self.builder.set_name(attended, &self.graph.value_name(result).to_string());
        self.copy.set(result, attended);
        Some(())
    }

    /// A view of a value with the last two dimensions in the other order.
    fn transposed(&mut self, of: ValueId, info: NodeInfo<'_>) -> Option<ValueId> {
        let mut ty = self.graph.tensor_type(of)?.clone();
        let rows = ty.rank().checked_sub(2)?;
        ty.sizes.swap(rows, rows + 1);
        ty.strides.swap(rows, rows + 1);
        let ty = ValueType::Tensor(self.builder.intern_type(ty));
        let dims = [-2, -1].map(|dim| Arg::Int(dim.into()));
        let args = [Arg::Value(self.copy.value(of)?), dims[0], dims[1]];
        self.call(TRANSPOSE, &args, ty, info)
    }

    fn call(
        &mut self,
        op: &str,
        args: &[Arg],
        ty: ValueType,
        info: NodeInfo<'_>,
    ) -> Option<ValueId> {
        let op = self.builder.intern(op);
        let created = self.builder.node(op, args, &[], &[ResultSpec::Value(ty)], info);
        created.values.get(0)
    }
}
