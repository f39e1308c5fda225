//! Builds the fused graph.
//!
//! A region stands where its last node stood, since all of its operands are computed there. An
//! operator that reads a value of a region and stood before that moves behind it. Assertions,
//! bindings and effects keep their places: no region reaches across them.

use super::out_of_order;
use crate::error::Reason;
use maquette_ir::functional_ops::FUSED;
use maquette_ir::functional_program::FunctionalGraph;
use maquette_ir::fused::FusedRegion;
use maquette_ir::graph::{
    Arg, Graph, GraphBuilder, GraphCopy, NodeId, ResultSpec, Stmt, ValueType,
};
use maquette_ir::sym::Expr;
use smallvec::SmallVec;

/// A node of the new graph that is not built yet.
#[derive(Clone, Copy)]
enum Item {
    Node(NodeId),
    Region(usize),
}

struct Emitter<'g> {
    graph: &'g Graph,
    regions: &'g [FusedRegion],
    builder: GraphBuilder,
    copy: GraphCopy<'g>,
    /// By node of the original: its node in the new graph.
    nodes: Vec<Option<NodeId>>,
    /// What waits for a value of a region, in program order.
    waiting: Vec<Item>,
}

/// The program whose regions are nodes.
pub(super) fn emit(
    original: &FunctionalGraph,
    regions: &[FusedRegion],
) -> Result<FunctionalGraph, Reason> {
    let graph = &original.graph;
    let mut builder = GraphBuilder::new(graph.name());
    builder.reserve(graph.node_count());
    let copy = GraphCopy::new(graph, &mut builder);
    let nodes = vec![None; graph.node_count()];
    let mut emitter = Emitter { graph, regions, builder, copy, nodes, waiting: Vec::new() };
    // By node: its region.
    let mut region_of: Vec<Option<usize>> = vec![None; graph.node_count()];
    for (index, region) in regions.iter().enumerate() {
        for node in &region.nodes {
            region_of[node.index()] = Some(index);
        }
    }
    for (at, stmt) in graph.body().iter().enumerate() {
        match *stmt {
            Stmt::Node(node) => {
                let item = match region_of.get(node.index()).copied().flatten() {
                    None => Item::Node(node),
                    Some(r) if regions[r].nodes.last() == Some(&node) => Item::Region(r),
                    Some(_) => continue,
                };
                emitter.emit(item)?;
            }
            Stmt::Bind { symbol, value, source } => {
                let value = emitter.copy.value(value).ok_or_else(out_of_order)?;
                emitter.builder.bind(symbol, value, source);
            }
            Stmt::Assert { cond, message } => {
                let message = message.map(|m| graph.str(m));
                emitter.builder.assert_(cond, message, graph.stmt_loc(at));
            }
        }
    }
    if !emitter.waiting.is_empty() {
        return Err(out_of_order());
    }
    let Emitter { mut builder, copy, nodes, .. } = emitter;
    let outputs = copy.outputs(&mut builder).ok_or_else(out_of_order)?;
    let unknown = original.unknown_strides.iter();
    let unknown = unknown.filter_map(|node| nodes.get(node.index()).copied().flatten());
    let mut unknown_strides: Vec<NodeId> = unknown.collect();
    unknown_strides.sort_unstable();
    let graph = builder.finish(graph.symbols(), &outputs).map_err(Reason::from)?;
    Ok(FunctionalGraph { graph, unknown_strides, ..original.clone() })
}

impl Emitter<'_> {
    /// Builds an item, or lets it wait; then what waited for it.
    fn emit(&mut self, item: Item) -> Result<(), Reason> {
        if !self.build(item) {
            self.waiting.push(item);
            return Ok(());
        }
        while matches!(item, Item::Region(_)) && !self.waiting.is_empty() {
            let waiting = std::mem::take(&mut self.waiting);
            let before = waiting.len();
            for item in waiting {
                if !self.build(item) {
                    self.waiting.push(item);
                }
            }
            if self.waiting.len() == before {
                break;
            }
        }
        Ok(())
    }

    /// Whether an item could be built: all values that it reads are defined.
    fn build(&mut self, item: Item) -> bool {
        match item {
            Item::Node(node) => {
                let built = self.copy.node(&mut self.builder, node);
                self.nodes[node.index()] = built;
                built.is_some()
            }
            Item::Region(region) => self.region(region).is_some(),
        }
    }

    fn region(&mut self, index: usize) -> Option<()> {
        let (graph, region) = (self.graph, self.regions.get(index)?);
        let operands = region.operands.iter().map(|v| self.copy.value(*v).map(Arg::Value));
        let operands = operands.collect::<Option<Vec<Arg>>>()?;
        let integers: Vec<Arg> = region.integers.iter().map(|e| Arg::Int(*e)).collect();
        let (operands, integers) = (self.builder.list(&operands), self.builder.list(&integers));
        let kind = Arg::Str(self.builder.intern(region.kind.name()));
        let args = [kind, Arg::Int(Expr::Int(index as i64)), operands, integers];
        let types: SmallVec<[ValueType; 2]> =
            (region.results.iter()).map(|v| self.copy.type_of(&mut self.builder, *v)).collect();
        let specs: SmallVec<[ResultSpec<'_>; 2]> =
            types.iter().map(|ty| ResultSpec::Value(*ty)).collect();
        let op = self.builder.intern(FUSED);
        let loc = region.nodes.last().and_then(|node| graph.loc(*node));
        let created = self.builder.node(op, &args, &[], &specs, loc);
        for (&of, value) in region.results.iter().zip(created.values.iter()) {
            self.builder.set_name(value, &graph.value_name(of).to_string());
            self.copy.set(of, value);
        }
        Some(())
    }
}
