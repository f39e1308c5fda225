//! The last use of each value. A run drops a value after this statement.

use super::Frame;
use maquette_ir::graph::{Arg, Graph, Stmt, ValueId};

/// For each value, the index of the last statement that uses it: `usize::MAX` if the graph returns
/// the value, the statement that defines it if nothing uses it.
pub(super) fn last_uses(graph: &Graph) -> Vec<usize> {
    let mut last = vec![0; graph.values().len()];
    let mut touch = |v: ValueId, at: usize| {
        if let Some(l) = last.get_mut(v.index()) {
            *l = at;
        }
    };
    for (at, stmt) in graph.body().iter().enumerate() {
        match *stmt {
            Stmt::Node(node) => {
                graph.for_each_operand(node, |v| touch(v, at));
                graph.result_values(node).for_each(|v| touch(v, at));
            }
            Stmt::Bind { value, .. } => touch(value, at),
            Stmt::Assert { .. } => {}
        }
    }
    for &output in graph.outputs() {
        graph.for_each_leaf(output, &mut |leaf| {
            if let Arg::Value(v) = leaf {
                touch(v, usize::MAX);
            }
        });
    }
    last
}

impl Frame<'_> {
    /// Drops the values whose last use is this statement.
    pub(super) fn free_unused(&mut self, at: usize, stmt: &Stmt) {
        let Frame { graph, values, last_use, .. } = self;
        let mut drop_if_last = |v: ValueId| {
            if last_use.get(v.index()) == Some(&at)
                && let Some(slot) = values.get_mut(v.index())
            {
                *slot = None;
            }
        };
        match *stmt {
            Stmt::Node(node) => {
                graph.for_each_operand(node, &mut drop_if_last);
                graph.result_values(node).for_each(&mut drop_if_last);
            }
            Stmt::Bind { value, .. } => drop_if_last(value),
            Stmt::Assert { .. } => {}
        }
    }
}
