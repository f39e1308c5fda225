//! Where a region stands.
//!
//! **Problem.** A region can stand where its last node stood, as all of its operands are computed
//! there. But then it keeps them until there. In a step of training, the gradient of a weight is a
//! product of two large tensors, and what the optimizer does with the small result comes at the
//! end, in one kernel with the product: all activations would be kept until the end.
//!
//! **Rule.** A region stands as early as its operands allow, if the operands that nothing reads
//! later have more bytes than its results. A region that can be written over its operands stands
//! after what else reads these operands, too: so it still overwrites what nothing reads any more.
//! Other regions that write to inputs stay where they are, since operators may read the old values
//! before.
//!
//! **Cost.** Linear in the number of nodes and operands.

use super::edges::Edges;
use crate::overwrites::{Overwrites, viewed};
use maquette_ir::copy_cost::approximate_numel;
use maquette_ir::functional_ops::FunctionalOp;
use maquette_ir::fused::FusedRegion;
use maquette_ir::graph::{Graph, NodeId, ValueId};
use rustc_hash::{FxHashMap, FxHashSet};

/// The most views of a value whose users are looked at.
const MAX_VIEWS: usize = 64;

/// By region: the node after which it stands, as soon as its operands are computed. `region_of`
/// has the region of each node.
pub(super) fn positions(
    edges: &Edges<'_>,
    regions: &[FusedRegion],
    region_of: &[Option<usize>],
    overwrites: &Overwrites,
) -> Vec<Option<NodeId>> {
    let anchors = Anchors::of(edges.graph, regions, region_of);
    let position = |(index, region): (usize, &FusedRegion)| {
        let last = region.nodes.last().copied();
        let is_stored = region.results.iter().any(|v| is_stored(edges.graph, *v));
        let is_update = region.nodes.iter().any(|node| overwrites.updates.contains_key(node));
        match region.overwrites.is_empty() {
            // Its error must not come before what stands between its nodes.
            _ if is_stored || region.may_fail => last,
            false => anchors.anchor(index),
            true if is_update => last,
            true => earliest(edges, region),
        }
    };
    regions.iter().enumerate().map(position).collect()
}

/// The first node of a region, if its operands take more memory than its results, or else the last.
fn earliest(edges: &Edges<'_>, region: &FusedRegion) -> Option<NodeId> {
    let graph = edges.graph;
    let (first, last) = (*region.nodes.first()?, *region.nodes.last()?);
    let mut roots: FxHashSet<ValueId> = FxHashSet::default();
    let mut freed = 0u64;
    for &operand in &region.operands {
        let root = viewed(graph, operand);
        let is_new = roots.insert(root);
        if is_new
            && graph.producer(root).is_some()
            && !edges.is_returned(root)
            && !is_read_from(graph, root, last, region)
        {
            freed = freed.saturating_add(bytes(graph, root));
        }
    }
    let made = region.results.iter().fold(0u64, |sum, v| sum.saturating_add(bytes(graph, *v)));
    Some(if made < freed { first } else { last })
}

/// The anchors of regions that can be written over operands.
struct Anchors<'g> {
    graph: &'g Graph,
    regions: &'g [FusedRegion],
    region_of: &'g [Option<usize>],
    /// By value of which an operand that may be overwritten is a view: what reads it.
    readers: FxHashMap<ValueId, Vec<NodeId>>,
}

/// The operands over which a region can be written.
fn overwritten(region: &FusedRegion) -> impl Iterator<Item = ValueId> + '_ {
    region.overwrites.iter().filter_map(|(k, _)| region.operands.get(*k).copied())
}

impl<'g> Anchors<'g> {
    fn of(
        graph: &'g Graph,
        regions: &'g [FusedRegion],
        region_of: &'g [Option<usize>],
    ) -> Anchors<'g> {
        let written = regions.iter().flat_map(overwritten);
        let mut readers: FxHashMap<ValueId, Vec<NodeId>> =
            written.map(|v| (viewed(graph, v), Vec::new())).collect();
        if !readers.is_empty() {
            for node in graph.nodes() {
                graph.for_each_operand(node, |v| {
                    if let Some(readers) = readers.get_mut(&viewed(graph, v)) {
                        readers.push(node);
                    }
                });
            }
        }
        Anchors { graph, regions, region_of, readers }
    }

    fn region(&self, node: NodeId) -> Option<usize> {
        self.region_of.get(node.index()).copied().flatten()
    }

    /// The node after which other regions, too, have computed what a node computes.
    fn done(&self, node: NodeId) -> NodeId {
        let region = self.region(node).and_then(|r| self.regions.get(r));
        region.and_then(|r| r.nodes.last().copied()).unwrap_or(node)
    }

    /// The node after a region's first one, what computes its operands, and what else reads those
    /// over which it can be written, but not after its last one.
    fn anchor(&self, index: usize) -> Option<NodeId> {
        let region = self.regions.get(index)?;
        let (first, last) = (*region.nodes.first()?, *region.nodes.last()?);
        let producers = region.operands.iter().filter_map(|v| self.graph.producer(*v));
        let root = |v| viewed(self.graph, v);
        let readers = overwritten(region).filter_map(|v| self.readers.get(&root(v))).flatten();
        let others = producers.chain(readers.copied()).filter(|n| self.region(*n) != Some(index));
        Some(others.map(|n| self.done(n)).fold(first, NodeId::max).min(last))
    }
}

pub(super) fn bytes(graph: &Graph, v: ValueId) -> u64 {
    let ty = graph.tensor_type(v);
    ty.map_or(0, |ty| approximate_numel(&ty.sizes).saturating_mul(ty.dtype.size() as u64))
}

/// Whether a value, or a view of it, is stored in another one.
pub(super) fn is_stored(graph: &Graph, v: ValueId) -> bool {
    any_user(graph, v, &mut |_, op| {
        matches!(op, Some(FunctionalOp::Scatter { .. } | FunctionalOp::Strided { .. }))
    })
}

/// Whether anything outside of a region reads a value, or a view of it, at `from` or later.
fn is_read_from(graph: &Graph, v: ValueId, from: NodeId, region: &FusedRegion) -> bool {
    any_user(graph, v, &mut |user, _| user >= from && region.nodes.binary_search(&user).is_err())
}

/// Whether a condition holds for a user of a value, or of a view of it. Of too many views it does.
pub(super) fn any_user(
    graph: &Graph,
    v: ValueId,
    holds: &mut dyn FnMut(NodeId, Option<FunctionalOp<'_>>) -> bool,
) -> bool {
    let mut pending = vec![v];
    let mut visited = 0;
    while let Some(v) = pending.pop() {
        visited += 1;
        if visited > MAX_VIEWS {
            return true;
        }
        for &user in graph.users(v) {
            let op = FunctionalOp::of(graph, user).ok();
            match op {
                Some(FunctionalOp::View { .. } | FunctionalOp::Barrier { .. }) => {
                    pending.extend(graph.result_values(user));
                }
                _ if holds(user, op) => return true,
                _ => {}
            }
        }
    }
    false
}
