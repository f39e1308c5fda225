//! What keeps a set of operators apart: writes between them, and paths that leave the set.

use super::groups::Groups;
use crate::overwrites::viewed;
use maquette_ir::fused::NoFusionReason;
use maquette_ir::graph::{NodeId, ValueId};
use rustc_hash::FxHashSet;

/// The most groups that a search for a cycle visits.
const MAX_VISITS: usize = 256;

impl Groups<'_> {
    /// Fails if the memory of an operand of a set of nodes may hold another value when the last of
    /// them runs: the operand would have to be copied.
    pub(super) fn find_overwrite(&self, nodes: &[NodeId]) -> Result<(), NoFusionReason> {
        let (Some(first), Some(last)) = (nodes.first(), nodes.last()) else { return Ok(()) };
        let is_between = |n: &NodeId| first < n && n < last && nodes.binary_search(n).is_err();
        let is_overwritten = |v: ValueId| {
            let overwrites = self.overwrites.nodes.get(&viewed(self.graph, v));
            overwrites.is_some_and(|nodes| nodes.iter().any(is_between))
        };
        match self.edges.operands(nodes).into_iter().any(is_overwritten) {
            true => Err(NoFusionReason::Written),
            false => Ok(()),
        }
    }

    /// Fails if a path of the graph leaves a set of operators and comes back to it.
    pub(super) fn find_cycle(&self, nodes: &[NodeId]) -> Result<(), NoFusionReason> {
        let is_in = |n: &NodeId| nodes.binary_search(n).is_ok();
        let mut stack = Vec::new();
        for node in nodes {
            self.edges.for_each_producer(*node, |_, producer| stack.push(producer));
        }
        stack.retain(|n| !is_in(n));
        match self.reaches(nodes, stack)? {
            true => Err(NoFusionReason::Cycle),
            false => Ok(()),
        }
    }

    /// Whether what some nodes depend on, those included, is in a set of nodes, by paths through
    /// groups too.
    ///
    /// # Errors
    /// There are too many paths.
    pub(super) fn reaches(
        &self,
        nodes: &[NodeId],
        mut stack: Vec<NodeId>,
    ) -> Result<bool, NoFusionReason> {
        let Some(first) = nodes.first() else { return Ok(false) };
        let is_in = |n: &NodeId| nodes.binary_search(n).is_ok();
        let mut seen = FxHashSet::default();
        let expand = |n: NodeId, stack: &mut Vec<NodeId>| {
            self.edges.for_each_producer(n, |_, producer| stack.push(producer));
        };
        let mut visits = 0;
        while let Some(node) = stack.pop() {
            if is_in(&node) {
                return Ok(true);
            }
            let group = self.group(node);
            let members = group.map_or(std::slice::from_ref(&node), |(_, g)| &g.nodes);
            // A node depends on those before it. That may miss a cycle through a group with a
            // member before the node and one after it: then the graph cannot be built.
            if members.last().is_none_or(|last| last < first) {
                continue;
            }
            let key = group.map_or(node.index() as u64, |(id, _)| u64::from(id) | 1 << 32);
            if !seen.insert(key) {
                continue;
            }
            visits += 1;
            if visits > MAX_VISITS {
                return Err(NoFusionReason::Limits);
            }
            members.iter().for_each(|n| expand(*n, &mut stack));
        }
        Ok(false)
    }
}
