//! Run-time borrow checking for storages: each byte has many readers or one writer. A conflict is
//! an error at once; a borrow never waits.
//!
//! The dispatcher borrows a kernel's arguments for the duration of the call. The handles that the
//! kernel receives carry a [`Grant`]. An access, view or nested call through such a handle is
//! checked against all borrows except the one it descends from and that one's ancestors. Borrows of
//! a storage thus form a forest, and a child's region must lie inside its parent's.
//!
//! Regions are compared by byte span first; strided layouts are compared only if the spans
//! intersect. Taking a borrow locks the table and costs one comparison per live borrow of the
//! storage, of which there are few. Releasing one of the first [`LOCK_FREE_ENTRIES`] borrows is a
//! single atomic store.
//!
//! A kernel's arguments are borrowed for the call, and the handles it gets carry a [`Grant`]:
//! reads, writes, views and nested calls through such a handle are checked against everybody else's
//! borrows, not against the borrow they come from.

use crate::error::AccessError;
use crate::tensor::Tensor;
use crate::tensor::overlap::{contains, may_overlap, overlaps_byte_range};
use smallvec::SmallVec;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

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

    const fn verb_s(self) -> &'static str {
        match self {
            Access::Read => "reads",
            Access::Write => "writes",
        }
    }
}

/// The borrow that a handle belongs to, with its rights. [`Grant::NONE`] means a handle outside any
/// call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(crate) struct Grant(u64);

impl Grant {
    pub(crate) const NONE: Grant = Grant(0);

    /// Bit 0 is the right to write. Bit 1 says that the table entry holds a tensor. The borrow's
    /// id, counted from 1, is in the bits above.
    fn new(id: u64, access: Access, strided: bool) -> Grant {
        Grant(id << 2 | u64::from(strided) << 1 | u64::from(access == Access::Write))
    }

    fn id(self) -> u64 {
        self.0 >> 2
    }

    fn is_strided(self) -> bool {
        self.0 & 2 != 0
    }

    pub(crate) fn may_write(self) -> bool {
        self.0 & 1 == 1
    }
}

/// The holder of a borrow, for error messages. The text is formatted only for a conflict.
#[derive(Clone)]
pub(crate) enum Holder {
    /// An argument of an operator call.
    Argument { op: crate::library::Op, index: u16 },
    /// A guard from `read()` or `write()`.
    Guard(maquette_ir::Loc),
}

impl Holder {
    fn describe(&self) -> String {
        match self {
            Holder::Argument { op, index } => {
                format!("argument `{}` of {}", op.arg_name(usize::from(*index)), op.name())
            }
            Holder::Guard(loc) => format!("the guard taken at {loc}"),
        }
    }

    /// The borrowed item, for messages: the argument's name, or `the tensor`.
    fn subject(&self) -> String {
        match self {
            Holder::Argument { op, index } => op.arg_name(usize::from(*index)).to_owned(),
            Holder::Guard(_) => "the tensor".to_owned(),
        }
    }
}

/// The bytes of a storage that a tensor views. The byte span decides most questions. The layout is
/// compared only if spans intersect.
struct Region {
    /// The first byte.
    start: i64,
    /// The byte after the last one; equal to `start` for an empty region.
    end: i64,
    /// The tensor whose layout selects bytes of the span. `None` if the region is the whole span.
    strided: Option<Tensor>,
}

impl Region {
    fn of(tensor: &Tensor) -> Region {
        let m = tensor.meta();
        if let (Some(elements), Some(offset)) = (m.dense_numel(), m.offset.as_i64()) {
            let width = m.dtype.size() as i64;
            let start = offset.saturating_mul(width);
            return Region {
                start,
                end: start.saturating_add(elements.saturating_mul(width)),
                strided: None,
            };
        }
        let (start, end) = tensor.span().unwrap_or_default();
        Region { start, end, strided: Some(tensor.without_grant()) }
    }

    fn is_empty(&self) -> bool {
        self.start >= self.end
    }

    /// Whether this region and `other`, the region of `tensor`, may share a byte.
    fn overlaps(&self, other: &Region, tensor: &Tensor) -> bool {
        let layouts_overlap = || match (&self.strided, tensor.meta().concrete()) {
            (None, _) if other.strided.is_none() => true,
            (None, Some(y)) => overlaps_byte_range(&y, (self.start, self.end)),
            (Some(t), Some(y)) => t.meta().concrete().is_none_or(|x| may_overlap(&x, &y)),
            (_, None) => true,
        };
        !self.is_empty()
            && !other.is_empty()
            && self.start < other.end
            && other.start < self.end
            && layouts_overlap()
    }

    /// Whether this region contains every byte of `inner`, the region of `tensor`.
    fn contains(&self, inner: &Region, tensor: &Tensor) -> bool {
        let layout_contains = |t: &Tensor| match (t.meta().concrete(), tensor.meta().concrete()) {
            (Some(x), Some(y)) => contains(&x, &y),
            _ => false,
        };
        inner.is_empty()
            || self.start <= inner.start
                && inner.end <= self.end
                && self.strided.as_ref().is_none_or(layout_contains)
    }
}

struct Entry {
    /// Whether a write was attempted through this read-only borrow.
    undeclared_write: bool,
    id: u64,
    parent: u64,
    access: Access,
    region: Region,
    holder: Holder,
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
    table: Mutex<Table>,
}

#[derive(Default)]
struct Table {
    last: u64,
    entries: SmallVec<[Entry; 1]>,
}

/// The locked table, with the liveness of its first entries.
struct Locked<'a> {
    live: &'a [AtomicU64; LOCK_FREE_ENTRIES],
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

    /// Adds the entry of a new borrow, reusing a free entry if there is one.
    fn add(&mut self, parent: u64, access: Access, region: Region, holder: Holder) -> Grant {
        let Table { last, entries } = &mut *self.table;
        *last += 1;
        let id = *last;
        let grant = Grant::new(id, access, region.strided.is_some());
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
        if let Some(live) = self.live.get(index) {
            live.store(id, Ordering::Relaxed);
        }
        grant
    }
}

impl Borrows {
    fn lock(&self) -> Locked<'_> {
        // a poisoned lock is harmless: no code between the first and last write of an entry panics
        Locked {
            live: &self.live,
            table: self.table.lock().unwrap_or_else(PoisonError::into_inner),
        }
    }

    /// The argument that a handle was borrowed for; `None` if the handle is of no call.
    pub(crate) fn holder(&self, grant: Grant) -> Option<String> {
        match &self.lock().get(grant.id())?.holder {
            holder @ Holder::Argument { .. } => Some(holder.describe()),
            Holder::Guard(_) => None,
        }
    }

    /// Borrows the region of `tensor`. The returned grant goes into the borrowed handle.
    ///
    /// # Errors
    /// Another holder has a conflicting borrow; the handle outlived its call, may not write, or
    /// views memory outside its own borrow.
    pub(crate) fn take(
        &self,
        tensor: &Tensor,
        access: Access,
        holder: Holder,
    ) -> Result<Grant, AccessError> {
        let region = Region::of(tensor);
        let mut t = self.lock();
        let parent = tensor.grant.id();
        if parent != 0 {
            let parent_borrow = t.get(parent).ok_or(AccessError::Stale)?;
            if access == Access::Write && !tensor.grant.may_write() {
                let error =
                    AccessError::UndeclaredWrite { holder: parent_borrow.holder.describe() };
                t.table
                    .entries
                    .iter_mut()
                    .filter(|e| e.id == parent)
                    .for_each(|e| e.undeclared_write = true);
                UNDECLARED_WRITES.fetch_add(1, Ordering::Release);
                return Err(error);
            }
            if !parent_borrow.region.contains(&region, tensor) {
                return Err(AccessError::OutsideBorrow { holder: parent_borrow.holder.describe() });
            }
        }
        let excludes = |e: &&Entry| access == Access::Write || e.access == Access::Write;
        let conflicting = t
            .entries()
            .filter(excludes)
            .find(|e| !t.is_ancestor(e.id, parent) && e.region.overlaps(&region, tensor));
        if let Some(e) = conflicting {
            return Err(AccessError::Conflict {
                wanted: access.verb(),
                arg: holder.subject(),
                holder: e.holder.describe(),
                held: e.access.verb_s(),
            });
        }
        Ok(t.add(parent, access, region, holder))
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
        // declared first, so that the tensor is dropped after the lock is released: its drop may
        // free a storage
        let _tensor;
        match index.and_then(|index| Some((t.live.get(index)?, index))) {
            Some((live, index)) => {
                _tensor = t.table.entries.get_mut(index).and_then(|e| e.region.strided.take());
                live.store(0, Ordering::Release);
            }
            None => {
                let others = t.table.entries.iter().enumerate().skip(LOCK_FREE_ENTRIES);
                let found = others.filter(|(_, e)| e.id == grant.id()).map(|(i, _)| i).next();
                _tensor = found.and_then(|i| t.table.entries.swap_remove(i).region.strided);
            }
        }
    }
}
