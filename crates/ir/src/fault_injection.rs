//! Faults made on purpose: whether tests would find a fault is found out by making it.
//!
//! A place that could be wrong in a way worth finding asks `fault_injected("what is wrong")` and
//! then does the wrong thing. Without the feature `fault-injection` the answer is `false` at
//! compile time. With it, one fault at a time is switched on for a thread by [`with`]; the test
//! `mutants` of `maquette-check` goes through all of them.

#[cfg(feature = "fault-injection")]
mod switch {
    use std::cell::Cell;

    thread_local! {
        static ON: Cell<&'static str> = const { Cell::new("") };
        static ASKED: Cell<bool> = const { Cell::new(false) };
    }

    pub(super) fn ask(name: &str) -> bool {
        let on = ON.get() == name;
        ASKED.set(ASKED.get() || on);
        on
    }

    /// Runs `f` with a fault switched on, on this thread, and tells whether anything asked for it.
    pub fn with<R>(name: &'static str, f: impl FnOnce() -> R) -> (R, bool) {
        ASKED.set(false);
        let before = ON.replace(name);
        let result = f();
        ON.set(before);
        (result, ASKED.get())
    }
}

#[cfg(feature = "fault-injection")]
pub use switch::with;

/// Whether the fault of this name is switched on.
#[cfg(feature = "fault-injection")]
#[inline]
pub fn fault_injected(name: &str) -> bool {
    switch::ask(name)
}

/// Whether the fault of this name is switched on: never.
#[cfg(not(feature = "fault-injection"))]
#[inline(always)]
pub const fn fault_injected(_name: &str) -> bool {
    false
}
