//! The operators from which a program was made: it is valid while their registrations stay.

use maquette_ir::functional_ops::{Callee, is_functional_op};
use maquette_ir::graph::Graph;
use maquette_ops::Op;
use maquette_ops::library::generation;
use std::sync::atomic::{AtomicU64, Ordering};

/// Operators that have not changed since a generation of the registry.
#[derive(Debug)]
pub(crate) struct OperatorGuard {
    ops: Vec<Op>,
    /// The generation in which the trace began.
    since: u64,
    /// The last generation in which the operators were found unchanged: a check in the same
    /// generation looks at no operator.
    checked: AtomicU64,
}

impl OperatorGuard {
    pub(crate) fn new(ops: Vec<Op>, since: u64) -> OperatorGuard {
        OperatorGuard { ops, since, checked: AtomicU64::new(since) }
    }

    /// Whether no operator has changed. Once one has, the answer stays `false`.
    pub(crate) fn holds(&self) -> bool {
        let now = generation();
        if self.checked.load(Ordering::Relaxed) == now {
            return true;
        }
        let unchanged = self.changed().is_none();
        if unchanged {
            self.checked.store(now, Ordering::Relaxed);
        }
        unchanged
    }

    /// The first operator that has changed.
    pub(crate) fn changed(&self) -> Option<Op> {
        self.ops.iter().copied().find(|op| op.changed_at() > self.since)
    }
}

/// Adds the operators that a graph calls, each once.
pub(crate) fn add_ops(graph: &Graph, ops: &mut Vec<Op>) {
    for node in graph.nodes() {
        let name = Callee::of(graph, node).op;
        if !is_functional_op(name)
            && let Ok(op) = Op::find(name)
            && !ops.contains(&op)
        {
            ops.push(op);
        }
    }
}
