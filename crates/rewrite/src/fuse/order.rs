//! The order of what can be told apart: effects, random numbers, errors, and writes to memory that
//! the caller sees.
//!
//! **Rule.** No ordered operator, assertion or binding stands between two members of a region,
//! unless it is a member, too. Only builtin operators that may fail can be one. So the errors of a
//! region come neither before nor after those of others.
//!
//! A custom operator with an effect may stand between two members, if the effect does not touch
//! them: it needs no value of the region, no member may fail, and the program writes to no memory
//! of the caller. Nobody can tell then whether the region runs before or after the effect. The
//! effect keeps its place among all that is ordered: a region is given up if an effect would have
//! to wait for it.
//!
//! A region runs where its last node stood, so one that may fail does so later than its first
//! operator that may, and what reads an earlier operator's result waits for it. If the program
//! writes to memory of the caller, nothing else is computed between the first and the last node,
//! for the planner may place any value there. And no result of the region is placed there: the
//! kernel may have written a part of it when it fails.
//!
//! **Cost.** Linear in the members: numbers of nodes are counted once.

use super::groups::Groups;
use super::position::{any_user, is_stored};
use maquette_ir::functional_ops::{Callee, FunctionalOp, is_functional_op};
use maquette_ir::functional_program::FunctionalGraph;
use maquette_ir::fused::{Fusible, FusionClass, Gain, NoFusionReason, Refusal};
use maquette_ir::graph::{Graph, NodeId, ValueId};
use std::cmp::Reverse;

/// How often the edges are tried again that are apart for what stands between.
const MAX_PASSES: usize = 3;

/// What has to keep its place.
pub(super) struct Order {
    /// By node: the number of ordered nodes, assertions and bindings up to it.
    intervals: Vec<u32>,
    /// By node: the number of effects up to it that may stand between members of a region.
    effects: Vec<u32>,
    /// By node: the number of nodes up to it that compute something.
    computed: Vec<u32>,
    /// By node: whether it can be fused and may fail.
    may_fail: Vec<bool>,
    /// The statements that are counted so far.
    so_far: Counts,
    /// Whether the program writes to memory of the caller.
    writes: bool,
}

/// The number of ordered statements, of effects among them, and of nodes that compute something.
#[derive(Clone, Copy, Default)]
struct Counts {
    ordered: u32,
    effects: u32,
    computed: u32,
}

impl Order {
    pub fn of(program: &FunctionalGraph) -> Order {
        let (intervals, effects, computed, may_fail) = Default::default();
        let writes = !program.mutations.is_empty();
        Order { intervals, effects, computed, may_fail, so_far: Counts::default(), writes }
    }

    /// Counts an assertion or a binding.
    pub fn add_statement(&mut self) {
        self.so_far.ordered += 1;
    }

    /// Counts the next node, and whether it can be in a region.
    pub fn add(
        &mut self,
        graph: &Graph,
        node: NodeId,
        class: Result<Fusible, NoFusionReason>,
        is_fused: bool,
    ) {
        let op = FunctionalOp::of(graph, node);
        let computes = !matches!(op, Ok(FunctionalOp::View { .. } | FunctionalOp::Empty));
        self.so_far.ordered += u32::from(is_ordered(graph, node, class));
        self.so_far.effects += u32::from(is_effect(graph, node));
        self.so_far.computed += u32::from(computes);
        self.intervals.push(self.so_far.ordered);
        self.effects.push(self.so_far.effects);
        self.computed.push(self.so_far.computed);
        self.may_fail.push(is_fused && class.is_ok_and(|fusible| fusible.may_fail));
    }

    /// Fails if something that is ordered stands between two nodes of some groups, and is in none.
    /// Returns whether effects stand there that do not matter if they touch none of the nodes.
    fn has_effects(&self, groups: &[&[NodeId]]) -> Result<bool, NoFusionReason> {
        let nodes = || groups.iter().copied().flatten().copied();
        let (Some(first), Some(last)) = (nodes().min(), nodes().max()) else { return Ok(false) };
        let between = |counts: &[u32]| (counts[last.index()] - counts[first.index()]) as usize;
        let own = nodes().filter(|n| *n != first && self.may_fail(*n)).count();
        let (all, effects) = (between(&self.intervals), between(&self.effects));
        if all == own {
            Ok(false)
        } else if all == effects && !self.writes && !nodes().any(|n| self.may_fail(n)) {
            Ok(true)
        } else {
            Err(NoFusionReason::Effect)
        }
    }

    fn may_fail(&self, node: NodeId) -> bool {
        self.may_fail.get(node.index()).copied().unwrap_or(false)
    }

    /// Those of some nodes that may fail.
    pub fn failing(&self, nodes: &[NodeId]) -> impl Iterator<Item = NodeId> {
        nodes.iter().copied().filter(|n| self.may_fail(*n))
    }

    /// Whether something outside of a set of nodes, which are in program order, is computed between
    /// the first and the last of them.
    fn has_others(&self, nodes: &[NodeId]) -> bool {
        let [first, rest @ ..] = nodes else { return false };
        let computed = |n: &NodeId| self.computed[n.index()];
        let own = rest.iter().filter(|n| computed(n) > self.computed[n.index() - 1]).count();
        rest.last().is_some_and(|last| (computed(last) - computed(first)) as usize > own)
    }
}

impl Groups<'_> {
    /// Fails if what is ordered keeps two groups apart.
    pub(super) fn check_order(&self, groups: [&[NodeId]; 2]) -> Result<(), NoFusionReason> {
        if !self.order.has_effects(&groups)? {
            return Ok(());
        }
        let mut nodes: Vec<NodeId> = groups.into_iter().flatten().copied().collect();
        nodes.sort_unstable();
        let (Some(first), Some(last)) = (nodes.first(), nodes.last()) else { return Ok(()) };
        let between = self.graph.nodes().skip(first.index()).take(last.index() - first.index());
        let mut stack: Vec<NodeId> = Vec::new();
        for effect in between.filter(|n| is_effect(self.graph, *n)) {
            self.edges.for_each_producer(effect, |_, producer| stack.push(producer));
        }
        match self.reaches(&nodes, stack) {
            Ok(false) => Ok(()),
            Ok(true) | Err(_) => Err(NoFusionReason::Effect),
        }
    }

    /// Joins what operators that may fail have kept apart, and that are in a group with one of them
    /// now, as the embeddings that are added one after another.
    pub(super) fn join_in_order(&mut self) {
        for _ in 0..MAX_PASSES {
            let is_late = |r: &Refusal| r.reason == NoFusionReason::Effect;
            let (mut late, refused): (Vec<Refusal>, _) =
                std::mem::take(&mut self.refused).into_iter().partition(is_late);
            self.refused = refused;
            // The nearest first: with it, the next has nothing between.
            late.sort_by_key(|r| Reverse(r.producer));
            let count = late.len();
            for Refusal { producer, consumer, .. } in late {
                if let Err(reason) = self.join(producer, consumer) {
                    self.refused.push(Refusal { producer, consumer, reason });
                }
            }
            let is_late = |r: &&Refusal| r.reason == NoFusionReason::Effect;
            if self.refused.iter().filter(is_late).count() == count {
                break;
            }
        }
    }

    /// Those of the nodes of a group that would be faster alone.
    pub(super) fn faster_alone(&self, nodes: &[NodeId]) -> Vec<NodeId> {
        let fusible = |n: &NodeId| self.classes.get(n.index())?.ok();
        let is_fold = |n: &NodeId| {
            let by_rows = |f: Fusible| matches!(f.class, FusionClass::Rows { .. }) && !f.may_fail;
            fusible(n).is_some_and(by_rows)
        };
        let needs_fold = |n: &&NodeId| fusible(n).is_some_and(|f| f.gain == Gain::WithFold);
        match nodes.iter().any(is_fold) {
            true => Vec::new(),
            false => nodes.iter().filter(needs_fold).copied().collect(),
        }
    }

    /// Fails if a set of nodes may fail, and would leave other memory of the caller behind then
    /// than the nodes one by one.
    pub(super) fn find_failure(&self, nodes: &[NodeId]) -> Result<(), NoFusionReason> {
        if !self.order.writes || self.order.failing(nodes).next().is_none() {
            return Ok(());
        }
        let is_update = nodes.iter().any(|n| self.overwrites.updates.contains_key(n));
        let is_placed =
            || self.edges.results(nodes).into_iter().any(|v| may_be_placed(self.graph, v));
        match self.order.has_others(nodes) || is_update || is_placed() {
            true => Err(NoFusionReason::Assert),
            false => Ok(()),
        }
    }
}

/// Whether the planner may give a value memory of the caller: it is stored there, or written by a
/// call whose result is.
fn may_be_placed(graph: &Graph, v: ValueId) -> bool {
    is_stored(graph, v)
        || any_user(
            graph,
            v,
            &mut |_, op| matches!(op, Some(FunctionalOp::Call(callee)) if callee.mutates),
        )
}

/// Whether a node is a custom operator with an effect, which may stand between the members of a
/// region. Builtin operators with effects are assertions.
fn is_effect(graph: &Graph, node: NodeId) -> bool {
    let is_call = |op| matches!(op, FunctionalOp::Call(callee) if !is_functional_op(callee.op));
    graph.has_effect(node)
        && graph.bound_schema(Callee::of(graph, node).id).is_some()
        && FunctionalOp::of(graph, node).is_ok_and(is_call)
}

/// Whether a node has to keep its place: its effect, its random numbers or its error would come at
/// another time than that of its neighbours, and after other writes.
fn is_ordered(graph: &Graph, node: NodeId, class: Result<Fusible, NoFusionReason>) -> bool {
    use NoFusionReason::{Assert, Effect, Opaque, Overridden, SizeFromData};
    match FunctionalOp::of(graph, node) {
        Ok(
            FunctionalOp::View { .. }
            | FunctionalOp::Scatter { .. }
            | FunctionalOp::Strided { .. }
            | FunctionalOp::Barrier { .. }
            | FunctionalOp::Empty,
        ) => graph.has_effect(node),
        _ => match class {
            Ok(fusible) => fusible.may_fail,
            Err(reason) => {
                matches!(reason, Assert | Effect | Opaque | Overridden | SizeFromData)
            }
        },
    }
}
