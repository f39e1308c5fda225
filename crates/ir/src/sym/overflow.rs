//! Overflow of the arithmetic that a program does on symbolic integers.
//!
//! On numbers, every operation of a program checks that its result fits 64 bits. A canonical form
//! loses the results in between: `n * 4 // 4` is `n`, and `min(n * 4, 8)` is evaluated with 128
//! bits. So a scope that checks arithmetic ([`Scope::check_arithmetic`]) turns each result that may
//! not fit into a guard, or into an assertion if the result depends on data. The same holds for
//! divisors that may be zero: `n % m * 0` is 0. If the operation fails on the example values, it is
//! the error that it is on numbers.
//!
//! A symbol that is never negative is taken for a size. Guards on products of sizes would be on
//! every graph, so there is none on an expression of sizes alone: a size without a declared maximum
//! is taken for at most [`MAX_SYMBOL_SIZE`] ([`Range::in_practice`]), and compiled programs guard
//! that.
//!
//! The cost is one look-up for an operation whose result is known, and the analysis of its
//! interval for each new result.

use super::arith::Op;
use super::range::Interval;
use super::scope_data::{Assertion, Guard, ScopeData};
use super::table::Node;
use super::{Expr, ExprId, Range, Rel, Scope, SymError, SymTable, SymbolId, SymbolKind};
use crate::Loc;
use smallvec::SmallVec;

/// The greatest value of a size that is a symbol without a declared maximum.
pub const MAX_SYMBOL_SIZE: i64 = i32::MAX as i64;

/// The integers of 64 bits.
const FITTING: Interval = Interval { lo: i64::MIN as i128, hi: i64::MAX as i128 };

/// The message of the assertion that a result fits.
const FITS: &str = "the arithmetic of the program overflows a 64-bit integer";
/// The message of the assertion that a divisor is not zero.
const DIVIDES: &str = "the arithmetic of the program divides by zero";

/// A set of expressions, each a bit by its number: a table numbers its expressions from 0.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ExprSet(Vec<u64>);

impl ExprSet {
    const fn place(id: ExprId) -> (usize, u64) {
        (id.0 as usize / 64, 1 << (id.0 % 64))
    }

    fn contains(&self, id: ExprId) -> bool {
        let (word, bit) = ExprSet::place(id);
        self.0.get(word).is_some_and(|bits| bits & bit != 0)
    }

    fn insert(&mut self, id: ExprId) {
        let (word, bit) = ExprSet::place(id);
        if word >= self.0.len() {
            self.0.resize(word + 1, 0);
        }
        if let Some(bits) = self.0.get_mut(word) {
            *bits |= bit;
        }
    }
}

impl Scope {
    /// From now on, operations on handles of this scope record that their results fit 64 bits.
    pub fn check_arithmetic(&self) {
        self.with(|data| _ = data.fitting.get_or_insert_default());
    }
}

impl Range {
    /// The values of a symbol with this declared range, of which no size is beyond
    /// [`MAX_SYMBOL_SIZE`] unless the range says so.
    pub fn in_practice(self) -> Range {
        match (self.lo >= 0, self.hi) {
            (true, i64::MAX) => Range { hi: MAX_SYMBOL_SIZE.max(self.lo), ..self },
            _ => self,
        }
    }
}

impl SymTable {
    /// The values of an expression by declared ranges, [in practice](Range::in_practice).
    fn values_in_practice(&self, e: Expr) -> Interval {
        let id = match e {
            Expr::Int(n) => return Interval::point(n),
            Expr::Id(id) => id,
        };
        match self.node(id) {
            Node::Symbol(s) => {
                let Range { lo, hi } = self.range(*s).in_practice();
                Interval { lo: lo.into(), hi: hi.into() }
            }
            node => self.interval_of(node, &|e| self.values_in_practice(e)),
        }
    }
}

impl ScopeData {
    /// The operation `a op b` of a program, at `loc`.
    ///
    /// # Errors
    /// As the operations of [`SymTable`]; or the result overflows on the example values.
    pub(super) fn binary(&mut self, op: Op, a: Expr, b: Expr, loc: Loc) -> Result<Expr, SymError> {
        let e = self.table.binary(op, a, b)?;
        if let (Some(fitting), Expr::Id(id)) = (&self.fitting, e)
            && !fitting.contains(id)
        {
            self.require_fit(op, (a, b), e, loc)?;
            self.fitting.get_or_insert_default().insert(id);
        }
        Ok(e)
    }

    /// The values of an operand: those that fit.
    fn fitting_values(&self, e: Expr) -> Interval {
        self.table.values_in_practice(e).intersect(FITTING)
    }

    /// Records that the operation `a op b`, whose result is `e`, does not fail; nothing if it never
    /// does.
    fn require_fit(
        &mut self,
        op: Op,
        (a, b): (Expr, Expr),
        e: Expr,
        loc: Loc,
    ) -> Result<(), SymError> {
        let (left, right) = (self.fitting_values(a), self.fitting_values(b));
        let values = match op {
            Op::Add => left.add(right),
            Op::Sub => left.add(right.neg()),
            Op::Mul => left.mul(right),
            Op::FloorDiv => left.floor_div(right),
            Op::Mod | Op::Min | Op::Max => FITTING,
        };
        let values = values.intersect(self.table.values_in_practice(e));
        let mut required: SmallVec<[(Rel, Expr, i64, &str); 2]> = SmallVec::new();
        if values.hi > FITTING.hi {
            required.push((Rel::Le, e, i64::MAX, FITS));
        }
        if values.lo < FITTING.lo {
            required.push((Rel::Ge, e, i64::MIN, FITS));
        }
        if matches!(op, Op::FloorDiv | Op::Mod) && right.lo <= 0 && right.hi >= 0 {
            required.push((Rel::Ne, b, 0, DIVIDES));
        }
        if required.is_empty() {
            return Ok(());
        }
        let on_examples = |e| self.table.eval(e, &|s| self.hints.get(&s).copied());
        match (on_examples(a), on_examples(b)) {
            (Ok(a), Ok(b)) if op.on_numbers(a, b).is_none() => return Err(op.number_error(a, b)),
            _ => {}
        }
        for (rel, e, number, message) in required {
            let cond = self.table.rel(rel, e, Expr::Int(number));
            let symbols = self.table.free_symbols_bool(cond);
            let is_size = |s: &SymbolId| self.table.range(*s).lo >= 0;
            if symbols.iter().all(is_size) || self.table.prove(cond) == Some(true) {
                continue;
            }
            if symbols.iter().any(|s| self.table.kind(*s) == SymbolKind::Unbacked) {
                self.assertions.push(Assertion { cond, message: Some(message.into()), loc });
            } else {
                self.guards.push(Guard { cond, loc });
            }
        }
        Ok(())
    }
}
