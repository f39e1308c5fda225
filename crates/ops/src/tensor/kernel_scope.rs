//! What the running kernel may touch: the arguments of its call, and memory made during the call.
//!
//! Passes move, merge and drop calls of custom operators by what their schemas declare. So a kernel
//! that reads a tensor by other means (a static, a cache, a captured handle) may see another value
//! in a rewritten program than in the eager one, as soon as the program writes that tensor.
//!
//! Technique: an allocation epoch. Each call of a registered kernel starts a new epoch, and each
//! storage carries the epoch in which it was made. A handle that no call lent ([`Grant::NONE`]) is
//! usable inside a kernel if its storage is not older than the innermost running call. Views share
//! their storage and so its epoch, and what a nested call returns is newer than the outer call.
//!
//! Invariant: an access that was refused fails the call, even if the kernel drops the error.
//! Limits: only the thread of the call is checked, so that a kernel may use threads of its own; and
//! memory that another thread makes during the call counts as made by the call.
//!
//! Cost: one relaxed addition for each call of a registered kernel, one relaxed load for each new
//! storage, and one thread-local load for each borrow.
//!
//! [`Grant::NONE`]: crate::tensor::borrow::Grant::NONE

use crate::error::AccessError;
use crate::tensor::Tensor;
use crate::tensor::borrow::Access;
use std::cell::{Cell, RefCell};
use std::sync::atomic::{AtomicU64, Ordering};

/// The current epoch. Relaxed accesses suffice: memory reaches another thread only by
/// synchronization, after which that thread sees this counter at least as new.
static EPOCH: AtomicU64 = AtomicU64::new(0);

thread_local! {
    /// The epoch in which the innermost kernel on this thread started; 0 outside of kernels.
    static STARTED: Cell<u64> = const { Cell::new(0) };
    static REFUSED: RefCell<Option<RefusedAccess>> = const { RefCell::new(None) };
    /// Whether `REFUSED` holds one, so that other calls need not look.
    static ANY_REFUSED: Cell<bool> = const { Cell::new(false) };
}

/// The first undeclared access that was refused, and not yet reported by a call.
struct RefusedAccess {
    error: AccessError,
    /// The epoch of the storage.
    made: u64,
}

/// The epoch of a storage that is made now.
pub(crate) fn current_epoch() -> u64 {
    EPOCH.load(Ordering::Relaxed)
}

/// Marks a kernel as running on this thread, until it is dropped.
pub(crate) struct KernelScope {
    outer: u64,
}

impl KernelScope {
    pub(crate) fn enter() -> KernelScope {
        let started = EPOCH.fetch_add(1, Ordering::Relaxed) + 1;
        KernelScope { outer: STARTED.replace(started) }
    }

    /// The error of the first undeclared access in this scope. It stays for the kernel around this
    /// one if it is undeclared there too.
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

/// Refuses an access through a handle that no call lent, if a kernel is running that was not given
/// the memory and did not make it.
pub(crate) fn check_declared(tensor: &Tensor, access: Access) -> Result<(), AccessError> {
    let started = STARTED.get();
    match tensor.storage() {
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
