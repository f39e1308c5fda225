//! Scopes: the table that the handles of one trace share, with its guards and assertions.
//!
//! Live scopes are registered under a number that is never used again, so a handle is two numbers;
//! each thread remembers the scope it used last.

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

/// What is said where a run's data decide a branch otherwise than the example's.
const DECIDED: &str =
    "the program branched on this while it was traced, and other data take another branch";

/// So many assertions are named where they exclude what is required.
const MOST_NAMED: usize = 8;

/// A decision a trace took on example values: a graph holds for inputs where it is true.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Guard {
    /// What was found true.
    pub cond: BoolExpr,
    /// The line that asked.
    pub loc: Loc,
}

/// A condition that the program asserts and that is checked when it runs.
#[derive(Clone, Debug, PartialEq)]
pub struct Assertion {
    /// What must be true.
    pub cond: BoolExpr,
    /// The user's words.
    pub message: Option<Arc<str>>,
    /// The line that asserts it.
    pub loc: Loc,
}

/// Where an unbacked symbol comes from.
#[derive(Clone, Debug, PartialEq)]
pub struct Origin {
    /// The operator that made it.
    pub operator: Arc<str>,
    /// The line of that operator.
    pub loc: Loc,
}

/// What a scope holds.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ScopeData {
    /// Symbols, expressions, facts.
    pub table: SymTable,
    /// Decisions taken, in order.
    pub guards: Vec<Guard>,
    /// Deferred assertions, in order.
    pub assertions: Vec<Assertion>,
    /// The example values of backed symbols; of unbacked ones where real data were looked at.
    pub hints: FxHashMap<SymbolId, i64>,
    /// The operators that made the unbacked symbols.
    pub origins: FxHashMap<SymbolId, Origin>,
}

impl ScopeData {
    /// Decides a condition: as proved, else on example values, recording a guard. If data decide
    /// it: an assertion where example values of the data are known too, else an error.
    pub fn guard(&mut self, b: BoolExpr, loc: Loc) -> Result<bool, SymError> {
        if let Some(known) = self.table.prove(b) {
            return Ok(known);
        }
        let simple = self.table.simplify_bool(b);
        let free = self.table.free_symbols_bool(simple);
        let by_data =
            self.decided_by_data(&free, "branch on", &|t| t.display_bool(b).to_string(), loc)?;
        let value = self.table.eval_bool(simple, &|s| self.hints.get(&s).copied())?;
        // what an assertion says of data may leave a condition on inputs: a guard can mention
        // nothing else
        let b = if by_data || !self.mentions_data(&self.table.free_symbols_bool(b)) {
            b
        } else {
            simple
        };
        let cond = if value { b } else { self.table.not(b) };
        self.record_decision(cond, by_data, loc)?;
        Ok(value)
    }

    /// The value of an expression: as proved, else the example value, recording a guard. If data
    /// decide it, as [`ScopeData::guard`].
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

    fn mentions_data(&self, symbols: &[SymbolId]) -> bool {
        symbols.iter().any(|s| self.table.kind(*s) == SymbolKind::Unbacked)
    }

    fn record_decision(&mut self, cond: BoolExpr, by_data: bool, loc: Loc) -> Result<(), SymError> {
        self.assume(cond)?;
        if by_data {
            self.assertions.push(Assertion { cond, message: Some(DECIDED.into()), loc });
        } else {
            self.guards.push(Guard { cond, loc });
        }
        Ok(())
    }

    /// Whether data take part in a decision; an error where no example of them is known.
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

    /// Asserts a condition: an error if it is known to be false, also on example values; a deferred
    /// assertion unless it is known to be true.
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

    /// A contradiction with what was asserted, if anything was that has to do with it.
    fn asserted_against(&self, b: BoolExpr) -> Option<SymError> {
        let mut symbols = self.table.free_symbols_bool(b);
        let mut rest: Vec<&Assertion> = self.assertions.iter().collect();
        let mut by: Vec<&Assertion> = Vec::new();
        // what is asserted of these symbols, of others that are asserted to have to do with them,
        // and so on
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
        let known: Vec<String> = by.iter().take(MOST_NAMED).map(|a| text(a)).collect();
        let fact = self.table.display_bool(b).to_string().into();
        (!known.is_empty())
            .then(|| SymError::Contradiction { fact, known: known.join("; ").into() })
    }

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

    fn failed(&self, b: BoolExpr, message: &str) -> SymError {
        SymError::AssertionFailed {
            cond: self.table.display_bool(b).to_string().into(),
            message: message.into(),
        }
    }

    /// The value on example values, if all symbols have one.
    pub fn hint(&mut self, e: Expr) -> Option<i64> {
        let simple = self.table.simplify(e);
        self.table.eval(simple, &|s| self.hints.get(&s).copied()).ok()
    }
}

/// The number of a scope.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct TableId(u32);

#[derive(Debug)]
struct Shared {
    id: TableId,
    /// Nothing once closed.
    data: Mutex<Option<ScopeData>>,
    /// The thread inside [`Scope::with`], as [`thread_token`], or zero.
    owner: AtomicUsize,
}

/// Closes the scope when the last [`Scope`] is dropped, though threads may still remember `Shared`.
#[derive(Debug)]
struct CloseOnDrop(Arc<Shared>);

/// What the handles of one trace share. Cloning gives the same scope.
#[derive(Clone, Debug)]
pub struct Scope(Arc<CloseOnDrop>);

static SCOPES: RwLock<HashMap<TableId, Weak<Shared>, FxBuildHasher>> =
    RwLock::new(HashMap::with_hasher(FxBuildHasher));
static NEXT: AtomicU32 = AtomicU32::new(0);

thread_local! {
    static LAST: RefCell<Option<Arc<Shared>>> = const { RefCell::new(None) };
    static TOKEN: u8 = const { 0 };
}

/// A number no other live thread has, not zero.
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

/// Runs on the data of a scope, found by its number.
pub(super) fn with_data<R>(
    id: TableId,
    f: impl FnOnce(&mut ScopeData) -> R,
) -> Result<R, SymError> {
    let mut f = Some(f);
    // Runs under the borrow, which saves counting a reference: nothing that runs on the data comes
    // back here.
    let remembered = LAST.try_with(|last| match last.borrow().as_ref() {
        Some(shared) if shared.id == id => f.take().map(|f| shared.run(f)),
        _ => None,
    });
    if let Ok(Some(done)) = remembered {
        return done;
    }
    let found =
        SCOPES.read().unwrap_or_else(PoisonError::into_inner).get(&id).and_then(Weak::upgrade);
    let shared = found.ok_or(SymError::ScopeClosed)?;
    // A thread that is ending has no memory; that costs time only.
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
    /// An empty scope, registered until it is closed or its last clone dropped.
    pub fn new() -> Scope {
        let id = TableId(NEXT.fetch_add(1, Ordering::Relaxed));
        let shared = Arc::new(Shared {
            id,
            data: Mutex::new(Some(ScopeData::default())),
            owner: AtomicUsize::new(0),
        });
        SCOPES.write().unwrap_or_else(PoisonError::into_inner).insert(id, Arc::downgrade(&shared));
        Scope(Arc::new(CloseOnDrop(shared)))
    }

    /// Ends the scope and gives what it held, nothing the second time. Its handles then give
    /// [`SymError::ScopeClosed`].
    pub fn close(&self) -> ScopeData {
        SCOPES.write().unwrap_or_else(PoisonError::into_inner).remove(&self.shared().id);
        self.shared().lock().take().unwrap_or_default()
    }

    /// Whether a number is this scope's.
    pub(super) fn is(&self, id: TableId) -> bool {
        self.shared().id == id
    }

    fn shared(&self) -> &Shared {
        &self.0.0
    }

    /// A symbol for the size of an input, `s0`, `s1`, … if it has no name. `hint` is the example
    /// value, on which guards are decided.
    pub fn backed(&self, name: Option<&str>, range: Range, hint: i64) -> Result<SymInt, SymError> {
        let e = self.shared().run(|d| {
            let s = match name {
                Some(name) => d.table.symbol(name, SymbolKind::Backed, range)?,
                None => d.table.fresh(SymbolKind::Backed, range),
            };
            if !range.contains(hint) {
                return Err(SymError::HintOutOfRange { name: d.table.name(s).into(), hint, range });
            }
            d.hints.insert(s, hint);
            Ok(d.table.expr(s))
        })??;
        Ok(self.lift(e))
    }

    /// A symbol for a size that depends on data, `u0`, `u1`, …, made by an operator at a line.
    pub fn unbacked(&self, range: Range, operator: &str, loc: Loc) -> SymInt {
        let made = self.shared().run(|d| {
            let s = d.table.fresh(SymbolKind::Unbacked, range);
            d.origins.insert(s, Origin { operator: operator.into(), loc });
            d.table.expr(s)
        });
        match made {
            Ok(e) => self.lift(e),
            Err(e) => SymInt::poison(Arc::new(e)),
        }
    }

    /// The handle of an expression of this scope's table.
    pub fn lift(&self, e: Expr) -> SymInt {
        SymInt::of(self.shared().id, e)
    }

    /// The expression of a handle; an error if it is poisoned or of another scope.
    pub fn lower(&self, s: SymInt) -> Result<Expr, SymError> {
        s.lower(self.shared().id)
    }

    /// Whether a symbol takes part in one of these expressions.
    pub fn mentions(&self, exprs: &[SymInt], symbol: SymInt) -> bool {
        let Ok(wanted) = self.lower(symbol) else { return false };
        let lowered: Vec<Expr> = exprs.iter().filter_map(|&e| self.lower(e).ok()).collect();
        self.with(|d| {
            let wanted = d.table.free_symbols(wanted);
            lowered.iter().any(|&e| d.table.free_symbols(e).iter().any(|s| wanted.contains(s)))
        })
    }

    /// Runs on the data; on nothing, once the scope is closed. Handles of this scope cannot compute
    /// meanwhile on this thread: they give [`SymError::ScopeBusy`].
    ///
    /// # Panics
    /// If called inside itself, where two exclusive borrows of the data would be needed.
    pub fn with<R>(&self, f: impl FnOnce(&mut ScopeData) -> R) -> R {
        /// Clears the owner, also when `f` panics.
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
