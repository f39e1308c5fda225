//! What may run once more after a statement, and what that costs.

use super::Rematerialization;
use super::lifetimes::Lifetimes;
use crate::overwrites::{overwrites, viewed};
use maquette_ir::copy_cost::approximate_numel;
use maquette_ir::fault_injection::{Fault, fault_injected};
use maquette_ir::functional_ops::FunctionalOp;
use maquette_ir::functional_program::FunctionalGraph;
use maquette_ir::graph::{Graph, NodeId, OpFacts, Recomputation, Stmt, ValueId};
use rustc_hash::{FxHashMap, FxHashSet};

/// How much more an expensive operator costs than the transfer of its operands and results.
const EXPENSIVE: u64 = 64;

/// The most bytes that count, so that sums of costs stay in range.
const MAX_BYTES: u64 = 1 << 56;

/// The operators before a statement that may run once more after it.
pub(super) struct Candidates<'a> {
    graph: &'a Graph,
    lifetimes: &'a Lifetimes,
    at: usize,
    /// By value that is defined by then: the last statement for which it may be computed again.
    needed_until: Vec<usize>,
    /// By value: the first statement after which its memory may hold another one.
    overwritten: FxHashMap<ValueId, usize>,
    /// By node: its cost in bytes of traffic; `None` if it must not run once more.
    costs: Vec<Option<u64>>,
}

impl<'a> Candidates<'a> {
    pub fn new(
        program: &'a FunctionalGraph,
        facts: &dyn OpFacts,
        options: &Rematerialization,
        lifetimes: &'a Lifetimes,
        at: usize,
    ) -> Candidates<'a> {
        let graph = &program.graph;
        let statement = |node: &NodeId| lifetimes.statements.get(node.index()).copied();
        let overwritten = overwrites(program).nodes.into_iter();
        let overwritten =
            overwritten.filter_map(|(v, by)| Some((v, by.iter().filter_map(statement).min()?)));
        let mut candidates = Candidates {
            graph,
            lifetimes,
            at,
            needed_until: vec![0; graph.values().len()],
            overwritten: overwritten.collect(),
            costs: vec![None; graph.node_count()],
        };
        candidates.find_needs();
        let bound = graph.body().iter().filter_map(|stmt| match *stmt {
            Stmt::Bind { value, .. } => Some(value),
            Stmt::Node(_) | Stmt::Assert { .. } => None,
        });
        let bound: FxHashSet<ValueId> = bound.collect();
        for node in graph.nodes().take_while(|n| statement(n) <= Some(at)) {
            let is_fixed = program.unknown_strides.binary_search(&node).is_ok()
                || graph.result_values(node).any(|v| bound.contains(&v));
            if !is_fixed && candidates.reads_what_stays(node) {
                candidates.costs[node.index()] = candidates.cost_of(node, facts, options);
            }
        }
        candidates
    }

    /// Finds until when each value may be read, if everything after the statement is computed
    /// again.
    fn find_needs(&mut self) {
        for v in self.graph.values().rev() {
            let mut until = 0;
            for user in self.graph.users(v) {
                let statement = self.lifetimes.statements[user.index()];
                until = until.max(match statement > self.at {
                    true => statement,
                    false => self.needed_until(*user),
                });
            }
            self.needed_until[v.index()] = until;
        }
    }

    /// The last statement for which a node may run once more.
    fn needed_until(&self, node: NodeId) -> usize {
        let until = |v: ValueId| self.needed_until[v.index()];
        self.graph.result_values(node).map(until).max().unwrap_or_default()
    }

    /// Whether the memory of a value still holds it at a statement.
    fn holds_until(&self, v: ValueId, statement: usize) -> bool {
        let overwritten = self.overwritten.get(&viewed(self.graph, v));
        overwritten.is_none_or(|by| statement <= *by)
    }

    /// Whether all operands of a node are in memory for as long as it may run once more. A read of
    /// one that is overwritten by then, such as of a parameter that is updated in place, would make
    /// the plan copy it.
    fn reads_what_stays(&self, node: NodeId) -> bool {
        let until = self.needed_until(node);
        let mut stays = true;
        self.graph.for_each_operand(node, |v| stays &= self.holds_until(v, until));
        stays
    }

    fn cost_of(
        &self,
        node: NodeId,
        facts: &dyn OpFacts,
        options: &Rematerialization,
    ) -> Option<u64> {
        let graph = self.graph;
        if graph.has_effect(node) && !fault_injected(Fault::RandomNumbersDrawnTwice) {
            return None;
        }
        let callee = match FunctionalOp::of(graph, node).ok()? {
            FunctionalOp::View { .. } | FunctionalOp::Barrier { .. } => return Some(0),
            FunctionalOp::Call(callee) if !callee.mutates => callee,
            _ => return None,
        };
        let draws_again =
            facts.uses_rng(callee.op) && fault_injected(Fault::RandomNumbersDrawnTwice);
        if facts.has_effect(callee.op) || facts.uses_rng(callee.op) && !draws_again {
            return None;
        }
        let factor = match facts.recomputation(callee.op) {
            Recomputation::Never if !draws_again => return None,
            Recomputation::Cheap | Recomputation::Never => 1,
            Recomputation::Expensive if options.expensive => EXPENSIVE,
            Recomputation::Expensive => return None,
        };
        let mut results = graph.result_values(node);
        if results.any(|v| graph.tensor_type(v).is_none()) {
            return None;
        }
        let mut operands = Vec::new();
        graph.for_each_operand(node, |v| operands.push(v));
        // A copy more than the program makes would be against the bound on copies.
        let dtype = |v: Option<ValueId>| v.and_then(|v| graph.tensor_type(v)).map(|ty| ty.dtype);
        let is_copy = dtype(operands.first().copied()) == dtype(graph.result_values(node).next());
        if facts.is_data_movement(callee.op) && is_copy {
            return None;
        }
        let bytes = |v: ValueId| {
            let ty = graph.tensor_type(v);
            ty.map_or(0, |ty| approximate_numel(&ty.sizes).saturating_mul(ty.dtype.size() as u64))
        };
        let touched = operands.into_iter().chain(graph.result_values(node)).map(bytes);
        let traffic = touched.fold(0, u64::saturating_add).saturating_mul(factor).min(MAX_BYTES);
        // Of layers that are alike, the first ones would be kept for the longest time. So they are
        // the cheapest, and a bound is met without all of them.
        let statement = self.lifetimes.statements.get(node.index()).copied()? as u64;
        let later = u128::from(traffic) * u128::from(statement) / (2 * self.at as u128 + 1);
        Some(traffic.saturating_add(u64::try_from(later).unwrap_or(MAX_BYTES)))
    }

    /// The cost of a node in bytes of traffic; `None` if it must not run once more.
    pub fn cost(&self, node: NodeId) -> Option<u64> {
        self.costs.get(node.index()).copied().flatten()
    }

    /// The values before the statement that an operator after it reads.
    pub fn needed(&self) -> impl Iterator<Item = ValueId> + '_ {
        let is_later = |user: &NodeId| self.lifetimes.statements[user.index()] > self.at;
        let values = self.graph.values().filter(|v| self.is_before(*v));
        values.filter(move |v| self.graph.users(*v).last().is_some_and(is_later))
    }

    fn is_before(&self, v: ValueId) -> bool {
        let producer = self.graph.producer(v);
        producer.is_none_or(|node| self.lifetimes.statements[node.index()] <= self.at)
    }

    /// The node that computes a value, and the bytes that it takes to keep the value; `None` for
    /// bytes if it is not to be kept. `None` if the value takes no memory of the program.
    pub fn computed(&self, v: ValueId) -> Option<(NodeId, Option<u64>)> {
        let node = self.graph.producer(v)?;
        let bytes = self.lifetimes.bytes(v).min(MAX_BYTES);
        if bytes == 0 {
            return None;
        }
        // What a view takes, the viewed value takes.
        let is_view = self.lifetimes.root(v) != v && self.cost(node).is_some();
        let is_kept = self.lifetimes.last_read(v) > self.at
            || self.holds_until(v, self.needed_until[v.index()]);
        Some((node, (!is_view && is_kept).then_some(bytes)))
    }
}
