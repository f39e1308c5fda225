//! A lock for programs that mutate their own state: such a program runs one call at a time.
//!
//! A call waits until the call that holds the lock ends. It must not wait for itself: a kernel can
//! call the program whose call runs the kernel, directly or through another program. The algorithm
//! is deadlock detection in a wait-for graph with at most one outgoing edge per thread. One table
//! records the thread that holds each lock, and the lock for which each thread waits. Before a
//! thread waits, it follows the chain: the holder of the lock, the lock for which that thread
//! waits, its holder, and so on. If the chain leads back to the thread itself, the call is refused.
//! The cost is linear in the length of the chain.
//!
//! A kernel may also start a thread that calls the program, and join it. The table does not know of
//! the join, so both threads wait forever.
//!
//! A panic releases the lock, because the guard is dropped.

use maquette_ops::{Result, RunError};
use rustc_hash::FxHashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, ThreadId};

/// The wait-for graph of all calls.
#[derive(Default)]
struct Waiting {
    /// By lock: the thread that holds it.
    holders: FxHashMap<u64, ThreadId>,
    /// By thread: the lock for which it waits.
    wanted: FxHashMap<ThreadId, u64>,
}

/// `None` until the first call of a program that has a lock.
static WAITING: Mutex<Option<Waiting>> = Mutex::new(None);
/// Notified when any lock is released.
static RELEASED: Condvar = Condvar::new();
/// The id of the next lock.
static NEXT: AtomicU64 = AtomicU64::new(0);

/// A lock of one program, with at most one holder.
#[derive(Debug)]
pub(crate) struct CallLock {
    id: u64,
    program: String,
}

/// Holds the lock until it is dropped.
#[must_use]
pub(crate) struct CallGuard(u64);

impl Waiting {
    /// Whether `thread` is `other`, or waits for `other` directly or through further threads.
    fn waits_for(&self, thread: ThreadId, other: ThreadId) -> bool {
        let next = |t: &ThreadId| self.holders.get(self.wanted.get(t)?).copied();
        std::iter::successors(Some(thread), next).any(|t| t == other)
    }
}

fn waiting() -> MutexGuard<'static, Option<Waiting>> {
    // A poisoned lock is harmless: no code panics between two related changes of the tables.
    WAITING.lock().unwrap_or_else(PoisonError::into_inner)
}

impl CallLock {
    pub(crate) fn new(program: &str) -> CallLock {
        CallLock { id: NEXT.fetch_add(1, Ordering::Relaxed), program: program.to_owned() }
    }

    /// Takes the lock. Waits while a call of another thread holds it.
    ///
    /// # Errors
    /// The call would wait for itself: the call that holds the lock is of this thread, or it waits
    /// for a lock of this thread.
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
