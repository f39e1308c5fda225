//! Whether elements of a buffer may be written: who lies there, and what of it is still needed.

use super::node_kind::NodeKind;
use super::{BufferRegion, Planner, Time};
use crate::error::Result;
use crate::functionalize::value_graph::SpecId;
use maquette_ir::buffer_plan::{Buffer, CopyReason};
use maquette_ir::copy_cost::approximate_numel;
use maquette_ir::fault_injection::{Fault, fault_injected};
use maquette_ir::graph::ValueId;
use maquette_ir::sym::Expr;
use maquette_ir::view::TriBool;

/// So many values in one buffer are looked at; among more, everything is taken for needed.
const MAX_OCCUPANTS: usize = 256;

impl Planner<'_> {
    /// Whether two places share no element.
    pub(super) fn disjoint(&mut self, a: BufferRegion, b: BufferRegion) -> bool {
        a.buffer != b.buffer || self.interner.disjoint(a.spec, b.spec) == TriBool::Yes
    }

    /// Whether two places are one, element by element.
    pub(super) fn same(&mut self, a: BufferRegion, b: BufferRegion) -> bool {
        a.buffer == b.buffer && self.same_layout(a.spec, b.spec, true)
    }

    pub(super) fn same_layout(&mut self, a: SpecId, b: SpecId, begin: bool) -> bool {
        self.interner.same_layout(a, b, begin)
    }

    /// Whether no two elements lie in one place.
    pub(super) fn injective(&mut self, at: BufferRegion) -> bool {
        self.interner.injective(at.spec) == TriBool::Yes
    }

    /// Whether nobody needs what lies here after a time; `before`: or at it.
    pub(super) fn is_free(&mut self, at: BufferRegion, time: Time, before: bool) -> bool {
        self.conflicts(at, time, before, MAX_OCCUPANTS).is_some_and(|h| h.is_empty())
    }

    /// Whether what lies here is needed no more, or can be copied away for less than a price, in
    /// elements; then it has been. At the highest price it is copied away in any case.
    pub(super) fn try_free(
        &mut self,
        at: BufferRegion,
        time: Time,
        before: bool,
        price: u64,
    ) -> Result<bool> {
        let looked_at = if price == u64::MAX { usize::MAX } else { MAX_OCCUPANTS };
        let Some(conflicts) = self.conflicts(at, time, before, looked_at) else { return Ok(false) };
        let mut cost = 0u64;
        for &w in &conflicts {
            // it is copied to where it is left sooner or later
            let leaves = self.destinations[w.index()]
                .is_some_and(|g| g.at.buffer != at.buffer && (!g.output || self.is_external(at)));
            cost = cost.saturating_add(if leaves { 0 } else { self.elements(w) });
        }
        if !conflicts.is_empty() && cost >= price && price != u64::MAX {
            return Ok(false);
        }
        for w in conflicts {
            self.spill(w, time)?;
        }
        Ok(true)
    }

    /// Copies a value to where it can stay.
    pub(super) fn spill(&mut self, w: ValueId, time: Time) -> Result<()> {
        let from = self.region(w)?;
        let to = match self.destinations[w.index()].map(|g| g.at) {
            Some(at)
                if self.is_writable(at, time)
                    && self.disjoint(at, from)
                    && self.is_unclaimed(at)
                    && self.is_free(at, time, true) =>
            {
                at
            }
            _ => {
                let rows = self.rows(w)?;
                self.new_buffer(w, rows)?
            }
        };
        self.copy(w, from, to, CopyReason::Keep);
        self.put(w, to);
        Ok(())
    }

    fn is_unclaimed(&mut self, at: BufferRegion) -> bool {
        (0..self.claimed.len()).all(|i| self.disjoint(at, self.claimed[i]))
    }

    /// About how many elements a value has.
    pub(super) fn elements(&self, v: ValueId) -> u64 {
        self.graph.tensor_type(v).map_or(1, |t| approximate_numel(&t.sizes))
    }

    /// The values that lie here and are needed after a time; `before`: or at it. `None`: too many
    /// lie there.
    fn conflicts(
        &mut self,
        at: BufferRegion,
        time: Time,
        before: bool,
        looked_at: usize,
    ) -> Option<Vec<ValueId>> {
        let until = time + usize::from(fault_injected(Fault::LiveOneStatementLess));
        let is_later = |last: Time| last > until || before && last == until;
        let mut there = std::mem::take(&mut self.occupants[at.buffer.index()]);
        there.retain(|w| {
            let here = self.regions[w.index()].is_some_and(|l| l.buffer == at.buffer);
            here && self.live[w.index()].iter().any(|n| n.last >= time)
        });
        there.sort_unstable();
        there.dedup();
        let few = there.len() <= looked_at;
        let conflicts = few.then(|| {
            there
                .iter()
                .copied()
                .filter(|&w| !self.overlooked(w) && self.is_live_in(w, at, &is_later))
                .collect()
        });
        self.occupants[at.buffer.index()] = there;
        conflicts
    }

    /// A fault: see [`fault_injected`].
    fn overlooked(&self, w: ValueId) -> bool {
        let is_view = |p: &Self| {
            p.graph
                .producer(w)
                .is_some_and(|n| matches!(p.node_kinds[n.index()], NodeKind::View { .. }))
        };
        fault_injected(Fault::ViewsKeepNothingAlive) && is_view(self)
    }

    /// Whether elements of a value that lie here are needed.
    fn is_live_in(
        &mut self,
        w: ValueId,
        at: BufferRegion,
        is_later: &dyn Fn(Time) -> bool,
    ) -> bool {
        let Some(own) = self.regions[w.index()] else { return false };
        // where elements share their place, a hole is none
        let holes = self.injective(own) || fault_injected(Fault::HolesWhereElementsShare);
        for live in self.live[w.index()].clone().iter().filter(|n| is_later(n.last)) {
            let region = match live.region {
                Some(r) => self.interner.compose(own.spec, r).unwrap_or(own.spec),
                None => own.spec,
            };
            if self.interner.disjoint(region, at.spec) == TriBool::Yes {
                continue;
            }
            let spared = holes
                && live.excluding.iter().any(|m| {
                    let hole = self.interner.compose(own.spec, *m);
                    hole.is_some_and(|h| self.interner.inside(at.spec, h) == TriBool::Yes)
                });
            if !spared {
                return true;
            }
        }
        false
    }

    pub(super) fn is_external(&self, at: BufferRegion) -> bool {
        matches!(self.buffers[at.buffer.index()], Buffer::Input(_) | Buffer::Const(_))
    }

    /// Whether something may be put here: the plan's own memory, or memory from outside that the
    /// program writes to, once what it does before has not failed; numbers that are known by then;
    /// and no two elements in one place.
    pub(super) fn is_writable(&mut self, at: BufferRegion, time: Time) -> bool {
        let ours = !self.is_external(at)
            || fault_injected(Fault::UnmutatedInputsWritten)
            || self.program.mutations.iter().any(|m| {
                self.external_buffer(m.target) == at.buffer
                    && self.effects_are_done(m.preceding_effects, time)
            });
        ours && self.is_computable(at, time) && self.injective(at)
    }

    /// Whether so many assertions and effects are behind: if one of them fails, memory that the
    /// program writes later is as it was.
    fn effects_are_done(&self, preceding_effects: usize, time: Time) -> bool {
        let last = preceding_effects.checked_sub(1).and_then(|i| self.effect_times.get(i));
        last.is_none_or(|at| *at < time)
    }

    /// Whether every number of a place is known when the place is used.
    fn is_computable(&self, at: BufferRegion, time: Time) -> bool {
        let bound = |e: Expr| match e {
            Expr::Int(_) => true,
            e => self
                .interner
                .symbols
                .free_symbols(e)
                .iter()
                .all(|s| self.bind_times.get(s).is_none_or(|b| *b < time)),
        };
        let all = |spec: &maquette_ir::view::ViewSpec| {
            bound(spec.offset()) && spec.dims().iter().all(|d| bound(d.size) && bound(d.stride))
        };
        let whole = match &self.buffers[at.buffer.index()] {
            Buffer::New { layout, .. } => all(layout),
            _ => true,
        };
        whole && all(&self.interner.specs[at.spec.index()])
    }
}
