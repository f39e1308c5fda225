//! [`SymBool`]: a condition on sizes that may not be known.

use super::poison::{self, PoisonId, SharedError};
use super::scope::{TableId, with_data};
use super::sym_int::{Pair, SymInt};
use super::{BoolExpr, BoolId, Rel, SymError};
use crate::Loc;
use std::fmt;
use std::ops::{BitAnd, BitOr, Not};
use std::sync::Arc;

/// A condition: `true`, `false`, or decided by sizes; or an error, which every result then carries
/// on.
#[derive(Clone, Copy)]
pub struct SymBool(Repr);

#[derive(Clone, Copy)]
enum Repr {
    Const(bool),
    Sym(TableId, BoolId),
    Poison(PoisonId),
}

impl SymBool {
    fn of(table: TableId, r: Result<BoolExpr, SymError>) -> SymBool {
        match r {
            Ok(BoolExpr::Const(b)) => SymBool(Repr::Const(b)),
            Ok(BoolExpr::Id(id)) => SymBool(Repr::Sym(table, id)),
            Err(e) => SymBool::poison(Arc::new(e)),
        }
    }

    pub(super) fn relation(op: Rel, a: SymInt, b: SymInt) -> SymBool {
        match a.pair(b) {
            Pair::Int(a, b) => SymBool(Repr::Const(op.holds(a, b))),
            // equal canonical forms are equal numbers
            Pair::Sym(_, a, b) if a == b => SymBool(Repr::Const(op.holds(0, 0))),
            Pair::Sym(t, a, b) => SymBool::of(t, with_data(t, |d| d.table.rel(op, a, b))),
            Pair::Poison(p) => SymBool(Repr::Poison(p)),
        }
    }

    fn junction(self, and: bool, o: SymBool) -> SymBool {
        match (self.0, o.0) {
            (Repr::Poison(p), _) | (_, Repr::Poison(p)) => SymBool(Repr::Poison(p)),
            (Repr::Const(b), _) => {
                if b == and {
                    o
                } else {
                    self
                }
            }
            (_, Repr::Const(b)) => {
                if b == and {
                    self
                } else {
                    o
                }
            }
            (Repr::Sym(t, a), Repr::Sym(u, b)) if t == u => {
                let parts = [BoolExpr::Id(a), BoolExpr::Id(b)];
                SymBool::of(t, with_data(t, |d| d.table.junction(and, &parts)).flatten())
            }
            (Repr::Sym(..), Repr::Sym(..)) => SymBool::poison(Arc::new(SymError::DifferentScopes)),
        }
    }

    /// Both; also `&`.
    pub fn and(self, o: impl Into<SymBool>) -> SymBool {
        self.junction(true, o.into())
    }

    /// One or both; also `|`.
    pub fn or(self, o: impl Into<SymBool>) -> SymBool {
        self.junction(false, o.into())
    }

    /// The opposite; also `!`.
    #[expect(
        clippy::should_implement_trait,
        reason = "the trait is implemented too; the method needs no import"
    )]
    pub fn not(self) -> SymBool {
        match self.0 {
            Repr::Const(b) => SymBool(Repr::Const(!b)),
            Repr::Sym(t, id) => SymBool::of(t, with_data(t, |d| d.table.not(BoolExpr::Id(id)))),
            Repr::Poison(_) => self,
        }
    }

    /// The value, if it is a plain one.
    pub const fn as_bool(self) -> Option<bool> {
        match self.0 {
            Repr::Const(b) => Some(b),
            _ => None,
        }
    }

    /// The condition in the table of a scope; an error if it is poisoned or of another scope.
    pub fn lower(self, scope: &super::Scope) -> Result<BoolExpr, SymError> {
        match self.0 {
            Repr::Const(b) => Ok(BoolExpr::Const(b)),
            Repr::Sym(t, id) if scope.is(t) => Ok(BoolExpr::Id(id)),
            Repr::Sym(..) => Err(SymError::DifferentScopes),
            Repr::Poison(p) => Err(poison::raise(p)),
        }
    }

    /// Whether a data-dependent size takes part, so that a guard could not decide it.
    pub fn is_data_dependent(self) -> bool {
        let Repr::Sym(t, id) = self.0 else { return false };
        with_data(t, |d| {
            let simple = d.table.simplify_bool(BoolExpr::Id(id));
            d.table
                .free_symbols_bool(simple)
                .iter()
                .any(|&s| d.table.kind(s) == super::SymbolKind::Unbacked)
        })
        .unwrap_or(false)
    }

    /// The value, if ranges and what was guarded and checked prove it. Never records a guard.
    pub fn statically_known(self) -> Option<bool> {
        match self.0 {
            Repr::Const(b) => Some(b),
            Repr::Sym(t, id) => with_data(t, |d| d.table.prove(BoolExpr::Id(id))).ok().flatten(),
            Repr::Poison(_) => None,
        }
    }

    /// Why it is known to be false though the example values make it true: what was asserted of
    /// data excludes them. An error that names the assertions; nothing where the example values
    /// make it false too.
    pub fn excluded(self) -> Option<SymError> {
        let Repr::Sym(t, id) = self.0 else { return None };
        with_data(t, |d| d.excluded(BoolExpr::Id(id))).ok().flatten()
    }

    /// The value, to branch on: records a guard with the caller's line unless it is known. An error
    /// if data decide it.
    #[track_caller]
    pub fn guard(self) -> Result<bool, SymError> {
        match self.0 {
            Repr::Const(b) => Ok(b),
            Repr::Sym(t, id) => {
                let loc = Loc::caller();
                with_data(t, |d| d.guard(BoolExpr::Id(id), loc))?
            }
            Repr::Poison(p) => Err(poison::raise(p)),
        }
    }

    /// Asserts it: an error if it is known to be false; a deferred assertion, with the message and
    /// the caller's line, unless it is known to be true. What is asserted counts as known from here
    /// on.
    #[track_caller]
    pub fn check(self, message: &str) -> Result<(), SymError> {
        match self.0 {
            Repr::Const(true) => Ok(()),
            Repr::Const(false) => {
                Err(SymError::AssertionFailed { cond: "false".into(), message: message.into() })
            }
            Repr::Sym(t, id) => {
                let loc = Loc::caller();
                with_data(t, |d| d.check(BoolExpr::Id(id), message, loc))?
            }
            Repr::Poison(p) => Err(poison::raise(p)),
        }
    }

    /// A condition that stands for an error; what is computed from it carries the same error.
    pub fn poison(e: SharedError) -> SymBool {
        SymBool(Repr::Poison(poison::record(e)))
    }

    /// The error it stands for.
    pub fn poisoned(self) -> Option<SharedError> {
        match self.0 {
            Repr::Poison(p) => Some(poison::get(p)),
            _ => None,
        }
    }
}

impl From<bool> for SymBool {
    fn from(b: bool) -> SymBool {
        SymBool(Repr::Const(b))
    }
}

impl<T: Into<SymBool>> BitAnd<T> for SymBool {
    type Output = SymBool;
    fn bitand(self, o: T) -> SymBool {
        self.and(o)
    }
}

impl<T: Into<SymBool>> BitOr<T> for SymBool {
    type Output = SymBool;
    fn bitor(self, o: T) -> SymBool {
        self.or(o)
    }
}

impl Not for SymBool {
    type Output = SymBool;
    fn not(self) -> SymBool {
        SymBool::not(self)
    }
}

impl fmt::Display for SymBool {
    /// As the scope's table prints it; never records a guard.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Repr::Const(b) => write!(f, "{b}"),
            Repr::Sym(t, id) => {
                match with_data(t, |d| d.table.display_bool(BoolExpr::Id(id)).to_string()) {
                    Ok(text) => f.write_str(&text),
                    Err(e) => write!(f, "<{e}>"),
                }
            }
            Repr::Poison(p) => write!(f, "<{}>", poison::get(p)),
        }
    }
}

impl fmt::Debug for SymBool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
