//! Reports the error of an operation to the trace, or to the fake kernel, that runs the operation.
//!
//! A program may discard an error, as in `x.item::<f32>().unwrap_or(5.0)`. While the program is
//! traced, `item` fails, because a traced tensor has no contents; in the eager program, it
//! succeeds. The graph would then compute with 5 in every run. A trace therefore fails with the
//! first error of any operation of its program, even if the program discards the error. In the same
//! way, a fake kernel fails with the first error of any operation inside it.
//!
//! Every such error is reported by a call of [`failed`]. The dispatcher reports each call that
//! fails. `tensor/access`, the only way to the bytes of a storage, reports each access that is
//! refused. A function that returns a poisoned tensor reports the error in it. Symbolic integers
//! are part of `ir`, which knows no modes: the [`Scope`](maquette_ir::sym::Scope) of the trace
//! records the first error of their decisions.
//!
//! A real kernel may discard errors, because it does the same in every run.
//!
//! A function that is differentiated fails with the first error of a call that should have written
//! a tensor ([`watch_writes`]). Its value would otherwise be that of another function.

use crate::dispatch::mode;
use crate::error::{AccessError, Error, ErrorKind, TraceError};
use crate::tensor::{Tensor, TraceTag, kernel_scope};
use std::cell::{Cell, RefCell};
use std::sync::Arc;

/// Whether errors on this thread are reported to a fake kernel.
enum Watch {
    /// No fake kernel is running, or a mode inside it receives the errors.
    Off,
    /// A fake kernel is running. The first error inside the innermost one, if there was one.
    On(Option<Error>),
}

thread_local! {
    /// The state of the innermost fake kernel or mode on this thread.
    static WATCH: RefCell<Watch> = const { RefCell::new(Watch::Off) };
    /// The state of the innermost function on this thread that is differentiated.
    static WRITES: RefCell<Watch> = const { RefCell::new(Watch::Off) };
    /// Whether that function runs in a kernel.
    static WRITES_IN_KERNEL: Cell<bool> = const { Cell::new(false) };
}

/// Reports an error to the innermost mode of this thread, or else to the fake kernel that is
/// running on it. If the error is about a tensor of another thread's trace, that trace fails too.
/// Returns the error.
///
/// Inside a builtin operator this does nothing. The program called only the outermost operator, and
/// the error is reported when that operator fails with it.
#[cold]
pub fn failed(e: Error) -> Error {
    if mode::user_loc().is_some() {
        return e;
    }
    if let Some(trace) = trace_elsewhere(&e) {
        trace.fail(&e);
    }
    match mode::active().mode() {
        Some(mode) => mode.failed(&e),
        None => WATCH.with_borrow_mut(|watch| {
            if let Watch::On(first) = watch {
                first.get_or_insert_with(|| e.clone());
            }
        }),
    }
    e
}

/// As [`failed`], for an access to the data of `t`. If `t` is a traced tensor, its trace fails too.
#[cold]
pub(crate) fn access_failed(t: &Tensor, e: Error) -> Error {
    let e = failed(e);
    if let Some(slot) = t.slot() {
        slot.trace.fail(&e);
    }
    e
}

/// The trace of another thread that an error names.
fn trace_elsewhere(e: &Error) -> Option<&Arc<TraceTag>> {
    match e.kind() {
        ErrorKind::Access(AccessError::Captured { trace, .. })
        | ErrorKind::Trace(TraceError::OtherThread { trace }) => Some(trace),
        _ => None,
    }
}

/// Runs `f`, the code of a fake kernel. Also returns the first error that was reported in it.
pub(crate) fn watch<R>(f: impl FnOnce() -> R) -> (R, Option<Error>) {
    let outer = Restore(WATCH.replace(Watch::On(None)));
    let result = f();
    let found = WATCH.replace(Watch::Off);
    drop(outer);
    (result, if let Watch::On(first) = found { first } else { None })
}

/// Runs `f`, a function that is differentiated. Also returns the error of the first call in `f`
/// that should have written a tensor and did not. The program may drop the result of such a call,
/// which is all that carries the error.
pub(crate) fn watch_writes<R>(f: impl FnOnce() -> R) -> (R, Option<Error>) {
    let outer = RestoreWrites(
        WRITES.replace(Watch::On(None)),
        WRITES_IN_KERNEL.replace(kernel_scope::kernel_runs()),
    );
    let result = f();
    let found = WRITES.replace(Watch::Off);
    drop(outer);
    (result, if let Watch::On(first) = found { first } else { None })
}

/// Reports the error of a call that should have written a tensor. A kernel may discard it.
#[cold]
pub(crate) fn write_failed(e: &Error) {
    if mode::user_loc().is_none() && kernel_scope::kernel_runs() == WRITES_IN_KERNEL.get() {
        WRITES.with_borrow_mut(|watch| {
            if let Watch::On(first) = watch {
                first.get_or_insert_with(|| e.clone());
            }
        });
    }
}

/// Runs `f` under a mode of its own. The mode receives the errors of `f`, and a fake kernel that is
/// running outside of `f` does not.
pub(crate) fn unwatched<R>(f: impl FnOnce() -> R) -> R {
    let _outer = Restore(WATCH.replace(Watch::Off));
    f()
}

/// Restores the outer state when it is dropped.
struct Restore(Watch);

/// As [`Restore`], for a function that is differentiated.
struct RestoreWrites(Watch, bool);

impl Drop for RestoreWrites {
    fn drop(&mut self) {
        WRITES.set(std::mem::replace(&mut self.0, Watch::Off));
        WRITES_IN_KERNEL.set(self.1);
    }
}

impl Drop for Restore {
    fn drop(&mut self) {
        WATCH.set(std::mem::replace(&mut self.0, Watch::Off));
    }
}
