//! The checks that follow program order: values are defined before their uses (G3), and unbacked
//! symbols are bound before theirs (G6, G9). One pass over the body with the state of each program
//! point.

use super::{Check, Invariant, Verifier};
use crate::graph::types::{Arg, BindSource, NodeId, Stmt, TypeId, ValueId, ValueType};
use crate::sym::{Expr, SymbolId, SymbolKind};
use rustc_hash::{FxHashMap, FxHashSet};
use smallvec::SmallVec;

/// A list of unbacked symbols.
type Symbols = SmallVec<[SymbolId; 2]>;

/// The state at a program point.
#[derive(Default)]
struct State {
    /// Values with a smaller index are defined.
    defined: usize,
    /// The symbols bound so far.
    bound: FxHashSet<SymbolId>,
    /// For each symbol bound anywhere in the body, the node whose result binds it.
    binders: FxHashMap<SymbolId, Option<NodeId>>,
    /// The values whose types have symbols that were not bound where the values were defined, with
    /// these symbols.
    unbound: FxHashMap<ValueId, Symbols>,
    /// The unbacked symbols of each type visited so far.
    of_types: FxHashMap<TypeId, Symbols>,
}

impl Verifier<'_> {
    /// Checks G3, G6 and G9.
    pub(super) fn flow(&self) -> Check {
        let graph = self.graph;
        let mut state =
            State { defined: graph.inputs.len() + graph.consts.len(), ..State::default() };
        for stmt in &graph.body {
            if let Stmt::Bind { symbol, value, .. } = *stmt {
                state.binders.insert(symbol, graph.producer(value));
            }
        }
        self.header(&mut state)?;
        for (at, stmt) in graph.body.iter().enumerate() {
            match *stmt {
                Stmt::Node(node) => self.node(&mut state, node, at)?,
                Stmt::Bind { symbol, value, source } => {
                    self.defined(&state, value, Some(at))?;
                    self.bind(symbol, value, source, at)?;
                    let first = state.bound.insert(symbol);
                    let name = graph.symbols.name(symbol);
                    self.require(first, Invariant::Binds, Some(at), || {
                        format!("duplicate binding of `{name}`")
                    })?;
                }
                Stmt::Assert { cond, .. } => {
                    let symbols = self.unbacked(graph.symbols.free_symbols_bool(cond));
                    self.all_bound(&state, &symbols, None, Some(at))?;
                }
            }
        }
        graph.outputs.iter().try_for_each(|output| self.arg(&state, *output, None))
    }

    /// Checks that inputs, constants and guards contain no unbacked symbol.
    fn header(&self, state: &mut State) -> Check {
        let graph = self.graph;
        let free = |found: Option<SymbolId>, what: &dyn Fn() -> String| {
            let name = found.map(|s| graph.symbols.name(s)).unwrap_or_default();
            self.require(found.is_none(), Invariant::Unbacked, None, || {
                format!(
                    "{} uses `{name}`, an unbacked symbol that no earlier statement can bind",
                    what()
                )
            })
        };
        for &v in graph.inputs.iter().chain(graph.consts.iter().map(|c| &c.value)) {
            let symbols = self.of_type(state, graph.value_type(v));
            free(symbols.first().copied(), &|| format!("the type of `%{}`", graph.value_name(v)))?;
        }
        for &guard in &graph.guards {
            let symbols = self.unbacked(graph.symbols.free_symbols_bool(guard));
            free(symbols.first().copied(), &|| {
                format!("the guard `{}`", graph.symbols.display_bool(guard))
            })?;
        }
        Ok(())
    }

    /// Checks the operands of a node, and the symbols in the types of its results.
    fn node(&self, state: &mut State, node: NodeId, at: usize) -> Check {
        let graph = self.graph;
        for arg in graph.args(node).iter().chain(graph.kwargs(node).iter().map(|(_, arg)| arg)) {
            self.arg(state, *arg, Some(at))?;
        }
        for v in graph.result_values(node) {
            let symbols = self.of_type(state, graph.value_type(v));
            self.all_bound(state, &symbols, Some(node), Some(at))?;
            if symbols.iter().any(|s| !state.bound.contains(s)) {
                state.unbound.insert(v, symbols);
            }
            state.defined += 1;
        }
        Ok(())
    }

    /// Checks the values and symbols in an argument.
    fn arg(&self, state: &State, arg: Arg, at: Option<usize>) -> Check {
        let mut check = Ok(());
        self.graph.for_each_leaf(arg, &mut |leaf| {
            if check.is_ok() {
                check = match leaf {
                    Arg::Value(v) => self.operand(state, v, at),
                    Arg::Int(e @ Expr::Id(_)) => self.all_bound(
                        state,
                        &self.unbacked(self.graph.symbols.free_symbols(e)),
                        None,
                        at,
                    ),
                    _ => Ok(()),
                };
            }
        });
        check
    }

    /// Checks that a value is defined, and that the symbols of its type are bound.
    fn operand(&self, state: &State, value: ValueId, at: Option<usize>) -> Check {
        self.defined(state, value, at)?;
        let mut symbols = state.unbound.get(&value).into_iter().flatten();
        let Some(&symbol) = symbols.find(|s| !state.bound.contains(s)) else { return Ok(()) };
        self.require(false, Invariant::Unbacked, at, || {
            format!(
                "`%{}` is used before a statement binds `{}` of its type",
                self.graph.value_name(value),
                self.graph.symbols.name(symbol)
            )
        })
    }

    /// Checks that a value is defined.
    fn defined(&self, state: &State, value: ValueId, at: Option<usize>) -> Check {
        let name = self.graph.value_name(value);
        self.require(value.index() < state.defined, Invariant::Order, at, || {
            format!("`%{name}` is used before it is defined")
        })
    }

    /// Checks that symbols are bound, or are bound by a result of `producer`.
    fn all_bound(
        &self,
        state: &State,
        symbols: &[SymbolId],
        producer: Option<NodeId>,
        at: Option<usize>,
    ) -> Check {
        let bound_here =
            |s: &SymbolId| producer.is_some() && state.binders.get(s) == Some(&producer);
        match symbols.iter().find(|s| !state.bound.contains(s) && !bound_here(s)) {
            None => Ok(()),
            Some(&s) => {
                let name = self.graph.symbols.name(s);
                self.require(false, Invariant::Unbacked, at, || {
                    format!("`{name}` is used before a statement binds it")
                })
            }
        }
    }

    /// Checks that a bind statement defines an unbacked symbol from a value of exactly that type.
    fn bind(&self, symbol: SymbolId, value: ValueId, source: BindSource, at: usize) -> Check {
        let graph = self.graph;
        let name = graph.symbols.name(symbol);
        let is_unbacked = graph.symbols.kind(symbol) == SymbolKind::Unbacked;
        self.require(is_unbacked, Invariant::Binds, Some(at), || {
            format!("`{name}` is backed by an input, so no statement may bind it")
        })?;
        let found = match source {
            BindSource::Size(dim) => {
                graph.tensor_type(value).and_then(|ty| ty.sizes.get(dim as usize).copied())
            }
            BindSource::Value => match graph.value_type(value) {
                ValueType::Int(e) => Some(e),
                _ => None,
            },
        };
        let found = found.map(|e| graph.symbols.display(e).to_string());
        self.require(found.as_deref() == Some(name), Invariant::Binds, Some(at), || {
            let value_name = graph.value_name(value);
            let what = match source {
                BindSource::Size(dim) => format!("dimension {dim} of `%{value_name}`"),
                BindSource::Value => format!("the integer `%{value_name}`"),
            };
            format!(
                "`{name}` is bound to {what}, which {}",
                found.as_deref().map_or("does not exist".to_owned(), |f| format!("is `{f}`"))
            )
        })
    }

    /// The unbacked ones among symbols.
    fn unbacked(&self, symbols: impl IntoIterator<Item = SymbolId>) -> Symbols {
        symbols
            .into_iter()
            .filter(|s| self.graph.symbols.kind(*s) == SymbolKind::Unbacked)
            .collect()
    }

    /// The unbacked symbols of a type.
    fn of_type(&self, state: &mut State, ty: ValueType) -> Symbols {
        let symbols = |e: Expr| self.unbacked(self.graph.symbols.free_symbols(e));
        match ty {
            ValueType::Tensor(id) => state
                .of_types
                .entry(id)
                .or_insert_with(|| self.graph.type_of(id).exprs().flat_map(symbols).collect())
                .clone(),
            ValueType::Int(e) => symbols(e),
            ValueType::Float | ValueType::Bool | ValueType::Str => Symbols::new(),
        }
    }
}
