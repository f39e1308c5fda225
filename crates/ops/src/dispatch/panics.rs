//! Panics of kernels, derivatives and hooks become errors: nothing unwinds through the library.
//!
//! Technique: user code runs inside `catch_unwind`. Only a panic hook is told the line of
//! a panic. So a hook, installed with the first registration, notes message and line while such
//! code runs on the thread, and passes every other panic to the hook before it. A noted panic is
//! not printed, because the error says the same; with `RUST_BACKTRACE` it is, for its backtrace.
//! Nothing is printed inside [`with_silent_panics`]. If a program replaces the hook, errors lack
//! the line, and nothing else changes.
//!
//! A panic on another thread reaches a kernel when the kernel joins that thread. The payload of a
//! panic is dropped inside `catch_unwind`, too: its destructor is user code that may panic. With
//! `panic = "abort"` no panic can be caught.

use crate::error::{CallError, Result};
use std::any::Any;
use std::backtrace::{Backtrace, BacktraceStatus};
use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, PanicHookInfo, catch_unwind, set_hook, take_hook};
use std::sync::Once;

thread_local! {
    /// Whether panics on this thread become errors.
    static CATCHING: Cell<bool> = const { Cell::new(false) };
    /// Whether panics on this thread are expected, and not printed.
    static SILENT: Cell<bool> = const { Cell::new(false) };
    /// The newest panic that the hook noted: its message and its line.
    static NOTED: RefCell<Option<(String, String)>> = const { RefCell::new(None) };
}

/// Installs the hook, once.
pub(crate) fn install_hook() {
    static INSTALLED: Once = Once::new();
    // a thread that is unwinding may not change the hook
    if !std::thread::panicking() {
        INSTALLED.call_once(|| {
            let previous = take_hook();
            set_hook(Box::new(move |info| {
                if !note(info) {
                    previous(info);
                }
            }));
        });
    }
}

/// Runs `f`. A panic in it, on this thread, is not printed, with `RUST_BACKTRACE` neither: the
/// caller expects panics, such as those of a kernel on arguments for which it was not written.
pub fn with_silent_panics<R>(f: impl FnOnce() -> R) -> R {
    struct Restore(bool);
    impl Drop for Restore {
        fn drop(&mut self) {
            SILENT.set(self.0);
        }
    }
    install_hook();
    let _restore = Restore(SILENT.replace(true));
    f()
}

/// Notes a panic that becomes an error. Returns whether nothing is to be printed: the panic is
/// expected, or the error says all.
fn note(info: &PanicHookInfo<'_>) -> bool {
    // the locals are gone while their thread ends
    let is_silent = SILENT.try_with(Cell::get).unwrap_or(false);
    if !CATCHING.try_with(Cell::get).unwrap_or(false) {
        return is_silent;
    }
    let line = info.location().map(|l| format!("{}:{}", l.file(), l.line()));
    if let (Some(message), Some(line)) = (info.payload_as_str(), line) {
        let _noted = NOTED.try_with(|noted| noted.replace(Some((message.to_owned(), line))));
    }
    is_silent || Backtrace::capture().status() != BacktraceStatus::Captured
}

/// Runs user code. `kernel` names it in the error: `kernel`, `fake kernel`, `derivative`.
///
/// # Errors
/// Those of `f`; or `f` panicked.
pub(crate) fn catch<R>(kernel: &'static str, f: impl FnOnce() -> Result<R>) -> Result<R> {
    let outer = CATCHING.replace(true);
    // the arguments of a kernel whose state may be inconsistent afterwards are poisoned
    // by reference: returned through `catch_unwind`, the result would be copied once more
    let mut result = None;
    let done = catch_unwind(AssertUnwindSafe(|| result = Some(f())));
    let result = match (result, done) {
        (Some(result), Ok(())) => result,
        (_, done) => Err(panicked(kernel, done.err().unwrap_or_else(|| Box::new(()))).into()),
    };
    CATCHING.set(outer);
    result
}

#[cold]
fn panicked(kernel: &'static str, payload: Box<dyn Any + Send>) -> CallError {
    let message = message_of(payload);
    // a panic that was caught inside the kernel may have been noted before this one
    let noted = NOTED.take().filter(|(noted, _)| Some(noted) == message.as_ref());
    CallError::Panicked {
        kernel,
        message: message.unwrap_or_else(|| "it gave no message".to_owned()),
        line: noted.map(|(_, line)| line),
    }
}

/// The message of a panic, if it has one. A panic of the payload's destructor ends here.
#[doc(hidden)]
pub fn message_of(payload: Box<dyn Any + Send>) -> Option<String> {
    let text = payload.downcast_ref::<&str>().map(|text| (*text).to_owned());
    let message = text.or_else(|| payload.downcast_ref::<String>().cloned());
    if let Err(of_destructor) = catch_unwind(AssertUnwindSafe(|| drop(payload))) {
        // A destructor may panic with a payload whose destructor panics, without end.
        std::mem::forget(of_destructor);
    }
    message
}
