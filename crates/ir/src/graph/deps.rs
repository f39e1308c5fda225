//! What depends on what: the nodes of a graph as a petgraph.
//!
//! [`Graph::dataflow`] has an edge wherever a node takes what another gives, as a value or as a
//! symbol bound from it: all there is to order a functional graph. [`Graph::dependence`] adds the
//! edges of memory and of effects, and orders any graph. Both are an [`Adjacency`], on whose
//! references petgraph's algorithms run: `toposort(&graph.dataflow(), None)`.

use super::op_facts::MemoryFacts;
use super::types::{Arg, NodeId, Stmt, TypeId, ValueId, ValueType};
use super::{Graph, memory_deps};
use crate::sym::{Expr, SymbolId, SymbolKind};
use petgraph::visit::{
    Data, EdgeCount, GraphBase, GraphProp, IntoEdgeReferences, IntoEdges, IntoEdgesDirected,
    IntoNeighbors, IntoNeighborsDirected, IntoNodeIdentifiers, IntoNodeReferences,
    NodeCompactIndexable, NodeCount, NodeIndexable, VisitMap, Visitable,
};
use petgraph::{Directed, Direction};
use rustc_hash::FxHashMap;
use smallvec::SmallVec;

/// Why a node comes after another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum EdgeKind {
    /// It takes the other's result.
    Data,
    /// It takes a size that is bound from the other's result.
    Symbol,
    /// It reads memory that the other writes.
    ReadAfterWrite,
    /// It writes memory that the other reads.
    WriteAfterRead,
    /// It writes memory that the other writes.
    WriteAfterWrite,
    /// Both have effects that keep their order, or both draw random numbers.
    Order,
}

/// An edge's weight.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Edge {
    /// Why there is an edge.
    pub kind: EdgeKind,
    /// What it is about: the value taken, or one in the memory touched. Order edges have none.
    pub value: Option<ValueId>,
}

/// The nodes of a graph and the edges between them, which all lead from earlier to later nodes.
#[derive(Clone, Debug)]
pub struct Adjacency<'g> {
    graph: &'g Graph,
    /// Operator names, as node weights.
    ops: Vec<&'g str>,
    /// Sorted by source, then target.
    edges: Vec<(NodeId, NodeId, Edge)>,
    /// Where each node's outgoing edges begin.
    outgoing: Vec<u32>,
    /// Edge numbers, sorted by target, then source.
    by_target: Vec<u32>,
    incoming: Vec<u32>,
}

impl Graph {
    /// The edges of data: complete for a graph in which nothing mutates and nothing has effects.
    pub fn dataflow(&self) -> Adjacency<'_> {
        Adjacency::new(self, self.data_edges())
    }

    /// The edges of data, memory and effects, as `facts` tells of the operators.
    pub fn dependence(&self, facts: &dyn MemoryFacts) -> Adjacency<'_> {
        let mut edges = self.data_edges();
        memory_deps::add_memory_edges(self, facts, &mut edges);
        Adjacency::new(self, edges)
    }

    /// For each value, the node that writes last to the memory the value may lie in.
    pub(super) fn last_writers(&self, facts: &dyn MemoryFacts) -> Vec<Option<NodeId>> {
        memory_deps::add_memory_edges(self, facts, &mut Vec::new())
    }

    fn data_edges(&self) -> Vec<(NodeId, NodeId, Edge)> {
        let mut edges = Vec::new();
        let mut bound: FxHashMap<SymbolId, ValueId> = FxHashMap::default();
        let mut symbols =
            SymbolUses { graph: self, types: FxHashMap::default(), exprs: FxHashMap::default() };
        for stmt in &self.body {
            let node = match *stmt {
                Stmt::Node(node) => node,
                Stmt::Bind { symbol, value, .. } => {
                    bound.insert(symbol, value);
                    continue;
                }
                Stmt::Assert { .. } => continue,
            };
            self.for_each_operand(node, |v| {
                if let Some(from) = self.producer(v) {
                    edges.push((from, node, Edge { kind: EdgeKind::Data, value: Some(v) }));
                }
            });
            if bound.is_empty() {
                continue;
            }
            symbols.of_node(node, |s| {
                if let Some(&value) = bound.get(&s)
                    && let Some(from) = self.producer(value)
                {
                    edges.push((from, node, Edge { kind: EdgeKind::Symbol, value: Some(value) }));
                }
            });
        }
        edges
    }
}

/// The unbacked symbols that nodes mention, looked up once per type and expression.
struct SymbolUses<'g> {
    graph: &'g Graph,
    types: FxHashMap<TypeId, SmallVec<[SymbolId; 2]>>,
    exprs: FxHashMap<Expr, SmallVec<[SymbolId; 2]>>,
}

impl SymbolUses<'_> {
    fn of_node(&mut self, node: NodeId, mut f: impl FnMut(SymbolId)) {
        let graph = self.graph;
        let unbacked = |e: Expr| {
            graph
                .symbols
                .free_symbols(e)
                .into_iter()
                .filter(|s| graph.symbols.kind(*s) == SymbolKind::Unbacked)
        };
        for arg in graph.args(node).iter().chain(graph.kwargs(node).iter().map(|(_, arg)| arg)) {
            graph.for_each_leaf(*arg, &mut |leaf| {
                if let Arg::Int(e @ Expr::Id(_)) = leaf {
                    self.exprs
                        .entry(e)
                        .or_insert_with(|| unbacked(e).collect())
                        .iter()
                        .for_each(|s| f(*s));
                }
            });
        }
        for value in graph.result_values(node) {
            if let ValueType::Tensor(ty) = graph.value_type(value) {
                let of_type = || graph.type_of(ty).exprs().flat_map(unbacked).collect();
                self.types.entry(ty).or_insert_with(of_type).iter().for_each(|s| f(*s));
            }
        }
    }
}

impl<'g> Adjacency<'g> {
    fn new(graph: &'g Graph, mut edges: Vec<(NodeId, NodeId, Edge)>) -> Adjacency<'g> {
        edges.sort_unstable();
        edges.dedup();
        let mut by_target: Vec<u32> = (0..edges.len() as u32).collect();
        by_target.sort_by_key(|&i| edges[i as usize].1);
        let starts = |of: &dyn Fn(&(NodeId, NodeId, Edge)) -> NodeId| {
            let mut starts = vec![0u32; graph.node_count() + 1];
            edges.iter().for_each(|e| starts[of(e).index() + 1] += 1);
            for i in 1..starts.len() {
                starts[i] += starts[i - 1];
            }
            starts
        };
        let (outgoing, incoming) = (starts(&|e| e.0), starts(&|e| e.1));
        Adjacency {
            graph,
            ops: graph.nodes().map(|n| graph.op_name(n)).collect(),
            edges,
            outgoing,
            by_target,
            incoming,
        }
    }

    /// The graph whose nodes these are.
    pub fn graph(&self) -> &'g Graph {
        self.graph
    }

    /// A node's edges in one direction, by rising number of the node at the other end.
    pub fn edges_of(
        &self,
        node: NodeId,
        direction: Direction,
    ) -> impl Iterator<Item = EdgeReference<'_>> {
        let starts = match direction {
            Direction::Outgoing => &self.outgoing,
            Direction::Incoming => &self.incoming,
        };
        let at = |i: usize| starts.get(i).copied().unwrap_or(self.edges.len() as u32);
        (at(node.index())..at(node.index() + 1)).filter_map(move |i| match direction {
            Direction::Outgoing => self.edge(i),
            Direction::Incoming => self.edge(*self.by_target.get(i as usize)?),
        })
    }

    fn edge(&self, index: u32) -> Option<EdgeReference<'_>> {
        let (source, target, weight) = self.edges.get(index as usize)?;
        Some(EdgeReference { index, source: *source, target: *target, weight })
    }
}

/// An edge of an [`Adjacency`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct EdgeReference<'a> {
    index: u32,
    source: NodeId,
    target: NodeId,
    weight: &'a Edge,
}

impl petgraph::visit::EdgeRef for EdgeReference<'_> {
    type NodeId = NodeId;
    type EdgeId = u32;
    type Weight = Edge;

    fn source(&self) -> NodeId {
        self.source
    }
    fn target(&self) -> NodeId {
        self.target
    }
    fn weight(&self) -> &Edge {
        self.weight
    }
    fn id(&self) -> u32 {
        self.index
    }
}

/// The set of visited nodes that petgraph's walks keep.
#[derive(Clone, Debug, Default)]
pub struct Visited(Vec<bool>);

impl VisitMap<NodeId> for Visited {
    fn visit(&mut self, node: NodeId) -> bool {
        if self.0.len() <= node.index() {
            self.0.resize(node.index() + 1, false);
        }
        !std::mem::replace(&mut self.0[node.index()], true)
    }
    fn is_visited(&self, node: &NodeId) -> bool {
        self.0.get(node.index()) == Some(&true)
    }
    fn unvisit(&mut self, node: NodeId) -> bool {
        self.0.get_mut(node.index()).is_some_and(std::mem::take)
    }
}

impl GraphBase for Adjacency<'_> {
    type NodeId = NodeId;
    type EdgeId = u32;
}

impl<'g> Data for Adjacency<'g> {
    type NodeWeight = &'g str;
    type EdgeWeight = Edge;
}

impl GraphProp for Adjacency<'_> {
    type EdgeType = Directed;
}

impl NodeCount for Adjacency<'_> {
    fn node_count(&self) -> usize {
        self.ops.len()
    }
}

impl EdgeCount for Adjacency<'_> {
    fn edge_count(&self) -> usize {
        self.edges.len()
    }
}

impl NodeIndexable for Adjacency<'_> {
    fn node_bound(&self) -> usize {
        self.ops.len()
    }
    fn to_index(&self, node: NodeId) -> usize {
        node.index()
    }
    fn from_index(&self, index: usize) -> NodeId {
        NodeId(index as u32)
    }
}

impl NodeCompactIndexable for Adjacency<'_> {}

impl Visitable for Adjacency<'_> {
    type Map = Visited;

    fn visit_map(&self) -> Visited {
        Visited(vec![false; self.ops.len()])
    }
    fn reset_map(&self, map: &mut Visited) {
        *map = self.visit_map();
    }
}

type Boxed<'a, T> = Box<dyn Iterator<Item = T> + 'a>;

impl<'a> IntoNodeIdentifiers for &'a Adjacency<'_> {
    type NodeIdentifiers = Boxed<'a, NodeId>;

    fn node_identifiers(self) -> Self::NodeIdentifiers {
        Box::new(self.graph.nodes())
    }
}

impl<'a, 'g> IntoNodeReferences for &'a Adjacency<'g> {
    type NodeRef = (NodeId, &'a &'g str);
    type NodeReferences = Boxed<'a, Self::NodeRef>;

    fn node_references(self) -> Self::NodeReferences {
        Box::new(self.graph.nodes().zip(&self.ops))
    }
}

impl<'a> IntoEdgeReferences for &'a Adjacency<'_> {
    type EdgeRef = EdgeReference<'a>;
    type EdgeReferences = Boxed<'a, EdgeReference<'a>>;

    fn edge_references(self) -> Self::EdgeReferences {
        Box::new((0..self.edges.len() as u32).filter_map(|i| self.edge(i)))
    }
}

impl<'a> IntoNeighbors for &'a Adjacency<'_> {
    type Neighbors = Boxed<'a, NodeId>;

    fn neighbors(self, node: NodeId) -> Self::Neighbors {
        self.neighbors_directed(node, Direction::Outgoing)
    }
}

impl<'a> IntoNeighborsDirected for &'a Adjacency<'_> {
    type NeighborsDirected = Boxed<'a, NodeId>;

    fn neighbors_directed(self, node: NodeId, direction: Direction) -> Self::NeighborsDirected {
        Box::new(self.edges_of(node, direction).map(move |e| match direction {
            Direction::Outgoing => e.target,
            Direction::Incoming => e.source,
        }))
    }
}

impl<'a> IntoEdges for &'a Adjacency<'_> {
    type Edges = Boxed<'a, EdgeReference<'a>>;

    fn edges(self, node: NodeId) -> Self::Edges {
        Box::new(self.edges_of(node, Direction::Outgoing))
    }
}

impl<'a> IntoEdgesDirected for &'a Adjacency<'_> {
    type EdgesDirected = Boxed<'a, EdgeReference<'a>>;

    /// Incoming edges keep their direction: the node is their target.
    fn edges_directed(self, node: NodeId, direction: Direction) -> Self::EdgesDirected {
        Box::new(self.edges_of(node, direction))
    }
}
