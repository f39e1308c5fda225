//! What a traced tensor knows of its trace.

use crate::error::Error;
use crate::tensor::{Tensor, kernel_scope};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::ThreadId;

thread_local! {
    /// The id of this thread. `std::thread::current` counts a reference, which takes longer.
    static THREAD: ThreadId = std::thread::current().id();
}

/// A trace, as its tensors know it.
#[derive(Debug)]
pub struct TraceTag {
    /// The trace's name, for messages.
    pub name: Arc<str>,
    /// The thread it belongs to.
    pub thread: ThreadId,
    /// When it began, as [`kernel_scope`] counts.
    epoch: u64,
    ended: AtomicBool,
    first_error: OnceLock<Error>,
}

impl TraceTag {
    /// A running trace on this thread.
    pub fn new(name: impl Into<Arc<str>>) -> Arc<TraceTag> {
        Arc::new(TraceTag {
            name: name.into(),
            thread: std::thread::current().id(),
            epoch: kernel_scope::begin_epoch(),
            ended: AtomicBool::new(false),
            first_error: OnceLock::new(),
        })
    }

    /// Whether it belongs to the current thread.
    pub(crate) fn is_of_this_thread(&self) -> bool {
        // the local is gone while its thread ends
        let here = THREAD.try_with(|id| *id).unwrap_or_else(|_| std::thread::current().id());
        self.thread == here
    }

    /// Whether the memory of a tensor was made after the trace began.
    pub fn began_before(&self, t: &Tensor) -> bool {
        t.own_storage().is_ok_and(|storage| storage.made_in_epoch() >= self.epoch)
    }

    /// Records an error of an operation, on whatever thread. The first error stays.
    pub fn fail(&self, e: &Error) {
        self.first_error.get_or_init(|| e.clone());
    }

    /// The first error of any operation.
    pub fn first_error(&self) -> Option<&Error> {
        self.first_error.get()
    }

    /// Marks it over: its tensors cannot be used from now on.
    pub fn end(&self) {
        self.ended.store(true, Ordering::Release);
    }

    /// Whether it is over.
    pub fn has_ended(&self) -> bool {
        self.ended.load(Ordering::Acquire)
    }
}

/// Which value of which trace a traced tensor is.
#[derive(Clone, Debug)]
pub struct TraceSlot {
    /// The trace.
    pub trace: Arc<TraceTag>,
    /// The value's number in the trace's graph.
    pub value: u32,
}
