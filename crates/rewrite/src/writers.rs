//! Who wrote what of a storage last: loads see the stores before them without a look at those that are elsewhere.

use crate::dag::{Id, Session, SpecId};
use maquette_ir::Loc;
use maquette_ir::fault_injection::fault_injected;
use maquette_ir::view::TriBool;
use std::collections::BTreeMap;

/// Writes that are compared with a place, one by one.
const WALK: usize = 64;

/// A write that is a store only once somebody needs to see it as one.
#[derive(Clone, Debug)]
pub(crate) struct Write {
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

/// The writes to a storage since a value of it that is known as a whole.
#[derive(Clone, Debug, Default)]
pub(crate) struct Writers {
    pub writes: Vec<Write>,
    /// Spans that touch no other, by where they begin: where they end, and the last write that reaches into them.
    spans: BTreeMap<i64, (i64, u32)>,
    /// The last write whose span is not known.
    boundless: Option<u32>,
}

impl Writers {
    pub fn push(&mut self, session: &mut Session, spec: SpecId, value: Id, at: u32, loc: Option<Loc>) {
        let number = self.writes.len() as u32;
        let (span, dense) = session.span(spec);
        match span {
            Some(span) => self.cover(spec, span, dense, number),
            None => self.boundless = Some(number),
        }
        self.writes.push(Write { spec, value, at, loc, dead: false, version: None, span });
    }

    /// Puts a write's span over those before it; what lies wholly under it is dead.
    fn cover(&mut self, spec: SpecId, (start, end): (i64, i64), dense: bool, number: u32) {
        while let Some((&s, &(e, under))) = self.spans.range(..end).next_back().filter(|(_, (e, _))| *e > start) {
            self.spans.remove(&s);
            if e > end {
                self.spans.insert(end, (e, under));
            }
            if s < start {
                self.spans.insert(s, (start, under));
            }
            let write = &mut self.writes[under as usize];
            write.dead |= write.spec == spec || dense && write.span.is_some_and(|(s, e)| s >= start && e <= end);
        }
        self.spans.insert(start, (end, number));
    }

    /// The last write that may have touched a place.
    pub fn last(&self, session: &mut Session, spec: SpecId) -> Option<usize> {
        let newest = self.writes.len().checked_sub(1)?;
        let (span, _) = session.span(spec);
        let mut at = match span {
            Some((start, end)) => {
                let before = self.spans.range(..=start).next_back().filter(|(_, (e, _))| *e > start);
                let inside = self.spans.range(start + 1..end);
                let mut touched = before.into_iter().chain(inside).map(|(_, (_, n))| *n);
                let last = touched.by_ref().take(WALK).max().max(self.boundless);
                if touched.next().is_some() { newest } else { last? as usize }
            }
            None => newest,
        };
        for _ in 0..WALK {
            let write = &self.writes[at];
            let apart = match (span, write.span) {
                (Some((a, b)), Some((c, d))) if b <= c || d <= a => true,
                _ => {
                    let partly = fault_injected("writers: a write that overlaps in part") && session.relative(spec, write.spec).is_none();
                    write.spec != spec && (session.disjoint(spec, write.spec) == TriBool::Yes || partly)
                }
            };
            if !apart {
                return Some(at);
            }
            at = at.checked_sub(1)?;
        }
        Some(at)
    }
}
