//! Limits what a registered kernel may access: the arguments of its call, and memory that was made
//! during the call.
//!
//! **Problem.** Passes move, merge and drop calls of custom operators. They rely on the schema,
//! which declares what the kernel reads and writes. A kernel can also reach a tensor that is not an
//! argument: in a static variable, in a cache, or captured by its closure. If the program also
//! writes that tensor, a moved call may read it before a write that the eager call reads it after,
//! and so compute another result.
//!
//! **Technique.** An allocation epoch, a counter that each call of a registered kernel advances. A
//! storage carries the epoch in which it was made, and views share the storage of their base. The
//! handles that a kernel gets as arguments carry a grant. A kernel may use a handle without a grant
//! ([`Grant::NONE`]) only if the innermost running call began before the storage was made. So the
//! kernel can use the tensors that it makes itself, and the new tensors that nested calls return.
//!
//! **Invariant.** If an access is refused, the call fails, even if the kernel discards the error.
//!
//! **Limits.** Only the thread of the call is checked: the accesses of threads that a kernel starts
//! are not. Memory that another thread makes during the call counts as made by the call.
//!
//! **Cost.** One relaxed addition for each call of a registered kernel, one relaxed load for each
//! new storage, and one thread-local load for each borrow through a handle without a grant.
//!
//! [`Grant::NONE`]: crate::tensor::borrow::Grant::NONE

use crate::dispatch::mode::{self, Question};
use crate::error::AccessError;
use crate::tensor::Tensor;
use crate::tensor::borrow::Access;
use maquette_ir::Loc;
use std::cell::{Cell, RefCell};
use std::sync::atomic::{AtomicU64, Ordering};

/// The current epoch. Relaxed accesses suffice. A tensor reaches another thread only by
/// synchronization, and after that the thread sees an epoch that is not older than the tensor's.
static EPOCH: AtomicU64 = AtomicU64::new(0);

thread_local! {
    /// The epoch that the innermost running kernel call on this thread began; 0 outside of kernels.
    static STARTED: Cell<u64> = const { Cell::new(0) };
    /// The first access that was refused and that no call has reported yet.
    static REFUSED: RefCell<Option<RefusedAccess>> = const { RefCell::new(None) };
    /// Whether `REFUSED` holds an access. Most calls read only this flag.
    static ANY_REFUSED: Cell<bool> = const { Cell::new(false) };
}

/// An access to memory that the kernel neither was given nor made.
struct RefusedAccess {
    error: AccessError,
    /// The epoch in which the storage was made.
    made: u64,
}

/// The current epoch, for a storage that is made now.
pub(crate) fn current_epoch() -> u64 {
    EPOCH.load(Ordering::Relaxed)
}

/// Begins a new epoch, and returns it: a storage that is made from now on has it, or a later one.
pub(crate) fn begin_epoch() -> u64 {
    EPOCH.fetch_add(1, Ordering::Relaxed) + 1
}

/// Whether a kernel runs on this thread. It cannot use memory that was made before its call. A
/// traced function cannot ask this.
#[track_caller]
pub fn is_in_kernel() -> bool {
    // A trace gets the error, which this cannot return.
    let _reported = mode::ask(Question::Surroundings, "whether a kernel runs", Loc::caller());
    kernel_runs()
}

/// As [`is_in_kernel`], for the library itself.
pub(crate) fn kernel_runs() -> bool {
    STARTED.get() != 0
}

/// Marks a kernel as running on this thread, until it is dropped.
pub(crate) struct KernelScope {
    /// The value of `STARTED` before: the epoch of the outer kernel call, whose kernel made this
    /// call, or 0.
    outer: u64,
}

impl KernelScope {
    /// Begins a new epoch, for the call of a kernel.
    pub(crate) fn enter() -> KernelScope {
        KernelScope { outer: STARTED.replace(begin_epoch()) }
    }

    /// The error of the first access that was refused in this scope, if there was one. The error is
    /// kept for the outer kernel call if that kernel may not access the memory either. Then the
    /// outer call fails too, even if its kernel discards the error of the inner call.
    pub(crate) fn refused_access(&self) -> Option<AccessError> {
        if !ANY_REFUSED.get() {
            return None;
        }
        REFUSED.with_borrow_mut(|refused| {
            let error = refused.as_ref().map(|r| r.error.clone());
            refused.take_if(|r| r.made >= self.outer);
            ANY_REFUSED.set(refused.is_some());
            error
        })
    }
}

impl Drop for KernelScope {
    fn drop(&mut self) {
        STARTED.set(self.outer);
    }
}

/// Checks an access through a handle without a grant. Inside a kernel, the access is refused if the
/// memory was made before the innermost running call began.
///
/// # Errors
/// The access is refused.
pub(crate) fn check_declared(tensor: &Tensor, access: Access) -> Result<(), AccessError> {
    let started = STARTED.get();
    match tensor.own_storage() {
        Ok(storage) if storage.made_in_epoch() < started => {
            let made = storage.made_in_epoch();
            let tensor = tensor.meta().to_string();
            let error = AccessError::NotGiven { access: access.verb_s(), tensor };
            ANY_REFUSED.set(true);
            REFUSED.with_borrow_mut(|refused| {
                refused.get_or_insert_with(|| RefusedAccess { error: error.clone(), made });
            });
            Err(error)
        }
        _ => Ok(()),
    }
}
