//! Region liveness: which elements of each value are read later, and when they are read last.
//!
//! **Problem.** Whether memory can be overwritten depends on elements, not on whole values: after
//! `x[0] = a`, only the other rows of the old `x` are still read, so row 0 can be overwritten in
//! place.
//!
//! **Algorithm.** Backward liveness analysis. In an SSA graph without control flow, one reverse
//! pass suffices. The lattice element of a value is a set of [`LiveRegion`]s: a region, without
//! some excluded regions (holes), and the last time at which it is read. A call reads all of its
//! operands. A view `v` of a base maps the regions of its result through `v` by composition. A
//! store of `source` at `v` splits the regions of its result: the part in `v` is read from the
//! source, and the rest, with `v` excluded, from the base.
//!
//! **Invariant.** The regions of a value include every element that is read at or before `last`:
//! they may be too large, never too small. Holes are dropped where a view repeats elements, since
//! another index may read the excluded element.
//!
//! **Cost.** At most `MAX_LIVE_REGIONS` regions of a value with at most `MAX_HOLES` holes each;
//! beyond that, a value counts as live as a whole, and old holes are forgotten.

use super::node_kind::NodeKind;
use super::{Planner, Time};
use crate::functionalize::value_graph::SpecId;
use maquette_ir::fault_injection::{Fault, fault_injected};
use maquette_ir::functional_program::Output;
use maquette_ir::graph::{Arg, Stmt, ValueId};
use maquette_ir::view::TriBool;
use smallvec::SmallVec;

/// A part of a value that is read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct LiveRegion {
    /// The elements; `None` for all.
    pub region: Option<SpecId>,
    /// Elements that are not read, or only as part of another region.
    pub excluding: SmallVec<[SpecId; 2]>,
    /// The time of the last read.
    pub last: Time,
}

/// The maximum number of regions for each value; with more, they are merged into one.
const MAX_LIVE_REGIONS: usize = 16;
/// The maximum number of holes for each region.
const MAX_HOLES: usize = 8;

/// The live regions of one value.
pub(super) type LiveRegions = SmallVec<[LiveRegion; 2]>;

impl Planner<'_> {
    /// Computes the live regions of every value.
    pub(super) fn compute_liveness(&mut self) {
        let (end, graph) = (self.end(), self.graph);
        fn results(o: &Output, found: &mut Vec<usize>) {
            match o {
                Output::Result { result, .. } | Output::Shared { result, .. } => {
                    found.push(*result)
                }
                Output::List(l) => l.iter().for_each(|o| results(o, found)),
                Output::Alias { .. } => {}
            }
        }
        let mut returned = Vec::new();
        self.program.outputs.iter().for_each(|o| results(o, &mut returned));
        let read_at_end = returned
            .into_iter()
            .map(|r| (r, end))
            .chain(self.program.mutations.iter().enumerate().map(|(j, m)| (m.result, end + 1 + j)));
        for (result, last) in read_at_end.collect::<Vec<_>>() {
            if let Some(Arg::Value(v)) = graph.outputs().get(result) {
                self.add_live(*v, LiveRegion { region: None, excluding: SmallVec::new(), last });
            }
        }
        for (at, stmt) in graph.body().iter().enumerate().rev() {
            let Stmt::Node(node) = stmt else { continue };
            match self.node_kinds[node.index()].clone() {
                NodeKind::View { base, spec, result } => {
                    self.live_through_view(at, base, spec, result)
                }
                NodeKind::Store { base, source, spec, result } => {
                    for live in self.live[result.index()].clone() {
                        self.live_through_store(at, base, source, spec, live);
                    }
                }
                NodeKind::Strided { of, result } | NodeKind::Barrier { of, result } => {
                    for live in self.live[result.index()].clone() {
                        self.add_live(of, LiveRegion { last: at, ..live });
                    }
                }
                // Stores replace all elements, also where that cannot be proved.
                NodeKind::Empty { result } => self.live[result.index()].clear(),
                NodeKind::Call(call) => {
                    for v in call
                        .reads
                        .iter()
                        .copied()
                        .chain(call.writes.iter().map(|(before, _)| *before))
                    {
                        self.add_live(
                            v,
                            LiveRegion { region: None, excluding: SmallVec::new(), last: at },
                        );
                    }
                }
            }
        }
    }

    /// Maps the live regions of a view to its base.
    fn live_through_view(&mut self, at: Time, base: ValueId, spec: SpecId, result: ValueId) {
        for live in self.live[result.index()].clone() {
            let region = match live.region {
                Some(r) => self.interner.compose(spec, r),
                None => Some(spec),
            };
            let Some(region) = region else {
                self.add_live(
                    base,
                    LiveRegion { region: Some(spec), excluding: SmallVec::new(), last: at },
                );
                continue;
            };
            // an element that the view repeats is dead only if every repetition is
            let injective = self.interner.injective(spec) == TriBool::Yes;
            let excluding = live
                .excluding
                .iter()
                .filter(|_| injective)
                .filter_map(|m| self.interner.compose(spec, *m))
                .collect();
            self.add_live(base, LiveRegion { region: Some(region), excluding, last: at });
        }
    }

    /// Splits a live region of a store's result between the source and the base.
    fn live_through_store(
        &mut self,
        at: Time,
        base: ValueId,
        source: ValueId,
        spec: SpecId,
        live: LiveRegion,
    ) {
        let disjoint = live.region.is_some_and(|r| self.interner.disjoint(r, spec) == TriBool::Yes);
        let all = match live.region {
            Some(r) => Some(r),
            None => self.rows(base).ok(),
        };
        let within = all.is_some_and(|r| self.interner.contained_in(r, spec) == TriBool::Yes);
        if !disjoint {
            let region = if within {
                live.region.and_then(|r| self.interner.relative(r, spec))
            } else {
                None
            };
            self.add_live(source, LiveRegion { region, excluding: SmallVec::new(), last: at });
        }
        if !within && !fault_injected(Fault::BaseDeadAfterStore) {
            let mut excluding = live.excluding;
            if !disjoint {
                // Drop the oldest hole. The newest belongs to the preceding store, whose region is
                // queried next.
                if excluding.len() == MAX_HOLES {
                    excluding.remove(0);
                }
                excluding.push(spec);
            }
            self.add_live(base, LiveRegion { region: live.region, excluding, last: at });
        }
    }

    /// Adds a live region to a value, merged with an equal one.
    fn add_live(&mut self, v: ValueId, live: LiveRegion) {
        let Some(known) = self.live.get_mut(v.index()) else { return };
        if let Some(same) =
            known.iter_mut().find(|n| n.region == live.region && n.excluding == live.excluding)
        {
            same.last = same.last.max(live.last);
        } else if known.len() < MAX_LIVE_REGIONS {
            known.push(live);
        } else {
            let last = known.iter().map(|n| n.last).fold(live.last, Time::max);
            known.clear();
            known.push(LiveRegion { region: None, excluding: SmallVec::new(), last });
        }
    }
}
