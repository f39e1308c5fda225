//! The programs of a compiled function, shared between threads.
//!
//! A look-up holds a lock for reading while it evaluates guards, which runs no code of the user.
//! No lock is held while a function is traced, compiled or run. Two threads may therefore compile
//! for the same call; [`Cache::insert`] keeps the first program. The program that the last call
//! used is tried first.

use super::call_inputs::{CallInputs, Signature};
use super::dynamic::DynamicSet;
use super::program::GuardedProgram;
use maquette_ops::GuardFailure;
use maquette_runtime::LayoutStamp;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard};

type Programs = Vec<Arc<GuardedProgram>>;

/// A program that serves a call.
pub(crate) struct Found {
    pub(crate) program: Arc<GuardedProgram>,
    /// The stamp of the call's numbers, if they are kept.
    pub(crate) stamp: Option<LayoutStamp>,
}

#[derive(Debug, Default)]
pub(crate) struct Cache {
    programs: RwLock<Programs>,
    /// The position of the program that served the last call.
    recent: AtomicUsize,
    compilations: AtomicUsize,
    /// The call that ran eagerly before the first program.
    first_call: Mutex<Option<Signature>>,
}

impl Cache {
    fn read(&self) -> RwLockReadGuard<'_, Programs> {
        self.programs.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// The program that serves a call.
    pub(crate) fn find(&self, call: &CallInputs) -> Option<Found> {
        let programs = self.read();
        let recent = self.recent.load(Ordering::Relaxed);
        let serves = |at: usize| -> Option<Found> {
            let program = programs.get(at)?;
            let stamp = program.guards.check(call).ok()?;
            Some(Found { program: program.clone(), stamp })
        };
        if let Some(found) = serves(recent) {
            return Some(found);
        }
        let mut others = (0..programs.len()).filter(|at| *at != recent);
        let (at, found) = others.find_map(|at| Some((at, serves(at)?)))?;
        self.recent.store(at, Ordering::Relaxed);
        Some(found)
    }

    /// All programs, in order of compilation.
    pub(crate) fn programs(&self) -> Programs {
        self.read().clone()
    }

    /// How often a program was added.
    pub(crate) fn compilations(&self) -> usize {
        self.compilations.load(Ordering::Relaxed)
    }

    /// For each program, in order of compilation: the guard that a call breaks.
    pub(crate) fn failures(&self, call: &CallInputs) -> Vec<GuardFailure> {
        self.programs().iter().filter_map(|program| program.failure(call)).collect()
    }

    /// The guard that a call breaks in the program whose guards it comes closest to: the one in
    /// which it breaks the last guard.
    pub(crate) fn closest_failure(&self, call: &CallInputs) -> Option<GuardFailure> {
        let programs = self.programs();
        programs.iter().max_by_key(|program| program.guards.check(call).err())?.failure(call)
    }

    /// The number of programs whose operators have not changed.
    pub(crate) fn live(&self) -> usize {
        self.read().iter().filter(|program| program.guards.operators.holds()).count()
    }

    /// The symbols of the next program.
    pub(crate) fn dynamic_set(&self, call: &Signature) -> DynamicSet {
        self.dynamic_among(&self.read(), call)
    }

    fn dynamic_among(&self, programs: &Programs, call: &Signature) -> DynamicSet {
        let first = self.first_call.lock().unwrap_or_else(PoisonError::into_inner);
        let none = DynamicSet::default();
        let first = first.iter().map(|signature| (signature, &none));
        let previous = programs.iter().map(|program| (&program.signature, &program.dynamic));
        DynamicSet::for_call(call, first.chain(previous))
    }

    /// Remembers a call that ran eagerly. Whether it is the first one.
    pub(crate) fn is_first_call(&self, call: &CallInputs) -> bool {
        if self.compilations() > 0 {
            return false;
        }
        let mut first = self.first_call.lock().unwrap_or_else(PoisonError::into_inner);
        let is_first = first.is_none();
        first.get_or_insert_with(|| call.signature());
        is_first
    }

    /// Adds a program for a call, unless another thread has added one that serves it. Returns the
    /// program to run. Programs whose operators have changed are removed. If the cache has `limit`
    /// programs already, since other threads have added some, the program is not added.
    ///
    /// # Errors
    /// With `set_by_calls`, the symbols of the program follow from the programs before it. If other
    /// threads have added programs from which more symbols follow, the program is not added: these
    /// are the symbols to compile with.
    pub(crate) fn insert(
        &self,
        mut program: GuardedProgram,
        call: &CallInputs,
        limit: usize,
        set_by_calls: bool,
    ) -> Result<Arc<GuardedProgram>, DynamicSet> {
        let mut programs = self.programs.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(other) = programs.iter().find(|other| other.guards.check(call).is_ok()) {
            return Ok(other.clone());
        }
        if set_by_calls {
            let now = self.dynamic_among(&programs, &program.signature);
            if now != program.dynamic {
                return Err(now);
            }
        }
        let (live, stale) = programs.drain(..).partition(|p| p.guards.operators.holds());
        *programs = live;
        program.number = self.compilations.load(Ordering::Relaxed);
        let program = Arc::new(program);
        if programs.len() < limit {
            self.compilations.fetch_add(1, Ordering::Relaxed);
            self.recent.store(programs.len(), Ordering::Relaxed);
            programs.push(program.clone());
        }
        drop(programs);
        // after the lock is released, since what a program captured may own anything
        drop::<Programs>(stale);
        Ok(program)
    }

    /// Removes all programs. The next call compiles again.
    pub(crate) fn clear(&self) {
        let mut programs = self.programs.write().unwrap_or_else(PoisonError::into_inner);
        let removed = std::mem::take(&mut *programs);
        drop(programs);
        drop(removed);
    }
}
