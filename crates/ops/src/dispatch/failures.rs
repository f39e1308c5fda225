//! Errors that a program may discard, as in `x.item::<f32>().unwrap_or(5.0)`.
//!
//! A trace runs its program once. A program that goes on after an error has taken a branch that the
//! graph would hold for every run, although the eager program takes another one. So a trace fails
//! with the first error of any operation, and a fake kernel with the first error of any operation
//! inside it. [`failed`] is where such an error is reported. It is called for every failed call
//! (the dispatcher), for every refused access to data (`tensor/access`, the only way to the bytes
//! of a storage) and for tensors that are dead from the start. Symbolic integers record the errors
//! of their decisions in the [`Scope`](maquette_ir::sym::Scope) of the trace, since `ir` knows no
//! modes.
//!
//! A real kernel may discard errors: it computes the same in every run.

use crate::dispatch::mode;
use crate::error::{AccessError, Error, ErrorKind, TraceError};
use crate::tensor::{Tensor, TraceTag};
use std::cell::RefCell;
use std::sync::Arc;

/// The first error inside the innermost watched fake kernel.
enum Watch {
    Off,
    On(Option<Error>),
}

thread_local! {
    static WATCH: RefCell<Watch> = const { RefCell::new(Watch::Off) };
}

/// Reports an error to the trace or the fake kernel in which this thread runs, and to the trace of
/// another thread if the error names one. Returns the error.
///
/// Inside builtin code this does nothing: the error is reported once the operator that the program
/// called fails with it.
#[cold]
pub fn failed(e: Error) -> Error {
    if mode::user_loc().is_some() {
        return e;
    }
    if let Some(trace) = trace_elsewhere(&e) {
        trace.fail(&e);
    }
    match mode::current() {
        Some(mode) => mode.failed(&e),
        None => WATCH.with_borrow_mut(|watch| {
            if let Watch::On(first) = watch {
                first.get_or_insert_with(|| e.clone());
            }
        }),
    }
    e
}

/// As [`failed`], for an access to `t`. If the tensor is of a trace, that trace fails too.
#[cold]
pub(crate) fn access_failed(t: &Tensor, e: Error) -> Error {
    let e = failed(e);
    if let Some(slot) = t.slot() {
        slot.trace.fail(&e);
    }
    e
}

/// The trace of another thread that an error is about.
fn trace_elsewhere(e: &Error) -> Option<&Arc<TraceTag>> {
    match e.kind() {
        ErrorKind::Access(AccessError::Captured { trace, .. })
        | ErrorKind::Trace(TraceError::OtherThread { trace }) => Some(trace),
        _ => None,
    }
}

/// Runs `f`, the code of a fake kernel, and returns the first error that was reported meanwhile.
pub(crate) fn watch<R>(f: impl FnOnce() -> R) -> (R, Option<Error>) {
    let outer = Restore(WATCH.replace(Watch::On(None)));
    let result = f();
    let found = WATCH.replace(Watch::Off);
    drop(outer);
    (result, if let Watch::On(first) = found { first } else { None })
}

/// Runs `f`, which reports to a mode of its own.
pub(crate) fn unwatched<R>(f: impl FnOnce() -> R) -> R {
    let _outer = Restore(WATCH.replace(Watch::Off));
    f()
}

struct Restore(Watch);

impl Drop for Restore {
    fn drop(&mut self) {
        WATCH.set(std::mem::replace(&mut self.0, Watch::Off));
    }
}
