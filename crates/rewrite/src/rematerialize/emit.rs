//! Builds the program in which operators run once more.
//!
//! An operator stands before the first statement that needs its result, with what it needs in turn.
//! From there on its new result stands for the old one. Results that the graph returns stay those
//! of the first time.

use crate::error::Reason;
use maquette_ir::functional_ops::{BARRIER, FunctionalOp};
use maquette_ir::functional_program::FunctionalGraph;
use maquette_ir::graph::{Arg, Graph, GraphBuilder, GraphCopy, NodeId, ResultSpec, Stmt, ValueId};
use rustc_hash::{FxHashMap, FxHashSet};
use smallvec::SmallVec;

struct Emitter<'g> {
    graph: &'g Graph,
    builder: GraphBuilder,
    copy: GraphCopy<'g>,
    /// The nodes that run once more, and have not yet.
    pending: FxHashSet<NodeId>,
    /// The values that are computed again.
    replaced: FxHashSet<ValueId>,
    /// By value: the value after its barrier.
    barriers: FxHashMap<ValueId, ValueId>,
}

/// The program in which `again` run once more after the statement `at`, and how many of them do.
///
/// # Errors
/// The graph is not valid.
pub(super) fn emit(
    original: &FunctionalGraph,
    at: usize,
    again: &[NodeId],
) -> Result<(FunctionalGraph, usize), Reason> {
    let graph = &original.graph;
    let mut pending: FxHashSet<NodeId> = FxHashSet::default();
    for &node in again {
        // A view of what is kept needs no second one.
        let is_needed = match FunctionalOp::of(graph, node) {
            Ok(FunctionalOp::View { base, .. } | FunctionalOp::Barrier { operand: base }) => {
                graph.producer(base).is_some_and(|base| pending.contains(&base))
            }
            _ => true,
        };
        if is_needed {
            pending.insert(node);
        }
    }
    let mut returned: FxHashSet<ValueId> = FxHashSet::default();
    for output in graph.outputs() {
        graph.for_each_leaf(*output, &mut |leaf| {
            if let Arg::Value(v) = leaf {
                returned.insert(v);
            }
        });
    }
    let replaced = pending.iter().flat_map(|node| graph.result_values(*node));
    let replaced = replaced.filter(|v| !returned.contains(v)).collect();
    let count = pending.len();
    let mut builder = GraphBuilder::new(graph.name());
    builder.reserve(graph.node_count() + 2 * count);
    let copy = GraphCopy::new(graph, &mut builder);
    let barriers = FxHashMap::default();
    let mut emitter = Emitter { graph, builder, copy, pending, replaced, barriers };
    let mut unknown_strides = Vec::new();
    for (statement, stmt) in graph.body().iter().enumerate() {
        match *stmt {
            Stmt::Node(node) => {
                if statement > at {
                    emitter.compute_operands(node)?;
                }
                let made = emitter.copy.node(&mut emitter.builder, node).ok_or_else(undefined)?;
                if original.unknown_strides.binary_search(&node).is_ok() {
                    unknown_strides.push(made);
                }
            }
            Stmt::Bind { symbol, value, source } => {
                let value = emitter.copy.value(value).ok_or_else(undefined)?;
                emitter.builder.bind(symbol, value, source);
            }
            Stmt::Assert { cond, message } => {
                let message = message.map(|m| graph.str(m));
                emitter.builder.assert_(cond, message, graph.stmt_loc(statement));
            }
        }
    }
    let Emitter { mut builder, copy, .. } = emitter;
    let outputs = copy.outputs(&mut builder).ok_or_else(undefined)?;
    let graph = builder.finish(graph.symbols(), &outputs).map_err(Reason::from)?;
    Ok((FunctionalGraph { graph, unknown_strides, ..original.clone() }, count))
}

/// A statement of the graph reads a value before its definition.
fn undefined() -> Reason {
    Reason::Internal("a statement reads a value that nothing defines")
}

impl Emitter<'_> {
    /// The nodes that have to run once more before a node can run.
    fn missing(&self, node: NodeId) -> SmallVec<[NodeId; 4]> {
        let mut missing = SmallVec::new();
        self.graph.for_each_operand(node, |v| {
            if self.replaced.contains(&v)
                && let Some(producer) = self.graph.producer(v)
                && self.pending.contains(&producer)
            {
                missing.push(producer);
            }
        });
        missing
    }

    /// Computes the operands of a node again that are not kept.
    fn compute_operands(&mut self, node: NodeId) -> Result<(), Reason> {
        let mut stack = self.missing(node);
        while let Some(&node) = stack.last() {
            let missing = self.missing(node);
            if missing.is_empty() {
                stack.pop();
                if self.pending.remove(&node) {
                    self.compute_again(node)?;
                }
            }
            stack.extend(missing);
        }
        Ok(())
    }

    /// Runs a node once more, on operands after barriers.
    fn compute_again(&mut self, node: NodeId) -> Result<(), Reason> {
        let mut kept: SmallVec<[(ValueId, ValueId); 4]> = SmallVec::new();
        let is_kept = |v: &ValueId| !self.replaced.contains(v);
        self.graph.for_each_operand(node, |v| {
            if self.graph.producer(v).is_some()
                && self.graph.tensor_type(v).is_some()
                && is_kept(&v)
            {
                kept.extend(self.copy.value(v).map(|value| (v, value)));
            }
        });
        let operands = kept.len();
        for result in self.graph.result_values(node).filter(is_kept) {
            kept.extend(self.copy.value(result).map(|value| (result, value)));
        }
        for &(v, value) in kept.iter().take(operands) {
            let barrier = self.barrier(v, value)?;
            self.copy.set(v, barrier);
        }
        self.copy.node(&mut self.builder, node).ok_or_else(undefined)?;
        kept.into_iter().for_each(|(v, value)| self.copy.set(v, value));
        Ok(())
    }

    /// The value after the barrier of a kept value.
    fn barrier(&mut self, v: ValueId, value: ValueId) -> Result<ValueId, Reason> {
        if let Some(known) = self.barriers.get(&v) {
            return Ok(*known);
        }
        let op = self.builder.intern(BARRIER);
        let ty = self.copy.type_of(&mut self.builder, v);
        let (args, info) = ([Arg::Value(value)], self.graph.producer_info(v));
        let created = self.builder.node(op, &args, &[], &[ResultSpec::Value(ty)], info);
        let barrier = created.values.iter().next().ok_or_else(undefined)?;
        self.barriers.insert(v, barrier);
        Ok(barrier)
    }
}
