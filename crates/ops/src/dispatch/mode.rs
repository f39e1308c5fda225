//! Modes: what intercepts every operator call of a thread. The tracer is one.

use crate::dispatch::value::{Args, Outputs};
use crate::error::{Error, Result};
use crate::library::Op;
use crate::tensor::{Tensor, TraceTag};
use maquette_ir::Loc;
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;

/// Intercepts operator calls while it is on top of the thread's stack of modes.
pub trait Mode {
    /// Stands in for a call; arguments are checked against the schema, defaults are filled in.
    fn call(&self, op: Op, args: Args, loc: Loc) -> Result<Outputs>;

    /// Host data became a tensor: the value it has in this mode.
    fn host_data(&self, t: Tensor, loc: Loc) -> Tensor;

    /// An operation failed; its result may never be looked at.
    fn failed(&self, e: &Error);

    /// The trace it records, if it does.
    fn trace(&self) -> Option<&Arc<TraceTag>>;
}

thread_local! {
    static DEPTH: Cell<usize> = const { Cell::new(0) };
    static STACK: RefCell<Vec<Rc<dyn Mode>>> = const { RefCell::new(Vec::new()) };
    /// The line of user code on whose behalf builtin code is running.
    static ON_BEHALF_OF: Cell<Option<Loc>> = const { Cell::new(None) };
}

/// The innermost mode. One thread-local load where there is none.
pub(crate) fn current() -> Option<Rc<dyn Mode>> {
    if DEPTH.get() == 0 { None } else { STACK.with_borrow(|s| s.last().cloned()) }
}

/// Whether a mode intercepts this thread's calls.
pub fn is_active() -> bool {
    DEPTH.get() != 0
}

/// Runs `f` with `mode` on top of the stack.
pub fn with_mode<R>(mode: Rc<dyn Mode>, f: impl FnOnce() -> R) -> R {
    STACK.with_borrow_mut(|s| s.push(mode));
    let depth = DEPTH.get();
    DEPTH.set(STACK.with_borrow(Vec::len));
    let _pop = OnDrop(|| {
        STACK.with_borrow_mut(|s| s.pop());
        DEPTH.set(depth);
    });
    f()
}

/// Runs `f` as if no mode were active: for fake kernels, and for what a mode itself computes.
pub fn without_modes<R>(f: impl FnOnce() -> R) -> R {
    let depth = DEPTH.replace(0);
    let _restore = OnDrop(|| DEPTH.set(depth));
    f()
}

/// Runs builtin code for the user's line `loc`: calls made inside are reported there.
pub fn on_behalf_of<R>(loc: Loc, f: impl FnOnce() -> R) -> R {
    let before = ON_BEHALF_OF.replace(Some(loc));
    let _restore = OnDrop(|| ON_BEHALF_OF.set(before));
    f()
}

/// Runs user code (a kernel): its calls have lines of their own.
pub(crate) fn in_user_code<R>(f: impl FnOnce() -> R) -> R {
    let before = ON_BEHALF_OF.replace(None);
    let _restore = OnDrop(|| ON_BEHALF_OF.set(before));
    f()
}

/// The user's line, where builtin code is running for it.
pub(crate) fn user_loc() -> Option<Loc> {
    ON_BEHALF_OF.get()
}

/// Gives the active mode its say about fresh host data.
pub(crate) fn host_data(t: Tensor, loc: Loc) -> Tensor {
    match current() {
        Some(mode) => mode.host_data(t, user_loc().unwrap_or(loc)),
        None => t,
    }
}

struct OnDrop<F: FnMut()>(F);

impl<F: FnMut()> Drop for OnDrop<F> {
    fn drop(&mut self) {
        (self.0)();
    }
}
