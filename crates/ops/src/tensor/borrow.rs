//! The table of region borrows of a storage: many readers or one writer of each byte, decided at
//! once, never waited for.
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

/// Reading or writing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Shared.
    Read,
    /// Exclusive.
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

/// The rights a handle carries: none of its own, or those of a borrow to a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(crate) struct Grant(u64);

impl Grant {
    pub(crate) const NONE: Grant = Grant(0);

    /// The low bit is the right to write, the next says that the borrow's entry holds a tensor; ids
    /// count from 1.
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

/// Who holds a borrow, for messages. Formatting is put off until there is a conflict.
#[derive(Clone)]
pub(crate) enum Holder {
    /// An argument of an operator's call.
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

    /// What the borrow is for: the argument's name, or `the tensor`.
    fn subject(&self) -> String {
        match self {
            Holder::Argument { op, index } => op.arg_name(usize::from(*index)).to_owned(),
            Holder::Guard(_) => "the tensor".to_owned(),
        }
    }
}

/// The part of a storage that a tensor sees. The span in bytes decides most questions; the layout
/// is looked at only where spans meet.
struct Region {
    /// The first byte.
    start: i64,
    /// The byte behind the last; `start` where nothing is seen.
    end: i64,
    /// Whose layout says which bytes of the span are seen; all of them where there is none.
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

    /// Whether this region and that of `tensor`, which is `other`, may share a byte.
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

    /// Whether every byte of `tensor`, whose region is `inner`, is one of this region.
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
    /// Somebody tried to write through this read-only parent_borrow.
    undeclared_write: bool,
    id: u64,
    parent: u64,
    access: Access,
    region: Region,
    holder: Holder,
}

/// How many undeclared writes were tried in this process: spares every call a look at its borrows.
static UNDECLARED_WRITES: AtomicU64 = AtomicU64::new(0);

/// A number that changes when somebody tries to write through a read-only parent_borrow.
pub(crate) fn undeclared_writes() -> u64 {
    UNDECLARED_WRITES.load(Ordering::Acquire)
}

/// So many borrows of a storage are given back without its lock.
const LOCK_FREE_ENTRIES: usize = 2;

/// The borrows of one storage.
///
/// Borrows are taken under a lock, and most are given back by a store: the entries in the table's
/// first places stay where they are when they end, and are written anew. Such an entry keeps
/// nothing alive.
#[derive(Default)]
pub(crate) struct Borrows {
    /// The ids of the borrows in the table's first places; 0 where there is none.
    live: [AtomicU64; LOCK_FREE_ENTRIES],
    table: Mutex<Table>,
}

#[derive(Default)]
struct Table {
    last: u64,
    entries: SmallVec<[Entry; 1]>,
}

/// The table, locked.
struct Locked<'a> {
    live: &'a [AtomicU64; LOCK_FREE_ENTRIES],
    table: MutexGuard<'a, Table>,
}

impl Locked<'_> {
    /// Whether the entry at this index is of a borrow that has not ended. What its holder did
    /// happened before, where it has.
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

    /// Whether `id` is `of` or one of the borrows it descends from.
    fn is_ancestor(&self, id: u64, of: u64) -> bool {
        let mut at = of;
        while at != 0 {
            if at == id {
                return true;
            }
            at = self.get(at).map_or(0, |e| e.parent);
        }
        false
    }

    /// The entry of a new borrow: a new one, or one reused.
    fn add(&mut self, parent: u64, access: Access, region: Region, holder: Holder) -> Grant {
        let Table { last, entries } = &mut *self.table;
        *last += 1;
        let id = *last;
        let grant = Grant::new(id, access, region.strided.is_some());
        let ended =
            self.live.iter().take(entries.len()).position(|id| id.load(Ordering::Acquire) == 0);
        let index = ended.unwrap_or(entries.len());
        match entries.get_mut(index) {
            // field by field: the entry is not built elsewhere and copied
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
        // a panic elsewhere leaves the table whole: nothing between the first and the last write of
        // an entry panics
        Locked {
            live: &self.live,
            table: self.table.lock().unwrap_or_else(PoisonError::into_inner),
        }
    }

    /// Takes a borrow of what `tensor` sees, or says who is in the way. The grant that comes back
    /// is what a borrowed handle carries.
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

    /// Whether a write was tried through this read-only borrow, and whose it is.
    pub(crate) fn undeclared_write(&self, grant: Grant) -> Option<AccessError> {
        let t = self.lock();
        t.get(grant.id())
            .filter(|e| e.undeclared_write)
            .map(|e| AccessError::UndeclaredWrite { holder: e.holder.describe() })
    }

    /// Gives a borrow back.
    pub(crate) fn release(&self, grant: Grant) {
        let index = self.live.iter().position(|id| id.load(Ordering::Relaxed) == grant.id());
        match index.and_then(|index| self.live.get(index)) {
            Some(live) if !grant.is_strided() => live.store(0, Ordering::Release),
            _ => self.release_locked(grant, index),
        }
    }

    /// Gives a borrow back that is not in one of the first entries, or whose entry holds a tensor.
    fn release_locked(&self, grant: Grant, index: Option<usize>) {
        let mut t = self.lock();
        // dropped after the lock
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
