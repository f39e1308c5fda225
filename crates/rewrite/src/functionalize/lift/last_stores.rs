//! Last-store analysis of one storage, for store-to-load forwarding and dead-store elimination
//! while a program is lifted.
//!
//! **Problem.** A program that fills a tensor row by row has as many versions of it as rows. If
//! every store became a node at once, a load of one row would have to be moved past all stores to
//! the others, and a program of n stores would take O(n²) queries.
//!
//! **Algorithm.** Stores are *pending*: recorded, without a node. An interval map assigns each span
//! of elements to the last store that touched it; a new store overwrites its span in the map. A
//! load looks up its span and starts at the latest store found, or at the latest store with an
//! unknown span if that is later; from there it steps back over stores that are provably disjoint
//! from it. A load inside the store where it stops reads the stored value. Any other load needs a
//! version: only then do that store and those before it become `ir::scatter` nodes. A store that a
//! later store covers before any load needs such a version is dead, and never becomes a node. For
//! example:
//!
//! ```text
//! x[0] = a     spans: 0 → #0
//! x[1] = b     spans: 0 → #0, 1 → #1
//! y = x[0]     span 0 → store #0, of the same view: y = a, and no node is made
//! x[0] = c     spans: 0 → #2, 1 → #1; #0 is dead
//! ```
//!
//! **Invariant.** Every store after the one that `last_aliasing_store` returns is disjoint from the
//! queried view. The answer may be a later store than necessary, never an earlier one.
//!
//! **Cost.** A store with constant span: amortized O(log n). A load: at most `MAX_SCAN` spans and
//! `MAX_SCAN` disjointness queries; beyond that, the answer is conservative.

use crate::functionalize::value_graph::{Id, Interner, SpecId};
use maquette_ir::fault_injection::{Fault, fault_injected};
use maquette_ir::graph::NodeId;
use maquette_ir::view::TriBool;
use std::collections::BTreeMap;

/// The maximum number of stores, or of spans, that one query compares with a view.
const MAX_SCAN: usize = 64;

/// A recorded store. It becomes a node only if a load needs the version after it.
#[derive(Clone, Debug)]
pub(crate) struct PendingStore {
    pub spec: SpecId,
    pub value: Id,
    /// The statement that stores, and its call.
    pub statement: u32,
    pub call: Option<NodeId>,
    /// A later store covers it, so no later load can observe it.
    pub dead: bool,
    /// The version of the storage after this store, once a load has needed it. The versions after
    /// all earlier stores are known then.
    pub version: Option<Id>,
    /// The span of the stored view, if it is constant.
    span: Option<(i64, i64)>,
}

/// The stores to a storage since its last materialized version.
#[derive(Clone, Debug, Default)]
pub(crate) struct LastStores {
    pub stores: Vec<PendingStore>,
    /// Disjoint spans, by their first element: the element after the last one, and the last store
    /// that touches the span.
    spans: BTreeMap<i64, (i64, u32)>,
    /// The last store with an unknown span.
    unbounded: Option<u32>,
}

impl LastStores {
    /// Records a store.
    pub fn push(
        &mut self,
        interner: &mut Interner,
        spec: SpecId,
        value: Id,
        statement: u32,
        call: Option<NodeId>,
    ) {
        let number = self.stores.len() as u32;
        let (span, dense) = interner.span(spec);
        match span {
            Some(span) => self.cover(spec, span, dense, number),
            None => self.unbounded = Some(number),
        }
        self.stores.push(PendingStore {
            spec,
            value,
            statement,
            call,
            dead: false,
            version: None,
            span,
        });
    }

    /// Assigns a span to a store. A covered store is dead if the new store repeats its view, or if
    /// the new store is dense and contains all of its span.
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

    /// The number of the last store that may alias a view; `None` if no store does.
    pub fn last_aliasing_store(&self, interner: &mut Interner, spec: SpecId) -> Option<usize> {
        let newest = self.stores.len().checked_sub(1)?;
        let (span, _) = interner.span(spec);
        let mut index = match span {
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
            let store = &self.stores[index];
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
                return Some(index);
            }
            index = index.checked_sub(1)?;
        }
        Some(index)
    }
}
