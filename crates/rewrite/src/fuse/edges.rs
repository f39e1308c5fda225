//! The edges between operators, through views that change sizes alone.
//!
//! A *reshape* is an `ir::view` of the whole of a value, in row-major order. Elementwise operators
//! on both sides of one have the same elements, so a region may reach across it: then the view is
//! one of the region's nodes. A reshape that something else reads, too, is also a node outside.

use maquette_ir::functional_ops::FunctionalOp;
use maquette_ir::graph::{Arg, Graph, NodeId, ValueId};
use maquette_ir::sym::{Expr, SymTable};
use maquette_ir::view::ViewSpec;
use rustc_hash::{FxHashMap, FxHashSet};
use smallvec::SmallVec;

/// The edges of a graph.
pub(super) struct Edges<'g> {
    pub graph: &'g Graph,
    outputs: FxHashSet<ValueId>,
    /// By result of a reshape: the reshaped value, which is none itself.
    reshaped: FxHashMap<ValueId, ValueId>,
}

impl<'g> Edges<'g> {
    pub fn of(graph: &'g Graph) -> Edges<'g> {
        let mut outputs = FxHashSet::default();
        for output in graph.outputs() {
            graph.for_each_leaf(*output, &mut |leaf| {
                if let Arg::Value(v) = leaf {
                    outputs.insert(v);
                }
            });
        }
        let mut edges = Edges { graph, outputs, reshaped: FxHashMap::default() };
        let mut symbols = graph.symbols().clone();
        for node in graph.nodes() {
            if let Some((base, result)) = reshape(graph, node, &mut symbols) {
                edges.reshaped.insert(result, edges.origin(base));
            }
        }
        edges
    }

    /// The value that a value is a reshape of, or the value itself.
    pub fn origin(&self, v: ValueId) -> ValueId {
        self.reshaped.get(&v).copied().unwrap_or(v)
    }

    /// Whether a node is a reshape.
    pub fn is_reshape(&self, node: NodeId) -> bool {
        self.graph.result_values(node).any(|v| self.reshaped.contains_key(&v))
    }

    /// Calls `f` with the tensors that a node reads, and the nodes that compute them or what they
    /// are reshapes of.
    pub fn for_each_producer(&self, node: NodeId, mut f: impl FnMut(ValueId, NodeId)) {
        self.graph.for_each_operand(node, |v| {
            if self.graph.tensor_type(v).is_some()
                && let Some(producer) = self.graph.producer(self.origin(v))
            {
                f(v, producer);
            }
        });
    }

    /// A set of operators, and the reshapes between them, in program order.
    pub fn with_reshapes(&self, operators: &[NodeId]) -> Vec<NodeId> {
        let mut nodes = operators.to_vec();
        for &node in operators {
            self.for_each_producer(node, |mut v, producer| {
                while operators.binary_search(&producer).is_ok()
                    && self.reshaped.contains_key(&v)
                    && let Some(view) = self.graph.producer(v)
                    && let Ok(FunctionalOp::View { base, .. }) = FunctionalOp::of(self.graph, view)
                {
                    nodes.push(view);
                    v = base;
                }
            });
        }
        nodes.sort_unstable();
        nodes.dedup();
        nodes
    }

    /// The tensors that a set of nodes reads from outside, in the order of their first uses.
    pub fn operands(&self, nodes: &[NodeId]) -> Vec<ValueId> {
        let mut operands: Vec<ValueId> = Vec::new();
        for &node in nodes {
            self.graph.for_each_operand(node, |v| {
                let producer = self.graph.producer(v);
                let is_own = producer.is_some_and(|p| nodes.binary_search(&p).is_ok());
                if !is_own && self.graph.tensor_type(v).is_some() && !operands.contains(&v) {
                    operands.push(v);
                }
            });
        }
        operands
    }

    /// The values of a set of nodes that something outside reads, itself or through a reshape.
    pub fn results(&self, nodes: &[NodeId]) -> Vec<ValueId> {
        let operators = nodes.iter().filter(|n| !self.is_reshape(**n));
        let values = operators.flat_map(|n| self.graph.result_values(*n));
        values.filter(|v| self.is_read_outside(*v, nodes)).collect()
    }

    /// Whether the graph returns a value.
    pub fn is_returned(&self, v: ValueId) -> bool {
        self.outputs.contains(&v)
    }

    /// Whether anything reads a value.
    pub fn is_read(&self, v: ValueId) -> bool {
        self.is_read_outside(v, &[])
    }

    fn is_read_outside(&self, v: ValueId, nodes: &[NodeId]) -> bool {
        let is_outside = |n: &NodeId| {
            nodes.binary_search(n).is_err() || self.is_reshape(*n) && self.is_shared(*n, nodes)
        };
        self.outputs.contains(&v) || self.graph.users(v).iter().any(is_outside)
    }

    /// Whether something outside of a set of nodes reads the result of a reshape that is in it.
    pub fn is_shared(&self, reshape: NodeId, nodes: &[NodeId]) -> bool {
        self.graph.result_values(reshape).any(|v| self.is_read_outside(v, nodes))
    }
}

/// The base and the result of a node that is a reshape.
fn reshape(graph: &Graph, node: NodeId, symbols: &mut SymTable) -> Option<(ValueId, ValueId)> {
    let Ok(FunctionalOp::View { base, region }) = FunctionalOp::of(graph, node) else {
        return None;
    };
    let result = graph.result_values(node).next()?;
    let whole = ViewSpec::contiguous(&graph.tensor_type(base)?.sizes, symbols).ok()?;
    let exprs = |list: maquette_ir::functional_ops::List<'_>| -> SmallVec<[Expr; 4]> {
        list.iter().collect()
    };
    let (sizes, strides) = (exprs(region.sizes), exprs(region.strides));
    let view = ViewSpec::strided(region.offset, &sizes, &strides, symbols).ok()?;
    let numel = whole.numel(symbols)?;
    view.is_full(numel, symbols).is_yes().then_some((base, result))
}
