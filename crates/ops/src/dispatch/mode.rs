//! Dispatch modes: a thread-local stack of interceptors of operator calls, as PyTorch's
//! `TorchDispatchMode`. The tracer is one.

use crate::dispatch::device::with_default_device;
use crate::dispatch::failures;
use crate::dispatch::value::{Args, Outputs};
use crate::error::{Error, Result, TraceError};
use crate::library::Op;
use crate::tensor::{Tensor, TraceTag};
use maquette_ir::{Device, Loc};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;

pub use crate::dispatch::failures::failed;

/// What a program asks for, other than by a call of an operator, and may find otherwise in another
/// run.
#[derive(Clone, Copy)]
pub enum Question<'a> {
    /// A property of a tensor that writes, sweeps or other threads change: its contents, the number
    /// of its writes.
    State(&'a Tensor),
    /// How often the memory of a tensor was written.
    Writes(&'a Tensor),
    /// Whether a tensor carries an error.
    Error(&'a Tensor),
    /// Whether gradients of a tensor are computed.
    Gradient(&'a Tensor),
    /// Where a tensor begins in its storage.
    Offset(&'a Tensor),
    /// Whether calls on the thread record derivatives.
    GradMode,
    /// A property of the thread, the process or the library.
    Surroundings,
}

/// An interceptor of operator calls. It is active while it is on top of the thread's mode stack.
pub trait Mode {
    /// Handles a call in place of the kernel. The arguments are checked against the schema, and the
    /// defaults are filled in.
    fn call(&self, op: Op, args: Args, loc: Loc) -> Result<Outputs>;

    /// Called when host data becomes a tensor. Returns the tensor that the program sees instead.
    fn host_data(&self, t: Tensor, loc: Loc) -> Tensor;

    /// Called when an operation of the program fails: a call, or an access to data. The program may
    /// discard the error, so this may be the only report.
    fn failed(&self, e: &Error);

    /// Called when the dispatcher calls the parts of a builtin operator in place of the operator.
    /// The mode sees the parts alone, and they are right as long as nothing overrides the operator.
    fn decomposed(&self, _op: Op) {}

    /// The trace that this mode records, if it is a tracer.
    fn trace(&self) -> Option<&Arc<TraceTag>>;

    /// How often the program has written the memory of a tensor without the storage of the tensor
    /// counting it, and the line of the last write: a trace does not execute its writes to tensors
    /// from outside, and gives inputs that share memory a storage each.
    fn writes(&self, _t: &Tensor) -> (u64, Option<Loc>) {
        (0, None)
    }

    /// Whether two tensors see one memory in the program, of whatever storages they are.
    fn share_memory(&self, a: &Tensor, b: &Tensor) -> bool {
        a.has_storage_of(b)
    }

    /// The answer to the program's question whether two tensors share a storage, at a line.
    fn shares_storage(&self, a: &Tensor, b: &Tensor, _loc: Loc) -> bool {
        a.has_storage_of(b)
    }

    /// Whether every run of what the mode records gives the program the answer that it gets now. If
    /// not, the program gets an error, which [`Mode::failed`] reports.
    fn is_fixed(&self, _question: Question<'_>) -> bool {
        true
    }

    /// Whether a tensor is a view of one from outside of the trace, which the trace then
    /// represents.
    fn views_outside(&self, _t: &Tensor) -> bool {
        false
    }

    /// Called when a derivative is recorded, or keeps a tensor. What the program computes then
    /// depends on which tensors share memory that it writes.
    fn differentiates(&self) {}

    /// Called when the program calls [`enable_grad`](crate::autograd::enable_grad).
    fn enables_grad(&self, _loc: Loc) {}

    /// Checks that gradients of a tensor go where the program, run eagerly, would pass them.
    ///
    /// # Errors
    /// They may not: its memory was written with gradients through another input.
    fn check_history(&self, _t: &Tensor) -> Result<()> {
        Ok(())
    }
}

/// What is active on a thread, besides the kernels: a dispatch looks at one number.
#[derive(Clone, Copy)]
pub(crate) struct Active(u32);

impl Active {
    const NOTHING: Active = Active(0);
    /// The bit of autocast. The other bits count the modes.
    const AUTOCAST: u32 = 1 << 31;

    fn has_mode(self) -> bool {
        self.0 & !Active::AUTOCAST != 0
    }

    /// The innermost active mode.
    pub(crate) fn mode(self) -> Option<Rc<dyn Mode>> {
        if self.has_mode() { STACK.with_borrow(|s| s.last().cloned()) } else { None }
    }

    /// Whether calls cast their operands.
    pub(crate) fn autocasts(self) -> bool {
        self.0 & Active::AUTOCAST != 0
    }
}

thread_local! {
    static ACTIVE: Cell<Active> = const { Cell::new(Active::NOTHING) };
    static STACK: RefCell<Vec<Rc<dyn Mode>>> = const { RefCell::new(Vec::new()) };
    /// The line of user code that called the builtin code now running.
    static ON_BEHALF_OF: Cell<Option<Loc>> = const { Cell::new(None) };
    /// Whether overrides of builtin kernels are ignored.
    static BUILTIN_KERNELS: Cell<bool> = const { Cell::new(false) };
    /// The operator that user code called, while its parts run in its place.
    static REPLACED: Cell<Option<Op>> = const { Cell::new(None) };
}

/// What is active on this thread. This costs a single thread-local load.
pub(crate) fn active() -> Active {
    ACTIVE.get()
}

/// Whether a mode intercepts this thread's calls.
pub fn is_active() -> bool {
    active().has_mode()
}

/// Whether the innermost mode of this thread is a tracer.
pub(crate) fn is_tracing() -> bool {
    active().mode().is_some_and(|mode| mode.trace().is_some())
}

/// Whether this thread traces, and a tensor is a real one from outside of the trace.
pub(crate) fn is_outside_trace(t: &Tensor) -> bool {
    t.slot().is_none() && !t.is_fake() && is_tracing()
}

/// Checks that the program gets the same answer to a question in every run of what this thread
/// records. `what` names what the program asks for. Builtin code on behalf of the program may ask
/// anything: its calls are recorded with the facts that they depend on.
///
/// # Errors
/// The answer may differ. The trace fails with this error, too.
#[inline]
pub(crate) fn ask(question: Question<'_>, what: &str, loc: Loc) -> Result<()> {
    if is_active() && user_loc().is_none() { ask_tracer(question, what, Some(loc)) } else { Ok(()) }
}

/// As [`ask`], where the line of the program is not known.
///
/// # Errors
/// As [`ask`].
pub(crate) fn ask_somewhere(question: Question<'_>, what: &str) -> Result<()> {
    if is_active() && user_loc().is_none() { ask_tracer(question, what, None) } else { Ok(()) }
}

/// Asks the modes down to the innermost tracer: one that the program has put above it does not hide
/// it.
#[cold]
fn ask_tracer(question: Question<'_>, what: &str, loc: Option<Loc>) -> Result<()> {
    let mut modes = STACK.with_borrow(Clone::clone);
    while let Some(mode) = modes.pop() {
        if !mode.is_fixed(question) {
            let e = TraceError::State { what: what.to_owned() };
            let e = Error::from(match question {
                Question::Offset(_) => TraceError::Offset(Box::new(e)),
                _ => e,
            });
            let e = loc.into_iter().fold(e, Error::at);
            mode.failed(&e);
            return Err(e);
        }
        if mode.trace().is_some() {
            break;
        }
    }
    Ok(())
}

/// Runs `f` with `mode` on top of the stack.
pub fn with_mode<R>(mode: Rc<dyn Mode>, f: impl FnOnce() -> R) -> R {
    STACK.with_borrow_mut(|s| s.push(mode));
    let before = active();
    let depth = STACK.with_borrow(Vec::len) as u32;
    ACTIVE.set(Active(before.0 & Active::AUTOCAST | depth));
    CALL.set(None);
    let _pop = OnDrop(|| {
        STACK.with_borrow_mut(|s| s.pop());
        ACTIVE.set(before);
    });
    failures::unwatched(f)
}

/// Runs `f` with all modes and autocast disabled, and the host as the default device. Kernels and
/// fake kernels run this way, and so do runs of graphs, and computations of a mode itself.
pub(crate) fn without_modes<R>(f: impl FnOnce() -> R) -> R {
    let before = ACTIVE.replace(Active::NOTHING);
    let _restore = OnDrop(|| ACTIVE.set(before));
    with_default_device(Device::Cpu, f)
}

/// Runs `f` with autocast on or off.
pub(crate) fn with_autocast<R>(on: bool, f: impl FnOnce() -> R) -> R {
    let before = active();
    let bit = if on { Active::AUTOCAST } else { 0 };
    ACTIVE.set(Active(before.0 & !Active::AUTOCAST | bit));
    let _restore = OnDrop(|| ACTIVE.set(before));
    f()
}

/// Runs `f` with the builtin kernels of builtin operators on the CPU, whatever overrides them. What
/// executors do themselves, such as copies into planned memory, is not a call of the program.
pub fn with_builtin_kernels<R>(f: impl FnOnce() -> R) -> R {
    let before = BUILTIN_KERNELS.replace(true);
    let _restore = OnDrop(|| BUILTIN_KERNELS.set(before));
    f()
}

/// Whether overrides of builtin kernels are ignored.
pub(crate) fn uses_builtin_kernels() -> bool {
    BUILTIN_KERNELS.get()
}

/// Runs builtin code with `loc` as the caller's location: operator calls inside `f` report this
/// user line.
pub fn on_behalf_of<R>(loc: Loc, f: impl FnOnce() -> R) -> R {
    let before = ON_BEHALF_OF.replace(Some(loc));
    let _restore = OnDrop(|| ON_BEHALF_OF.set(before));
    f()
}

/// Runs the parts of a builtin operator, called at `loc`, in place of the operator.
pub(crate) fn in_place_of<R>(op: Op, loc: Loc, parts: impl FnOnce() -> R) -> R {
    if let Some(mode) = active().mode() {
        mode.decomposed(op);
    }
    let outermost = replaced_op().unwrap_or(op);
    let before = REPLACED.replace(Some(outermost));
    let _restore = OnDrop(|| REPLACED.set(before));
    on_behalf_of(loc, parts)
}

/// The operator that user code called, if its parts run in its place.
pub fn replaced_op() -> Option<Op> {
    user_loc().and_then(|_| REPLACED.get())
}

/// Runs user code (a kernel): operator calls inside `f` report their own locations again.
pub(crate) fn in_user_code<R>(f: impl FnOnce() -> R) -> R {
    let before = ON_BEHALF_OF.replace(None);
    let _restore = OnDrop(|| ON_BEHALF_OF.set(before));
    f()
}

/// The user's location if builtin code is running on the user's behalf.
pub(crate) fn user_loc() -> Option<Loc> {
    ON_BEHALF_OF.get()
}

thread_local! {
    /// The line of the call that is running, or ran last, on this thread.
    static CALL: Cell<Option<Loc>> = const { Cell::new(None) };
}

/// Notes the line of a call.
pub(crate) fn calling(loc: Loc) {
    CALL.set(Some(loc));
}

/// The line of the call that is running, or ran last, on this thread.
pub(crate) fn current_loc() -> Option<Loc> {
    CALL.get()
}

/// Passes a tensor made of host data to the active mode, if there is one.
pub(crate) fn host_data(t: Tensor, loc: Loc) -> Tensor {
    match active().mode() {
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
