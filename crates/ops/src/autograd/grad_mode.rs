//! Whether calls on this thread record derivatives.

use crate::dispatch::mode;
use crate::scoped_cell::with_value;
use maquette_ir::Loc;
use std::cell::Cell;

thread_local! {
    static ENABLED: Cell<bool> = const { Cell::new(true) };
}

/// As [`is_grad_enabled`](super::is_grad_enabled), for the library itself.
pub fn is_grad_enabled() -> bool {
    ENABLED.get()
}

/// Runs `f` without recording derivatives: results do not require gradients. Source: PyTorch's
/// `torch.no_grad`.
pub fn no_grad<R>(f: impl FnOnce() -> R) -> R {
    with_grad(false, f)
}

/// Runs `f` with recording of derivatives, inside [`no_grad`] too. A function that is traced inside
/// `no_grad` for inputs that require gradients cannot call it: the trace fails. Source: PyTorch's
/// `torch.enable_grad`.
#[track_caller]
pub fn enable_grad<R>(f: impl FnOnce() -> R) -> R {
    if let Some(mode) = mode::active().mode() {
        mode.enables_grad(Loc::caller());
    }
    with_grad(true, f)
}

/// Runs `f` with or without recording of derivatives.
pub fn with_grad<R>(enabled: bool, f: impl FnOnce() -> R) -> R {
    with_value(&ENABLED, enabled, f)
}
