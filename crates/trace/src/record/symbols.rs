//! When symbols get their values: binds of data-dependent symbols, and the assertions that wait for
//! them.

use super::Recorder;
use maquette_ir::Loc;
use maquette_ir::graph::{BindSource, Created, ValueId, ValueType};
use maquette_ir::sym::{Expr, SymTable, SymbolId, SymbolKind};
use maquette_ops::{FakeError, Result};
use rustc_hash::FxHashSet;
use smallvec::SmallVec;

impl Recorder {
    /// Binds the data-dependent symbols that occur for the first time in the results of a node.
    ///
    /// # Errors
    /// Such a symbol occurs only inside a larger expression, in a stride or in an offset, so that
    /// no run could determine its value.
    pub(super) fn bind(&mut self, created: Created, types: &[ValueType]) -> Result<()> {
        let mut unbound: SmallVec<[SymbolId; 4]> = SmallVec::new();
        for (value, ty) in created.values.iter().zip(types) {
            let (exprs, of): (SmallVec<[Expr; 12]>, _) = match ty {
                ValueType::Tensor(ty) => match self.builder.tensor_type(*ty) {
                    Some(ty) => (ty.exprs().collect(), Some(ty.rank())),
                    None => continue,
                },
                ValueType::Int(e) => (SmallVec::from_slice(&[*e]), None),
                _ => continue,
            };
            for (i, &e) in exprs.iter().enumerate().filter(|(_, e)| matches!(e, Expr::Id(_))) {
                let (found, plain) = self
                    .scope
                    .with(|data| unbound_symbols(&mut data.table, e, &self.bound_symbols));
                let source = match of {
                    Some(rank) if i < rank => Some(BindSource::Size(i as u32)),
                    Some(_) => None,
                    None => Some(BindSource::Value),
                };
                match (plain, source, found.first()) {
                    (true, Some(source), Some(&symbol)) => {
                        self.bind_as(symbol, value, source);
                    }
                    _ => unbound.extend(found),
                }
            }
        }
        match unbound.into_iter().find(|s| !self.bound_symbols.contains(s)) {
            None => Ok(()),
            Some(s) => Err(FakeError::Unbindable {
                symbol: self.scope.with(|data| data.table.name(s).to_owned()),
            }
            .into()),
        }
    }

    /// Binds a data-dependent symbol.
    pub(crate) fn bind_as(&mut self, symbol: SymbolId, value: ValueId, source: BindSource) {
        self.builder.bind(symbol, value, source);
        self.bound_symbols.insert(symbol);
    }

    /// Moves the assertions whose symbols are all bound into the body, in the order in which they
    /// were raised. With `line`, guards and assertions raised since the last call get that line:
    /// builtin code raised them for the program's call there.
    pub(crate) fn flush_assertions(&mut self, line: Option<Loc>) {
        let Recorder {
            scope,
            pending_assertions,
            assertions_seen,
            guards_seen,
            bound_symbols,
            builder,
            ..
        } = self;
        scope.with(|data| {
            if let Some(line) = line {
                data.guards.iter_mut().skip(*guards_seen).for_each(|g| g.loc = line);
                data.assertions.iter_mut().skip(*assertions_seen).for_each(|a| a.loc = line);
            }
            *guards_seen = data.guards.len();
            pending_assertions.extend(data.assertions.iter().skip(*assertions_seen).cloned());
            *assertions_seen = data.assertions.len();
            if pending_assertions.is_empty() {
                return;
            }
            pending_assertions.retain(|a| {
                let known = |s: &SymbolId| {
                    data.table.kind(*s) == SymbolKind::Backed || bound_symbols.contains(s)
                };
                let ready = data.table.free_symbols_bool(a.cond).iter().all(known);
                if ready {
                    builder.assert_(a.cond, a.message.as_deref(), Some(a.loc));
                }
                !ready
            });
        });
    }
}

/// The data-dependent symbols of an expression that are not bound, and whether the expression is
/// exactly one such symbol.
pub(crate) fn unbound_symbols(
    table: &mut SymTable,
    e: Expr,
    bound_symbols: &FxHashSet<SymbolId>,
) -> (SmallVec<[SymbolId; 4]>, bool) {
    let mut found = table.free_symbols(e);
    found.retain(|s| table.kind(*s) == SymbolKind::Unbacked && !bound_symbols.contains(s));
    let plain = matches!(found.as_slice(), [s] if table.expr(*s) == e);
    (found, plain)
}
