//! Estimates of the memory that a program needs at each statement.
//!
//! A value needs memory from the statement that computes it to the last one that reads it or a view
//! of it. Inputs and constants have memory of the caller, and so has what the graph returns: both
//! count nothing. A symbolic size counts as 64. The estimate knows nothing of fusion, which leaves
//! out values that die at once; what is alive for long has memory in any case.

use maquette_ir::copy_cost::approximate_numel;
use maquette_ir::functional_ops::FunctionalOp;
use maquette_ir::graph::{Arg, Graph, NodeId, OpFacts, Placement, Stmt, ValueId};

/// When values are alive, and how much memory they need.
pub(super) struct Lifetimes {
    /// By node: its statement.
    pub statements: Vec<usize>,
    /// By value: the value in whose memory it lies.
    roots: Vec<ValueId>,
    /// By value: its bytes, if it is a root with memory of its own.
    bytes: Vec<u64>,
    /// By root: the statements that compute it and that read it last.
    defined: Vec<usize>,
    last_read: Vec<usize>,
    /// By statement: the bytes that are in use while it runs.
    pub live: Vec<u64>,
}

/// Where most memory is in use.
#[derive(Clone, Copy, Debug)]
pub(super) struct Peak {
    pub bytes: u64,
    /// The first statement that needs so many.
    pub at: usize,
    /// The number of statements that need so many.
    pub statements: usize,
}

impl Peak {
    /// What a round has to lower: the bytes, or else the number of statements that need them.
    pub fn height(self) -> (u64, usize) {
        (self.bytes, self.statements)
    }
}

impl Lifetimes {
    pub fn of(graph: &Graph, facts: &dyn OpFacts) -> Lifetimes {
        let values = graph.values().len();
        let mut lifetimes = Lifetimes {
            statements: vec![0; graph.node_count()],
            roots: graph.values().collect(),
            bytes: vec![0; values],
            defined: vec![0; values],
            last_read: vec![0; values],
            live: Vec::with_capacity(graph.body().len()),
        };
        for (at, stmt) in graph.body().iter().enumerate() {
            if let Stmt::Node(node) = *stmt {
                lifetimes.add(graph, at, node);
            }
        }
        for output in graph.outputs() {
            graph.for_each_leaf(*output, &mut |leaf| {
                if let Arg::Value(v) = leaf {
                    let root = lifetimes.root(v).index();
                    lifetimes.bytes[root] = 0;
                    lifetimes.last_read[root] = graph.body().len();
                }
            });
        }
        lifetimes.add_up(graph, facts);
        lifetimes
    }

    /// Adds the results of a node, and its reads.
    fn add(&mut self, graph: &Graph, at: usize, node: NodeId) {
        self.statements[node.index()] = at;
        graph.for_each_operand(node, |v| {
            let root = self.root(v).index();
            self.last_read[root] = at;
        });
        let base = match FunctionalOp::of(graph, node) {
            Ok(
                FunctionalOp::View { base, .. }
                | FunctionalOp::Scatter { base, .. }
                | FunctionalOp::Strided { operand: base }
                | FunctionalOp::Barrier { operand: base },
            ) => Some(base),
            _ => None,
        };
        for v in graph.result_values(node) {
            if let Some(base) = base {
                self.roots[v.index()] = self.root(base);
            } else if let Some(ty) = graph.tensor_type(v) {
                let size = ty.dtype.size() as u64;
                self.bytes[v.index()] = approximate_numel(&ty.sizes).saturating_mul(size);
            }
            self.defined[v.index()] = at;
            self.last_read[v.index()] = at;
        }
    }

    /// Adds up the bytes that are alive at each statement.
    fn add_up(&mut self, graph: &Graph, facts: &dyn OpFacts) {
        let mut freed = vec![0u64; graph.body().len() + 1];
        let mut alive = 0u64;
        for (at, stmt) in graph.body().iter().enumerate() {
            let mut reused = 0;
            if let Stmt::Node(node) = *stmt {
                let mut made = 0u64;
                for v in graph.result_values(node).filter(|v| self.root(*v) == *v) {
                    let bytes = self.bytes(v);
                    made = made.saturating_add(bytes);
                    let freed = &mut freed[self.last_read[v.index()]];
                    *freed = freed.saturating_add(bytes);
                }
                alive = alive.saturating_add(made);
                reused = self.reused(graph, facts, at, node).min(made);
            }
            self.live.push(alive.saturating_sub(reused));
            alive = alive.saturating_sub(freed[at]);
        }
    }

    /// The bytes of an operand that an elementwise operator can write its result over.
    fn reused(&self, graph: &Graph, facts: &dyn OpFacts, at: usize, node: NodeId) -> u64 {
        if facts.placement(graph.op_name(node)) != Placement::Elementwise {
            return 0;
        }
        let mut reused = 0;
        graph.for_each_operand(node, |v| {
            if self.last_read(v) == at {
                reused = self.bytes(v).max(reused);
            }
        });
        reused
    }

    /// The value in whose memory a value lies.
    pub fn root(&self, v: ValueId) -> ValueId {
        self.roots[v.index()]
    }

    /// The bytes of the memory in which a value lies.
    pub fn bytes(&self, v: ValueId) -> u64 {
        self.bytes[self.root(v).index()]
    }

    /// The last statement that reads the memory in which a value lies.
    pub fn last_read(&self, v: ValueId) -> usize {
        self.last_read[self.root(v).index()]
    }

    /// Where most memory is in use.
    pub fn peak(&self) -> Peak {
        let bytes = self.live.iter().copied().max().unwrap_or_default();
        let is_peak = |live: &u64| *live == bytes;
        let at = self.live.iter().position(is_peak).unwrap_or_default();
        Peak { bytes, at, statements: self.live.iter().copied().filter(is_peak).count() }
    }

    /// The bytes that are alive at a statement, and are read by a later one.
    pub fn kept_across(&self, at: usize) -> u64 {
        let is_kept = |i: &usize| self.defined[*i] <= at && at < self.last_read[*i];
        let roots = (0..self.roots.len()).filter(|i| self.roots[*i].index() == *i);
        roots.filter(is_kept).fold(0, |sum, i| sum.saturating_add(self.bytes[i]))
    }
}
