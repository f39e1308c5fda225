//! The second pass: the graph's expressions in a symbol table of its own.

use super::is_reserved;
use crate::graph::Graph;
use crate::graph::build::BuildError;
use crate::graph::types::{Arg, Stmt, TypeId, ValueType, contiguous_strides};
use crate::sym::{BoolExpr, Expr, SymError, SymTable, SymbolId};
use indexmap::{IndexMap, IndexSet};
use rustc_hash::{FxBuildHasher, FxHashMap, FxHashSet};

/// A mutable reference to an expression, condition or symbol in a graph.
enum ExprMut<'a> {
    Int(&'a mut Expr),
    Bool(&'a mut BoolExpr),
    Symbol(&'a mut SymbolId),
}

impl Graph {
    /// Visits every expression in a fixed order.
    fn visit_exprs<E>(
        &mut self,
        f: &mut impl FnMut(ExprMut<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        for ty in &mut self.types {
            ty.sizes
                .iter_mut()
                .chain(&mut ty.strides)
                .chain([&mut ty.offset])
                .try_for_each(|e| f(ExprMut::Int(e)))?;
        }
        for value in &mut self.values {
            if let ValueType::Int(e) = &mut value.ty {
                f(ExprMut::Int(e))?;
            }
        }
        for arg in self
            .args
            .iter_mut()
            .chain(self.kwargs.iter_mut().map(|(_, arg)| arg))
            .chain(&mut self.outputs)
        {
            if let Arg::Int(e) = arg {
                f(ExprMut::Int(e))?;
            }
        }
        self.guards.iter_mut().try_for_each(|g| f(ExprMut::Bool(g)))?;
        self.body.iter_mut().try_for_each(|stmt| match stmt {
            Stmt::Assert { cond, .. } => f(ExprMut::Bool(cond)),
            Stmt::Bind { symbol, .. } => f(ExprMut::Symbol(symbol)),
            Stmt::Node(_) => Ok(()),
        })
    }

    /// Imports all expressions from the builder's table `old` into the graph's own table.
    pub(super) fn move_exprs(&mut self, old: &SymTable) -> Result<(), BuildError> {
        let mut used: FxHashSet<SymbolId> = FxHashSet::default();
        let mut seen: FxHashSet<Expr> = FxHashSet::default();
        self.visit_exprs::<SymError>(&mut |expr| {
            match expr {
                ExprMut::Int(&mut e @ Expr::Id(_)) if seen.insert(e) => {
                    used.extend(old.free_symbols(e))
                }
                ExprMut::Int(_) => {}
                ExprMut::Bool(b) => used.extend(old.free_symbols_bool(*b)),
                ExprMut::Symbol(symbol) => {
                    used.insert(*symbol);
                }
            }
            Ok(())
        })?;
        let mut table = SymTable::new();
        let mut symbols: FxHashMap<SymbolId, SymbolId> = FxHashMap::default();
        for symbol in old.symbols().filter(|symbol| used.contains(symbol)) {
            if is_reserved(old.name(symbol)) {
                return Err(BuildError::Reserved(old.name(symbol).to_owned()));
            }
            symbols.insert(
                symbol,
                table.symbol(old.name(symbol), old.kind(symbol), old.range(symbol))?,
            );
        }
        let mut moved: FxHashMap<Expr, Expr> = FxHashMap::default();
        self.visit_exprs::<SymError>(&mut |expr| {
            match expr {
                ExprMut::Int(Expr::Int(_)) => {}
                ExprMut::Int(e) => {
                    *e = match moved.get(e) {
                        Some(&new) => new,
                        None => {
                            let new = table.import(old, *e)?;
                            moved.insert(*e, new);
                            new
                        }
                    }
                }
                ExprMut::Bool(b) => *b = table.import_bool(old, *b)?,
                ExprMut::Symbol(symbol) => {
                    if let Some(&new) = symbols.get(symbol) {
                        *symbol = new;
                    }
                }
            }
            Ok(())
        })?;
        let mut guards: IndexMap<_, _, FxBuildHasher> = IndexMap::default();
        for (guard, loc) in self.guards.drain(..).zip(self.info.0.guards.drain(..)) {
            guards.entry(guard).or_insert(loc);
        }
        (self.guards, self.info.0.guards) = guards.into_iter().unzip();
        self.merge_types();
        self.contiguous = self
            .types
            .iter()
            .map(|ty| {
                contiguous_strides(&ty.sizes, &mut table).is_ok_and(|strides| strides == ty.strides)
            })
            .collect();
        self.symbols = table;
        Ok(())
    }

    /// Merges equal types and renumbers them. Two expressions that differ in the old table can be
    /// equal in the new one, which makes their types equal.
    fn merge_types(&mut self) {
        let mut merged: IndexSet<_, FxBuildHasher> = IndexSet::default();
        let new: Vec<u32> =
            self.types.drain(..).map(|ty| merged.insert_full(ty).0 as u32).collect();
        for value in &mut self.values {
            if let ValueType::Tensor(ty) = &mut value.ty {
                *ty = TypeId(new[ty.index()]);
            }
        }
        self.types = merged.into_iter().collect();
    }
}
