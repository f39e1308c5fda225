//! Scopes: the symbolic state of one trace, as PyTorch's `ShapeEnv`. A scope holds the symbol
//! table, the example values, the guards and the deferred runtime assertions.
//!
//! Handles are `Copy`: a handle is the number of its scope and the index of an expression. Live
//! scopes are registered in a process-wide map under a number that is never reused, so a handle
//! that outlives its scope gives [`SymError::ScopeClosed`]. Each thread caches the scope that it
//! used last, which spares the map lookup in the common case.

use super::refusal::FirstRefusal;
use super::sym_int::SymInt;
use super::{
    BoolExpr, DataDependent, Expr, Range, Rel, SymError, SymTable, SymbolId, SymbolKind, Symbols,
};
use crate::Loc;
use rustc_hash::{FxBuildHasher, FxHashMap};
use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, Weak};

/// The message of an assertion that stands for a branch on data, shown if a later run's data take
/// another branch.
const DECIDED: &str =
    "the program branched on this while it was traced, and other data take another branch";

/// The most assertions named in a contradiction.
const MAX_NAMED: usize = 8;

/// A decision that a trace took on example values. The graph is valid for inputs that satisfy it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Guard {
    /// The condition that was true on the example values.
    pub cond: BoolExpr,
    /// The line of the decision.
    pub loc: Loc,
}

/// A deferred runtime assertion: a condition that is checked when the graph runs.
#[derive(Clone, Debug, PartialEq)]
pub struct Assertion {
    /// The condition that must be true.
    pub cond: BoolExpr,
    /// The user's message.
    pub message: Option<Arc<str>>,
    /// The line of the assertion.
    pub loc: Loc,
}

/// The source of an unbacked symbol.
#[derive(Clone, Debug, PartialEq)]
pub struct Origin {
    /// The operator that produces the symbol's value.
    pub operator: Arc<str>,
    /// The line of that operator.
    pub loc: Loc,
}

/// The contents of a scope.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ScopeData {
    /// The symbols, expressions and facts.
    pub table: SymTable,
    /// The guards, in order of recording.
    pub guards: Vec<Guard>,
    /// The deferred assertions, in order of recording.
    pub assertions: Vec<Assertion>,
    /// The example values: of backed symbols, and of unbacked symbols whose real data were read.
    pub hints: FxHashMap<SymbolId, i64>,
    /// The sources of the unbacked symbols.
    pub origins: FxHashMap<SymbolId, Origin>,
}

impl ScopeData {
    /// Decides a condition: by proof, or else on the example values. The second case records a
    /// guard, or an assertion if unbacked symbols take part and all have example values.
    ///
    /// # Errors
    /// [`SymError::DataDependent`] if an unbacked symbol takes part that has no example value.
    pub fn guard(&mut self, b: BoolExpr, loc: Loc) -> Result<bool, SymError> {
        if let Some(known) = self.table.prove(b) {
            return Ok(known);
        }
        let simple = self.table.simplify_bool(b);
        let free = self.table.free_symbols_bool(simple);
        let by_data =
            self.decided_by_data(&free, "branch on", &|t| t.display_bool(b).to_string(), loc)?;
        let value = self.table.eval_bool(simple, &|s| self.hints.get(&s).copied())?;
        // Facts about data can reduce the condition to one over inputs only. The guard is then the
        // reduced form, because guards are checked before any data exist.
        let b = if by_data || !self.mentions_data(&self.table.free_symbols_bool(b)) {
            b
        } else {
            simple
        };
        let cond = if value { b } else { self.table.not(b) };
        self.record_decision(cond, by_data, loc)?;
        Ok(value)
    }

    /// Decides the value of an expression as [`ScopeData::guard`] decides a condition; the recorded
    /// guard is an equality with the value.
    ///
    /// # Errors
    /// As [`ScopeData::guard`].
    pub fn guard_int(&mut self, e: Expr, loc: Loc) -> Result<i64, SymError> {
        let simple = self.table.simplify(e);
        if let Some(n) = self.table.bounds(simple).single() {
            return Ok(n);
        }
        let free = self.table.free_symbols(simple);
        let by_data =
            self.decided_by_data(&free, "take the value of", &|t| t.display(e).to_string(), loc)?;
        let value = self.table.eval(simple, &|s| self.hints.get(&s).copied())?;
        let e =
            if by_data || !self.mentions_data(&self.table.free_symbols(e)) { e } else { simple };
        let cond = self.table.rel(Rel::Eq, e, Expr::Int(value));
        self.record_decision(cond, by_data, loc)?;
        Ok(value)
    }

    /// Whether any of the symbols is unbacked.
    fn mentions_data(&self, symbols: &[SymbolId]) -> bool {
        symbols.iter().any(|s| self.table.kind(*s) == SymbolKind::Unbacked)
    }

    /// Assumes a decision and records it as an assertion or a guard.
    fn record_decision(&mut self, cond: BoolExpr, by_data: bool, loc: Loc) -> Result<(), SymError> {
        self.assume(cond)?;
        if by_data {
            self.assertions.push(Assertion { cond, message: Some(DECIDED.into()), loc });
        } else {
            self.guards.push(Guard { cond, loc });
        }
        Ok(())
    }

    /// Whether unbacked symbols take part in a decision.
    ///
    /// # Errors
    /// [`SymError::DataDependent`] for the first unbacked symbol without an example value.
    fn decided_by_data(
        &self,
        free: &Symbols,
        action: &'static str,
        expr: &dyn Fn(&SymTable) -> String,
        loc: Loc,
    ) -> Result<bool, SymError> {
        let mut of_data =
            free.iter().filter(|s| self.table.kind(**s) == SymbolKind::Unbacked).peekable();
        let any = of_data.peek().is_some();
        let Some(&s) = of_data.find(|s| !self.hints.contains_key(s)) else { return Ok(any) };
        let (origin, origin_loc) = match self.origins.get(&s) {
            Some(o) => (o.operator.to_string(), o.loc),
            None => ("an operator that was not named".into(), loc),
        };
        let symbol = self.table.name(s).into();
        let error =
            DataDependent { action, expr: expr(&self.table), symbol, origin, origin_loc, loc };
        Err(SymError::DataDependent(Box::new(error)))
    }

    /// Asserts a condition. Unless it is provable, it is assumed and recorded as a deferred
    /// assertion.
    ///
    /// # Errors
    /// [`SymError::AssertionFailed`] if the condition is provably false or false on the example
    /// values.
    pub fn check(&mut self, b: BoolExpr, message: &str, loc: Loc) -> Result<(), SymError> {
        let refuted =
            self.table.eval_bool(b, &|s| self.hints.get(&s).copied()).is_ok_and(|value| !value);
        match self.table.prove(b) {
            Some(true) => return Ok(()),
            Some(false) => return Err(self.failed(b, message)),
            None if refuted => return Err(self.failed(b, message)),
            None => {}
        }
        self.assume(b)?;
        let message = (!message.is_empty()).then(|| message.into());
        self.assertions.push(Assertion { cond: b, message, loc });
        Ok(())
    }

    /// See [`SymBool::excluded`](super::SymBool::excluded).
    pub(super) fn excluded(&self, b: BoolExpr) -> Option<SymError> {
        let holds = self.table.eval_bool(b, &|s| self.hints.get(&s).copied()).ok()?;
        holds.then(|| self.asserted_against(b)).flatten()
    }

    /// The contradiction of a condition with the assertions that concern it; `None` if there are
    /// none.
    fn asserted_against(&self, b: BoolExpr) -> Option<SymError> {
        let mut symbols = self.table.free_symbols_bool(b);
        let mut rest: Vec<&Assertion> = self.assertions.iter().collect();
        let mut by: Vec<&Assertion> = Vec::new();
        // The transitive closure: the assertions that share a symbol with the condition, then those
        // that share a symbol with these, and so on.
        loop {
            let concerns = |a: &&Assertion| {
                self.table.free_symbols_bool(a.cond).iter().any(|s| symbols.contains(s))
            };
            let (found, other): (Vec<_>, Vec<_>) = rest.into_iter().partition(concerns);
            if found.is_empty() {
                break;
            }
            symbols.extend(found.iter().flat_map(|a| self.table.free_symbols_bool(a.cond)));
            by.extend(found);
            rest = other;
        }
        let text = |a: &Assertion| {
            let message = a.message.as_ref().map_or_else(String::new, |m| format!(", {m}"));
            format!("`{}` was asserted at {}{message}", self.table.display_bool(a.cond), a.loc)
        };
        let known: Vec<String> = by.iter().take(MAX_NAMED).map(|a| text(a)).collect();
        let fact = self.table.display_bool(b).to_string().into();
        (!known.is_empty())
            .then(|| SymError::Contradiction { fact, known: known.join("; ").into() })
    }

    /// Assumes a condition. A contradiction names the assertions concerned, if any, instead of
    /// ranges.
    fn assume(&mut self, b: BoolExpr) -> Result<(), SymError> {
        let known = self.table.assume(b);
        known.map_err(|e| {
            if matches!(e, SymError::Contradiction { .. }) {
                self.asserted_against(b).unwrap_or(e)
            } else {
                e
            }
        })
    }

    /// The error of a failed assertion.
    fn failed(&self, b: BoolExpr, message: &str) -> SymError {
        SymError::AssertionFailed {
            cond: self.table.display_bool(b).to_string().into(),
            message: message.into(),
        }
    }

    /// The value of an expression on the example values, if every symbol has one.
    pub fn hint(&mut self, e: Expr) -> Option<i64> {
        let simple = self.table.simplify(e);
        self.table.eval(simple, &|s| self.hints.get(&s).copied()).ok()
    }
}

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

    /// An unbacked symbol `u0`, `u1`, … for a size that depends on data, produced by `operator` at
    /// `loc`. Poisoned if the scope is closed.
    pub fn unbacked(&self, range: Range, operator: &str, loc: Loc) -> SymInt {
        let symbol = self.shared().run(|data| {
            let symbol = data.table.fresh(SymbolKind::Unbacked, range);
            data.origins.insert(symbol, Origin { operator: operator.into(), loc });
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
