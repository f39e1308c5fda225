//! Builds the fused graph.
//!
//! A region stands where its last node stood, since all of its operands are computed there, or
//! earlier, where that frees memory ([`position`](super::position)). Then it waits for its
//! operands. An operator that reads a value of a region and stood before that waits for it.
//! Assertions, bindings and ordered operators keep their places. No region reaches across one that
//! is not its own, but across an effect that needs no value of the region. So none of them waits:
//! regions for which an effect would have to wait are given up.
//!
//! A region that may fail does wait, for one that ends after it: then an operator of the other
//! region must not fail before its own, which stands earlier.
//!
//! What still waits at the end is on a cycle through regions, or after one. The cycles are the
//! strongly connected components of what waits (Tarjan, 1972).
//!
//! **Cost.** Linear in the number of nodes and operands.

use super::groups::Groups;
use super::out_of_order;
use super::position::positions;
use crate::error::Reason;
use maquette_ir::functional_ops::FUSED;
use maquette_ir::functional_program::FunctionalGraph;
use maquette_ir::fused::FusedRegion;
use maquette_ir::graph::{
    Arg, Graph, GraphBuilder, GraphCopy, NodeId, ResultSpec, Stmt, ValueId, ValueType,
};
use maquette_ir::sym::Expr;
use petgraph::algo::tarjan_scc;
use petgraph::graph::{DiGraph, NodeIndex};
use rustc_hash::{FxHashMap, FxHashSet};
use smallvec::{SmallVec, smallvec};

/// A node of the new graph that is not built yet.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Item {
    Node(NodeId),
    Region(usize),
}

struct Emitter<'g> {
    graph: &'g Graph,
    groups: &'g Groups<'g>,
    regions: &'g [FusedRegion],
    /// By node: its region.
    region_of: &'g [Option<usize>],
    builder: GraphBuilder,
    copy: GraphCopy<'g>,
    /// By node of the original: its node in the new graph.
    nodes: Vec<Option<NodeId>>,
    /// By value that is not defined yet: what waits for it.
    waiting: FxHashMap<ValueId, Vec<Item>>,
    /// The last operator, in program order, that may fail and is built in a region.
    failing: Option<NodeId>,
    /// The regions that are built behind a later operator that may fail.
    late: Vec<usize>,
}

/// The fused program, or the regions, in ascending order, without which it may be built.
pub(super) enum Emitted {
    Program(Box<FunctionalGraph>),
    /// For each cycle: its regions.
    Cycles(Vec<Vec<usize>>),
    /// Regions whose errors would come too late, or for which an effect would wait.
    Late(Vec<usize>),
}

/// The program whose regions are nodes.
pub(super) fn emit(
    original: &FunctionalGraph,
    regions: &[FusedRegion],
    groups: &Groups<'_>,
) -> Result<Emitted, Reason> {
    let (graph, edges) = (&original.graph, &groups.edges);
    let mut builder = GraphBuilder::new(graph.name());
    builder.reserve(graph.node_count());
    let copy = GraphCopy::new(graph, &mut builder);
    let mut region_of: Vec<Option<usize>> = vec![None; graph.node_count()];
    for (index, region) in regions.iter().enumerate() {
        for node in &region.nodes {
            region_of[node.index()] = Some(index);
        }
    }
    let mut emitter = Emitter {
        graph,
        groups,
        regions,
        region_of: &region_of,
        builder,
        copy,
        nodes: vec![None; graph.node_count()],
        waiting: FxHashMap::default(),
        failing: None,
        late: Vec::new(),
    };
    // By node: the regions that stand after it.
    let mut anchored: FxHashMap<NodeId, Vec<usize>> = FxHashMap::default();
    for (index, position) in
        positions(edges, regions, &region_of, &groups.overwrites).iter().enumerate()
    {
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
                    let waits = graph.has_effect(node) && emitter.nodes[node.index()].is_none();
                    let needed = if waits { emitter.needed_regions(node) } else { Vec::new() };
                    if !needed.is_empty() {
                        return Ok(Emitted::Late(needed));
                    }
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
        let cycles = emitter.cycles();
        return if cycles.is_empty() { Err(out_of_order()) } else { Ok(Emitted::Cycles(cycles)) };
    }
    if !emitter.late.is_empty() {
        emitter.late.sort_unstable();
        return Ok(Emitted::Late(emitter.late));
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
        let mut missing = None;
        self.for_each_missing(item, |v| missing = missing.or(Some(v)));
        missing
    }

    /// Calls `f` with each value that an item reads, and that is not defined yet.
    fn for_each_missing(&self, item: Item, mut f: impl FnMut(ValueId)) {
        let mut f = |v: ValueId| {
            if self.copy.value(v).is_none() {
                f(v);
            }
        };
        match item {
            Item::Region(r) => {
                self.regions.get(r).into_iter().flat_map(|r| &r.operands).for_each(|v| f(*v));
            }
            Item::Node(node) => self.graph.for_each_operand(node, f),
        }
    }

    /// The regions that are not built yet and that a node needs, in ascending order.
    fn needed_regions(&self, node: NodeId) -> Vec<usize> {
        let (mut seen, mut stack) = (FxHashSet::default(), vec![Item::Node(node)]);
        while let Some(item) = stack.pop() {
            if seen.insert(item) {
                self.for_each_missing(item, |v| {
                    stack.extend(self.graph.producer(v).map(|n| self.item(n, v)));
                });
            }
        }
        let region = |item: Item| match item {
            Item::Region(region) => Some(region),
            Item::Node(_) => None,
        };
        let mut regions: Vec<usize> = seen.into_iter().filter_map(region).collect();
        regions.sort_unstable();
        regions
    }

    /// The regions that wait for each other: for each cycle, those on it.
    fn cycles(&self) -> Vec<Vec<usize>> {
        let mut items: Vec<Item> = self.waiting.values().flatten().copied().collect();
        items.sort_unstable();
        items.dedup();
        let mut waits: DiGraph<Item, ()> = DiGraph::new();
        let index: FxHashMap<Item, NodeIndex> =
            items.iter().map(|item| (*item, waits.add_node(*item))).collect();
        for (item, &at) in items.iter().filter_map(|item| Some((item, index.get(item)?))) {
            self.for_each_missing(*item, |v| {
                if let Some(&on) = self.graph.producer(v).and_then(|n| index.get(&self.item(n, v)))
                {
                    waits.add_edge(at, on, ());
                }
            });
        }
        let regions = |component: &Vec<NodeIndex>| -> Vec<usize> {
            let region = |at: &NodeIndex| match waits[*at] {
                Item::Region(region) => Some(region),
                Item::Node(_) => None,
            };
            let mut regions: Vec<usize> = component.iter().filter_map(region).collect();
            regions.sort_unstable();
            regions
        };
        let is_cycle = |component: &Vec<NodeIndex>| match component[..] {
            [one] => waits.contains_edge(one, one),
            _ => true,
        };
        let components = tarjan_scc(&waits);
        components.iter().filter(|c| is_cycle(c)).map(regions).filter(|c| !c.is_empty()).collect()
    }

    /// What defines a value of a node of the original.
    fn item(&self, node: NodeId, value: ValueId) -> Item {
        let region = self.region_of.get(node.index()).copied().flatten();
        let is_result =
            |r: &usize| self.regions.get(*r).is_some_and(|r| r.results.contains(&value));
        region.filter(is_result).map_or(Item::Node(node), Item::Region)
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
                self.note_failing(region);
                self.region(region);
            }
        }
    }

    /// Notes a region that is late: a region built before it has an operator that may fail and that
    /// follows, in the program, one of this region.
    fn note_failing(&mut self, index: usize) {
        let Some(region) = self.regions.get(index).filter(|region| region.may_fail) else { return };
        let failing = || self.groups.order.failing(&region.nodes);
        if failing().next() < self.failing {
            self.late.push(index);
        }
        self.failing = self.failing.max(failing().last());
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
        let created = self.builder.node(op, &args, &[], &specs, graph.info_of(&region.nodes));
        for (&of, value) in region.results.iter().zip(created.values.iter()) {
            self.builder.set_name(value, &graph.value_name(of).to_string());
            self.copy.set(of, value);
        }
        Some(())
    }
}
