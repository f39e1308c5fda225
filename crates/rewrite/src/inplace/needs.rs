//! Which elements of each value are read later, and until when: liveness by regions, backwards.

use super::deed::Deed;
use super::{Planner, Time};
use crate::dag::SpecId;
use crate::functional::Output;
use maquette_ir::graph::{Arg, Stmt, ValueId};
use maquette_ir::fault_injection::fault_injected;
use maquette_ir::view::TriBool;
use smallvec::SmallVec;

/// Elements of a value that are read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Need {
    /// Of these; all if there is none.
    pub region: Option<SpecId>,
    /// But not of these.
    pub minus: SmallVec<[SpecId; 2]>,
    /// The last time.
    pub last: Time,
}

/// As many regions of one value are told apart.
const REGIONS: usize = 16;
/// As many holes of one region.
const HOLES: usize = 8;

pub(super) type Needs = SmallVec<[Need; 2]>;

impl Planner<'_> {
    /// Fills in what is needed of each value.
    pub(super) fn needs(&mut self) {
        let (end, graph) = (self.end(), self.graph);
        fn results(o: &Output, found: &mut Vec<usize>) {
            match o {
                Output::Result { result, .. } | Output::Shared { result, .. } => found.push(*result),
                Output::List(l) => l.iter().for_each(|o| results(o, found)),
                Output::Alias { .. } => {}
            }
        }
        let mut returned = Vec::new();
        self.program.outputs.iter().for_each(|o| results(o, &mut returned));
        let leaving =
            returned.into_iter().map(|r| (r, end)).chain(self.program.mutations.iter().enumerate().map(|(j, m)| (m.result, end + 1 + j)));
        for (result, last) in leaving.collect::<Vec<_>>() {
            if let Some(Arg::Value(v)) = graph.outputs().get(result) {
                self.need(*v, Need { region: None, minus: SmallVec::new(), last });
            }
        }
        for (at, stmt) in graph.body().iter().enumerate().rev() {
            let Stmt::Node(node) = stmt else { continue };
            match self.deeds[node.index()].clone() {
                Deed::View { base, spec, result } => self.through_view(at, base, spec, result),
                Deed::Store { base, source, spec, result } => {
                    for need in self.needs[result.index()].clone() {
                        self.through_store(at, base, source, spec, need);
                    }
                }
                Deed::Strided { of, result } => {
                    for need in self.needs[result.index()].clone() {
                        self.need(of, Need { last: at, ..need });
                    }
                }
                Deed::Run(run) => {
                    for v in run.reads.iter().copied().chain(run.writes.iter().map(|(before, _)| *before)) {
                        self.need(v, Need { region: None, minus: SmallVec::new(), last: at });
                    }
                }
            }
        }
    }

    fn through_view(&mut self, at: Time, base: ValueId, spec: SpecId, result: ValueId) {
        for need in self.needs[result.index()].clone() {
            let region = match need.region {
                Some(r) => self.session.compose(spec, r),
                None => Some(spec),
            };
            let Some(region) = region else {
                self.need(base, Need { region: Some(spec), minus: SmallVec::new(), last: at });
                continue;
            };
            // an element that is seen in several places is needed if one of them is
            let once = self.session.injective(spec) == TriBool::Yes;
            let minus = need.minus.iter().filter(|_| once).filter_map(|m| self.session.compose(spec, *m)).collect();
            self.need(base, Need { region: Some(region), minus, last: at });
        }
    }

    fn through_store(&mut self, at: Time, base: ValueId, source: ValueId, spec: SpecId, need: Need) {
        let apart = need.region.is_some_and(|r| self.session.disjoint(r, spec) == TriBool::Yes);
        let all = match need.region {
            Some(r) => Some(r),
            None => self.rows(base).ok(),
        };
        let within = all.is_some_and(|r| self.session.inside(r, spec) == TriBool::Yes);
        if !apart {
            let region = if within { need.region.and_then(|r| self.session.relative(r, spec)) } else { None };
            self.need(source, Need { region, minus: SmallVec::new(), last: at });
        }
        if !within && !fault_injected("plan: a base is dead once something is stored in it") {
            let mut minus = need.minus;
            if !apart {
                // the last hole found is that of the store before, whose place is asked for next
                if minus.len() == HOLES {
                    minus.remove(0);
                }
                minus.push(spec);
            }
            self.need(base, Need { region: need.region, minus, last: at });
        }
    }

    fn need(&mut self, v: ValueId, need: Need) {
        let Some(known) = self.needs.get_mut(v.index()) else { return };
        if let Some(same) = known.iter_mut().find(|n| n.region == need.region && n.minus == need.minus) {
            same.last = same.last.max(need.last);
        } else if known.len() < REGIONS {
            known.push(need);
        } else {
            let last = known.iter().map(|n| n.last).fold(need.last, Time::max);
            known.clear();
            known.push(Need { region: None, minus: SmallVec::new(), last });
        }
    }
}
