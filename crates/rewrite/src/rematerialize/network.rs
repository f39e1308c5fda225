//! The minimum cut that decides what is kept across a statement and what is computed again.
//!
//! The network has a vertex for each value that may be needed after the statement, and one for
//! each operator that may compute it again. A vertex on the side of the sink is *needed* after the
//! statement: a value is read there, an operator runs there once more.
//!
//! | edge | capacity | if it is cut |
//! |---|---|---|
//! | operator → its result | the bytes of the result | the result is kept |
//! | source → operator | the cost of the operator, or ∞ | the operator runs once more |
//! | operand → operator | ∞ | |
//! | value that a later statement reads → sink | ∞ | |
//!
//! So a cut is a choice, its capacity the bytes that are kept plus the cost of what runs once more,
//! and the least cut the best choice for one price of a byte. Values with memory of the caller have
//! no edge from an operator: to keep them costs nothing.

use super::candidates::Candidates;
use maquette_ir::graph::{Graph, NodeId, ValueId};
use petgraph::Direction;
use petgraph::algo::dinics;
use petgraph::graph::{DiGraph, NodeIndex};
use petgraph::visit::EdgeRef;
use rustc_hash::FxHashMap;

/// The capacity of an edge that no cut has. The sum of all others is less.
const UNLIMITED: u128 = 1 << 100;

/// A byte in units of capacity; prices are fractions of it.
pub(super) const BYTE: u64 = 1 << 16;

/// The most vertices. Operators beyond them do not run once more.
pub(super) const MAX_VERTICES: usize = 1 << 15;

/// The network for one statement.
pub(super) struct Network {
    graph: DiGraph<Vertex, Edge>,
    source: NodeIndex,
    sink: NodeIndex,
}

#[derive(Clone, Copy)]
enum Vertex {
    Source,
    Sink,
    Node(NodeId),
    Value,
}

#[derive(Clone, Copy)]
enum Edge {
    Unlimited,
    /// A result of this many bytes is kept.
    Kept(u64),
    /// An operator of this cost in bytes runs once more.
    Again(u64),
}

/// What a cut chooses.
#[derive(Debug)]
pub(super) struct Choice {
    /// The operators that run once more, in program order.
    pub again: Vec<NodeId>,
    /// The bytes that are kept.
    pub kept: u64,
}

impl Network {
    pub fn new(graph: &Graph, candidates: &Candidates<'_>) -> Network {
        let mut network = DiGraph::new();
        let (source, sink) = (network.add_node(Vertex::Source), network.add_node(Vertex::Sink));
        let mut values: FxHashMap<ValueId, NodeIndex> = FxHashMap::default();
        let mut nodes: FxHashMap<NodeId, NodeIndex> = FxHashMap::default();
        let mut pending: Vec<ValueId> = Vec::new();
        let mut vertex = |v: ValueId, network: &mut DiGraph<_, _>, pending: &mut Vec<_>| {
            *values.entry(v).or_insert_with(|| {
                pending.push(v);
                network.add_node(Vertex::Value)
            })
        };
        for v in candidates.needed() {
            let value = vertex(v, &mut network, &mut pending);
            network.add_edge(value, sink, Edge::Unlimited);
        }
        while let Some(v) = pending.pop() {
            let Some((node, kept)) = candidates.computed(v) else { continue };
            let value = vertex(v, &mut network, &mut pending);
            let at = *nodes.entry(node).or_insert_with(|| {
                let at = network.add_node(Vertex::Node(node));
                let fits = network.node_count() < MAX_VERTICES;
                let Some(cost) = candidates.cost(node).filter(|_| fits) else {
                    network.add_edge(source, at, Edge::Unlimited);
                    return at;
                };
                network.add_edge(source, at, Edge::Again(cost));
                graph.for_each_operand(node, |operand| {
                    let operand = vertex(operand, &mut network, &mut pending);
                    network.add_edge(operand, at, Edge::Unlimited);
                });
                at
            });
            network.add_edge(at, value, kept.map_or(Edge::Unlimited, Edge::Kept));
        }
        Network { graph: network, source, sink }
    }

    /// The best choice, where one byte of traffic costs `price` of [`BYTE`]. Of equal ones that in
    /// which the fewest operators run once more.
    pub fn choice(&self, price: u64) -> Choice {
        let capacity = |edge: &Edge| match edge {
            Edge::Unlimited => UNLIMITED,
            Edge::Kept(bytes) => u128::from(*bytes) * u128::from(BYTE),
            Edge::Again(cost) => u128::from(*cost) * u128::from(price),
        };
        let network = self.graph.map(|_, vertex| *vertex, |_, edge| capacity(edge));
        let (_, flows) = dinics(&network, self.source, self.sink);
        let flow = |edge: petgraph::graph::EdgeIndex| flows.get(edge.index()).copied();
        // The vertices from which more could flow to the sink.
        let mut needed = vec![false; network.node_count()];
        needed[self.sink.index()] = true;
        let mut pending = vec![self.sink];
        while let Some(vertex) = pending.pop() {
            let into = network.edges_directed(vertex, Direction::Incoming);
            let into = into.filter(|e| flow(e.id()).is_some_and(|flow| flow < *e.weight()));
            let out = network.edges_directed(vertex, Direction::Outgoing);
            let out = out.filter(|e| flow(e.id()).is_some_and(|flow| flow > 0));
            for next in into.map(|e| e.source()).chain(out.map(|e| e.target())) {
                if !std::mem::replace(&mut needed[next.index()], true) {
                    pending.push(next);
                }
            }
        }
        let mut choice = Choice { again: Vec::new(), kept: 0 };
        for index in self.graph.node_indices().filter(|i| needed[i.index()]) {
            if let Vertex::Node(node) = self.graph[index] {
                choice.again.push(node);
            }
        }
        for edge in self.graph.edge_references() {
            if let Edge::Kept(bytes) = edge.weight()
                && needed[edge.target().index()]
                && !needed[edge.source().index()]
            {
                choice.kept = choice.kept.saturating_add(*bytes);
            }
        }
        choice.again.sort_unstable();
        choice
    }
}
