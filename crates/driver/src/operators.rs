//! The operators from which a program was made: it is valid while their registrations stay.

use maquette_ir::functional_ops::{Callee, is_functional_op};
use maquette_ir::graph::Graph;
use maquette_ops::library::generation;
use maquette_ops::{Op, Result};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

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

/// What was made from a graph. It is made again when an operator has changed on which it depends.
pub(crate) struct Guarded<T> {
    current: RwLock<(Arc<T>, Arc<OperatorGuard>)>,
}

impl<T> Guarded<T> {
    /// `made` depends on `ops`, as they were in the generation `since`.
    pub(crate) fn new(made: Arc<T>, ops: Vec<Op>, since: u64) -> Guarded<T> {
        let guard = Arc::new(OperatorGuard::new(ops, since));
        Guarded { current: RwLock::new((made, guard)) }
    }

    /// What was made last.
    pub(crate) fn latest(&self) -> Arc<T> {
        self.current.read().unwrap_or_else(PoisonError::into_inner).0.clone()
    }

    /// What is valid now: the last, or what `make` returns, with the operators on which it depends.
    ///
    /// # Errors
    /// That of `make`.
    pub(crate) fn valid(&self, make: impl FnOnce() -> Result<(T, Vec<Op>)>) -> Result<Arc<T>> {
        let (latest, guard) = self.current.read().unwrap_or_else(PoisonError::into_inner).clone();
        if guard.holds() {
            return Ok(latest);
        }
        let since = generation();
        let (made, ops) = make()?;
        let made = Arc::new(made);
        let guard = Arc::new(OperatorGuard::new(ops, since));
        *self.current.write().unwrap_or_else(PoisonError::into_inner) = (made.clone(), guard);
        Ok(made)
    }
}

/// Adds the operators that a graph calls, each once, and those that decide what the views of
/// composites are.
pub(crate) fn add_ops(graph: &Graph, ops: &mut Vec<Op>) {
    for node in graph.nodes() {
        let name = Callee::of(graph, node).op;
        if !is_functional_op(name)
            && let Ok(op) = Op::find(name)
            && !ops.contains(&op)
        {
            ops.push(op);
            ops.extend(op.views_in_parts());
        }
    }
}
