//! Checks the guards of a traced program against the declared dynamic dimensions.
//!
//! A guard on a declared dimension means that the program is not valid for the whole declared
//! range. The export then fails, with suggested declarations: the range that the guards on one
//! dimension prove, one name for two dimensions that must be equal, or an assertion for any other
//! guard.

use maquette_ir::Loc;
use maquette_ir::graph::Graph;
use maquette_ir::sym::{BoolExpr, Expr, Range, Rel, SymTable, SymbolId};
use maquette_ops::{ExportError, Violation};
use maquette_trace::{Dim, LeafKind, TracedProgram};

/// The range of a symbol of a program, and the dimensions that it stands for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RangeConstraint {
    /// The symbol's name.
    pub symbol: String,
    /// The values that satisfy the declared range and the program's guards.
    pub range: Range,
    /// The dimensions of inputs that have this size: the input's name and the dimension. Empty for
    /// a data-dependent size.
    pub dims: Vec<(String, usize)>,
}

/// The constraints on the symbols of a graph. `labels` are the names of its inputs.
pub(crate) fn ranges(graph: &Graph, labels: &[String]) -> Vec<RangeConstraint> {
    let mut table = graph.symbols().clone();
    assume(&mut table, graph.guards());
    let symbols: Vec<SymbolId> = table.symbols().collect();
    let constraint = |s: SymbolId| {
        let size = table.expr(s);
        let mut dims = Vec::new();
        for (&input, label) in graph.inputs().iter().zip(labels) {
            let sizes = graph.tensor_type(input).map_or(&[][..], |ty| &ty.sizes);
            dims.extend(
                sizes
                    .iter()
                    .enumerate()
                    .filter(|(_, e)| **e == size)
                    .map(|(d, _)| (label.clone(), d)),
            );
        }
        RangeConstraint { symbol: table.name(s).to_owned(), range: table.proven_range(s), dims }
    };
    symbols.into_iter().map(constraint).collect()
}

/// Adds facts to a table. A contradictory fact is ignored: no call satisfies the guards of such a
/// program, so any range is right.
fn assume(table: &mut SymTable, facts: &[BoolExpr]) {
    facts.iter().for_each(|&fact| {
        let _ = table.assume(fact);
    });
}

/// Checks that the program is valid for all declared sizes.
///
/// # Errors
/// A guard restricts a declared dimension.
pub(crate) fn check(
    traced: &TracedProgram,
    dims: &[(usize, usize, Dim)],
) -> Result<(), ExportError> {
    let mut check =
        ConstraintCheck { traced, table: traced.graph.symbols().clone(), declared: Vec::new() };
    for (.., dim) in dims {
        match check.table.lookup(dim.name()) {
            Some(symbol) if check.declared.iter().all(|(s, _)| *s != symbol) => {
                check.declared.push((symbol, dim))
            }
            _ => {}
        }
    }
    let graph = &traced.graph;
    let guards =
        graph.guards().iter().enumerate().filter_map(|(i, g)| Some((g, graph.guard_loc(i)?)));
    let violated: Vec<(&BoolExpr, Loc)> = guards
        .filter(|(g, _)| check.symbols(**g).iter().any(|s| check.dim(*s).is_some()))
        .collect();
    if violated.is_empty() {
        return Ok(());
    }
    let violations = violated.iter().map(|&(&guard, loc)| {
        let dims = check.symbols(guard).into_iter().map(|s| check.describe(s)).collect();
        Violation { dims, guard: check.table.display_bool(guard).to_string(), loc }
    });
    let violations = violations.collect();
    let guards: Vec<(BoolExpr, Loc)> = violated.iter().map(|&(&g, loc)| (g, loc)).collect();
    Err(ExportError::Constraints { violations, fixes: check.fixes(&guards) })
}

/// The state of [`check`].
struct ConstraintCheck<'a> {
    traced: &'a TracedProgram,
    table: SymTable,
    /// The declared dimensions and their symbols, in order of declaration.
    declared: Vec<(SymbolId, &'a Dim)>,
}

impl<'a> ConstraintCheck<'a> {
    fn symbols(&self, guard: BoolExpr) -> Vec<SymbolId> {
        self.table.free_symbols_bool(guard).to_vec()
    }

    fn dim(&self, symbol: SymbolId) -> Option<&'a Dim> {
        self.declared.iter().find(|(s, _)| *s == symbol).map(|(_, dim)| *dim)
    }

    /// The dimensions of inputs whose size is the symbol: the input, numbered as in
    /// [`TraceOptions::dynamic`](maquette_trace::TraceOptions::dynamic), and the dimension.
    fn input_dims(&self, symbol: SymbolId) -> Vec<(usize, usize)> {
        let TracedProgram { graph, state, interface, .. } = self.traced;
        let leaves = interface
            .inputs
            .iter()
            .enumerate()
            .filter(|(_, kind)| matches!(kind, LeafKind::Input))
            .map(|(leaf, _)| leaf);
        let mut dims = Vec::new();
        for (leaf, &input) in leaves.zip(graph.inputs().iter().skip(state.len())) {
            let sizes = graph.tensor_type(input).map_or(&[][..], |ty| &ty.sizes);
            let is_symbol = |e: &Expr| graph.symbols().free_symbols(*e).as_slice() == [symbol];
            dims.extend(
                sizes.iter().enumerate().filter(|(_, e)| is_symbol(e)).map(|(d, _)| (leaf, d)),
            );
        }
        dims
    }

    fn describe(&self, symbol: SymbolId) -> String {
        let label = |leaf: usize| self.traced.interface.labels.get(leaf).map_or("", String::as_str);
        let dims: Vec<String> = self
            .input_dims(symbol)
            .iter()
            .map(|&(leaf, d)| format!("dimension {d} of `{}`", label(leaf)))
            .collect();
        format!(
            "`{}` in {} ({})",
            self.table.name(symbol),
            self.table.range(symbol),
            dims.join(", ")
        )
    }

    /// The calls that declare the dimensions of a symbol as `as_dim`.
    fn declaration(&self, of: SymbolId, as_dim: &Dim) -> String {
        let calls: Vec<String> = self
            .input_dims(of)
            .iter()
            .map(|(leaf, d)| format!("`.dynamic({leaf}, {d}, {as_dim})`"))
            .collect();
        calls.join(" and ")
    }

    /// Suggested declarations and assertions: first for each dimension by itself, then for the
    /// guards that remain.
    fn fixes(&mut self, guards: &[(BoolExpr, Loc)]) -> Vec<String> {
        let mut fixes = Vec::new();
        let mut remaining: Vec<(BoolExpr, Loc)> = guards.to_vec();
        for (symbol, dim) in self.declared.clone() {
            let own: Vec<BoolExpr> =
                guards.iter().map(|(g, _)| *g).filter(|g| self.symbols(*g) == [symbol]).collect();
            let mut known = self.table.clone();
            assume(&mut known, &own);
            let range = known.proven_range(symbol);
            if let Some(n) = range.single() {
                fixes.push(format!(
                    "remove {}: the program requires `{}` to be {n}",
                    self.declaration(symbol, dim),
                    dim.name()
                ));
            } else if range != self.table.range(symbol) {
                fixes.push(format!(
                    "declare {}",
                    self.declaration(symbol, &dim.clone().min(range.lo).max(range.hi))
                ));
            }
            remaining.retain(|(g, _)| !own.contains(g) || !self.implied(symbol, range, *g));
        }
        for (guard, loc) in remaining {
            fixes.push(match self.equal_dims(guard) {
                Some((other, dim)) => format!(
                    "declare {}: dimensions of one name have equal sizes",
                    self.declaration(other, dim)
                ),
                None => {
                    let guard = self.table.display_bool(guard);
                    format!(
                        "assert `{guard}` before {loc}, with `.check(\"…\")?`, so that every call \
                            checks it"
                    )
                }
            });
        }
        fixes
    }

    /// If a guard requires two sizes to be equal and one of them is declared: the other symbol, and
    /// the declaration.
    fn equal_dims(&mut self, guard: BoolExpr) -> Option<(SymbolId, &'a Dim)> {
        let [a, b] = self.symbols(guard)[..] else { return None };
        let sizes = [self.table.expr(a), self.table.expr(b)];
        if self.table.rel(Rel::Eq, sizes[0], sizes[1]) != guard {
            return None;
        }
        self.dim(a).map(|dim| (b, dim)).or_else(|| self.dim(b).map(|dim| (a, dim)))
    }

    /// Whether a condition holds for every value in a range.
    fn implied(&self, symbol: SymbolId, range: Range, guard: BoolExpr) -> bool {
        let mut known = self.table.clone();
        let size = known.expr(symbol);
        let bounds = [
            known.rel(Rel::Ge, size, Expr::Int(range.lo)),
            known.rel(Rel::Le, size, Expr::Int(range.hi)),
        ];
        assume(&mut known, &bounds);
        known.prove(guard) == Some(true)
    }
}
