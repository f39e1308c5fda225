//! Who wrote what of a storage last: loads see the stores before them without a look at those that
//! are elsewhere.

use crate::functionalize::value_graph::{Id, Interner, SpecId};
use maquette_ir::Loc;
use maquette_ir::fault_injection::{Fault, fault_injected};
use maquette_ir::view::TriBool;
use std::collections::BTreeMap;

/// Writes that are compared with a region, one by one.
const MAX_SCAN: usize = 64;

/// A write that is a store only once somebody needs to see it as one.
#[derive(Clone, Debug)]
pub(crate) struct PendingStore {
    pub spec: SpecId,
    pub value: Id,
    /// The statement, and its line.
    pub at: u32,
    pub loc: Option<Loc>,
    /// A later write left nothing of it.
    pub dead: bool,
    /// The storage's value after it, if that was asked for; then all before it were.
    pub version: Option<Id>,
    /// Its first element and the one behind its last, as far as they are numbers.
    span: Option<(i64, i64)>,
}

/// The stores to a storage since a value of it that is known as a whole.
#[derive(Clone, Debug, Default)]
pub(crate) struct LastStores {
    pub stores: Vec<PendingStore>,
    /// Spans that touch no other, by where they begin: where they end, and the last write that
    /// reaches into them.
    spans: BTreeMap<i64, (i64, u32)>,
    /// The last write whose span is not known.
    unbounded: Option<u32>,
}

impl LastStores {
    pub fn push(
        &mut self,
        interner: &mut Interner,
        spec: SpecId,
        value: Id,
        at: u32,
        loc: Option<Loc>,
    ) {
        let number = self.stores.len() as u32;
        let (span, dense) = interner.span(spec);
        match span {
            Some(span) => self.cover(spec, span, dense, number),
            None => self.unbounded = Some(number),
        }
        self.stores.push(PendingStore { spec, value, at, loc, dead: false, version: None, span });
    }

    /// Puts a write's span over those before it; what lies wholly under it is dead.
    fn cover(&mut self, spec: SpecId, (start, end): (i64, i64), dense: bool, number: u32) {
        while let Some((&s, &(e, under))) =
            self.spans.range(..end).next_back().filter(|(_, (e, _))| *e > start)
        {
            self.spans.remove(&s);
            if e > end {
                self.spans.insert(end, (e, under));
            }
            if s < start {
                self.spans.insert(s, (start, under));
            }
            let store = &mut self.stores[under as usize];
            store.dead |= store.spec == spec
                || dense && store.span.is_some_and(|(s, e)| s >= start && e <= end);
        }
        self.spans.insert(start, (end, number));
    }

    /// The last write that may have touched a region.
    pub fn last_may_alias(&self, interner: &mut Interner, spec: SpecId) -> Option<usize> {
        let newest = self.stores.len().checked_sub(1)?;
        let (span, _) = interner.span(spec);
        let mut at = match span {
            Some((start, end)) => {
                let before =
                    self.spans.range(..=start).next_back().filter(|(_, (e, _))| *e > start);
                let inside = self.spans.range(start + 1..end);
                let mut touched = before.into_iter().chain(inside).map(|(_, (_, n))| *n);
                let last = touched.by_ref().take(MAX_SCAN).max().max(self.unbounded);
                if touched.next().is_some() { newest } else { last? as usize }
            }
            None => newest,
        };
        for _ in 0..MAX_SCAN {
            let store = &self.stores[at];
            let disjoint = match (span, store.span) {
                (Some((a, b)), Some((c, d))) if b <= c || d <= a => true,
                _ => {
                    let partly = fault_injected(Fault::LastStoreIgnoresPartialOverlap)
                        && interner.relative(spec, store.spec).is_none();
                    store.spec != spec
                        && (interner.disjoint(spec, store.spec) == TriBool::Yes || partly)
                }
            };
            if !disjoint {
                return Some(at);
            }
            at = at.checked_sub(1)?;
        }
        Some(at)
    }
}
