//! The table of region borrows of a storage: many readers or one writer of each byte, decided at once, never waited for.
//!
//! A kernel's arguments are borrowed for the call, and the handles it gets carry a [`Grant`]: reads, writes, views and nested calls
//! through such a handle are checked against everybody else's borrows, not against the loan they come from.

use crate::error::AccessError;
use crate::overlap::{contains, may_overlap, touches};
use crate::tensor::Tensor;
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

/// The rights a handle carries: none of its own, or those of a loan to a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(crate) struct Grant(u64);

impl Grant {
    pub(crate) const NONE: Grant = Grant(0);

    /// The low bit is the right to write; ids count from 1.
    fn new(id: u64, access: Access) -> Grant {
        Grant(id << 1 | u64::from(access == Access::Write))
    }

    fn id(self) -> u64 {
        self.0 >> 1
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
            Holder::Argument { op, index } => format!("argument `{}` of {}", op.arg_name(usize::from(*index)), op.name()),
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

/// The part of a storage that a tensor sees. The span in bytes decides most questions; the layout is looked at only where spans meet.
struct Region {
    span: Option<(i64, i64)>,
    /// Whose layout says which bytes of the span are seen; all of them where there is none.
    strided: Option<Tensor>,
}

impl Region {
    fn of(tensor: &Tensor) -> Region {
        let strided = if tensor.meta().is_plainly_contiguous() { None } else { Some(tensor.ungranted()) };
        Region { span: tensor.span(), strided }
    }

    /// Whether this region and that of `tensor`, which is `other`, may share a byte.
    fn meets(&self, other: &Region, tensor: &Tensor) -> bool {
        let (Some(a), Some(b)) = (self.span, other.span) else { return false };
        let layouts_meet = || match (&self.strided, tensor.meta().concrete()) {
            (None, _) if other.strided.is_none() => true,
            (None, Some(y)) => touches(&y, a),
            (Some(t), Some(y)) => t.meta().concrete().is_none_or(|x| may_overlap(&x, &y)),
            (_, None) => true,
        };
        a.0 < b.1 && b.0 < a.1 && layouts_meet()
    }

    /// Whether every byte of `tensor`, whose region is `inner`, is one of this region.
    fn contains(&self, inner: &Region, tensor: &Tensor) -> bool {
        match (self.span, inner.span) {
            (_, None) => true,
            (Some(outer), Some(found)) => {
                let layout_contains = |t: &Tensor| match (t.meta().concrete(), tensor.meta().concrete()) {
                    (Some(x), Some(y)) => contains(&x, &y),
                    _ => false,
                };
                outer.0 <= found.0 && found.1 <= outer.1 && self.strided.as_ref().is_none_or(layout_contains)
            }
            (None, Some(_)) => false,
        }
    }
}

struct Entry {
    /// Somebody tried to write through this read-only loan.
    violated: bool,
    id: u64,
    parent: u64,
    access: Access,
    region: Region,
    holder: Holder,
}

/// How many undeclared writes were tried in this process: spares every call a look at its loans.
static VIOLATIONS: AtomicU64 = AtomicU64::new(0);

/// A number that changes when somebody tries to write through a read-only loan.
pub(crate) fn violations() -> u64 {
    VIOLATIONS.load(Ordering::Acquire)
}

/// The borrows of one storage.
#[derive(Default)]
pub(crate) struct Borrows(Mutex<Table>);

#[derive(Default)]
struct Table {
    last: u64,
    entries: SmallVec<[Entry; 1]>,
}

impl Table {
    fn get(&self, id: u64) -> Option<&Entry> {
        self.entries.iter().find(|e| e.id == id)
    }

    /// Whether `id` is `of` or one of the loans it descends from.
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
}

impl Borrows {
    fn lock(&self) -> MutexGuard<'_, Table> {
        // a panic elsewhere leaves the table whole: entries are pushed and removed in one step
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a borrow of what `tensor` sees, or says who is in the way. The grant that comes back is what a lent handle carries.
    pub(crate) fn take(&self, tensor: &Tensor, access: Access, holder: Holder) -> Result<Grant, AccessError> {
        let region = Region::of(tensor);
        let mut t = self.lock();
        let parent = tensor.grant.id();
        if parent != 0 {
            let loan = t.entries.iter_mut().find(|e| e.id == parent).ok_or(AccessError::Stale)?;
            if access == Access::Write && !tensor.grant.may_write() {
                loan.violated = true;
                VIOLATIONS.fetch_add(1, Ordering::Release);
                return Err(AccessError::UndeclaredWrite { holder: loan.holder.describe() });
            }
            if !loan.region.contains(&region, tensor) {
                return Err(AccessError::OutsideLoan { holder: loan.holder.describe() });
            }
        }
        let excludes = |e: &&Entry| access == Access::Write || e.access == Access::Write;
        let in_the_way = t.entries.iter().filter(excludes).find(|e| !t.is_ancestor(e.id, parent) && e.region.meets(&region, tensor));
        if let Some(e) = in_the_way {
            return Err(AccessError::Conflict {
                wanted: access.verb(),
                arg: holder.subject(),
                holder: e.holder.describe(),
                held: e.access.verb_s(),
            });
        }
        t.last += 1;
        let id = t.last;
        t.entries.push(Entry { violated: false, id, parent, access, region, holder });
        Ok(Grant::new(id, access))
    }

    /// Whether a write was tried through this read-only loan, and whose it is.
    pub(crate) fn violated(&self, grant: Grant) -> Option<AccessError> {
        let t = self.lock();
        t.get(grant.id()).filter(|e| e.violated).map(|e| AccessError::UndeclaredWrite { holder: e.holder.describe() })
    }

    /// Gives a borrow back.
    pub(crate) fn release(&self, grant: Grant) {
        let mut t = self.lock();
        if let Some(i) = t.entries.iter().position(|e| e.id == grant.id()) {
            t.entries.swap_remove(i);
        }
    }
}
