//! [`SymBool`]: the handle of a condition on symbolic sizes, as PyTorch's `SymBool`.

use super::poison::{self, PoisonId, SharedError};
use super::refusal::decided;
use super::scope::{TableId, with_data};
use super::sym_int::{Pair, SymInt};
use super::{BoolExpr, BoolId, Rel, SymError};
use crate::Loc;
use std::fmt;
use std::ops::{BitAnd, BitOr, Not};
use std::sync::Arc;

/// A condition: a constant, an expression of a [`super::Scope`], or an error. Operations on an
/// error give the same error.
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

    /// The relation of two handles.
    pub(super) fn relation(op: Rel, a: SymInt, b: SymInt) -> SymBool {
        match a.pair(b) {
            Pair::Int(a, b) => SymBool(Repr::Const(op.holds(a, b))),
            // Equal canonical forms have equal values, so no table lookup is needed.
            Pair::Sym(_, a, b) if a == b => SymBool(Repr::Const(op.holds(0, 0))),
            Pair::Sym(table, a, b) => {
                SymBool::of(table, with_data(table, |data| data.table.rel(op, a, b)))
            }
            Pair::Poison(poison_id) => SymBool(Repr::Poison(poison_id)),
        }
    }

    fn junction(self, and: bool, other: SymBool) -> SymBool {
        match (self.0, other.0) {
            (Repr::Poison(poison_id), _) | (_, Repr::Poison(poison_id)) => {
                SymBool(Repr::Poison(poison_id))
            }
            (Repr::Const(b), _) => {
                if b == and {
                    other
                } else {
                    self
                }
            }
            (_, Repr::Const(b)) => {
                if b == and {
                    self
                } else {
                    other
                }
            }
            (Repr::Sym(table, a), Repr::Sym(u, b)) if table == u => {
                let parts = [BoolExpr::Id(a), BoolExpr::Id(b)];
                SymBool::of(
                    table,
                    with_data(table, |data| data.table.junction(and, &parts)).flatten(),
                )
            }
            (Repr::Sym(..), Repr::Sym(..)) => SymBool::poison(Arc::new(SymError::DifferentScopes)),
        }
    }

    /// The conjunction; also `&`.
    pub fn and(self, other: impl Into<SymBool>) -> SymBool {
        self.junction(true, other.into())
    }

    /// The disjunction; also `|`.
    pub fn or(self, other: impl Into<SymBool>) -> SymBool {
        self.junction(false, other.into())
    }

    /// The negation; also `!`.
    #[expect(
        clippy::should_implement_trait,
        reason = "the trait is implemented too; the method needs no import"
    )]
    pub fn not(self) -> SymBool {
        match self.0 {
            Repr::Const(b) => SymBool(Repr::Const(!b)),
            Repr::Sym(table, id) => {
                SymBool::of(table, with_data(table, |data| data.table.not(BoolExpr::Id(id))))
            }
            Repr::Poison(_) => self,
        }
    }

    /// The truth value, if the condition is a constant.
    pub const fn as_bool(self) -> Option<bool> {
        match self.0 {
            Repr::Const(b) => Some(b),
            _ => None,
        }
    }

    /// The condition in the table of a scope.
    ///
    /// # Errors
    /// The handle is poisoned or belongs to another scope.
    pub fn lower(self, scope: &super::Scope) -> Result<BoolExpr, SymError> {
        match self.0 {
            Repr::Const(b) => Ok(BoolExpr::Const(b)),
            Repr::Sym(table, id) if scope.is(table) => Ok(BoolExpr::Id(id)),
            Repr::Sym(..) => Err(SymError::DifferentScopes),
            Repr::Poison(poison_id) => Err(poison::raise(poison_id)),
        }
    }

    /// Whether the simplified condition contains a symbol that is unbacked or
    /// [undecided](super::Scope::undecided), so that a guard cannot decide it.
    pub fn is_data_dependent(self) -> bool {
        let Repr::Sym(table, id) = self.0 else { return false };
        with_data(table, |data| {
            let simple = data.table.simplify_bool(BoolExpr::Id(id));
            data.table.free_symbols_bool(simple).iter().any(|&s| data.is_undecided(s))
        })
        .unwrap_or(false)
    }

    /// The truth value, if ranges, guards and assertions prove it; as PyTorch's
    /// `statically_known_true`. Never records a guard.
    pub fn statically_known(self) -> Option<bool> {
        match self.0 {
            Repr::Const(b) => Some(b),
            Repr::Sym(table, id) => {
                with_data(table, |data| data.table.prove(BoolExpr::Id(id))).ok().flatten()
            }
            Repr::Poison(_) => None,
        }
    }

    /// For a condition that is known to be false although the example values make it true: an error
    /// that names the recorded assertions about its symbols, which exclude it. `None` if the
    /// example values make it false, if no assertion concerns its symbols, or if the handle is a
    /// constant or an error.
    pub fn excluded(self) -> Option<SymError> {
        let Repr::Sym(table, id) = self.0 else { return None };
        with_data(table, |data| data.excluded(BoolExpr::Id(id))).ok().flatten()
    }

    /// The truth value, to branch on. Unless it is provable, the value on the example values is
    /// taken and recorded at the caller's line: as a guard, or as a runtime assertion if data with
    /// example values take part.
    ///
    /// A trace fails with an error that this gives, even if the program discards it. To ask without
    /// deciding, use [`SymBool::statically_known`].
    ///
    /// # Errors
    /// [`SymError::DataDependent`] if the condition depends on data without example values, or the
    /// handle's own error.
    #[track_caller]
    pub fn guard(self) -> Result<bool, SymError> {
        let loc = Loc::caller();
        match self.0 {
            Repr::Const(b) => Ok(b),
            Repr::Sym(table, id) => {
                let found = with_data(table, |data| data.guard(BoolExpr::Id(id), loc)).flatten();
                decided(Some(table), loc, found)
            }
            Repr::Poison(poison_id) => decided(None, loc, Err(poison::raise(poison_id))),
        }
    }

    /// Asserts the condition, as PyTorch's `torch._check`. Unless it is provable, it is recorded as
    /// a deferred runtime assertion with the message and the caller's line, and assumed from then
    /// on. A trace fails with an error that this gives, even if the program discards it.
    ///
    /// # Errors
    /// [`SymError::AssertionFailed`] if the condition is provably false or false on the example
    /// values.
    #[track_caller]
    pub fn check(self, message: &str) -> Result<(), SymError> {
        let loc = Loc::caller();
        match self.0 {
            Repr::Const(true) => Ok(()),
            Repr::Const(false) => {
                let (cond, message) = ("false".into(), message.into());
                decided(None, loc, Err(SymError::AssertionFailed { cond, message }))
            }
            Repr::Sym(table, id) => {
                let checked = with_data(table, |data| data.check(BoolExpr::Id(id), message, loc));
                decided(Some(table), loc, checked.flatten())
            }
            Repr::Poison(poison_id) => decided(None, loc, Err(poison::raise(poison_id))),
        }
    }

    /// A poisoned condition; operations on it give the same error.
    pub fn poison(e: SharedError) -> SymBool {
        SymBool(Repr::Poison(poison::record(e)))
    }

    /// The error, if the condition is poisoned.
    pub fn poisoned(self) -> Option<SharedError> {
        match self.0 {
            Repr::Poison(poison_id) => Some(poison::get(poison_id)),
            _ => None,
        }
    }
}

/// Whether two lists of sizes are equal. `false` if they have different lengths, or a pair of sizes
/// that is provably different. A pair that may be different is asserted to be equal, as
/// [`SymBool::check`] does with this message.
///
/// # Errors
/// As [`SymBool::check`].
#[track_caller]
pub fn check_sizes_equal(a: &[SymInt], b: &[SymInt], message: &str) -> Result<bool, SymError> {
    let equations = || a.iter().zip(b).map(|(a, b)| a.eq(*b));
    if a.len() != b.len() || equations().any(|equal| equal.statically_known() == Some(false)) {
        return Ok(false);
    }
    for equal in equations() {
        equal.check(message)?;
    }
    Ok(true)
}

impl From<bool> for SymBool {
    fn from(b: bool) -> SymBool {
        SymBool(Repr::Const(b))
    }
}

impl<T: Into<SymBool>> BitAnd<T> for SymBool {
    type Output = SymBool;
    fn bitand(self, other: T) -> SymBool {
        self.and(other)
    }
}

impl<T: Into<SymBool>> BitOr<T> for SymBool {
    type Output = SymBool;
    fn bitor(self, other: T) -> SymBool {
        self.or(other)
    }
}

impl Not for SymBool {
    type Output = SymBool;
    fn not(self) -> SymBool {
        SymBool::not(self)
    }
}

impl fmt::Display for SymBool {
    /// The text of [`super::SymTable::display_bool`]. Never records a guard.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Repr::Const(b) => write!(f, "{b}"),
            Repr::Sym(table, id) => {
                match with_data(table, |data| data.table.display_bool(BoolExpr::Id(id)).to_string())
                {
                    Ok(text) => f.write_str(&text),
                    Err(e) => write!(f, "<{e}>"),
                }
            }
            Repr::Poison(poison_id) => write!(f, "<{}>", poison::get(poison_id)),
        }
    }
}

impl fmt::Debug for SymBool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
