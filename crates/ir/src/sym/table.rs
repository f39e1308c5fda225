//! The symbol table: declared symbols and hash-consed expression nodes.
//!
//! Each distinct canonical node is stored once, in insertion order, and an [`ExprId`] is its index.
//! Equality of expressions is therefore equality of indices. Every node keeps its range by declared
//! symbol ranges, its tree size and its depth. [`MAX_SIZE`] and [`MAX_DEPTH`] bound size and depth,
//! and with them the time and stack of every recursive walk over an expression.
//!
//! [`SymTable::cmp_id`] is a structural total order: it depends on names and shapes of expressions
//! and not on indices, so two tables with the same names order terms the same way and print the
//! same text.

use super::arith::Op;
use super::boolean::{BoolInfo, BoolNode};
use super::facts::Facts;
use super::poly::{MAX_TERMS, Poly};
use super::range::Interval;
use super::{BoolExpr, Expr, ExprId, Range, Rel, SymError, SymbolId, SymbolKind};
use indexmap::IndexMap;
use rustc_hash::{FxBuildHasher, FxHashMap};
use smallvec::SmallVec;
use std::cmp::Ordering;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

/// The operands of a minimum or maximum.
pub(super) type Args = SmallVec<[Expr; 2]>;

/// A canonical expression that is not a constant.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Node {
    Symbol(SymbolId),
    FloorDiv(Expr, Expr),
    Mod(Expr, Expr),
    Min(Args),
    Max(Args),
    /// Never a bare atom (coefficient one, constant zero): the atom's own node represents that
    /// expression.
    Poly(Poly),
}

/// Properties of a node, computed at construction. The id is stored so that the derived equality of
/// tables also compares ids.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Info {
    id: ExprId,
    /// The node's values by declared symbol ranges.
    pub range: Range,
    /// The number of nodes, counted as a tree (shared nodes count at each use).
    pub size: u32,
    pub depth: u32,
}

/// The most nodes of one expression, counted as a tree: bounds the time of every recursive walk.
pub(super) const MAX_SIZE: u32 = 1 << 14;
/// The greatest nesting depth: bounds the stack of every recursive walk.
pub(super) const MAX_DEPTH: u32 = 64;

#[derive(Clone, Debug, PartialEq)]
struct Symbol {
    name: Arc<str>,
    /// The length of the name without its trailing digits, and the value of these digits. Symbols
    /// compare by both, so that `s2` comes before `s10`.
    stem: usize,
    number: u64,
    kind: SymbolKind,
    range: Range,
}

/// A cache that equality ignores: two tables that differ only in caches answer alike.
#[derive(Clone, Debug, Default)]
pub(super) struct Memo<T>(pub T);

impl<T> PartialEq for Memo<T> {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

/// Hash-consed canonical expressions, symbols with ranges, and assumed facts.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SymTable {
    symbols: Vec<Symbol>,
    names: FxHashMap<Arc<str>, SymbolId>,
    /// The next number to try for a generated name, per [`SymbolKind`].
    next: [u32; 2],
    nodes: IndexMap<Node, Info, FxBuildHasher>,
    pub(super) bools: IndexMap<BoolNode, BoolInfo, FxBuildHasher>,
    pub(super) memo: Memo<FxHashMap<(Op, Expr, Expr), Expr>>,
    pub(super) relations: Memo<FxHashMap<(Rel, Expr, Expr), BoolExpr>>,
    pub(super) facts: Facts,
}

/// Words of the expression grammar.
const RESERVED: [&str; 8] = ["and", "or", "not", "true", "false", "min", "max", "oo"];

fn valid_name(name: &str) -> bool {
    let mut chars = name.chars();
    chars.next().is_some_and(|c| c.is_ascii_alphabetic() || c == '_')
        && chars.all(|c| c.is_ascii_alphanumeric() || c == '_')
        && !RESERVED.contains(&name)
}

/// The node of an id that this table does not have, which can only belong to another table: an
/// undeclared symbol. Lookups need no error path this way.
static FOREIGN: (Node, Info) = {
    let info = Info { id: ExprId(u32::MAX), range: Range::ALL, size: 1, depth: 1 };
    (Node::Symbol(SymbolId(u32::MAX)), info)
};

impl SymTable {
    /// A table without symbols.
    pub fn new() -> SymTable {
        SymTable::default()
    }

    /// Hashes the symbols' names and all expressions.
    pub(crate) fn hash_expressions(&self, hasher: &mut impl Hasher) {
        self.symbols.iter().for_each(|s| s.name.hash(hasher));
        self.nodes.keys().for_each(|node| node.hash(hasher));
    }

    /// Declares a symbol.
    ///
    /// # Errors
    /// The name must be an identifier that is not reserved and that no other symbol has; the range
    /// must not be empty.
    pub fn symbol(
        &mut self,
        name: &str,
        kind: SymbolKind,
        range: Range,
    ) -> Result<SymbolId, SymError> {
        if !valid_name(name) {
            return Err(SymError::InvalidName(name.chars().take(80).collect::<String>().into()));
        }
        if self.names.contains_key(name) {
            return Err(SymError::DuplicateName(name.into()));
        }
        if range.is_empty() {
            return Err(SymError::EmptyRange { name: name.into(), lo: range.lo, hi: range.hi });
        }
        Ok(self.declare(name.into(), kind, range))
    }

    /// Declares a symbol with the next free name: `s0`, `s1`, … for a backed symbol, `u0`, `u1`, …
    /// for an unbacked one. An empty range becomes its lower bound.
    pub fn fresh(&mut self, kind: SymbolKind, range: Range) -> SymbolId {
        let range = if range.is_empty() { Range::point(range.lo) } else { range };
        loop {
            let next = &mut self.next[kind as usize];
            let name = format!("{}{next}", kind.prefix());
            *next += 1;
            if !self.names.contains_key(name.as_str()) {
                return self.declare(name.into(), kind, range);
            }
        }
    }

    fn declare(&mut self, name: Arc<str>, kind: SymbolKind, range: Range) -> SymbolId {
        let id = SymbolId(self.symbols.len() as u32);
        let stem = name.trim_end_matches(|c: char| c.is_ascii_digit()).len();
        let number = name[stem..].parse().unwrap_or(0);
        self.names.insert(name.clone(), id);
        self.symbols.push(Symbol { name, stem, number, kind, range });
        id
    }

    /// The symbol with a name.
    pub fn lookup(&self, name: &str) -> Option<SymbolId> {
        self.names.get(name).copied()
    }

    /// All symbols, in order of declaration.
    pub fn symbols(&self) -> impl Iterator<Item = SymbolId> + use<> {
        (0..self.symbols.len() as u32).map(SymbolId)
    }

    fn entry(&self, s: SymbolId) -> Option<&Symbol> {
        self.symbols.get(s.0 as usize)
    }

    pub(super) fn declares(&self, s: SymbolId) -> bool {
        self.entry(s).is_some()
    }

    /// A symbol's name; `?` for a symbol of another table.
    pub fn name(&self, s: SymbolId) -> &str {
        self.entry(s).map_or("?", |s| &s.name)
    }

    /// Whether a symbol is backed by an input size or by data; `Unbacked` for a symbol of another
    /// table.
    pub fn kind(&self, s: SymbolId) -> SymbolKind {
        self.entry(s).map_or(SymbolKind::Unbacked, |s| s.kind)
    }

    /// The declared range. [`SymTable::proven_range`] also applies assumed facts.
    pub fn range(&self, s: SymbolId) -> Range {
        self.entry(s).map_or(Range::ALL, |s| s.range)
    }

    /// The expression that consists of one symbol.
    pub fn expr(&mut self, s: SymbolId) -> Expr {
        let key = Node::Symbol(s);
        match self.nodes.get_index_of(&key) {
            Some(i) => Expr::Id(ExprId(i as u32)),
            None => Expr::Id(self.insert(key, self.range(s), 1, 1)),
        }
    }

    /// A node and its properties.
    fn stored(&self, id: ExprId) -> (&Node, &Info) {
        self.nodes.get_index(id.0 as usize).unwrap_or((&FOREIGN.0, &FOREIGN.1))
    }

    /// The number of distinct expressions, numbers apart.
    #[cfg(test)]
    pub(super) fn expression_count(&self) -> usize {
        self.nodes.len()
    }

    /// The id of a node, if the node is interned.
    pub(super) fn find(&self, node: &Node) -> Option<ExprId> {
        self.nodes.get_index_of(node).map(|i| ExprId(i as u32))
    }

    pub(super) fn node(&self, id: ExprId) -> &Node {
        self.stored(id).0
    }

    pub(super) fn info(&self, id: ExprId) -> &Info {
        self.stored(id).1
    }

    /// Interns a node that is not in the table.
    fn insert(&mut self, node: Node, range: Range, size: u32, depth: u32) -> ExprId {
        let id = ExprId(self.nodes.len() as u32);
        self.nodes.insert(node, Info { id, range, size, depth });
        id
    }

    /// Tree size and depth of an expression.
    pub(super) fn weight(&self, e: Expr) -> (u32, u32) {
        match e {
            Expr::Int(_) => (1, 1),
            Expr::Id(id) => (self.info(id).size, self.info(id).depth),
        }
    }

    /// The expression of a node, interned on first use.
    pub(super) fn intern(&mut self, node: Node) -> Result<Expr, SymError> {
        if let Some(i) = self.nodes.get_index_of(&node) {
            return Ok(Expr::Id(ExprId(i as u32)));
        }
        let (size, depth) = match &node {
            Node::Symbol(_) => (0, 0),
            Node::FloorDiv(a, b) | Node::Mod(a, b) => self.total([*a, *b]),
            Node::Min(args) | Node::Max(args) => self.total(args.iter().copied()),
            Node::Poly(p) => {
                self.total(p.terms.iter().flat_map(|t| t.mono.iter().map(|&f| Expr::Id(f))))
            }
        };
        check_weight(size, depth)?;
        let range = self.interval_of(&node, &|e| self.declared(e)).into();
        Ok(Expr::Id(self.insert(node, range, size + 1, depth + 1)))
    }

    /// Total tree size and greatest depth of operands.
    fn total(&self, parts: impl IntoIterator<Item = Expr>) -> (u32, u32) {
        parts
            .into_iter()
            .map(|e| self.weight(e))
            .fold((0, 0), |(s, d), (s1, d1)| (s.saturating_add(s1), d.max(d1)))
    }

    /// The expression of a polynomial: a constant, an atom, or a polynomial node.
    pub(super) fn intern_poly(&mut self, p: Poly) -> Result<Expr, SymError> {
        match p.terms.as_slice() {
            [] => Ok(Expr::Int(p.constant)),
            [t] if t.coeff == 1 && p.constant == 0 && t.mono.len() == 1 => Ok(Expr::Id(t.mono[0])),
            terms if terms.len() > MAX_TERMS => {
                Err(SymError::TooLarge { what: "terms", limit: MAX_TERMS })
            }
            _ => self.intern(Node::Poly(p)),
        }
    }

    /// The values of an expression by declared ranges alone.
    pub(super) fn declared(&self, e: Expr) -> Interval {
        match e {
            Expr::Int(n) => Interval::point(n),
            Expr::Id(id) => self.info(id).range.into(),
        }
    }

    /// Structural order of interned expressions, equal in every table with the same names.
    pub(super) fn cmp_id(&self, a: ExprId, b: ExprId) -> Ordering {
        if a == b {
            return Ordering::Equal;
        }
        match (self.node(a), self.node(b)) {
            (Node::Symbol(x), Node::Symbol(y)) => self.cmp_symbol(*x, *y),
            (Node::FloorDiv(x, y), Node::FloorDiv(z, w)) | (Node::Mod(x, y), Node::Mod(z, w)) => {
                self.cmp_expr(*x, *z).then_with(|| self.cmp_expr(*y, *w))
            }
            (Node::Min(x), Node::Min(y)) | (Node::Max(x), Node::Max(y)) => {
                x.len().cmp(&y.len()).then_with(|| {
                    x.iter()
                        .zip(y)
                        .map(|(&x, &y)| self.cmp_expr(x, y))
                        .find(|o| o.is_ne())
                        .unwrap_or(Ordering::Equal)
                })
            }
            (Node::Poly(x), Node::Poly(y)) => self.cmp_poly(x, y),
            (x, y) => rank(x).cmp(&rank(y)),
        }
    }

    /// Structural order of expressions; constants come first, by value.
    pub(super) fn cmp_expr(&self, a: Expr, b: Expr) -> Ordering {
        match (a, b) {
            (Expr::Id(x), Expr::Id(y)) => self.cmp_id(x, y),
            _ => a.cmp(&b),
        }
    }

    fn cmp_poly(&self, a: &Poly, b: &Poly) -> Ordering {
        let terms = a
            .terms
            .iter()
            .zip(&b.terms)
            .map(|(x, y)| self.cmp_mono(&x.mono, &y.mono).then(x.coeff.cmp(&y.coeff)));
        let first = terms.into_iter().find(|o| o.is_ne()).unwrap_or(Ordering::Equal);
        first.then(a.terms.len().cmp(&b.terms.len())).then(a.constant.cmp(&b.constant))
    }

    /// Order by name, with trailing digits compared as a number.
    fn cmp_symbol(&self, a: SymbolId, b: SymbolId) -> Ordering {
        let (Some(x), Some(y)) = (self.entry(a), self.entry(b)) else { return a.cmp(&b) };
        x.name[..x.stem]
            .cmp(&y.name[..y.stem])
            .then(x.number.cmp(&y.number))
            .then_with(|| x.name.cmp(&y.name))
    }
}

/// Whether a node whose operands have this total size and maximum depth is within the limits.
pub(super) fn check_weight(size: u32, depth: u32) -> Result<(), SymError> {
    if size >= MAX_SIZE {
        return Err(SymError::TooLarge { what: "nodes", limit: MAX_SIZE as usize });
    }
    if depth >= MAX_DEPTH {
        return Err(SymError::TooLarge { what: "levels of nesting", limit: MAX_DEPTH as usize });
    }
    Ok(())
}

/// The order of node kinds.
fn rank(n: &Node) -> u8 {
    match n {
        Node::Symbol(_) => 0,
        Node::FloorDiv(..) => 1,
        Node::Mod(..) => 2,
        Node::Min(_) => 3,
        Node::Max(_) => 4,
        Node::Poly(_) => 5,
    }
}
