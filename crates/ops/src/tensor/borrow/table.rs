//! The table of a storage's borrows: what is live, what descends from what, and what conflicts.

use super::{Access, Grant, LOCK_FREE_ENTRIES, UNDECLARED_WRITES, UNOBSERVED};
use crate::error::AccessError;
use crate::tensor::holder::Holder;
use crate::tensor::region::{Region, RegionLayout};
use crate::tensor::{Tensor, TraceTag};
use smallvec::SmallVec;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, MutexGuard};

pub(super) struct Entry {
    /// Whether a write was attempted through this read-only borrow.
    pub(super) undeclared_write: bool,
    pub(super) id: u64,
    /// The id of the borrow from which this one descends; 0 if there is none.
    parent: u64,
    pub(super) access: Access,
    pub(super) region: Region,
    pub(super) holder: Holder,
}

impl Entry {
    /// The holder of the part that overlaps `region`, the region of `tensor`.
    fn holder_of(&self, region: &Region, tensor: &Tensor) -> &Holder {
        match &self.region.layout {
            RegionLayout::Parts(parts) => {
                let part = parts.iter().find(|(part, _)| part.overlaps(region, tensor));
                part.map_or(&self.holder, |(_, holder)| holder)
            }
            RegionLayout::Span | RegionLayout::Strided(_) => &self.holder,
        }
    }

    /// The error of a new borrow of `region`, the region of `tensor`, that conflicts with this one.
    #[cold]
    fn conflict(
        &self,
        tensor: &Tensor,
        region: &Region,
        access: Access,
        holder: &Holder,
    ) -> AccessError {
        AccessError::Conflict {
            wanted: access.verb(),
            arg: holder.subject(),
            holder: self.holder_of(region, tensor).describe(),
            held: self.access.verb_s(),
        }
    }
}

#[derive(Default)]
pub(super) struct Table {
    last: u64,
    pub(super) is_frozen: bool,
    pub(super) entries: SmallVec<[Entry; 1]>,
    /// The traces that have captured the storage. Those that have ended are removed later. A boxed
    /// slice, because nearly all storages have none.
    pub(super) traces: Box<[Arc<TraceTag>]>,
}

impl Table {
    pub(super) fn retain_traces(&mut self, keep: impl Fn(&Arc<TraceTag>) -> bool) {
        let mut traces = std::mem::take(&mut self.traces).into_vec();
        traces.retain(keep);
        self.traces = traces.into();
    }
}

/// The locked table, with the liveness of its first entries.
pub(super) struct Locked<'a> {
    pub(super) live: &'a [AtomicU64; LOCK_FREE_ENTRIES],
    pub(super) further: &'a AtomicUsize,
    pub(super) table: MutexGuard<'a, Table>,
}

impl Locked<'_> {
    /// Whether the borrow of this entry is still live. The acquire load pairs with the release
    /// store in [`Borrows::release`]: if the borrow has ended, all accesses of its holder happened
    /// before.
    fn is_live(&self, index: usize, e: &Entry) -> bool {
        self.live.get(index).is_none_or(|id| id.load(Ordering::Acquire) == e.id)
    }

    pub(super) fn entries(&self) -> impl Iterator<Item = &Entry> {
        self.table
            .entries
            .iter()
            .enumerate()
            .filter(|(index, e)| self.is_live(*index, e))
            .map(|(_, e)| e)
    }

    pub(super) fn get(&self, id: u64) -> Option<&Entry> {
        self.entries().find(|e| e.id == id)
    }

    /// A running trace of another thread that has captured the storage.
    #[cold]
    fn captured_elsewhere(&mut self) -> Option<Arc<TraceTag>> {
        self.table.retain_traces(|trace| !trace.has_ended());
        let here = std::thread::current().id();
        let elsewhere = self.table.traces.iter().find(|trace| trace.thread != here);
        elsewhere.filter(|_| !UNOBSERVED.get()).cloned()
    }

    /// Whether the borrow `id` is `of` or an ancestor of `of`.
    pub(super) fn is_ancestor(&self, id: u64, of: u64) -> bool {
        let mut current = of;
        while current != 0 {
            if current == id {
                return true;
            }
            current = self.get(current).map_or(0, |e| e.parent);
        }
        false
    }

    /// Checks that the region of `tensor` can be borrowed as a child of the borrow `parent`, or
    /// without a parent if that is 0. The usual case, a handle without a grant to a storage without
    /// other borrows, is inlined.
    #[inline]
    pub(super) fn check(
        &mut self,
        tensor: &Tensor,
        region: &Region,
        access: Access,
        holder: &Holder,
        parent: u64,
    ) -> Result<(), AccessError> {
        if tensor.grant.id() != 0 {
            self.check_grant(tensor, region, access)?;
        } else if !self.table.traces.is_empty() {
            self.check_captured(access, holder)?;
        }
        if access == Access::Write && self.table.is_frozen {
            return Err(AccessError::Frozen { arg: holder.subject() });
        }
        let excludes = |e: &&Entry| access == Access::Write || e.access == Access::Write;
        let conflicting = self
            .entries()
            .filter(excludes)
            .find(|e| !self.is_ancestor(e.id, parent) && e.region.overlaps(region, tensor));
        match conflicting {
            Some(e) => Err(e.conflict(tensor, region, access, holder)),
            None => Ok(()),
        }
    }

    /// Checks that no running trace of another thread has captured the storage.
    #[cold]
    fn check_captured(&mut self, access: Access, holder: &Holder) -> Result<(), AccessError> {
        match self.captured_elsewhere() {
            Some(trace) => {
                Err(AccessError::Captured { wanted: access.verb(), arg: holder.subject(), trace })
            }
            None => Ok(()),
        }
    }

    /// Checks that the grant of a handle allows an access: its borrow is live, has the right to
    /// write if the access writes, and covers the region unless it is a reservation.
    fn check_grant(
        &mut self,
        tensor: &Tensor,
        region: &Region,
        access: Access,
    ) -> Result<(), AccessError> {
        let own = tensor.grant.id();
        let own_borrow = self.get(own).ok_or(AccessError::Stale)?;
        if access == Access::Write && !tensor.grant.may_write() {
            let error = AccessError::UndeclaredWrite { holder: own_borrow.holder.describe() };
            let entries = self.table.entries.iter_mut();
            entries.filter(|e| e.id == own).for_each(|e| e.undeclared_write = true);
            UNDECLARED_WRITES.fetch_add(1, Ordering::Release);
            return Err(error);
        }
        let is_confined = !tensor.grant.is_reservation();
        if is_confined && !own_borrow.region.contains(region, tensor) {
            return Err(AccessError::OutsideBorrow { holder: own_borrow.holder.describe() });
        }
        Ok(())
    }

    /// Adds the entry of a new borrow, reusing a free entry if there is one.
    #[inline]
    pub(super) fn add(
        &mut self,
        parent: u64,
        access: Access,
        region: Region,
        holder: Holder,
    ) -> Grant {
        let Table { last, entries, .. } = &mut *self.table;
        *last += 1;
        let id = *last;
        let grant = Grant::new(id, access, region.holds_tensor());
        let ended =
            self.live.iter().take(entries.len()).position(|id| id.load(Ordering::Acquire) == 0);
        let index = ended.unwrap_or(entries.len());
        match entries.get_mut(index) {
            // assigned field by field, so that the entry is not built on the stack and copied
            Some(e) => {
                e.undeclared_write = false;
                e.id = id;
                e.parent = parent;
                e.access = access;
                e.region = region;
                e.holder = holder;
            }
            None => {
                entries.push(Entry { undeclared_write: false, id, parent, access, region, holder })
            }
        }
        match self.live.get(index) {
            Some(live) => live.store(id, Ordering::Relaxed),
            None => drop(self.further.fetch_add(1, Ordering::Relaxed)),
        }
        grant
    }
}
