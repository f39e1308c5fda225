//! Where a region stands among its own nodes.
//!
//! **Problem.** A region can stand where its last node stood, as all of its operands are computed
//! there. But then it keeps them until there. In a step of training, the gradient of a weight is a
//! product of two large tensors, and what the optimizer does with the small result comes at the end,
//! in one kernel with the product: all activations would be kept until the end.
//!
//! **Rule.** A region stands as early as its operands allow, if the operands that nothing reads later
//! have more bytes than its results. Regions that write to inputs stay where they are, since other
//! operators may read the old values before.

use super::edges::Edges;
use crate::overwrites::{Overwrites, viewed};
use maquette_ir::copy_cost::approximate_numel;
use maquette_ir::functional_ops::FunctionalOp;
use maquette_ir::fused::FusedRegion;
use maquette_ir::graph::{Graph, NodeId, ValueId};
use rustc_hash::FxHashSet;

/// The most views of a value whose users are looked at.
const MAX_VIEWS: usize = 64;

/// The node in whose place a region stands, or after it, as soon as its operands are computed.
pub(super) fn position(
    edges: &Edges<'_>,
    region: &FusedRegion,
    overwrites: &Overwrites,
) -> Option<NodeId> {
    let graph = edges.graph;
    let (first, last) = (*region.nodes.first()?, *region.nodes.last()?);
    let writes_input = region.nodes.iter().any(|node| overwrites.updates.contains_key(node))
        || region.results.iter().any(|v| is_stored(graph, *v));
    if writes_input {
        return Some(last);
    }
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

fn bytes(graph: &Graph, v: ValueId) -> u64 {
    let ty = graph.tensor_type(v);
    ty.map_or(0, |ty| approximate_numel(&ty.sizes).saturating_mul(ty.dtype.size() as u64))
}

/// Whether a value, or a view of it, is stored in another one.
fn is_stored(graph: &Graph, v: ValueId) -> bool {
    any_user(graph, v, &mut |_, op| {
        matches!(op, Some(FunctionalOp::Scatter { .. } | FunctionalOp::Strided { .. }))
    })
}

/// Whether anything outside of a region reads a value, or a view of it, at `from` or later.
fn is_read_from(graph: &Graph, v: ValueId, from: NodeId, region: &FusedRegion) -> bool {
    any_user(graph, v, &mut |user, _| user >= from && region.nodes.binary_search(&user).is_err())
}

/// Whether a condition holds for a user of a value, or of a view of it. Of too many views it does.
fn any_user(
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
