//! The evaluation of guards over the numbers of a call.

use super::call_inputs::CallInputs;
use super::guards::{Broken, Check, Guards, Symbols};
use maquette_ir::sym::SymbolId;

impl Guards {
    /// The first guard that the numbers of a call break.
    pub(super) fn broken_numbers(
        &self,
        call: &CallInputs,
        symbols: &mut Symbols,
    ) -> Option<Broken> {
        if let Some(check) = self.broken_check(&call.numbers, symbols) {
            return Some(Broken::Check(check));
        }
        for (i, (condition, _)) in self.conditions.iter().enumerate() {
            let holds =
                self.table.eval_bool(*condition, &|s: SymbolId| symbols.get(s.index()).copied());
            // a condition that divides by a size of 0 does not hold
            if !holds.unwrap_or(false) {
                return Some(Broken::Condition(i));
            }
        }
        None
    }

    /// The first check that fails.
    fn broken_check(&self, numbers: &[i64], symbols: &mut Symbols) -> Option<usize> {
        let number = |at: u32| numbers.get(at as usize).copied();
        let mut next = 0;
        while let Some(check) = self.checks.get(next) {
            let holds = match *check {
                Check::Is { at, n } => number(at) == Some(n),
                Check::Binds { at, symbol, range } => {
                    match (number(at), symbols.get_mut(symbol.index())) {
                        (Some(n), Some(value)) => {
                            *value = n;
                            range.contains(n)
                        }
                        _ => false,
                    }
                }
                Check::IsSymbol { at, symbol } => {
                    number(at).is_some() && number(at) == symbols.get(symbol.index()).copied()
                }
                Check::IsExpr { at, expr } => {
                    let value = self.table.eval(expr, &|s| symbols.get(s.index()).copied());
                    value.is_ok_and(|value| number(at) == Some(value))
                }
                Check::IsRowMajor { at, rank } => {
                    let (at, rank) = (at as usize, rank as usize);
                    let dims = numbers.get(at..at + 2 * rank).map(|dims| dims.split_at(rank));
                    dims.is_some_and(|(sizes, strides)| is_row_major(sizes, strides))
                }
                Check::SkipIfEmpty { at, rank, checks } => {
                    if (at..at + rank).any(|at| number(at) == Some(0)) {
                        next += checks as usize;
                    }
                    true
                }
                Check::SkipIfOne { at } => {
                    next += usize::from(number(at) == Some(1));
                    true
                }
            };
            if !holds {
                return Some(next);
            }
            next += 1;
        }
        None
    }
}

/// Whether sizes and strides are those of a row-major tensor, as far as the strides address
/// anything.
fn is_row_major(sizes: &[i64], strides: &[i64]) -> bool {
    let mut expected = 1i64;
    for (&size, &stride) in sizes.iter().zip(strides).rev() {
        if size == 0 {
            return true;
        }
        if size != 1 && stride != expected {
            return sizes.contains(&0);
        }
        expected = expected.saturating_mul(size);
    }
    true
}
