//! Sample values of the symbols of a graph.
//!
//! **Problem.** Operators fit together for some sizes, or they do not. A weight and a bias with a
//! dynamic size each have two symbols, and no norm takes two sizes. That they are equal is a guard.
//!
//! **Algorithm.** Guards and assertions are assumed: the table of symbols then knows which symbols
//! others determine, and simplifies conditions to the rest. In order of declaration, each of the
//! rest gets the first value for which the conditions hold that mention it, and no symbol after
//! it. The search is bounded, and takes the first value if none fits.
//!
//! **Invariants.** A sample is only an example. If it satisfies not all conditions, fewer operators
//! are fused.

use maquette_ir::graph::{Graph, Stmt};
use maquette_ir::sym::{BoolExpr, Expr, SymTable, SymbolId};
use rustc_hash::FxHashMap;

/// The most values that are tried for a symbol: a size may have to be a multiple of 64, such as the
/// width of a head.
const MAX_TRIALS: i64 = 128;

/// By symbol: a value, such that all of them satisfy the guards and assertions of the graph.
pub(crate) fn samples(graph: &Graph) -> FxHashMap<SymbolId, i64> {
    let mut table = graph.symbols().clone();
    let asserted = graph.body().iter().filter_map(|stmt| match stmt {
        Stmt::Assert { cond, .. } => Some(*cond),
        _ => None,
    });
    let conditions: Vec<BoolExpr> = graph.guards().iter().copied().chain(asserted).collect();
    for condition in &conditions {
        // An error means that no call satisfies all of them.
        let _ = table.assume(*condition);
    }
    // By the last symbol that each mentions.
    let mut by_symbol: FxHashMap<SymbolId, Vec<BoolExpr>> = FxHashMap::default();
    for condition in conditions {
        let condition = table.simplify_bool(condition);
        if let Some(last) = table.free_symbols_bool(condition).iter().max() {
            by_symbol.entry(*last).or_default().push(condition);
        }
    }
    let mut samples: FxHashMap<SymbolId, i64> = FxHashMap::default();
    let mut determined: Vec<(SymbolId, Expr)> = Vec::new();
    for (i, symbol) in table.symbols().enumerate() {
        let own = table.expr(symbol);
        let simple = table.simplify(own);
        if simple != own {
            determined.push((symbol, simple));
            continue;
        }
        let conditions = by_symbol.get(&symbol).map_or(&[][..], |conditions| &conditions[..]);
        let sample = sample(&table, symbol, 17 + 6 * i as i64, conditions, &samples);
        samples.insert(symbol, sample);
    }
    for (symbol, simple) in determined {
        if let Ok(n) = table.eval(simple, &|s| samples.get(&s).copied()) {
            samples.insert(symbol, n);
        }
    }
    samples
}

/// A value of a symbol, `first` or the next ones that satisfy conditions on it and on those before.
fn sample(
    table: &SymTable,
    symbol: SymbolId,
    first: i64,
    conditions: &[BoolExpr],
    before: &FxHashMap<SymbolId, i64>,
) -> i64 {
    let range = table.proven_range(symbol);
    let first = first.max(range.lo).min(range.hi);
    let fits = |n: i64| {
        let value = |s: SymbolId| if s == symbol { Some(n) } else { before.get(&s).copied() };
        conditions.iter().all(|c| table.eval_bool(*c, &value).unwrap_or(true))
    };
    let last = first.saturating_add(MAX_TRIALS).min(range.hi);
    // Of a range that ends early, the values before may fit.
    let lowest = first.saturating_sub(MAX_TRIALS).max(range.lo);
    let mut trials = (first..=last).chain((lowest..first).rev());
    trials.find(|n| fits(*n)).unwrap_or(first)
}
