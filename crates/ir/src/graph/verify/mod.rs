//! The verifier. [`Graph::verify`] checks the invariants of a valid graph, in this order. A backend
//! may rely on every invariant of a verified graph.
//!
//! - **G1 ids**: every id is within its table, every range is within its pool, and the elements of
//!   a list precede those of the list that contains it.
//! - **G2 definitions**: values are numbered in the order of their definitions: inputs, constants,
//!   then the results of the nodes. The body lists each node once, in order. A value's record
//!   agrees with its definition.
//! - **G3 order**: a statement uses only values that are defined before it.
//! - **G4 names**: value names are valid, split canonically into base and number, and unique; the
//!   graph's name is an identifier.
//! - **G5 operators**: operators are named `namespace::name` or `namespace::name.overload`. The
//!   keywords of a call are distinct identifiers, at most [`MAX_KWARGS`] of them.
//! - **G6 unbacked symbols**: an unbacked symbol is bound before its first use, except in the types
//!   of the node whose result binds it. A value is used only after the symbols of its type are
//!   bound. Inputs, constants and guards contain no unbacked symbol.
//! - **G7 backed symbols**: a backed symbol is, by itself, a size, stride or integer of some input,
//!   so that a call determines its value. No run binds a symbol from an offset.
//! - **G8 types**: a tensor has equally many sizes and strides, at most [`MAX_RANK`]; sizes,
//!   strides and offset are not negative; the layout is strided; only floating-point tensors
//!   require grad.
//! - **G9 binds**: a bind defines an unbacked symbol that no other bind defines. It reads a
//!   dimension of a tensor, or an integer, whose type is exactly that symbol.
//! - **G10 constants**: a constant is a tensor without symbols in its type.
//! - **G11 lists**: lists nest at most [`MAX_LIST_DEPTH`] deep.

mod flow;
#[cfg(test)]
mod tests;

use super::types::{Arg, Def, Name, Res, Span, Stmt, StrId, ValueId, ValueType};
use super::{Graph, MAX_KWARGS, MAX_LIST_DEPTH, MAX_RANK, names};
use crate::Layout;
use crate::sym::{Expr, SymbolKind};
use rustc_hash::FxHashSet;
use std::fmt;

/// The violated invariant; see the [module documentation](self).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Invariant {
    /// G1
    Ids,
    /// G2
    Definitions,
    /// G3
    Order,
    /// G4
    Names,
    /// G5
    Operators,
    /// G6
    Unbacked,
    /// G7
    Backed,
    /// G8
    Types,
    /// G9
    Binds,
    /// G10
    Constants,
    /// G11
    Lists,
}

impl fmt::Display for Invariant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "G{}", *self as u8 + 1)
    }
}

/// The error of an invalid graph.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid graph `{graph}` ({invariant}): \
    {message}{}{window}", if .window.is_empty() { "" } else { "\n" })]
pub struct VerifyError {
    /// The graph's name.
    pub graph: String,
    /// The violated invariant.
    pub invariant: Invariant,
    /// A description of the violation and its location.
    pub message: String,
    /// The position in the body of the statement that causes the violation, if one does.
    pub statement: Option<usize>,
    /// The statements around the violation, if a statement causes it.
    pub window: String,
}

impl Graph {
    /// Checks that the graph is valid.
    ///
    /// # Errors
    /// The first violated invariant.
    pub fn verify(&self) -> Result<(), VerifyError> {
        let verifier = Verifier { graph: self };
        verifier.ids()?;
        verifier.lists()?;
        verifier.definitions()?;
        verifier.names()?;
        verifier.operators()?;
        verifier.types()?;
        verifier.constants()?;
        verifier.flow()?;
        verifier.backed()
    }
}

type Check = Result<(), VerifyError>;

struct Verifier<'graph> {
    graph: &'graph Graph,
}

impl Verifier<'_> {
    /// Fails unless `holds`. `at` is the index in the body of the statement that causes the
    /// violation.
    fn require(
        &self,
        holds: bool,
        invariant: Invariant,
        at: Option<usize>,
        message: impl FnOnce() -> String,
    ) -> Check {
        if holds {
            return Ok(());
        }
        let window = at.map(|at| self.graph.window_at(at, 2)).unwrap_or_default();
        let graph = self
            .graph
            .strings
            .get(self.graph.name.index())
            .map(|s| s.to_string())
            .unwrap_or_default();
        Err(VerifyError { graph, invariant, message: message(), statement: at, window })
    }

    /// Checks G1.
    fn ids(&self) -> Check {
        let graph = self.graph;
        let inside = |what: &str, index: usize, len: usize| {
            self.require(index < len, Invariant::Ids, None, || {
                format!("{what} {index} is out of range for its table of {len}")
            })
        };
        let str = |s: StrId| inside("string", s.index(), graph.strings.len());
        let value = |v: ValueId| inside("value", v.index(), graph.values.len());
        let span = |what: &str, s: Span, len: usize| {
            let fits = (s.start as usize).checked_add(s.len()).is_some_and(|end| end <= len);
            self.require(fits, Invariant::Ids, None, || {
                format!("{what} {}..+{} are out of range for their pool of {len}", s.start, s.len)
            })
        };
        // The elements of nested lists must precede the list's own, so that traversal terminates.
        let arg = |arg: &Arg, before: usize| match *arg {
            Arg::Value(v) => value(v),
            Arg::Str(s) => str(s),
            Arg::List(list) => span("list elements", list, before),
            _ => Ok(()),
        };
        str(graph.name)?;
        for v in &graph.values {
            str(v.name.base)?;
            match v.def {
                Def::Input(i) => inside("input", i as usize, graph.inputs.len())?,
                Def::Const(i) => inside("constant", i as usize, graph.consts.len())?,
                Def::Node(n) => inside("node", n.index(), graph.nodes.len())?,
            }
            if let ValueType::Tensor(ty) = v.ty {
                inside("type", ty.index(), graph.types.len().min(graph.contiguous.len()))?;
            }
        }
        graph
            .inputs
            .iter()
            .copied()
            .chain(graph.consts.iter().map(|c| c.value))
            .try_for_each(value)?;
        let list_args = |s: Span| {
            s.get(&graph.args).unwrap_or_default().iter().try_for_each(|a| arg(a, s.start as usize))
        };
        for a in graph.args.iter().chain(&graph.outputs).chain(graph.kwargs.iter().map(|(_, a)| a))
        {
            arg(a, graph.args.len())?;
            if let Arg::List(list) = *a {
                list_args(list)?;
            }
        }
        for n in &graph.nodes {
            str(n.op)?;
            span("arguments", n.args, graph.args.len())?;
            span("keyword arguments", n.kwargs, graph.kwargs.len())?;
            span("results", n.results, graph.results.len())?;
            list_args(n.args)?;
        }
        graph.kwargs.iter().try_for_each(|(name, _)| str(*name))?;
        for r in &graph.results {
            span("result values", r.values().0, graph.values.len())?;
        }
        let symbols = graph.symbols.symbols().count();
        graph.body.iter().try_for_each(|s| match *s {
            Stmt::Node(n) => inside("node", n.index(), graph.nodes.len()),
            Stmt::Bind { symbol, value: v, .. } => {
                value(v).and(inside("symbol", symbol.0 as usize, symbols))
            }
            Stmt::Assert { message, .. } => message.map_or(Ok(()), str),
        })
    }

    /// Checks G11.
    fn lists(&self) -> Check {
        // The elements of nested lists precede those of the list, so one pass over the pool
        // determines the nesting depth of each element.
        let mut depth_below: Vec<usize> = Vec::with_capacity(self.graph.args.len());
        for (i, a) in self
            .graph
            .args
            .iter()
            .chain(self.graph.kwargs.iter().map(|(_, a)| a))
            .chain(&self.graph.outputs)
            .enumerate()
        {
            let depth = match a {
                Arg::List(list) => {
                    1 + list
                        .get(&depth_below)
                        .unwrap_or_default()
                        .iter()
                        .max()
                        .copied()
                        .unwrap_or(0)
                }
                _ => 0,
            };
            self.require(depth <= MAX_LIST_DEPTH, Invariant::Lists, None, || {
                format!("an argument is a list nested more than {MAX_LIST_DEPTH} levels deep")
            })?;
            if i < self.graph.args.len() {
                depth_below.push(depth);
            }
        }
        Ok(())
    }

    /// Checks G2.
    fn definitions(&self) -> Check {
        let graph = self.graph;
        let mut next = 0usize;
        let mut define = |value: ValueId, def: Def, at: Option<usize>| {
            let agrees = value.index() == next && graph.values[value.index()].def == def;
            next += 1;
            self.require(agrees, Invariant::Definitions, at, || {
                format!(
                    "`%{}` is defined out of order, more than once, or by another definition than \
                        recorded",
                    graph.value_name(value)
                )
            })
        };
        for (i, &v) in graph.inputs.iter().enumerate() {
            define(v, Def::Input(i as u32), None)?;
        }
        for (i, c) in graph.consts.iter().enumerate() {
            define(c.value, Def::Const(i as u32), None)?;
        }
        let mut node = 0usize;
        for (at, stmt) in graph.body.iter().enumerate() {
            let Stmt::Node(n) = *stmt else { continue };
            self.require(n.index() == node, Invariant::Definitions, Some(at), || {
                format!("found node {}, expected node {node}", n.0)
            })?;
            node += 1;
            for v in graph
                .results(n)
                .iter()
                .copied()
                .flat_map(|r: Res| r.values().iter().collect::<Vec<_>>())
            {
                define(v, Def::Node(n), Some(at))?;
            }
        }
        let (nodes, values) = (graph.nodes.len(), graph.values.len());
        self.require(node == nodes && next == values, Invariant::Definitions, None, || {
            format!(
                "the body has {node} nodes and defines {next} values, but the tables have \
                {nodes} and {values}"
            )
        })
    }

    /// Checks G4.
    fn names(&self) -> Check {
        let graph = self.graph;
        self.require(names::is_ident(graph.name()), Invariant::Names, None, || {
            format!("the graph's name `{}` is not an identifier", graph.name())
        })?;
        let mut seen: FxHashSet<Name> = FxHashSet::default();
        for (v, value) in graph.values().zip(&graph.values) {
            let base = graph.str(value.name.base);
            // A base with a number always splits off again. A base without a number must not end in
            // one.
            let canonical = value.name.number > 0 || names::split(base).1 == 0;
            self.require(names::is_valid(base) && canonical, Invariant::Names, None, || {
                format!(
                    "`%{}` is not a valid name, or its number is not split off",
                    graph.value_name(v)
                )
            })?;
            self.require(seen.insert(value.name), Invariant::Names, None, || {
                format!("duplicate value name `%{}`", graph.value_name(v))
            })?;
        }
        Ok(())
    }

    /// Checks G5.
    fn operators(&self) -> Check {
        let graph = self.graph;
        for (at, stmt) in graph.body.iter().enumerate() {
            let Stmt::Node(n) = *stmt else { continue };
            let op = graph.op_name(n);
            self.require(names::is_op(op), Invariant::Operators, Some(at), || {
                format!("`{op}` is not an operator name")
            })?;
            let kwargs = graph.kwargs(n);
            self.require(kwargs.len() <= MAX_KWARGS, Invariant::Operators, Some(at), || {
                format!("expected at most {MAX_KWARGS} keyword arguments, found {}", kwargs.len())
            })?;
            for (i, (name, _)) in kwargs.iter().enumerate() {
                let text = graph.str(*name);
                self.require(names::is_ident(text), Invariant::Operators, Some(at), || {
                    format!("`{text}` is not a valid keyword")
                })?;
                let repeated = kwargs[..i].iter().any(|(other, _)| graph.str(*other) == text);
                self.require(!repeated, Invariant::Operators, Some(at), || {
                    format!("duplicate keyword argument `{text}`")
                })?;
            }
        }
        Ok(())
    }

    /// Checks G8.
    fn types(&self) -> Check {
        let graph = self.graph;
        for (id, ty) in graph.types.iter().enumerate() {
            let show =
                || graph.display_type(ValueType::Tensor(super::TypeId(id as u32))).to_string();
            let (sizes, strides) = (ty.sizes.len(), ty.strides.len());
            self.require(sizes == strides && sizes <= MAX_RANK, Invariant::Types, None, || {
                format!(
                    "type `{}` has {sizes} sizes and {strides} strides; expected equal numbers of \
                        at most {MAX_RANK}",
                    show()
                )
            })?;
            let negative = ty.exprs().find(|e| graph.symbols.bounds(*e).hi < 0);
            self.require(negative.is_none(), Invariant::Types, None, || {
                format!(
                    "type `{}` has the negative size, stride or offset {}",
                    show(),
                    graph.symbols.display(negative.unwrap_or(Expr::Int(0)))
                )
            })?;
            self.require(ty.layout == Layout::Strided, Invariant::Types, None, || {
                format!("type `{}` is not strided", show())
            })?;
            self.require(!ty.requires_grad || ty.dtype.is_float(), Invariant::Types, None, || {
                format!("type `{}` requires grad, which only floating-point tensors can", show())
            })?;
        }
        Ok(())
    }

    /// Checks G10.
    fn constants(&self) -> Check {
        let graph = self.graph;
        for c in &graph.consts {
            let fixed = graph
                .tensor_type(c.value)
                .is_some_and(|ty| ty.exprs().all(|e| matches!(e, Expr::Int(_))));
            self.require(fixed, Invariant::Constants, None, || {
                format!(
                    "constant `%{}` is not a tensor without symbols in its type",
                    graph.value_name(c.value)
                )
            })?;
        }
        Ok(())
    }

    /// Checks G7.
    fn backed(&self) -> Check {
        let graph = self.graph;
        let mut plain: FxHashSet<String> = FxHashSet::default();
        for &input in &graph.inputs {
            let ty = graph.value_type(input);
            let layout = graph.tensor_type(input).into_iter();
            let exprs = layout.flat_map(|ty| ty.sizes.iter().chain(&ty.strides).copied());
            let int = if let ValueType::Int(e) = ty { Some(e) } else { None };
            plain.extend(exprs.chain(int).map(|e| graph.symbols.display(e).to_string()));
        }
        for s in graph.symbols.symbols().filter(|s| graph.symbols.kind(*s) == SymbolKind::Backed) {
            let name = graph.symbols.name(s);
            self.require(plain.contains(name), Invariant::Backed, None, || {
                format!(
                    "no input has the backed symbol `{name}` itself as a size, stride or \
                        integer, so a run cannot determine its value"
                )
            })?;
        }
        Ok(())
    }
}
