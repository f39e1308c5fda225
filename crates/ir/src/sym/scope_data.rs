//! The contents of a scope: the symbol table, the example values, the guards and the deferred
//! runtime assertions; and the decisions that add to them.

use super::overflow::ExprSet;
use super::{
    BoolExpr, DataDependent, Expr, Rel, SymError, SymTable, SymbolId, SymbolKind, Symbols,
};
use crate::Loc;
use rustc_hash::FxHashMap;
use std::sync::Arc;

/// The message of an assertion that stands for a branch on data, shown if a later run's data take
/// another branch.
const DECIDED: &str = "the trace took the other branch of this condition, which depends on data";

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

/// The source of a symbol without an example value.
#[derive(Clone, Debug, PartialEq)]
pub struct Origin {
    /// The operator that produces the symbol's value, or the declaration of an input's size.
    pub operator: Arc<str>,
    /// The line of that operator or declaration.
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
    /// The sources of the unbacked symbols, and of the backed ones that are
    /// [undecided](super::Scope::undecided).
    pub origins: FxHashMap<SymbolId, Origin>,
    /// If arithmetic is checked ([`Scope::check_arithmetic`](super::Scope::check_arithmetic)): the
    /// results that fit 64 bits, or of which it is recorded.
    pub fitting: Option<ExprSet>,
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

    /// Whether decisions on a symbol are refused, unless data give it an example value.
    pub(super) fn is_undecided(&self, symbol: SymbolId) -> bool {
        self.table.kind(symbol) == SymbolKind::Unbacked || self.origins.contains_key(&symbol)
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
        let mut of_data = free.iter().filter(|s| self.is_undecided(**s)).peekable();
        let any = of_data.peek().is_some();
        let Some(&s) = of_data.find(|s| !self.hints.contains_key(s)) else { return Ok(any) };
        let (origin, origin_loc) = match self.origins.get(&s) {
            Some(o) => (o.operator.to_string(), o.loc),
            None => ("an unnamed operator".into(), loc),
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
    /// values. [`SymError::Contradiction`] if it contradicts what was asserted, or excludes the
    /// example value of an input's size together with it; in the second case it is not assumed.
    pub fn check(&mut self, b: BoolExpr, message: &str, loc: Loc) -> Result<(), SymError> {
        let refuted =
            self.table.eval_bool(b, &|s| self.hints.get(&s).copied()).is_ok_and(|value| !value);
        match self.table.prove(b) {
            Some(true) => return Ok(()),
            Some(false) => return Err(self.failed(b, message)),
            None if refuted => return Err(self.failed(b, message)),
            None => {}
        }
        let is_about_data = self.mentions_data(&self.table.free_symbols_bool(b));
        let before = is_about_data.then(|| self.table.facts.clone());
        self.assume(b)?;
        if let Some(before) = before
            && self.excludes_an_example()
        {
            self.table.facts = before;
            return Err(self.asserted_against(b).unwrap_or_else(|| self.failed(b, message)));
        }
        let message = (!message.is_empty()).then(|| message.into());
        self.assertions.push(Assertion { cond: b, message, loc });
        Ok(())
    }

    /// Whether the facts exclude the example value of a backed symbol. What is asserted of data can
    /// determine the size of an input, and then a trace would not hold for its own example.
    fn excludes_an_example(&mut self) -> bool {
        let table = &mut self.table;
        self.hints.iter().any(|(&s, &hint)| {
            let symbol = table.expr(s);
            let is_hint = table.rel(Rel::Eq, symbol, Expr::Int(hint));
            table.kind(s) == SymbolKind::Backed && table.prove(is_hint) == Some(false)
        })
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
