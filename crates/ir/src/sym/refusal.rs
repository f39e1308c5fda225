//! Errors of decisions that a program may discard.
//!
//! A program can discard the error of a decision, as in `n.gt(3).guard().unwrap_or(true)`. A graph
//! would then hold the branch that stands for the error, without a guard. So a scope keeps the
//! first such error, and its trace fails with that error.
//!
//! [`decided`] is the only place that records. An error belongs to the scope of the handle, on
//! whatever thread, and to the scope that this thread has entered ([`Scope::enter`]): a constant or
//! a poisoned handle has no scope of its own. Queries (`statically_known`, `hint`, `range`,
//! `as_i64`, `poisoned`, …) decide nothing, and record nothing.

use super::SymError;
use super::scope::{Scope, Shared, TableId, find};
use crate::Loc;
use std::cell::RefCell;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::ThreadId;

/// The error of a decision, and the line of the decision.
#[derive(Clone, Debug)]
pub struct Refusal {
    /// The error.
    pub error: SymError,
    /// The line of the decision.
    pub loc: Loc,
    thread: ThreadId,
}

/// The first error of the decisions of one scope.
#[derive(Debug, Default)]
pub(super) struct FirstRefusal {
    /// Whether there is one; spares the lock in the common case.
    exists: AtomicBool,
    first: Mutex<Option<Refusal>>,
}

impl FirstRefusal {
    fn lock(&self) -> MutexGuard<'_, Option<Refusal>> {
        self.first.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn record(&self, refusal: &Refusal) {
        self.lock().get_or_insert_with(|| refusal.clone());
        self.exists.store(true, Ordering::Release);
    }

    fn take(&self) -> Option<Refusal> {
        if !self.exists.load(Ordering::Acquire) {
            return None;
        }
        let mut first = self.lock();
        self.exists.store(false, Ordering::Release);
        first.take()
    }
}

thread_local! {
    /// The scope of the trace whose program runs on this thread.
    static ENTERED: RefCell<Option<Arc<Shared>>> = const { RefCell::new(None) };
}

/// Returns the result of a decision at `loc`. `table` is the scope of the handle, if it has one. An
/// error is recorded.
pub(super) fn decided<T>(
    table: Option<TableId>,
    loc: Loc,
    result: Result<T, SymError>,
) -> Result<T, SymError> {
    result.inspect_err(|e| {
        let refusal = Refusal { error: e.clone(), loc, thread: std::thread::current().id() };
        let entered = ENTERED.try_with(|entered| entered.borrow().clone()).ok().flatten();
        for scope in table.and_then(find).iter().chain(&entered) {
            scope.refusal.record(&refusal);
        }
    })
}

impl Scope {
    /// Runs `f`, the program of this scope's trace. Errors of decisions that belong to no scope are
    /// recorded in this one.
    pub fn enter<R>(&self, f: impl FnOnce() -> R) -> R {
        struct Leave(Option<Arc<Shared>>);
        impl Drop for Leave {
            fn drop(&mut self) {
                let _ = ENTERED.try_with(|entered| entered.replace(self.0.take()));
            }
        }
        let _leave = Leave(ENTERED.replace(Some(self.shared_arc())));
        f()
    }

    /// Removes the first error of a decision and returns it.
    pub fn take_refusal(&self) -> Option<Refusal> {
        self.shared().refusal.take()
    }

    /// Runs `f`, and removes and returns the first error of the decisions that `f` makes on this
    /// thread. An error that was recorded before stays.
    pub fn watch<R>(&self, f: impl FnOnce() -> R) -> (R, Option<Refusal>) {
        let watch = self.watch_decisions();
        let result = f();
        (result, watch.finish())
    }

    /// Begins to watch the decisions that this thread makes. Unlike [`Scope::watch`], this does not
    /// move the result of what is watched, which is costly for results as large as a call's.
    pub fn watch_decisions(&self) -> Watch<'_> {
        Watch { scope: self, before: self.take_refusal() }
    }
}

/// A watch of the decisions of a scope, made by [`Scope::watch_decisions`].
#[must_use = "the errors that were recorded before are back only after `finish`"]
#[derive(Debug)]
pub struct Watch<'a> {
    scope: &'a Scope,
    /// The first error from before the watch.
    before: Option<Refusal>,
}

impl Watch<'_> {
    /// Ends the watch. Removes and returns the first error of the decisions that this thread made
    /// meanwhile; an error that was recorded before, or on another thread, stays.
    pub fn finish(self) -> Option<Refusal> {
        let found = self.scope.take_refusal();
        let is_here = |r: &Refusal| r.thread == std::thread::current().id();
        let elsewhere = || found.as_ref().filter(|r| !is_here(r));
        if let Some(stays) = self.before.as_ref().or_else(elsewhere) {
            self.scope.shared().refusal.record(stays);
        }
        found.filter(is_here)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sym::{Range, SymBool, SymInt};

    fn unbacked(scope: &Scope) -> SymInt {
        scope.unbacked(Range::SIZE, "t::op", Loc::caller())
    }

    fn first(scope: &Scope) -> Option<String> {
        scope.take_refusal().map(|r| r.error.to_string())
    }

    #[test]
    fn a_scope_keeps_the_first_error_of_its_decisions() {
        let scope = Scope::new();
        let u = unbacked(&scope);
        assert!(u.gt(3).guard().is_err() && u.guard_int().is_err());
        assert!(u.lt(0).check("impossible").is_err());
        assert!(first(&scope).is_some_and(|e| e.starts_with("cannot branch on `u0 > 3`")));
        assert!(first(&scope).is_none());
        assert!(u.gt(3).check("possible").is_ok() && u.gt(2).guard().is_ok());
        assert!(u.eq(9).statically_known().is_none() && u.hint().is_none());
        assert!(first(&scope).is_none());
    }

    #[test]
    fn what_has_no_scope_is_of_the_one_that_the_thread_has_entered() {
        let (scope, other) = (Scope::new(), Scope::new());
        let of_constant = || SymBool::from(false).check("never").is_err();
        assert!(of_constant());
        assert!(scope.enter(of_constant));
        assert!(first(&scope).is_some());
        let dead = SymInt::from(1i64).floor_div(0);
        assert!(scope.enter(|| other.enter(|| dead.guard_int().is_err())));
        assert!(first(&scope).is_none() && first(&other).is_some());
        let foreign = unbacked(&other).gt(3);
        assert!(scope.enter(|| foreign.guard().is_err()));
        assert!(first(&scope).is_some() && first(&other).is_some());
    }

    #[test]
    fn a_watch_tells_its_own_errors_from_others() {
        let scope = Scope::new();
        let u = unbacked(&scope);
        let decide = |n: i64| u.gt(n).guard().is_err();
        assert!(decide(1));
        let (_, found) = scope.watch(|| decide(2) && decide(3));
        assert!(found.is_some_and(|r| r.error.to_string().contains("u0 > 2")));
        assert!(first(&scope).is_some_and(|e| e.contains("u0 > 1")));
        let elsewhere = || std::thread::scope(|s| s.spawn(|| decide(4)).join().is_ok());
        let (_, found) = scope.watch(elsewhere);
        assert!(found.is_none() && first(&scope).is_some_and(|e| e.contains("u0 > 4")));
    }
}
