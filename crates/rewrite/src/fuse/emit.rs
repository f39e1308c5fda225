//! Builds the fused graph.
//!
//! A region stands where its last node stood, since all of its operands are computed there, or
//! earlier, where that frees memory ([`position`](super::position)). Then it waits for its
//! operands. An operator that reads a value of a region and stood before that waits for it.
//! Assertions, bindings and ordered operators keep their places: no region reaches across one that is
//! not its own, so none of them waits. What still waits at the end is on a cycle through a region.

use super::edges::Edges;
use super::out_of_order;
use super::position::positions;
use crate::error::Reason;
use crate::overwrites::Overwrites;
use maquette_ir::functional_ops::FUSED;
use maquette_ir::functional_program::FunctionalGraph;
use maquette_ir::fused::FusedRegion;
use maquette_ir::graph::{
    Arg, Graph, GraphBuilder, GraphCopy, NodeId, ResultSpec, Stmt, ValueId, ValueType,
};
use maquette_ir::sym::Expr;
use rustc_hash::FxHashMap;
use smallvec::{SmallVec, smallvec};

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
    /// By value that is not defined yet: what waits for it.
    waiting: FxHashMap<ValueId, Vec<Item>>,
}

/// The fused program, or the last of the regions that wait for each other.
pub(super) enum Emitted {
    Program(Box<FunctionalGraph>),
    Cycle(usize),
}

/// The program whose regions are nodes.
pub(super) fn emit(
    original: &FunctionalGraph,
    regions: &[FusedRegion],
    edges: &Edges<'_>,
    overwrites: &Overwrites,
) -> Result<Emitted, Reason> {
    let graph = &original.graph;
    let mut builder = GraphBuilder::new(graph.name());
    builder.reserve(graph.node_count());
    let copy = GraphCopy::new(graph, &mut builder);
    let nodes = vec![None; graph.node_count()];
    let mut emitter =
        Emitter { graph, regions, builder, copy, nodes, waiting: FxHashMap::default() };
    // By node: its region.
    let mut region_of: Vec<Option<usize>> = vec![None; graph.node_count()];
    for (index, region) in regions.iter().enumerate() {
        for node in &region.nodes {
            region_of[node.index()] = Some(index);
        }
    }
    // By node: the regions that stand behind it.
    let mut anchored: FxHashMap<NodeId, Vec<usize>> = FxHashMap::default();
    for (index, position) in positions(edges, regions, &region_of, overwrites).iter().enumerate() {
        anchored.entry(position.ok_or_else(out_of_order)?).or_default().push(index);
    }
    for (at, stmt) in graph.body().iter().enumerate() {
        match *stmt {
            Stmt::Node(node) => {
                let region = region_of.get(node.index()).copied().flatten();
                let is_outside =
                    |r: usize| edges.is_reshape(node) && edges.is_shared(node, &regions[r].nodes);
                if region.is_none_or(is_outside) {
                    emitter.emit(Item::Node(node));
                }
                for region in anchored.remove(&node).unwrap_or_default() {
                    emitter.emit(Item::Region(region));
                }
            }
            Stmt::Bind { symbol, value, source } => {
                let Some(value) = emitter.copy.value(value) else { break };
                emitter.builder.bind(symbol, value, source);
            }
            Stmt::Assert { cond, message } => {
                let message = message.map(|m| graph.str(m));
                emitter.builder.assert_(cond, message, graph.stmt_loc(at));
            }
        }
    }
    if !emitter.waiting.is_empty() {
        let stuck = emitter.waiting.values().flatten().filter_map(|item| match *item {
            Item::Region(region) => Some(region),
            Item::Node(_) => None,
        });
        return stuck.max().map(Emitted::Cycle).ok_or_else(out_of_order);
    }
    let Emitter { mut builder, copy, nodes, .. } = emitter;
    let outputs = copy.outputs(&mut builder).ok_or_else(out_of_order)?;
    let unknown = original.unknown_strides.iter();
    let unknown = unknown.filter_map(|node| nodes.get(node.index()).copied().flatten());
    let mut unknown_strides: Vec<NodeId> = unknown.collect();
    unknown_strides.sort_unstable();
    let graph = builder.finish(graph.symbols(), &outputs).map_err(Reason::from)?;
    let program = FunctionalGraph { graph, unknown_strides, ..original.clone() };
    Ok(Emitted::Program(Box::new(program)))
}

impl Emitter<'_> {
    /// Builds an item and what waited for it, or lets it wait.
    fn emit(&mut self, item: Item) {
        let mut ready = vec![item];
        while let Some(item) = ready.pop() {
            if let Some(missing) = self.missing(item) {
                self.waiting.entry(missing).or_default().push(item);
                continue;
            }
            self.build(item);
            if !self.waiting.is_empty() {
                for v in self.results(item) {
                    ready.extend(self.waiting.remove(&v).unwrap_or_default());
                }
            }
        }
    }

    /// A value that an item reads, and that is not defined yet.
    fn missing(&self, item: Item) -> Option<ValueId> {
        let is_missing = |v: &ValueId| self.copy.value(*v).is_none();
        match item {
            Item::Region(r) => {
                self.regions.get(r).and_then(|r| r.operands.iter().copied().find(is_missing))
            }
            Item::Node(node) => {
                let mut missing = None;
                self.graph.for_each_operand(node, |v| {
                    missing = missing.or(Some(v).filter(is_missing));
                });
                missing
            }
        }
    }

    fn results(&self, item: Item) -> SmallVec<[ValueId; 2]> {
        match item {
            Item::Region(r) => self.regions.get(r).map_or(&[][..], |r| &r.results).into(),
            Item::Node(node) => self.graph.result_values(node).collect(),
        }
    }

    fn build(&mut self, item: Item) {
        match item {
            Item::Node(node) => {
                self.nodes[node.index()] = self.copy.node(&mut self.builder, node);
            }
            Item::Region(region) => {
                self.region(region);
            }
        }
    }

    fn region(&mut self, index: usize) -> Option<()> {
        let (graph, region) = (self.graph, self.regions.get(index)?);
        let operands = region.operands.iter().map(|v| self.copy.value(*v).map(Arg::Value));
        let operands = operands.collect::<Option<Vec<Arg>>>()?;
        let integers: Vec<Arg> = region.integers.iter().map(|e| Arg::Int(*e)).collect();
        let (operands, integers) = (self.builder.list(&operands), self.builder.list(&integers));
        let kind = Arg::Str(self.builder.intern(region.kind.name()));
        let int = |n: usize| Arg::Int(Expr::Int(n as i64));
        let mut args: SmallVec<[Arg; 5]> = smallvec![kind, int(index), operands, integers];
        if !region.overwrites.is_empty() {
            let pairs = region.overwrites.iter().flat_map(|&(k, j)| [int(k), int(j)]);
            let pairs: Vec<Arg> = pairs.collect();
            args.push(self.builder.list(&pairs));
        }
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
