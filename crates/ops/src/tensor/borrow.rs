//! Run-time borrow checking for storages: each byte has many readers or one writer. A conflict is
//! an error at once; a borrow never waits.
//!
//! The dispatcher borrows a kernel's arguments for the duration of the call. The handles that the
//! kernel receives carry a [`Grant`]. An access, view or nested call through such a handle is
//! checked against all borrows except the one it descends from and that one's ancestors. Borrows of
//! a storage thus form a forest, and a child's region must lie inside its parent's.
//!
//! A run of a graph borrows all of its inputs in advance ([`Borrows::reserve`]). One such
//! *reservation* covers the regions of several tensors. A reservation excludes other holders and
//! grants its rights to the handles of the run. It does not confine these handles: a view may leave
//! the region, and an access outside is checked like any other access.
//!
//! Regions are compared by byte span first; strided layouts are compared only if the spans
//! intersect. Taking a borrow locks the table and costs one comparison per live borrow of the
//! storage, of which there are few. Releasing one of the first [`LOCK_FREE_ENTRIES`] borrows is a
//! single atomic store.
//!
//! A frozen storage ([`Borrows::freeze`]) cannot be borrowed for a write, ever. The flag is set under
//! the lock, while no write borrow is live. So whoever sees it set knows that the bytes do not change
//! any more.
//!
//! A storage that a running trace has captured cannot be borrowed on other threads
//! ([`Storage::capture`](super::storage::Storage::capture)): an eager use there would not be in the
//! graph. Without such a trace this costs a comparison under the lock.

use crate::error::AccessError;
use crate::tensor::holder::Holder;
use crate::tensor::kernel_scope;
use crate::tensor::region::{Region, RegionLayout};
use crate::tensor::{Tensor, TraceTag};
use smallvec::SmallVec;
use std::cell::Cell;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The kind of access a borrow permits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Shared access.
    Read,
    /// Exclusive access.
    Write,
}

impl Access {
    const fn verb(self) -> &'static str {
        match self {
            Access::Read => "read",
            Access::Write => "write",
        }
    }

    pub(crate) const fn verb_s(self) -> &'static str {
        match self {
            Access::Read => "reads",
            Access::Write => "writes",
        }
    }
}

/// The borrow that a handle belongs to, and the rights of that borrow. A handle outside of any call
/// and run has [`Grant::NONE`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub(crate) struct Grant(u64);

impl Grant {
    pub(crate) const NONE: Grant = Grant(0);

    /// Bit 0 is the right to write. Bit 1 says that the table entry holds a tensor, bit 2 that the
    /// borrow is a reservation. The borrow's id, counted from 1, is in the bits above.
    fn new(id: u64, access: Access, strided: bool) -> Grant {
        Grant(id << 3 | u64::from(strided) << 1 | u64::from(access == Access::Write))
    }

    fn id(self) -> u64 {
        self.0 >> 3
    }

    /// The grant of a reservation's handles. All of them may write if the run writes any of them.
    pub(crate) fn of_reservation(self, may_write: bool) -> Grant {
        Grant(self.0 | 4 | u64::from(may_write))
    }

    /// Whether the grant belongs to a run, not to one call.
    pub(crate) fn is_reservation(self) -> bool {
        self.0 & 4 != 0
    }

    /// Whether the grant belongs to one call.
    pub(crate) fn is_of_call(self) -> bool {
        self != Grant::NONE && !self.is_reservation()
    }

    fn is_strided(self) -> bool {
        self.0 & 2 != 0
    }

    pub(crate) fn may_write(self) -> bool {
        self.0 & 1 == 1
    }
}

struct Entry {
    /// Whether a write was attempted through this read-only borrow.
    undeclared_write: bool,
    id: u64,
    /// The id of the borrow from which this one descends; 0 if there is none.
    parent: u64,
    access: Access,
    region: Region,
    holder: Holder,
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

thread_local! {
    static UNOBSERVED: Cell<bool> = const { Cell::new(false) };
}

/// Runs `f`, which is no part of a program that another thread traces: the text of a graph, a copy
/// of a program's state, a call of a compiled function. Inside `f`, this thread can also borrow
/// tensors that traces of other threads have captured.
pub fn unobserved<R>(f: impl FnOnce() -> R) -> R {
    struct Restore(bool);
    impl Drop for Restore {
        fn drop(&mut self) {
            UNOBSERVED.set(self.0);
        }
    }
    let _restore = Restore(UNOBSERVED.replace(true));
    f()
}

/// The number of undeclared writes attempted in this process. A call inspects its borrows only if
/// the number changed.
static UNDECLARED_WRITES: AtomicU64 = AtomicU64::new(0);

/// A counter that changes whenever a write is attempted through a read-only borrow.
pub(crate) fn undeclared_writes() -> u64 {
    UNDECLARED_WRITES.load(Ordering::Acquire)
}

/// The number of table entries that are released without the lock.
const LOCK_FREE_ENTRIES: usize = 2;

/// The borrows of one storage.
///
/// Borrows are taken under a lock, but most are released by one atomic store: an entry among the
/// first `LOCK_FREE_ENTRIES` stays in the table when its borrow ends, and `live` marks it as free
/// for reuse. Such an entry keeps no tensor alive.
#[derive(Default)]
pub(crate) struct Borrows {
    /// The ids of the live borrows in the first entries of the table; 0 for a free entry.
    live: [AtomicU64; LOCK_FREE_ENTRIES],
    /// The number of entries behind the first. It changes under the lock.
    further: AtomicUsize,
    table: Mutex<Table>,
}

#[derive(Default)]
struct Table {
    last: u64,
    is_frozen: bool,
    entries: SmallVec<[Entry; 1]>,
    /// The traces that have captured the storage. Those that have ended are removed later. A boxed
    /// slice, because nearly all storages have none.
    traces: Box<[Arc<TraceTag>]>,
}

impl Table {
    fn retain_traces(&mut self, keep: impl Fn(&Arc<TraceTag>) -> bool) {
        let mut traces = std::mem::take(&mut self.traces).into_vec();
        traces.retain(keep);
        self.traces = traces.into();
    }
}

/// The locked table, with the liveness of its first entries.
struct Locked<'a> {
    live: &'a [AtomicU64; LOCK_FREE_ENTRIES],
    further: &'a AtomicUsize,
    table: MutexGuard<'a, Table>,
}

impl Locked<'_> {
    /// Whether the borrow of this entry is still live. The acquire load pairs with the release
    /// store in [`Borrows::release`]: if the borrow has ended, all accesses of its holder happened
    /// before.
    fn is_live(&self, index: usize, e: &Entry) -> bool {
        self.live.get(index).is_none_or(|id| id.load(Ordering::Acquire) == e.id)
    }

    fn entries(&self) -> impl Iterator<Item = &Entry> {
        self.table
            .entries
            .iter()
            .enumerate()
            .filter(|(index, e)| self.is_live(*index, e))
            .map(|(_, e)| e)
    }

    fn get(&self, id: u64) -> Option<&Entry> {
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
    fn is_ancestor(&self, id: u64, of: u64) -> bool {
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
    fn check(
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
    fn add(&mut self, parent: u64, access: Access, region: Region, holder: Holder) -> Grant {
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

impl Borrows {
    fn lock(&self) -> Locked<'_> {
        // a poisoned lock is harmless: no code between the first and last write of an entry panics
        Locked {
            live: &self.live,
            further: &self.further,
            table: self.table.lock().unwrap_or_else(PoisonError::into_inner),
        }
    }

    /// The argument for which a call borrowed a handle, as text; `None` if the handle belongs to a
    /// guard, to a run, or to no borrow.
    pub(crate) fn holder(&self, grant: Grant) -> Option<String> {
        match &self.lock().get(grant.id())?.holder {
            holder @ Holder::Argument { .. } => Some(holder.describe()),
            Holder::Guard(_) | Holder::Run(_) => None,
        }
    }

    /// Borrows the region of `tensor`. The returned grant goes into the borrowed handle.
    ///
    /// # Errors
    /// Another holder has a conflicting borrow; the handle outlived its call, may not write, or
    /// views memory outside its own borrow; or a kernel is running that was not given the tensor.
    pub(crate) fn take(
        &self,
        tensor: &Tensor,
        access: Access,
        holder: Holder,
    ) -> Result<Grant, AccessError> {
        let region = Region::of(tensor);
        let mut t = self.lock();
        let parent = tensor.grant.id();
        t.check(tensor, &region, access, &holder, parent)?;
        if parent == 0 && !region.is_empty() {
            kernel_scope::check_declared(tensor, access)?;
        }
        Ok(t.add(parent, access, region, holder))
    }

    /// Borrows the regions of several tensors with one grant, for a run: all of them, or none. The
    /// new borrow descends from `parent`. Each tensor is also checked against its own grant.
    ///
    /// # Errors
    /// As [`Borrows::take`].
    pub(crate) fn reserve(
        &self,
        tensors: &[(&Tensor, Holder)],
        access: Access,
        parent: Grant,
    ) -> Result<Grant, AccessError> {
        let mut t = self.lock();
        // One tensor, as usual, takes no list.
        let mut parts: SmallVec<[(Region, Holder); 1]> = SmallVec::new();
        for (tensor, holder) in tensors {
            let region = Region::of(tensor);
            t.check(tensor, &region, access, holder, parent.id())?;
            parts.push((region, holder.clone()));
        }
        let (region, holder) = match (parts.len(), parts.pop()) {
            (1, Some(only)) => only,
            (_, last) => {
                parts.extend(last);
                let holder = parts.first().map_or_else(
                    || Holder::Guard(maquette_ir::Loc::caller()),
                    |(_, holder)| holder.clone(),
                );
                (Region::of_parts(parts.into_vec()), holder)
            }
        };
        Ok(t.add(parent.id(), access, region, holder))
    }

    /// Refuses all writes from now on.
    ///
    /// # Errors
    /// Someone writes the storage now.
    pub(crate) fn freeze(&self) -> Result<(), AccessError> {
        let mut t = self.lock();
        if let Some(writer) = t.entries().find(|e| e.access == Access::Write) {
            return Err(AccessError::Conflict {
                wanted: "freeze",
                arg: "the tensor".to_owned(),
                holder: writer.holder.describe(),
                held: Access::Write.verb_s(),
            });
        }
        t.table.is_frozen = true;
        Ok(())
    }

    /// Whether all writes are refused.
    pub(crate) fn is_frozen(&self) -> bool {
        self.lock().table.is_frozen
    }

    /// Until `trace` ends, refuses new borrows on threads other than the trace's own. A borrow that
    /// is already live stays valid, and new borrows may descend from it.
    pub(crate) fn capture(&self, trace: &Arc<TraceTag>) {
        let mut t = self.lock();
        t.table.retain_traces(|other| !other.has_ended() && !Arc::ptr_eq(other, trace));
        let captured = t.table.traces.iter().chain([trace]).cloned().collect();
        t.table.traces = captured;
    }

    /// Whether a borrow is live that `grant` does not descend from.
    pub(crate) fn is_accessed(&self, tensor: &Tensor) -> bool {
        let grant = tensor.grant;
        // Without a lock where no borrow is live, or only that of the grant. The loads acquire, as
        // in `Locked::is_live`.
        let others = |live: &AtomicU64| ![0, grant.id()].contains(&live.load(Ordering::Acquire));
        if self.further.load(Ordering::Acquire) == 0 && !self.live.iter().any(others) {
            return false;
        }
        let (region, t) = (Region::of(tensor), self.lock());
        let mut others = t.entries().filter(|e| !t.is_ancestor(e.id, grant.id()));
        others.any(|e| e.region.overlaps(&region, tensor))
    }

    /// The error of a write attempted through this read-only borrow, if there was one.
    pub(crate) fn undeclared_write(&self, grant: Grant) -> Option<AccessError> {
        let t = self.lock();
        t.get(grant.id())
            .filter(|e| e.undeclared_write)
            .map(|e| AccessError::UndeclaredWrite { holder: e.holder.describe() })
    }

    /// Releases a borrow.
    pub(crate) fn release(&self, grant: Grant) {
        let index = self.live.iter().position(|id| id.load(Ordering::Relaxed) == grant.id());
        match index.and_then(|index| self.live.get(index)) {
            Some(live) if !grant.is_strided() => live.store(0, Ordering::Release),
            _ => self.release_locked(grant, index),
        }
    }

    /// Releases a borrow that is not in one of the first entries, or whose entry holds a tensor.
    fn release_locked(&self, grant: Grant, index: Option<usize>) {
        let mut t = self.lock();
        // declared first, so that its tensors are dropped after the lock is released: a drop may
        // free a storage
        let _layout;
        match index.and_then(|index| Some((t.live.get(index)?, index))) {
            Some((live, index)) => {
                _layout = t
                    .table
                    .entries
                    .get_mut(index)
                    .map(|e| std::mem::replace(&mut e.region.layout, RegionLayout::Span));
                live.store(0, Ordering::Release);
            }
            None => {
                let others = t.table.entries.iter().enumerate().skip(LOCK_FREE_ENTRIES);
                let found = others.filter(|(_, e)| e.id == grant.id()).map(|(i, _)| i).next();
                _layout = found.map(|i| t.table.entries.swap_remove(i).region.layout);
                if found.is_some() {
                    t.further.fetch_sub(1, Ordering::Release);
                }
            }
        }
    }
}
