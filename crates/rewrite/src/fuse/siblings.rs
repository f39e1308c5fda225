//! Products that share their left factor, as the query, the key and the value of an attention do,
//! or the gate and the value of a gated network.
//!
//! **Problem.** Such products read the same rows, and have no edge between them. Each is a kernel
//! of its own, which waits for its last thread. With few rows, one of them may be too small for
//! several threads, and all of them together are not.
//!
//! **Algorithm.** As the horizontal fusion of XLA, but with no copy of weights: when the groups of
//! producers and consumers are known, a group with a product is joined with the last one before it
//! that has the same left factor. The products may have other numbers of columns. What follows one
//! of them is in the region, too. It may read another one's elements at its position, as the gate
//! of a gated network does.
//!
//! **Invariants** are those of all regions. A region may stand as late as its last node, and what
//! reads its results waits for it. So products are joined only if no value is in memory for longer:
//! nothing reads the result of an earlier one before the last, and its operands that nothing reads
//! later have no more bytes than its results.
//!
//! **Cost.** Linear in the number of products, but for the search for cycles.

use super::groups::{Group, Groups};
use super::position::{any_user, bytes};
use crate::overwrites::viewed;
use maquette_ir::copy_cost::approximate_numel;
use maquette_ir::functional_ops::FunctionalOp;
use maquette_ir::fused::{FusionFacts, FusionKind, NoFusionReason, ProductPair, Refusal};
use maquette_ir::graph::{NodeId, TensorType, ValueId};
use rustc_hash::{FxHashMap, FxHashSet};
use smallvec::SmallVec;

/// The most products of a region.
const MAX_PRODUCTS: usize = 4;

/// The most elements of a product whose sums another one's epilogue reads.
const MAX_IN_STEP: u64 = 256 << 10;

/// The most operators, views apart, that stand between the first and the last node of a region and
/// are not in it.
const MAX_BETWEEN: usize = 16;

/// The most nodes, views included, among which these are counted.
const MAX_SPAN: usize = 256;

impl Groups<'_> {
    /// Joins the groups whose products have the same left factor.
    pub(super) fn join_siblings(&mut self, facts: &dyn FusionFacts) {
        // By left factor: the last product before.
        let mut before: FxHashMap<ValueId, NodeId> = FxHashMap::default();
        for node in self.graph.nodes() {
            let Some(left) = self.left_factor(node).filter(|v| self.is_matrix(*v)) else {
                continue;
            };
            let Some(first) = before.insert(left, node) else { continue };
            if let Err(reason) = self.join_products(first, node, facts) {
                self.apart.push(Refusal { producer: first, consumer: node, reason });
            }
        }
    }

    /// Whether a value is one matrix. Products of several are divided by these.
    fn is_matrix(&self, v: ValueId) -> bool {
        let ty = self.graph.tensor_type(v);
        ty.and_then(|ty| ty.sizes.split_last_chunk::<2>())
            .is_some_and(|(batch, _)| batch.iter().all(|n| n.as_i64() == Some(1)))
    }

    /// The number of products among some nodes.
    pub(super) fn products(&self, nodes: &[NodeId]) -> usize {
        nodes.iter().filter(|node| self.left_factor(**node).is_some()).count()
    }

    /// Joins the groups of two products with the same left factor.
    fn join_products(
        &mut self,
        first: NodeId,
        second: NodeId,
        facts: &dyn FusionFacts,
    ) -> Result<(), NoFusionReason> {
        let (Some((from, a)), Some((to, b))) = (self.group(first), self.group(second)) else {
            return Err(NoFusionReason::OtherRows);
        };
        if from == to {
            return Ok(());
        }
        self.check_order([&a.nodes, &b.nodes])?;
        let joined = self.siblings(a, b)?;
        self.check(&joined)?;
        let region = self.region(&joined);
        // A region with the memory of an operand for a result has to wait for all that reads the
        // operand. So would the other products.
        if !region.overwrites.is_empty() {
            return Err(NoFusionReason::LosesSpecialisation);
        }
        if !facts.has_kernel(self.graph, &region) {
            return Err(NoFusionReason::NoKernel);
        }
        self.joined.push(ProductPair { first, second });
        self.replace(from, to, joined);
        Ok(())
    }

    /// Both groups as one, of which all nodes of `b` that are products stand behind one of `a`.
    fn siblings(&self, a: &Group, b: &Group) -> Result<Group, NoFusionReason> {
        let mut nodes: Vec<NodeId> = a.nodes.iter().chain(&b.nodes).copied().collect();
        nodes.sort_unstable();
        if self.products(&nodes) > MAX_PRODUCTS {
            return Err(NoFusionReason::Limits);
        }
        let rank = |group: &Group| group.sizes.first().map(|sizes| sizes.len());
        if rank(a) != rank(b) {
            return Err(NoFusionReason::OtherRows);
        }
        if !self.are_near(&nodes) {
            return Err(NoFusionReason::TooDistant);
        }
        if self.prolongs_lifetimes(a, &nodes) {
            return Err(NoFusionReason::Lifetimes);
        }
        for &node in &nodes {
            let of = |n: &NodeId| if a.nodes.binary_search(n).is_ok() { a } else { b };
            let own = of(&node);
            let mut outcome = Ok(());
            self.edges.for_each_producer(node, |_, producer| {
                let is_in = |nodes: &[NodeId]| nodes.binary_search(&producer).is_ok();
                if !is_in(&nodes) || is_in(&own.nodes) {
                    return;
                }
                // A product of the other one's result has to wait for all of it.
                if self.left_factor(node).is_some() {
                    outcome = Err(NoFusionReason::LosesSpecialisation);
                } else if !self.has_same_elements(of(&producer), own, producer, node) {
                    outcome = Err(NoFusionReason::OtherRows);
                } else if outcome.is_ok() {
                    outcome = self.may_run_in_step(&nodes);
                }
            });
            outcome?;
        }
        let mut sizes = a.sizes.clone();
        sizes.extend(b.sizes.iter().filter(|s| !a.sizes.contains(s)).cloned());
        Ok(Group { nodes, kind: FusionKind::Product, sizes })
    }

    /// Fails if what follows one of some products cannot read another one: they have other sizes,
    /// or their sums, which are then in memory as a whole, are too large for a near cache.
    fn may_run_in_step(&self, nodes: &[NodeId]) -> Result<(), NoFusionReason> {
        let products = nodes.iter().filter(|node| self.left_factor(**node).is_some());
        let results = products.filter_map(|node| self.graph.result_values(*node).next());
        let types: SmallVec<[&TensorType; 4]> =
            results.filter_map(|v| self.graph.tensor_type(v)).collect();
        let Some((first, others)) = types.split_first() else { return Ok(()) };
        if others.iter().any(|ty| ty.sizes != first.sizes) {
            return Err(NoFusionReason::OtherRows);
        }
        match approximate_numel(&first.sizes) > MAX_IN_STEP {
            true => Err(NoFusionReason::LosesSpecialisation),
            false => Ok(()),
        }
    }

    /// Whether values would be in memory for longer if a group ran at the last of some nodes:
    /// results that something reads before, or more bytes of operands that nothing reads later than
    /// of results.
    fn prolongs_lifetimes(&self, group: &Group, nodes: &[NodeId]) -> bool {
        let (graph, edges) = (self.graph, &self.edges);
        let (Some(&end), Some(&last)) = (group.nodes.last(), nodes.last()) else { return false };
        let own = edges.with_reshapes(&group.nodes);
        let (operands, results) = (edges.operands(&own), edges.results(&own));
        let is_in = |nodes: &[NodeId], n: NodeId| nodes.binary_search(&n).is_ok();
        let is_read_before =
            |v: &ValueId| any_user(graph, *v, &mut |user, _| user < last && !is_in(nodes, user));
        let is_last_read = |v: ValueId| {
            let is_later = &mut |user: NodeId, _: Option<FunctionalOp<'_>>| {
                user > end && !is_in(&group.nodes, user)
            };
            graph.producer(v).is_some() && !edges.is_returned(v) && !any_user(graph, v, is_later)
        };
        let roots: FxHashSet<ValueId> = operands.iter().map(|v| viewed(graph, *v)).collect();
        let sum = |sum: u64, v: ValueId| sum.saturating_add(bytes(graph, v));
        let freed = roots.into_iter().filter(|v| is_last_read(*v)).fold(0, sum);
        let made = results.iter().copied().fold(0, sum);
        freed > made || results.iter().any(is_read_before)
    }

    /// Whether few operators stand between the first and the last of some nodes.
    fn are_near(&self, nodes: &[NodeId]) -> bool {
        let (Some(first), Some(last)) = (nodes.first(), nodes.last()) else { return false };
        let is_other = |n: &NodeId| {
            let op = FunctionalOp::of(self.graph, *n);
            let is_view = matches!(op, Ok(FunctionalOp::View { .. } | FunctionalOp::Empty));
            nodes.binary_search(n).is_err() && !is_view
        };
        let span = last.index() - first.index();
        let between = self.graph.nodes().skip(first.index()).take(span);
        span <= MAX_SPAN && between.filter(is_other).count() <= MAX_BETWEEN
    }
}
