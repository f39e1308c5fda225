//! Scopes: the symbolic state of one trace, as PyTorch's `ShapeEnv`. A scope holds a [`ScopeData`].
//!
//! Handles are `Copy`: a handle is the number of its scope and the index of an expression. Live
//! scopes are registered in a process-wide map under a number that is never reused, so a handle
//! that outlives its scope gives [`SymError::ScopeClosed`]. Each thread caches the scope that it
//! used last, which spares the map lookup in the common case.

use super::refusal::FirstRefusal;
use super::scope_data::{Origin, ScopeData};
use super::sym_int::SymInt;
use super::{Expr, Range, SymError, SymbolKind};
use crate::Loc;
use rustc_hash::FxBuildHasher;
use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, Weak};

/// The process-wide number of a scope; never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct TableId(u32);

#[derive(Debug)]
pub(super) struct Shared {
    id: TableId,
    /// `None` after the scope is closed.
    data: Mutex<Option<ScopeData>>,
    /// The thread inside [`Scope::with`], as its [`thread_token`]; zero if there is none.
    owner: AtomicUsize,
    /// The first error of a decision.
    pub(super) refusal: FirstRefusal,
}

/// Closes the scope when the last [`Scope`] is dropped, although threads may still cache `Shared`.
#[derive(Debug)]
struct CloseOnDrop(Arc<Shared>);

/// The shared state behind the handles of one trace. A clone refers to the same scope.
#[derive(Clone, Debug)]
pub struct Scope(Arc<CloseOnDrop>);

/// The live scopes by number. The references are weak, so the registry keeps no scope open.
static SCOPES: RwLock<HashMap<TableId, Weak<Shared>, FxBuildHasher>> =
    RwLock::new(HashMap::with_hasher(FxBuildHasher));
static NEXT: AtomicU32 = AtomicU32::new(0);

thread_local! {
    /// The scope that this thread used last.
    static LAST: RefCell<Option<Arc<Shared>>> = const { RefCell::new(None) };
    /// A thread-local whose address identifies the thread.
    static TOKEN: u8 = const { 0 };
}

/// A nonzero number that no other live thread has: the address of a thread-local.
fn thread_token() -> usize {
    TOKEN.try_with(|t| std::ptr::from_ref(t).addr()).unwrap_or(usize::MAX)
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Option<ScopeData>> {
        self.data.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether this thread is inside [`Scope::with`] of this scope.
    fn is_held_here(&self) -> bool {
        let owner = self.owner.load(Ordering::Relaxed);
        owner != 0 && owner == thread_token()
    }

    /// Runs `f` on the data.
    ///
    /// # Errors
    /// [`SymError::ScopeBusy`] inside [`Scope::with`] on this thread, where the lock would
    /// deadlock, and [`SymError::ScopeClosed`] after the end.
    fn run<R>(&self, f: impl FnOnce(&mut ScopeData) -> R) -> Result<R, SymError> {
        if self.is_held_here() {
            return Err(SymError::ScopeBusy);
        }
        match self.lock().as_mut() {
            Some(data) => Ok(f(data)),
            None => Err(SymError::ScopeClosed),
        }
    }
}

/// The live scope with this number.
pub(super) fn find(id: TableId) -> Option<Arc<Shared>> {
    SCOPES.read().unwrap_or_else(PoisonError::into_inner).get(&id).and_then(Weak::upgrade)
}

/// Runs `f` on the data of a scope, found by its number.
///
/// # Errors
/// [`SymError::ScopeBusy`] and [`SymError::ScopeClosed`].
pub(super) fn with_data<R>(
    id: TableId,
    f: impl FnOnce(&mut ScopeData) -> R,
) -> Result<R, SymError> {
    let mut f = Some(f);
    // The cached scope is used under the borrow of `LAST`, which saves a reference count. `f` never
    // enters `with_data` again, so the borrow cannot conflict.
    let remembered = LAST.try_with(|last| match last.borrow().as_ref() {
        Some(shared) if shared.id == id => f.take().map(|f| shared.run(f)),
        _ => None,
    });
    if let Ok(Some(done)) = remembered {
        return done;
    }
    let shared = find(id).ok_or(SymError::ScopeClosed)?;
    // Thread-locals of an ending thread are gone. Without its cache only the lookup is slower.
    let _ = LAST.try_with(|last| last.borrow_mut().replace(shared.clone()));
    f.map_or(Err(SymError::ScopeClosed), |f| shared.run(f))
}

impl Drop for CloseOnDrop {
    fn drop(&mut self) {
        SCOPES.write().unwrap_or_else(PoisonError::into_inner).remove(&self.0.id);
        self.0.lock().take();
    }
}

impl Default for Scope {
    fn default() -> Scope {
        Scope::new()
    }
}

impl Scope {
    /// An empty scope, registered until it is closed or its last clone is dropped.
    pub fn new() -> Scope {
        let id = TableId(NEXT.fetch_add(1, Ordering::Relaxed));
        let shared = Arc::new(Shared {
            id,
            data: Mutex::new(Some(ScopeData::default())),
            owner: AtomicUsize::new(0),
            refusal: FirstRefusal::default(),
        });
        SCOPES.write().unwrap_or_else(PoisonError::into_inner).insert(id, Arc::downgrade(&shared));
        Scope(Arc::new(CloseOnDrop(shared)))
    }

    /// Ends the scope and returns its data; a second call returns empty data. Handles of the scope
    /// give [`SymError::ScopeClosed`] from then on.
    pub fn close(&self) -> ScopeData {
        SCOPES.write().unwrap_or_else(PoisonError::into_inner).remove(&self.shared().id);
        self.shared().lock().take().unwrap_or_default()
    }

    /// Whether a number is the number of this scope.
    pub(super) fn is(&self, id: TableId) -> bool {
        self.shared().id == id
    }

    pub(super) fn shared(&self) -> &Shared {
        &self.0.0
    }

    pub(super) fn shared_arc(&self) -> Arc<Shared> {
        self.0.0.clone()
    }

    /// A backed symbol for the size of an input. Without a name it is called `s0`, `s1`, …. Guards
    /// are decided on `hint`, the example value.
    ///
    /// # Errors
    /// The name is invalid or taken, the range is empty or does not contain `hint`, or the scope is
    /// closed.
    pub fn backed(&self, name: Option<&str>, range: Range, hint: i64) -> Result<SymInt, SymError> {
        let e = self.shared().run(|data| {
            let symbol = match name {
                Some(name) => data.table.symbol(name, SymbolKind::Backed, range)?,
                None => data.table.fresh(SymbolKind::Backed, range),
            };
            if !range.contains(hint) {
                return Err(SymError::HintOutOfRange {
                    name: data.table.name(symbol).into(),
                    hint,
                    range,
                });
            }
            data.hints.insert(symbol, hint);
            Ok(data.table.expr(symbol))
        })??;
        Ok(self.lift(e))
    }

    /// A backed symbol without an example value, for the size of an input about which nothing may
    /// be decided: a decision on it is refused, as one on data is, and names `origin` and `loc`.
    /// Assertions on it are recorded. It is called `s0`, `s1`, …; poisoned if the scope is closed.
    pub fn undecided(&self, range: Range, origin: &str, loc: Loc) -> SymInt {
        self.without_example(SymbolKind::Backed, range, origin, loc)
    }

    /// An unbacked symbol `u0`, `u1`, … for a size that depends on data, produced by `operator` at
    /// `loc`. Poisoned if the scope is closed.
    pub fn unbacked(&self, range: Range, operator: &str, loc: Loc) -> SymInt {
        self.without_example(SymbolKind::Unbacked, range, operator, loc)
    }

    /// A symbol without an example value, with its origin.
    fn without_example(&self, kind: SymbolKind, range: Range, origin: &str, loc: Loc) -> SymInt {
        let symbol = self.shared().run(|data| {
            let symbol = data.table.fresh(kind, range);
            data.origins.insert(symbol, Origin { operator: origin.into(), loc });
            data.table.expr(symbol)
        });
        match symbol {
            Ok(e) => self.lift(e),
            Err(e) => SymInt::poison(Arc::new(e)),
        }
    }

    /// The handle of an expression in this scope's table.
    pub fn lift(&self, e: Expr) -> SymInt {
        SymInt::of(self.shared().id, e)
    }

    /// The expression of a handle.
    ///
    /// # Errors
    /// The handle is poisoned or belongs to another scope.
    pub fn lower(&self, s: SymInt) -> Result<Expr, SymError> {
        s.lower(self.shared().id)
    }

    /// Whether any symbol of `symbol` occurs in one of the expressions.
    pub fn mentions(&self, exprs: &[SymInt], symbol: SymInt) -> bool {
        let Ok(wanted) = self.lower(symbol) else { return false };
        let lowered: Vec<Expr> = exprs.iter().filter_map(|&e| self.lower(e).ok()).collect();
        self.with(|d| {
            let wanted = d.table.free_symbols(wanted);
            lowered.iter().any(|&e| d.table.free_symbols(e).iter().any(|s| wanted.contains(s)))
        })
    }

    /// Runs `f` on the data, or on empty data once the scope is closed. Meanwhile, operations on
    /// handles of this scope give [`SymError::ScopeBusy`] on this thread.
    ///
    /// # Panics
    /// If called inside itself on the same scope, which would borrow the data exclusively twice.
    pub fn with<R>(&self, f: impl FnOnce(&mut ScopeData) -> R) -> R {
        /// Clears the owner on exit, also when `f` panics.
        struct Clear<'a>(&'a AtomicUsize);
        impl Drop for Clear<'_> {
            fn drop(&mut self) {
                self.0.store(0, Ordering::Relaxed);
            }
        }
        let shared = self.shared();
        assert!(
            !shared.is_held_here(),
            "Scope::with was called inside Scope::with of the same scope"
        );
        let mut guard = shared.lock();
        shared.owner.store(thread_token(), Ordering::Relaxed);
        let _clear = Clear(&shared.owner);
        match guard.as_mut() {
            Some(data) => f(data),
            None => f(&mut ScopeData::default()),
        }
    }
}
