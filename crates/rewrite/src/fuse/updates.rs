//! The results of a region that can be written over its operands, and the inputs that it updates.
//!
//! A kernel that follows a product reads the elements of an operand where it writes those of a
//! result, one rectangle of the product after another. So a result may be written over an operand
//! if only elementwise operators read the operand, at the positions of the result, and none of them
//! later than the result. In a step of training these are a weight and its moments.

use super::groups::Groups;
use crate::overwrites::viewed;
use maquette_ir::fault_injection::{Fault, fault_injected};
use maquette_ir::fused::{FusionKind, NoFusionReason};
use maquette_ir::graph::{NodeId, ValueId};

impl Groups<'_> {
    /// Fails if a kernel that is not elementwise would update an input: compute its new value from
    /// the old one, or from what a producer computes of the old one. Such a kernel can write over
    /// few operands, so the plan would copy. Left apart, the update is an elementwise kernel in
    /// place.
    pub(super) fn find_update(
        &self,
        kind: FusionKind,
        nodes: &[NodeId],
    ) -> Result<(), NoFusionReason> {
        let updated = |n: &NodeId| Some((*n, *self.overwrites.updates.get(n)?));
        let mut updates = nodes.iter().filter_map(updated).peekable();
        if kind == FusionKind::Elements || updates.peek().is_none() {
            return Ok(());
        }
        let (operands, results) = (self.edges.operands(nodes), self.edges.results(nodes));
        let pairs = self.overwrites_of(kind, nodes, &operands, &results);
        let copies = |(update, target): (NodeId, ValueId)| {
            let is_of = |v: ValueId| viewed(self.graph, v) == target;
            let producer = |j: usize| results.get(j).and_then(|r| self.graph.producer(*r));
            let is_over =
                |k: usize| pairs.iter().any(|p| p.0 == k && producer(p.1) == Some(update));
            operands.iter().enumerate().any(|(k, &v)| {
                if v == target && is_over(k) {
                    return false;
                }
                let mut found = is_of(v);
                if let Some(producer) = self.graph.producer(viewed(self.graph, v)) {
                    self.graph.for_each_operand(producer, |v| found |= is_of(v));
                }
                found
            })
        };
        if updates.any(copies) { Err(NoFusionReason::Written) } else { Ok(()) }
    }

    /// The pairs of [`FusedRegion::overwrites`](maquette_ir::fused::FusedRegion::overwrites).
    pub(super) fn overwrites_of(
        &self,
        kind: FusionKind,
        nodes: &[NodeId],
        operands: &[ValueId],
        results: &[ValueId],
    ) -> Vec<(usize, usize)> {
        let mut pairs = Vec::new();
        if !kind.is_contraction() {
            return pairs;
        }
        for (j, &result) in results.iter().enumerate() {
            let Some(last) = self.graph.producer(result).filter(|n| self.is_elementwise(*n)) else {
                continue;
            };
            let written = self.graph.tensor_type(result);
            for (k, &operand) in operands.iter().enumerate() {
                let read = self.graph.tensor_type(operand);
                let fits = read
                    .zip(written)
                    .is_some_and(|(from, to)| (&from.sizes, from.dtype) == (&to.sizes, to.dtype));
                let mut readers = nodes.iter().filter(|n| self.reads(**n, operand));
                let is_ignored = |n: NodeId| match self.is_contraction(n) {
                    true => fault_injected(Fault::FactorsOverwritten),
                    false => fault_injected(Fault::OverwrittenAndRead),
                };
                if fits && readers.all(|n| self.is_only_for(*n, last, nodes) || is_ignored(*n)) {
                    pairs.push((k, j));
                }
            }
        }
        pairs
    }

    fn reads(&self, node: NodeId, v: ValueId) -> bool {
        let mut found = false;
        self.graph.for_each_operand(node, |operand| found |= operand == v);
        found
    }

    /// Whether an elementwise node computes a value for `last` alone, through nodes of a region.
    fn is_only_for(&self, mut node: NodeId, last: NodeId, nodes: &[NodeId]) -> bool {
        while node != last {
            let mut results = self.graph.result_values(node);
            let (Some(result), None) = (results.next(), results.next()) else { return false };
            let [user] = self.graph.users(result) else { return false };
            let is_inside = nodes.binary_search(user).is_ok() && self.is_elementwise(*user);
            if !self.is_elementwise(node) || self.edges.is_returned(result) || !is_inside {
                return false;
            }
            node = *user;
        }
        self.is_elementwise(node)
    }
}
