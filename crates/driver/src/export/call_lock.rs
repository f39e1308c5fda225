//! One call at a time, for programs that write their own state.
//!
//! A call may wait for a call on another thread, but never for itself: a kernel can call the program
//! whose call runs it, directly or through another program. So all waiting is known in one place,
//! and before a thread waits, the chain from lock to holder to the lock that the holder waits for is
//! followed (deadlock detection in a wait-for graph with one edge per thread). A call that would
//! close a cycle is refused. Threads that a kernel starts and joins are not seen by this.
//!
//! A lock that a panic leaves is free again: the guard releases it.

use maquette_ops::{Result, RunError};
use rustc_hash::FxHashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, ThreadId};

#[derive(Default)]
struct Waiting {
    /// By lock: the thread that holds it.
    holders: FxHashMap<u64, ThreadId>,
    /// By thread: the lock it waits for.
    wanted: FxHashMap<ThreadId, u64>,
}

static WAITING: Mutex<Option<Waiting>> = Mutex::new(None);
static RELEASED: Condvar = Condvar::new();
static NEXT: AtomicU64 = AtomicU64::new(0);

/// Has one holder at a time.
#[derive(Debug)]
pub(crate) struct CallLock {
    id: u64,
    program: String,
}

/// The lock is held while this lives.
#[must_use]
pub(crate) struct CallGuard(u64);

impl Waiting {
    /// Whether `thread` waits, through others, for `other`.
    fn waits_for(&self, thread: ThreadId, other: ThreadId) -> bool {
        let next = |t: &ThreadId| self.holders.get(self.wanted.get(t)?).copied();
        std::iter::successors(Some(thread), next).any(|t| t == other)
    }
}

fn waiting() -> MutexGuard<'static, Option<Waiting>> {
    // nothing panics while the tables are half changed
    WAITING.lock().unwrap_or_else(PoisonError::into_inner)
}

impl CallLock {
    pub(crate) fn new(program: &str) -> CallLock {
        CallLock { id: NEXT.fetch_add(1, Ordering::Relaxed), program: program.to_owned() }
    }

    /// Waits for the calls of other threads.
    ///
    /// # Errors
    /// The lock is held by a call that this one is a part of.
    pub(crate) fn take(&self) -> Result<CallGuard> {
        let this = thread::current().id();
        let mut guard = waiting();
        loop {
            let tables = guard.get_or_insert_default();
            let Some(&holder) = tables.holders.get(&self.id) else {
                tables.holders.insert(self.id, this);
                return Ok(CallGuard(self.id));
            };
            if tables.waits_for(holder, this) {
                return Err(RunError::CallInCall { program: self.program.clone() }.into());
            }
            tables.wanted.insert(this, self.id);
            guard = RELEASED.wait(guard).unwrap_or_else(PoisonError::into_inner);
            guard.get_or_insert_default().wanted.remove(&this);
        }
    }
}

impl Drop for CallGuard {
    fn drop(&mut self) {
        if let Some(tables) = waiting().as_mut() {
            tables.holders.remove(&self.0);
        }
        RELEASED.notify_all();
    }
}
