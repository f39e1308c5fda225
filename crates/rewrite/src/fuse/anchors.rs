//! Where a region stands in the fused graph.
//!
//! **Problem.** A region stands where its last node stood. The gradient of a weight that is computed
//! together with the update of the weight would so move to the end of the program, where the
//! optimizer stood, and everything that it reads would stay alive until then.
//!
//! **Rule.** A region that can be written over its operands stands at its *anchor*: behind its first
//! node, what computes its operands, and what else reads the operands over which it writes, but not
//! behind its last node. So its results still overwrite what nothing reads any more.
//!
//! **Cost.** Linear in the number of nodes and operands.

use super::overwrites::viewed;
use maquette_ir::fused::FusedRegion;
use maquette_ir::graph::{Graph, NodeId, ValueId};
use rustc_hash::FxHashMap;

/// By region: the node behind which it stands. `region_of` has the region of each node.
pub(super) fn anchors(
    graph: &Graph,
    regions: &[FusedRegion],
    region_of: &[Option<usize>],
) -> Vec<Option<NodeId>> {
    let written = |r: &FusedRegion| -> Vec<ValueId> {
        r.overwrites.iter().filter_map(|(k, _)| r.operands.get(*k).copied()).collect()
    };
    let mut readers: FxHashMap<ValueId, Vec<NodeId>> =
        regions.iter().flat_map(written).map(|v| (viewed(graph, v), Vec::new())).collect();
    if !readers.is_empty() {
        for node in graph.nodes() {
            graph.for_each_operand(node, |v| {
                if let Some(readers) = readers.get_mut(&viewed(graph, v)) {
                    readers.push(node);
                }
            });
        }
    }
    let region = |n: NodeId| region_of.get(n.index()).copied().flatten();
    // Other regions stand at their last nodes at the latest.
    let stands = |n: NodeId| match region(n).and_then(|r| regions.get(r)) {
        Some(other) => other.nodes.last().copied().unwrap_or(n),
        None => n,
    };
    let anchor = |(index, r): (usize, &FusedRegion)| {
        let (first, last) = (*r.nodes.first()?, *r.nodes.last()?);
        let written = written(r);
        if written.is_empty() {
            return Some(last);
        }
        let producers = r.operands.iter().filter_map(|v| graph.producer(*v));
        let others = written.iter().filter_map(|v| readers.get(&viewed(graph, *v))).flatten();
        let before = producers.chain(others.copied()).filter(|n| region(*n) != Some(index));
        Some(before.map(stands).fold(first, NodeId::max).min(last))
    };
    regions.iter().enumerate().map(anchor).collect()
}
