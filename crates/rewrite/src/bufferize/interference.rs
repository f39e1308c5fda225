//! Interference: whether a region of a buffer may be overwritten at a given time.
//!
//! This is the read-after-write conflict analysis of MLIR's One-Shot Bufferize, per region instead
//! of per tensor. An overwrite of region `r` at time `t` conflicts with a value in the same buffer
//! if some [live region](super::liveness) of that value is read after `t` and may overlap `r`. A
//! conflicting value can be *spilled*: copied to its destination or to a new buffer, which is
//! worthwhile if the copy is smaller than the copy it avoids.
//!
//! **Invariant** (P1, P2 and P5 of [`maquette_ir::buffer_plan`]). A region is written only if it is
//! owned by the plan or the program mutates it, no element in it is still to be read as another
//! value, and it names no element twice. Every `Unknown` of the view queries counts as a conflict.
//!
//! **Cost.** At most `MAX_OCCUPANTS` values of a buffer are examined for each query; a fuller
//! buffer counts as conflicting.

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

/// The maximum number of values of one buffer that a query examines. With more, the region counts
/// as not free.
const MAX_OCCUPANTS: usize = 256;

impl Planner<'_> {
    /// Whether two regions share no element.
    pub(super) fn disjoint(&mut self, a: BufferRegion, b: BufferRegion) -> bool {
        a.buffer != b.buffer || self.interner.disjoint(a.spec, b.spec) == TriBool::Yes
    }

    /// Whether two regions are equal, element by element.
    pub(super) fn same(&mut self, a: BufferRegion, b: BufferRegion) -> bool {
        a.buffer == b.buffer && self.same_layout(a.spec, b.spec, true)
    }

    /// Whether two views have equal sizes and strides; with `begin`, also equal offsets.
    pub(super) fn same_layout(&mut self, a: SpecId, b: SpecId, begin: bool) -> bool {
        self.interner.same_layout(a, b, begin)
    }

    /// Whether a region names no element twice.
    pub(super) fn injective(&mut self, at: BufferRegion) -> bool {
        self.interner.injective(at.spec) == TriBool::Yes
    }

    /// Whether no value needs the elements of a region after `time`; with `before`, at `time` or
    /// after.
    pub(super) fn is_free(&mut self, at: BufferRegion, time: Time, before: bool) -> bool {
        self.conflicts(at, time, before, MAX_OCCUPANTS).is_some_and(|h| h.is_empty())
    }

    /// Frees a region if possible: spills the values that conflict, if that copies fewer elements
    /// than `budget`. A copy to a value's own destination is not counted. A budget of `u64::MAX`
    /// spills them in any case. Returns whether the region is free now.
    pub(super) fn try_free(
        &mut self,
        at: BufferRegion,
        time: Time,
        before: bool,
        budget: u64,
    ) -> Result<bool> {
        let limit = if budget == u64::MAX { usize::MAX } else { MAX_OCCUPANTS };
        let Some(conflicts) = self.conflicts(at, time, before, limit) else { return Ok(false) };
        if conflicts.iter().any(|v| self.placing.contains(v)) {
            return Ok(false);
        }
        let mut cost = 0u64;
        for &value in &conflicts {
            // a copy to the value's own destination is made sooner or later, so it is free
            let leaves = self.destinations[value.index()]
                .is_some_and(|g| g.at.buffer != at.buffer && (!g.output || self.is_external(at)));
            cost = cost.saturating_add(if leaves { 0 } else { self.elements(value) });
        }
        if !conflicts.is_empty() && cost >= budget && budget != u64::MAX {
            return Ok(false);
        }
        for value in conflicts {
            self.spill(value, time)?;
        }
        Ok(true)
    }

    /// Copies a value out of the way: to its destination if that is free, else to a new buffer.
    pub(super) fn spill(&mut self, value: ValueId, time: Time) -> Result<()> {
        let from = self.region(value)?;
        let to = match self.destinations[value.index()].map(|g| g.at) {
            Some(at)
                if self.is_writable(at, time)
                    && self.disjoint(at, from)
                    && self.is_unclaimed(at)
                    && self.is_free(at, time, true) =>
            {
                at
            }
            _ => {
                let rows = self.rows(value)?;
                self.new_buffer(value, rows)?
            }
        };
        self.copy(value, from, to, CopyReason::Keep);
        self.put(value, to);
        Ok(())
    }

    /// Whether a region overlaps none that the current call mutates.
    fn is_unclaimed(&mut self, at: BufferRegion) -> bool {
        (0..self.claimed.len()).all(|i| self.disjoint(at, self.claimed[i]))
    }

    /// About how many elements a value has, with typical numbers for symbols.
    pub(super) fn elements(&self, v: ValueId) -> u64 {
        self.graph.tensor_type(v).map_or(1, |t| approximate_numel(&t.sizes))
    }

    /// The values whose elements in a region are read after `time`; with `before`, at `time` or
    /// after. `None` if the buffer has more than `limit` occupants. Values that have moved or are
    /// dead are dropped from the buffer's list.
    fn conflicts(
        &mut self,
        at: BufferRegion,
        time: Time,
        before: bool,
        limit: usize,
    ) -> Option<Vec<ValueId>> {
        let until = time + usize::from(fault_injected(Fault::LiveOneStatementLess));
        let is_later = |last: Time| last > until || before && last == until;
        let mut occupants = std::mem::take(&mut self.occupants[at.buffer.index()]);
        occupants.retain(|value| {
            let here = self.regions[value.index()].is_some_and(|l| l.buffer == at.buffer);
            here && self.live[value.index()].iter().any(|n| n.last >= time)
        });
        occupants.sort_unstable();
        occupants.dedup();
        let few = occupants.len() <= limit;
        let conflicts = few.then(|| {
            occupants
                .iter()
                .copied()
                .filter(|&value| !self.overlooked(value) && self.is_live_in(value, at, &is_later))
                .collect()
        });
        self.occupants[at.buffer.index()] = occupants;
        conflicts
    }

    /// Whether an injected fault ignores a value; see [`fault_injected`].
    fn overlooked(&self, value: ValueId) -> bool {
        let is_view = |p: &Self| {
            p.graph
                .producer(value)
                .is_some_and(|n| matches!(p.node_kinds[n.index()], NodeKind::View { .. }))
        };
        fault_injected(Fault::ViewsKeepNothingAlive) && is_view(self)
    }

    /// Whether a live region of a value overlaps a region.
    fn is_live_in(
        &mut self,
        value: ValueId,
        at: BufferRegion,
        is_later: &dyn Fn(Time) -> bool,
    ) -> bool {
        let Some(own) = self.regions[value.index()] else { return false };
        // in a value that overlaps itself, an excluded element may be the memory of an included one
        let holes = self.injective(own) || fault_injected(Fault::HolesWhereElementsShare);
        for live in self.live[value.index()].clone().iter().filter(|n| is_later(n.last)) {
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
                    hole.is_some_and(|h| self.interner.contained_in(at.spec, h) == TriBool::Yes)
                });
            if !spared {
                return true;
            }
        }
        false
    }

    /// Whether a region is in an input or a constant.
    pub(super) fn is_external(&self, at: BufferRegion) -> bool {
        matches!(self.buffers[at.buffer.index()], Buffer::Input(_) | Buffer::Const(_))
    }

    /// Whether a region may be written at all: it belongs to the plan, or to an external tensor
    /// that the program mutates and whose preceding effects are done; its numbers are computable by
    /// then; and it names no element twice.
    pub(super) fn is_writable(&mut self, at: BufferRegion, time: Time) -> bool {
        let ours = !self.is_external(at)
            || fault_injected(Fault::UnmutatedInputsWritten)
            || self.program.mutations.iter().any(|m| {
                self.external_buffer(m.target) == at.buffer
                    && self.effects_are_done(m.preceding_effects, time)
            });
        ours && self.is_computable(at, time) && self.injective(at)
    }

    /// Whether the first `preceding_effects` assertions and effects have run. If one of them fails,
    /// external memory that the program writes later must be unchanged.
    fn effects_are_done(&self, preceding_effects: usize, time: Time) -> bool {
        let last = preceding_effects.checked_sub(1).and_then(|i| self.effect_times.get(i));
        last.is_none_or(|at| *at < time)
    }

    /// Whether every symbol of a region, and of its buffer's size, is bound before a time.
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
