//! Canonicalization, the last step of building: every table is in first-use order, so two graphs
//! that print the same are equal as values.
//!
//! The first pass copies the structure. It renumbers values, types and strings at their first use,
//! and so drops what is never used. The second pass imports the expressions from the builder's
//! symbol table into a new table that declares only the symbols they contain, in a fixed order of
//! visiting. Types whose expressions have become equal are merged. Both passes are linear in the
//! size of the graph.

mod expressions;

use super::build::{BuildError, GraphBuilder};
use super::types::{
    Arg, IgnoredInEq, Name, Node, Res, Span, Stmt, StrId, TypeId, ValueId, ValueRange, ValueType,
};
use super::{Const, Graph, MAX_LIST_DEPTH, MAX_RANK};
use crate::Effect;
use crate::sym::SymTable;
use smallvec::SmallVec;
use std::sync::OnceLock;

/// Words that cannot be symbol names, because graph text gives them another meaning in an argument
/// or a condition. A [`SymTable`] refuses the words of its own grammar before, `oo` among them.
const RESERVED: [&str; 10] =
    ["None", "true", "false", "inf", "nan", "and", "or", "not", "min", "max"];

/// Whether a name is reserved and so cannot be a symbol.
pub(super) fn is_reserved(name: &str) -> bool {
    RESERVED.contains(&name) || crate::DType::ALL.iter().any(|d| d.name() == name)
}

/// Canonicalizes the builder's contents; see [`GraphBuilder::finish`].
pub(super) fn canonicalize(
    from: GraphBuilder,
    symbols: &SymTable,
    outputs: &[Arg],
) -> Result<Graph, BuildError> {
    let mut copy = Canonicalizer {
        out: Graph::empty(),
        strings: Renumber::new(from.strings.len()),
        types: Renumber::new(from.types.len()),
        values: vec![None; from.values.len()],
        from: &from,
    };
    copy.run(outputs)?;
    let Canonicalizer { mut out, strings, types, .. } = copy;
    let used = |op: StrId| strings.new.get(op.index()).filter(|&&new| new != u32::MAX);
    let bound =
        from.bound_schemas.iter().filter_map(|(op, s)| Some((StrId(*used(*op)?), s.clone())));
    out.bound_schemas.0.extend(bound);
    out.strings =
        strings.order.iter().filter_map(|&i| from.strings.get_index(i)).cloned().collect();
    out.types = types.order.iter().filter_map(|&i| from.types.get_index(i)).cloned().collect();
    if let Some(ty) = out.types.iter().find(|ty| ty.rank() > MAX_RANK) {
        return Err(BuildError::Rank { rank: ty.rank() });
    }
    out.move_exprs(symbols)?;
    Ok(out)
}

/// New indices of table entries, in the order of their first use.
struct Renumber {
    new: Vec<u32>,
    order: Vec<usize>,
}

impl Renumber {
    fn new(len: usize) -> Renumber {
        Renumber { new: vec![u32::MAX; len], order: Vec::new() }
    }

    /// The new index of an entry; assigned on first use.
    fn get(&mut self, what: &'static str, index: usize) -> Result<u32, BuildError> {
        let len = self.new.len();
        let new = self.new.get_mut(index).ok_or(BuildError::Foreign { what, index, len })?;
        if *new == u32::MAX {
            *new = self.order.len() as u32;
            self.order.push(index);
        }
        Ok(*new)
    }
}

/// The user of a value, for error messages.
#[derive(Clone, Copy)]
enum UseSite {
    Node(StrId),
    Bind,
    Return,
}

/// The first pass: the builder's graph, the graph under construction, and the renumberings.
struct Canonicalizer<'a> {
    from: &'a GraphBuilder,
    out: Graph,
    strings: Renumber,
    types: Renumber,
    values: Vec<Option<ValueId>>,
}

impl Canonicalizer<'_> {
    /// Copies the structure of the graph in program order.
    fn run(&mut self, outputs: &[Arg]) -> Result<(), BuildError> {
        let from = self.from;
        self.out.name = self.str(from.name)?;
        for &input in &from.inputs {
            let value = self.define(input)?;
            self.out.inputs.push(value);
        }
        for constant in &from.consts {
            let value = self.define(constant.value)?;
            self.out.consts.push(Const {
                value,
                source: constant.source.clone(),
                digest: OnceLock::new(),
            });
        }
        self.out.guards = from.guards.keys().copied().collect();
        let order = from.body.iter().filter_map(|stmt| match *stmt {
            Stmt::Node(node) => Some(node),
            Stmt::Bind { .. } | Stmt::Assert { .. } => None,
        });
        self.out.info.0 = from.info.reordered(order);
        self.out.info.0.guards = from.guards.values().copied().collect();
        self.out.nodes.reserve_exact(from.nodes.len());
        self.out.body.reserve_exact(from.body.len());
        self.out.args.reserve(self.copied_arg_count());
        self.out.values.reserve(from.values.len());
        self.out.results.reserve(from.results.len());
        for &stmt in &from.body {
            let stmt = self.stmt(stmt)?;
            self.out.body.push(stmt);
        }
        for &output in outputs {
            let output = self.arg(output, UseSite::Return, 0)?;
            self.out.outputs.push(output);
        }
        Ok(())
    }

    /// The number of arguments of all nodes, including those of list arguments. Nodes may share
    /// lists in the builder, but each gets its own copy, so the result can exceed the builder's
    /// pool.
    fn copied_arg_count(&self) -> usize {
        let listed = |arg: &Arg| if let Arg::List(list) = arg { list.len as usize } else { 0 };
        let count = |node: &Node| {
            node.args
                .get(&self.from.args)
                .map_or(0, |args| args.len() + args.iter().map(listed).sum::<usize>())
        };
        self.from.nodes.iter().map(count).sum()
    }

    fn stmt(&mut self, stmt: Stmt) -> Result<Stmt, BuildError> {
        Ok(match stmt {
            Stmt::Node(id) => {
                let from = self.from;
                let node = *from.nodes.get(id.index()).ok_or(foreign(
                    "node",
                    id.index(),
                    from.nodes.len(),
                ))?;
                let new = super::NodeId(self.out.nodes.len() as u32);
                let op = self.str(node.op)?;
                let args = self.args(node.args, UseSite::Node(node.op), 0)?;
                let kwargs = self.kwargs(node)?;
                let results = self.results(node.results)?;
                let effect = match node.effect {
                    Some(Effect::On(name)) => Some(Effect::On(self.str(name)?)),
                    Some(Effect::Ordered) | None => node.effect,
                };
                self.out.nodes.push(Node {
                    op,
                    args,
                    kwargs,
                    results,
                    effect,
                    copies: node.copies,
                });
                Stmt::Node(new)
            }
            Stmt::Bind { symbol, value, source } => {
                Stmt::Bind { symbol, value: self.used(value, UseSite::Bind)?, source }
            }
            Stmt::Assert { cond, message } => {
                let message = message.map(|m| self.str(m)).transpose()?;
                Stmt::Assert { cond, message }
            }
        })
    }

    /// Copies a list. Nested lists are copied first, so that the elements of each list are
    /// contiguous and follow those of the lists inside it.
    fn args(&mut self, span: Span, at: UseSite, depth: usize) -> Result<Span, BuildError> {
        let args = span.get(&self.from.args).ok_or(foreign(
            "list",
            span.start as usize,
            self.from.args.len(),
        ))?;
        let new: SmallVec<[Arg; 8]> =
            args.iter().map(|&a| self.arg(a, at, depth)).collect::<Result<_, _>>()?;
        let start = self.out.args.len() as u32;
        self.out.args.extend_from_slice(&new);
        Ok(Span { start, len: new.len() as u32 })
    }

    fn arg(&mut self, arg: Arg, at: UseSite, depth: usize) -> Result<Arg, BuildError> {
        Ok(match arg {
            Arg::Value(v) => Arg::Value(self.used(v, at)?),
            Arg::Str(s) => Arg::Str(self.str(s)?),
            Arg::List(_) if depth == MAX_LIST_DEPTH => {
                return Err(BuildError::Depth { at: self.describe(at) });
            }
            Arg::List(list) => Arg::List(self.args(list, at, depth + 1)?),
            other => other,
        })
    }

    fn kwargs(&mut self, node: Node) -> Result<Span, BuildError> {
        let from = self.from;
        let kwargs = node.kwargs.get(&from.kwargs).ok_or(foreign(
            "keyword",
            node.kwargs.start as usize,
            from.kwargs.len(),
        ))?;
        let start = self.out.kwargs.len() as u32;
        for &(name, arg) in kwargs {
            let name = self.str(name)?;
            let arg = self.arg(arg, UseSite::Node(node.op), 0)?;
            self.out.kwargs.push((name, arg));
        }
        Ok(Span { start, len: kwargs.len() as u32 })
    }

    fn results(&mut self, span: Span) -> Result<Span, BuildError> {
        let from = self.from;
        let results = span.get(&from.results).ok_or(foreign(
            "result",
            span.start as usize,
            from.results.len(),
        ))?;
        let start = self.out.results.len() as u32;
        for result in results {
            let first = self.out.values.len() as u32;
            for value in result.values().iter() {
                self.define(value)?;
            }
            self.out.results.push(match result {
                Res::Value(_) => Res::Value(ValueId(first)),
                Res::List(values) => {
                    Res::List(ValueRange(Span { start: first, len: values.0.len }))
                }
                Res::Absent => Res::Absent,
            });
        }
        Ok(Span { start, len: results.len() as u32 })
    }

    /// Copies a value at its definition and assigns its new id.
    fn define(&mut self, value: ValueId) -> Result<ValueId, BuildError> {
        let mut record = *self.from.values.get(value.index()).ok_or(foreign(
            "value",
            value.index(),
            self.from.values.len(),
        ))?;
        if let ValueType::Tensor(ty) = record.ty {
            record.ty = ValueType::Tensor(TypeId(self.types.get("type", ty.index())?));
        }
        record.name = Name { base: self.str(record.name.base)?, number: record.name.number };
        if let super::Def::Node(_) = record.def {
            record.def = super::Def::Node(super::NodeId(self.out.nodes.len() as u32));
        }
        let new = ValueId(self.out.values.len() as u32);
        self.out.values.push(record);
        self.values[value.index()] = Some(new);
        Ok(new)
    }

    /// The new id of a value that is already defined.
    fn used(&self, value: ValueId, at: UseSite) -> Result<ValueId, BuildError> {
        match self.values.get(value.index()) {
            Some(Some(new)) => Ok(*new),
            _ => Err(BuildError::Undefined { at: self.describe(at), value: value.index() }),
        }
    }

    /// The text of a user of a value, for error messages.
    fn describe(&self, at: UseSite) -> String {
        match at {
            UseSite::Node(op) => self
                .from
                .strings
                .get_index(op.index())
                .map(|s| format!("`{s}`"))
                .unwrap_or_default(),
            UseSite::Bind => "a bind".to_owned(),
            UseSite::Return => "the return".to_owned(),
        }
    }

    fn str(&mut self, s: StrId) -> Result<StrId, BuildError> {
        Ok(StrId(self.strings.get("string", s.index())?))
    }
}

fn foreign(what: &'static str, index: usize, len: usize) -> BuildError {
    BuildError::Foreign { what, index, len }
}

impl Graph {
    fn empty() -> Graph {
        Graph {
            name: StrId(0),
            symbols: SymTable::new(),
            strings: Vec::new(),
            types: Vec::new(),
            contiguous: Vec::new(),
            values: Vec::new(),
            nodes: Vec::new(),
            args: Vec::new(),
            kwargs: Vec::new(),
            results: Vec::new(),
            inputs: Vec::new(),
            consts: Vec::new(),
            guards: Vec::new(),
            body: Vec::new(),
            outputs: Vec::new(),
            info: IgnoredInEq::default(),
            users: IgnoredInEq(OnceLock::new()),
            bound_schemas: IgnoredInEq(Vec::new()),
        }
    }
}
