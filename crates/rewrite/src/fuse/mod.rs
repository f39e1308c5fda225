//! Fusion: finds the operators of a functional graph that one kernel computes, so that the values
//! between them have no memory.
//!
//! **Problem.** An operator alone reads its operands from memory and writes its result there. Of a
//! chain of elementwise operators, or of a softmax with what comes before and after it, most of
//! the time goes into these transfers.
//!
//! **Algorithm.** As the loop fusion of Inductor and of XLA, by bytes: in program order, each
//! operator joins the groups of its producers, the one of the largest value first ([`groups`]).
//! Groups are joined if they have common rows, and if no other operator has to run between them.
//! Products that share a factor, such as the query, the key and the value of an attention, are then
//! joined with what follows each ([`siblings`]). At the end the graph is built anew, with a node
//! for each group ([`emit`]).
//!
//! **Invariants** are those of [`maquette_ir::fused`].
//!
//! **Cost.** Linear in the number of nodes, but for the search for cycles, which visits a bounded
//! number of groups for a join ([`conflicts`]). The few cycles that the search misses are found
//! when the graph is built, which is then built again, a bounded number of times.

mod conflicts;
mod edges;
mod emit;
mod groups;
mod order;
mod position;
mod siblings;
mod updates;

use crate::error::{FunctionalizeError, Reason};
use emit::Emitted;
use groups::Groups;
use maquette_ir::functional_program::FunctionalGraph;
use maquette_ir::fused::{FusedProgram, FusedRegion, FusionFacts, NoFusionReason, Refusal};
use maquette_ir::graph::NodeId;
use rustc_hash::FxHashMap;

/// How often the graph is built without one region of each cycle, before it is built without all
/// regions on cycles.
const MAX_ROUNDS: usize = 8;

/// Operators that may fail and are in no region, and why.
type Alone = FxHashMap<NodeId, NoFusionReason>;

/// Fuses the operators of a functional program.
///
/// # Errors
/// The graph is not valid.
pub fn fuse(
    original: FunctionalGraph,
    facts: &dyn FusionFacts,
) -> Result<FusedProgram, FunctionalizeError> {
    fuse_but(original, facts, facts.joins_products(), Vec::new(), &Alone::default())
}

/// As [`fuse`]. `joins_products` says whether products that share a factor may be one region, and
/// `apart` which may not, and why. The operators `alone` may fail, and are in no region.
fn fuse_but(
    original: FunctionalGraph,
    facts: &dyn FusionFacts,
    joins_products: bool,
    apart: Vec<Refusal>,
    alone: &Alone,
) -> Result<FusedProgram, FunctionalizeError> {
    let mut groups = Groups::of(&original, facts, apart, alone);
    if joins_products {
        groups.join_siblings(facts);
    }
    let mut refusals = groups.refusals();
    let mut failing = Alone::default();
    let is_kept = |region: &FusedRegion| {
        let slower = groups.faster_alone(&region.nodes);
        let has_kernel = slower.is_empty() && facts.has_kernel(&original.graph, region);
        if !has_kernel && slower.is_empty() {
            let nodes = groups.order.failing(&region.nodes);
            failing.extend(nodes.map(|node| (node, NoFusionReason::Assert)));
        }
        failing.extend(slower.into_iter().map(|n| (n, NoFusionReason::LosesSpecialisation)));
        has_kernel
    };
    let (mut regions, without): (Vec<_>, Vec<_>) = groups.regions().into_iter().partition(is_kept);
    // Without what may fail, the other operators may have a kernel, as those before a gather.
    if alone.is_empty() && !failing.is_empty() {
        let apart = std::mem::take(&mut groups.apart);
        drop(groups);
        // Those of products that may be joined are found again.
        let apart = if joins_products { Vec::new() } else { apart };
        return fuse_but(original, facts, joins_products, apart, &failing);
    }
    refusals
        .extend(without.iter().flat_map(|r| r.refusals(&original.graph, NoFusionReason::NoKernel)));
    let mut rounds = 0;
    let program = loop {
        let (given_up, reason) = match emit::emit(&original, &regions, &groups)? {
            Emitted::Program(program) => break *program,
            Emitted::Late(regions) => (regions, NoFusionReason::Effect),
            // Without one region of a cycle, the others can be computed, unless they are on
            // another one.
            Emitted::Cycles(cycles) => {
                rounds += 1;
                let count = |cycle: &Vec<usize>| if rounds < MAX_ROUNDS { 1 } else { cycle.len() };
                let last = cycles.iter().flat_map(|c| c.iter().rev().take(count(c)));
                let mut last: Vec<usize> = last.copied().collect();
                last.sort_unstable();
                (last, NoFusionReason::Cycle)
            }
        };
        // The products alone may do, with what follows each.
        if !groups.joined.is_empty() {
            let apart = groups.joined.iter().map(|pair| pair.refusal(reason)).collect();
            drop(groups);
            return fuse_but(original, facts, false, apart, alone);
        }
        for index in given_up.into_iter().rev() {
            refusals.extend(regions.remove(index).refusals(&original.graph, reason));
        }
    };
    refusals.sort_by_key(|r| r.consumer);
    let joined = std::mem::take(&mut groups.joined);
    drop(groups);
    Ok(FusedProgram { original, program, regions, joined, refusals })
}

/// A statement of the graph reads a value before its definition.
fn out_of_order() -> Reason {
    Reason::Internal("a statement reads a value that nothing defines")
}
