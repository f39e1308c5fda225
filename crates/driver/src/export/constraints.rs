//! What a program says of the sizes that were declared dynamic: whether it takes all of them, and
//! what to declare if not.

use maquette_ir::Loc;
use maquette_ir::graph::Graph;
use maquette_ir::sym::{BoolExpr, Expr, Range, Rel, SymTable, SymbolId};
use maquette_ops::{ExportError, Violation};
use maquette_trace::{Dim, LeafKind, TracedProgram};

/// The sizes that a symbol of a program stands for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RangeConstraint {
    /// Its name.
    pub symbol: String,
    /// Its values, as declared and as the program's guards leave them.
    pub range: Range,
    /// The dimensions of inputs that have this size, by what the inputs are called; none for a size
    /// that depends on data.
    pub dims: Vec<(String, usize)>,
}

/// The constraints on the symbols of a graph, whose inputs are called `labels`.
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

/// Adds facts; one that contradicts the others is of a program that no call passes.
fn assume(table: &mut SymTable, facts: &[BoolExpr]) {
    facts.iter().for_each(|&fact| {
        let _ = table.assume(fact);
    });
}

/// Refuses a program that takes fewer sizes than were declared.
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
    let broken: Vec<(&BoolExpr, Loc)> = guards
        .filter(|(g, _)| check.symbols(**g).iter().any(|s| check.dim(*s).is_some()))
        .collect();
    if broken.is_empty() {
        return Ok(());
    }
    let violations = broken.iter().map(|&(&guard, loc)| {
        let dims = check.symbols(guard).into_iter().map(|s| check.describe(s)).collect();
        Violation { dims, guard: check.table.display_bool(guard).to_string(), loc }
    });
    let violations = violations.collect();
    let guards: Vec<(BoolExpr, Loc)> = broken.iter().map(|&(&g, loc)| (g, loc)).collect();
    Err(ExportError::Constraints { violations, fixes: check.fixes(&guards) })
}

struct ConstraintCheck<'a> {
    traced: &'a TracedProgram,
    table: SymTable,
    /// The dimensions that were declared, in order.
    declared: Vec<(SymbolId, &'a Dim)>,
}

impl<'a> ConstraintCheck<'a> {
    fn symbols(&self, guard: BoolExpr) -> Vec<SymbolId> {
        self.table.free_symbols_bool(guard).to_vec()
    }

    fn dim(&self, symbol: SymbolId) -> Option<&'a Dim> {
        self.declared.iter().find(|(s, _)| *s == symbol).map(|(_, dim)| *dim)
    }

    /// The dimensions of inputs that have a size, as
    /// [`TraceOptions::dynamic`](maquette_trace::TraceOptions::dynamic) counts them.
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

    /// How one declares a dimension to be this.
    fn declaration(&self, of: SymbolId, as_dim: &Dim) -> String {
        let calls: Vec<String> = self
            .input_dims(of)
            .iter()
            .map(|(leaf, d)| format!("`.dynamic({leaf}, {d}, {as_dim})`"))
            .collect();
        calls.join(" and ")
    }

    /// What to declare or assert instead: first for each dimension by itself, then for the guards
    /// that remain.
    fn fixes(&mut self, guards: &[(BoolExpr, Loc)]) -> Vec<String> {
        let mut fixes = Vec::new();
        let mut left: Vec<(BoolExpr, Loc)> = guards.to_vec();
        for (symbol, dim) in self.declared.clone() {
            let own: Vec<BoolExpr> =
                guards.iter().map(|(g, _)| *g).filter(|g| self.symbols(*g) == [symbol]).collect();
            let mut known = self.table.clone();
            assume(&mut known, &own);
            let range = known.proven_range(symbol);
            if let Some(n) = range.single() {
                fixes.push(format!(
                    "drop {}: the program takes {n} for `{}`",
                    self.declaration(symbol, dim),
                    dim.name()
                ));
            } else if range != self.table.range(symbol) {
                fixes.push(format!(
                    "declare {}",
                    self.declaration(symbol, &dim.clone().min(range.lo).max(range.hi))
                ));
            }
            left.retain(|(g, _)| !own.contains(g) || !self.implied(symbol, range, *g));
        }
        for (guard, loc) in left {
            fixes.push(match self.equal_dims(guard) {
                Some((other, dim)) => format!(
                    "declare {}: one name stands for equal \
                    sizes",
                    self.declaration(other, dim)
                ),
                None => {
                    let guard = self.table.display_bool(guard);
                    format!(
                        "assert `{guard}` before {loc}, with `.check(\"…\")?`: every call is \
                        then checked for it"
                    )
                }
            });
        }
        fixes
    }

    /// A declared dimension and the symbol that it is asked to equal.
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
