//! Whether elements of a buffer may be written: who lies there, and what of it is still needed.

use super::deed::Deed;
use super::{Loc, Planner, Time};
use crate::dag::SpecId;
use crate::error::Result;
use maquette_ir::graph::ValueId;
use maquette_ir::fault_injection::fault_injected;
use maquette_ir::buffer_plan::{Buffer, CopyReason};
use maquette_ir::sym::Expr;
use maquette_ir::copy_cost::approximate_numel;
use maquette_ir::view::TriBool;

/// So many values in one buffer are looked at; among more, everything is taken for needed.
const RESIDENTS: usize = 256;

impl Planner<'_> {
    /// Whether two places share no element.
    pub(super) fn apart(&mut self, a: Loc, b: Loc) -> bool {
        a.buffer != b.buffer || self.session.disjoint(a.spec, b.spec) == TriBool::Yes
    }

    /// Whether two places are one, element by element.
    pub(super) fn same(&mut self, a: Loc, b: Loc) -> bool {
        a.buffer == b.buffer && self.same_layout(a.spec, b.spec, true)
    }

    pub(super) fn same_layout(&mut self, a: SpecId, b: SpecId, begin: bool) -> bool {
        self.session.same_layout(a, b, begin)
    }

    /// Whether no two elements lie in one place.
    pub(super) fn injective(&mut self, at: Loc) -> bool {
        self.session.injective(at.spec) == TriBool::Yes
    }

    /// Whether nobody needs what lies here after a time; `before`: or at it.
    pub(super) fn free(&mut self, at: Loc, time: Time, before: bool) -> bool {
        self.holders(at, time, before, RESIDENTS).is_some_and(|h| h.is_empty())
    }

    /// Whether what lies here is needed no more, or can be copied away for less than a price, in elements; then it has been. At the highest price it
    /// is copied away in any case.
    pub(super) fn cleared(&mut self, at: Loc, time: Time, before: bool, price: u64) -> Result<bool> {
        let looked_at = if price == u64::MAX { usize::MAX } else { RESIDENTS };
        let Some(holders) = self.holders(at, time, before, looked_at) else { return Ok(false) };
        let mut cost = 0u64;
        for &w in &holders {
            // it is copied to where it is left sooner or later
            let leaves = self.goals[w.index()].is_some_and(|g| g.at.buffer != at.buffer && (!g.output || self.is_outside(at)));
            cost = cost.saturating_add(if leaves { 0 } else { self.elements(w) });
        }
        if !holders.is_empty() && cost >= price && price != u64::MAX {
            return Ok(false);
        }
        for w in holders {
            self.evacuate(w, time)?;
        }
        Ok(true)
    }

    /// Copies a value to where it can stay.
    pub(super) fn evacuate(&mut self, w: ValueId, time: Time) -> Result<()> {
        let from = self.loc(w)?;
        let to = match self.goals[w.index()].map(|g| g.at) {
            Some(at) if self.usable(at, time) && self.apart(at, from) && self.unclaimed(at) && self.free(at, time, true) => at,
            _ => {
                let rows = self.rows(w)?;
                self.new_buffer(w, rows)?
            }
        };
        self.copy(w, from, to, CopyReason::Keep);
        self.put(w, to);
        Ok(())
    }

    fn unclaimed(&mut self, at: Loc) -> bool {
        (0..self.claimed.len()).all(|i| self.apart(at, self.claimed[i]))
    }

    /// About how many elements a value has.
    pub(super) fn elements(&self, v: ValueId) -> u64 {
        self.graph.tensor_type(v).map_or(1, |t| approximate_numel(&t.sizes))
    }

    /// The values that lie here and are needed after a time; `before`: or at it. `None`: too many lie there.
    fn holders(&mut self, at: Loc, time: Time, before: bool, looked_at: usize) -> Option<Vec<ValueId>> {
        let until = time + usize::from(fault_injected("plan: needed until the statement before"));
        let late = |last: Time| last > until || before && last == until;
        let mut there = std::mem::take(&mut self.residents[at.buffer.index()]);
        there.retain(|w| {
            let here = self.locs[w.index()].is_some_and(|l| l.buffer == at.buffer);
            here && self.needs[w.index()].iter().any(|n| n.last >= time)
        });
        there.sort_unstable();
        there.dedup();
        let few = there.len() <= looked_at;
        let holders = few.then(|| there.iter().copied().filter(|&w| !self.overlooked(w) && self.holds(w, at, &late)).collect());
        self.residents[at.buffer.index()] = there;
        holders
    }

    /// A fault: see [`fault_injected`].
    fn overlooked(&self, w: ValueId) -> bool {
        let is_view = |p: &Self| p.graph.producer(w).is_some_and(|n| matches!(p.deeds[n.index()], Deed::View { .. }));
        fault_injected("plan: views hold nothing") && is_view(self)
    }

    /// Whether elements of a value that lie here are needed.
    fn holds(&mut self, w: ValueId, at: Loc, late: &dyn Fn(Time) -> bool) -> bool {
        let Some(own) = self.locs[w.index()] else { return false };
        // where elements share their place, a hole is none
        let holes = self.injective(own) || fault_injected("plan: holes where elements share their place");
        for need in self.needs[w.index()].clone().iter().filter(|n| late(n.last)) {
            let region = match need.region {
                Some(r) => self.session.compose(own.spec, r).unwrap_or(own.spec),
                None => own.spec,
            };
            if self.session.disjoint(region, at.spec) == TriBool::Yes {
                continue;
            }
            let spared = holes
                && need.minus.iter().any(|m| {
                    let hole = self.session.compose(own.spec, *m);
                    hole.is_some_and(|h| self.session.inside(at.spec, h) == TriBool::Yes)
                });
            if !spared {
                return true;
            }
        }
        false
    }

    pub(super) fn is_outside(&self, at: Loc) -> bool {
        matches!(self.buffers[at.buffer.index()], Buffer::Input(_) | Buffer::Const(_))
    }

    /// Whether something may be put here: the plan's own memory, or memory from outside that the program writes to, once what it does before has not
    /// failed; numbers that are known by then; and no two elements in one place.
    pub(super) fn usable(&mut self, at: Loc, time: Time) -> bool {
        let ours = !self.is_outside(at)
            || fault_injected("plan: inputs that are left alone may be written")
            || self.program.mutations.iter().any(|m| self.outside(m.target) == at.buffer && self.is_reached(m.behind, time));
        ours && self.known(at, time) && self.injective(at)
    }

    /// Whether so many assertions and effects are behind: if one of them fails, memory that the program writes later is as it was.
    fn is_reached(&self, behind: usize, time: Time) -> bool {
        let last = behind.checked_sub(1).and_then(|i| self.ordered.get(i));
        last.is_none_or(|at| *at < time)
    }

    /// Whether every number of a place is known when the place is used.
    fn known(&self, at: Loc, time: Time) -> bool {
        let bound = |e: Expr| match e {
            Expr::Int(_) => true,
            e => self.session.symbols.free_symbols(e).iter().all(|s| self.bound.get(s).is_none_or(|b| *b < time)),
        };
        let all = |spec: &maquette_ir::view::ViewSpec| bound(spec.offset()) && spec.dims().iter().all(|d| bound(d.size) && bound(d.stride));
        let whole = match &self.buffers[at.buffer.index()] {
            Buffer::New { layout, .. } => all(layout),
            _ => true,
        };
        whole && all(&self.session.specs[at.spec.index()])
    }
}
