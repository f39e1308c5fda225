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
//! A frozen storage ([`Borrows::freeze`]) cannot be borrowed for a write, ever. The flag is set
//! under the lock, while no write borrow is live. So whoever sees it set knows that the bytes do
//! not change any more.
//!
//! A storage that a running trace has captured cannot be borrowed on other threads
//! ([`Storage::capture`](super::storage::Storage::capture)): an eager use there would not be in the
//! graph. Without such a trace this costs a comparison under the lock.

mod grant;
mod table;

pub use grant::Access;
pub(crate) use grant::Grant;

use crate::error::{AccessError, Result};
use crate::tensor::holder::Holder;
use crate::tensor::kernel_scope;
use crate::tensor::region::{Region, RegionLayout};
use crate::tensor::storage::Storage;
use crate::tensor::{Tensor, TraceTag};
use smallvec::SmallVec;
use std::cell::Cell;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use table::{Locked, Table};

thread_local! {
    static UNOBSERVED: Cell<bool> = const { Cell::new(false) };
}

/// Runs `f`, which is not part of a program that another thread traces: the text of a graph, a copy
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
    /// The number of entries after the first. It changes under the lock.
    further: AtomicUsize,
    table: Mutex<Table>,
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
            Holder::Guard(_) | Holder::Gradient(_) | Holder::Run(_) => None,
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
    /// As [`Borrows::take`]. A kernel that starts a run of a graph passes arguments of its own, and
    /// reaches no other memory through the captured tensors and the state of the graph.
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
            if tensor.grant.id() == 0 && !region.is_empty() {
                kernel_scope::check_declared(tensor, access)?;
            }
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

impl Tensor {
    /// Borrows what it sees until the result is dropped.
    pub(crate) fn borrow(&self, access: Access, holder: Holder) -> Result<BorrowGuard> {
        let storage = self.own_storage()?;
        let grant = storage.borrows.take(self, access, holder)?;
        Ok(BorrowGuard { storage: storage.clone(), grant })
    }
}

/// A borrow that ends when it is dropped.
pub(crate) struct BorrowGuard {
    storage: Arc<Storage>,
    pub(crate) grant: Grant,
}

impl BorrowGuard {
    pub(crate) fn storage(&self) -> &Storage {
        &self.storage
    }
}

impl Drop for BorrowGuard {
    fn drop(&mut self) {
        self.storage.borrows.release(self.grant);
    }
}
