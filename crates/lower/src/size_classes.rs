//! Sizes of a graph that its guards make equal.
//!
//! A weight and a bias with a dynamic size each have two symbols, and a guard says that they are
//! equal. The kernel of a region has one symbol for both. So every size is replaced by what guards
//! make of it. Assertions do not count: a region may run before one.
//!
//! **Cost:** one pass over the sizes of the graph.

use maquette_ir::graph::Graph;
use maquette_ir::sym::{Expr, Range, SymTable};
use rustc_hash::FxHashMap;

/// The sizes of a graph, by classes that guards make equal.
#[derive(Default)]
pub struct SizeClasses {
    /// The table in which the guards are assumed.
    table: SymTable,
    /// The representative of each size that is not its own.
    others: FxHashMap<Expr, Expr>,
}

impl SizeClasses {
    /// Of a graph whose sizes are expressions of its table.
    pub fn of(graph: &Graph) -> SizeClasses {
        let mut table = graph.symbols().clone();
        for guard in graph.guards() {
            // An error means that no call satisfies all of them.
            let _ = table.assume(*guard);
        }
        let mut others = FxHashMap::default();
        let types = graph.values().filter_map(|v| graph.tensor_type(v));
        for &size in types.flat_map(|ty| &ty.sizes) {
            let simple = table.simplify(size);
            if simple != size {
                others.insert(size, simple);
            }
        }
        SizeClasses { table, others }
    }

    /// The size by which all of its class are known.
    pub(crate) fn representative(&self, size: Expr) -> Expr {
        self.others.get(&size).copied().unwrap_or(size)
    }

    /// The values of a representative.
    pub(crate) fn range(&self, representative: Expr) -> Range {
        self.table.bounds(representative)
    }
}
