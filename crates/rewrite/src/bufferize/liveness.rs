//! Which elements of each value are read later, and until when: liveness by regions, backwards.

use super::node_kind::NodeKind;
use super::{Planner, Time};
use crate::functionalize::value_graph::SpecId;
use maquette_ir::fault_injection::{Fault, fault_injected};
use maquette_ir::functional_program::Output;
use maquette_ir::graph::{Arg, Stmt, ValueId};
use maquette_ir::view::TriBool;
use smallvec::SmallVec;

/// Elements of a value that are read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct LiveRegion {
    /// Of these; all if there is none.
    pub region: Option<SpecId>,
    /// But not of these.
    pub excluding: SmallVec<[SpecId; 2]>,
    /// The last time.
    pub last: Time,
}

/// As many regions of one value are told apart.
const REGIONS: usize = 16;
/// As many holes of one region.
const HOLES: usize = 8;

pub(super) type LiveRegions = SmallVec<[LiveRegion; 2]>;

impl Planner<'_> {
    /// Fills in what is needed of each value.
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
                NodeKind::Strided { of, result } => {
                    for live in self.live[result.index()].clone() {
                        self.add_live(of, LiveRegion { last: at, ..live });
                    }
                }
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
            // an element that is seen in several places is needed if one of them is
            let once = self.interner.injective(spec) == TriBool::Yes;
            let excluding = live
                .excluding
                .iter()
                .filter(|_| once)
                .filter_map(|m| self.interner.compose(spec, *m))
                .collect();
            self.add_live(base, LiveRegion { region: Some(region), excluding, last: at });
        }
    }

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
        let within = all.is_some_and(|r| self.interner.inside(r, spec) == TriBool::Yes);
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
                // the last hole found is that of the store before, whose place is asked for next
                if excluding.len() == HOLES {
                    excluding.remove(0);
                }
                excluding.push(spec);
            }
            self.add_live(base, LiveRegion { region: live.region, excluding, last: at });
        }
    }

    fn add_live(&mut self, v: ValueId, live: LiveRegion) {
        let Some(known) = self.live.get_mut(v.index()) else { return };
        if let Some(same) =
            known.iter_mut().find(|n| n.region == live.region && n.excluding == live.excluding)
        {
            same.last = same.last.max(live.last);
        } else if known.len() < REGIONS {
            known.push(live);
        } else {
            let last = known.iter().map(|n| n.last).fold(live.last, Time::max);
            known.clear();
            known.push(LiveRegion { region: None, excluding: SmallVec::new(), last });
        }
    }
}
