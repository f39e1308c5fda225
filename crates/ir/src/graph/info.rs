//! Where the parts of a graph come from, in the program from which it was traced: lines, operators
//! and scopes.
//!
//! The table stands beside the graph and takes no part in equality. A pass that makes a node from
//! others gives the new node what [`Graph::info`] or [`Graph::info_of`] tells of them.

use super::types::{NodeId, Stmt, ValueId};
use super::{Callee, Graph, names};
use crate::Loc;
use indexmap::IndexSet;
use rustc_hash::FxBuildHasher;
use std::borrow::Cow;
use std::num::NonZeroU32;

/// Where a node comes from. Errors, profiles and pictures of the node show it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NodeInfo<'g> {
    /// The source line of the call, if it is known.
    pub loc: Option<Loc>,
    /// The operator that the program called; `None` for the node's own operator.
    pub op: Option<&'g str>,
    /// The path of the module in whose code the call is: `encoder.layers.0`. `None` outside of all
    /// modules, and in the outermost one.
    pub scope: Option<&'g str>,
}

impl From<Option<Loc>> for NodeInfo<'_> {
    fn from(loc: Option<Loc>) -> Self {
        NodeInfo { loc, ..NodeInfo::default() }
    }
}

/// The number of a name in the table, from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct NameNumber(NonZeroU32);

/// The record of one node.
#[derive(Clone, Copy, Debug, Default)]
struct Entry {
    loc: Option<Loc>,
    /// The operator that the program called, if it is another one than the node's.
    op: Option<NameNumber>,
    scope: Option<NameNumber>,
}

/// The table of a graph, or of a builder.
#[derive(Clone, Debug, Default)]
pub(super) struct InfoTable {
    nodes: Vec<Entry>,
    /// The names of operators and scopes.
    names: IndexSet<Box<str>, FxBuildHasher>,
    /// By guard: the line that recorded it.
    pub guards: Vec<Option<Loc>>,
    /// The position in the body and the line of each assertion, in ascending order.
    pub asserts: Vec<(usize, Loc)>,
}

impl InfoTable {
    pub fn reserve(&mut self, nodes: usize) {
        self.nodes.reserve(nodes);
    }

    /// Adds a record for the next node, whose operator is `own`.
    pub fn push(&mut self, info: NodeInfo<'_>, own: &str) {
        let entry = self.entry(info, own);
        self.nodes.push(entry);
    }

    /// Replaces the record of a node, whose operator is `own`.
    pub fn set(&mut self, node: NodeId, info: NodeInfo<'_>, own: &str) {
        let entry = self.entry(info, own);
        if let Some(slot) = self.nodes.get_mut(node.index()) {
            *slot = entry;
        }
    }

    pub fn set_scope(&mut self, node: NodeId, scope: &str) {
        let scope = self.name(scope);
        if let Some(entry) = self.nodes.get_mut(node.index()) {
            entry.scope = scope;
        }
    }

    fn entry(&mut self, info: NodeInfo<'_>, own: &str) -> Entry {
        let op = info.op.filter(|op| *op != own).and_then(|op| self.name(op));
        let scope = info.scope.and_then(|scope| self.name(&sanitized(scope)));
        Entry { loc: info.loc, op, scope }
    }

    /// The number of a name; `None` for an empty one.
    fn name(&mut self, name: &str) -> Option<NameNumber> {
        let index = match self.names.get_index_of(name) {
            _ if name.is_empty() => return None,
            Some(index) => index,
            None => self.names.insert_full(name.into()).0,
        };
        NonZeroU32::new(index as u32 + 1).map(NameNumber)
    }

    fn text(&self, name: Option<NameNumber>) -> Option<&str> {
        let index = name?.0.get() as usize - 1;
        self.names.get_index(index).map(|name| &**name)
    }

    fn of(&self, node: NodeId) -> Entry {
        self.nodes.get(node.index()).copied().unwrap_or_default()
    }

    /// A table with the records of these nodes, in this order, and without guards.
    pub fn reordered(&self, order: impl Iterator<Item = NodeId>) -> InfoTable {
        InfoTable {
            nodes: order.map(|node| self.of(node)).collect(),
            names: self.names.clone(),
            guards: Vec::new(),
            asserts: self.asserts.clone(),
        }
    }
}

/// A scope as graph text can hold it: parts of letters, digits and `_`, with dots between them.
fn sanitized(scope: &str) -> Cow<'_, str> {
    if scope.bytes().all(names::is_continue) && is_scope(scope) {
        return Cow::Borrowed(scope);
    }
    let valid = |c: char| u8::try_from(c).is_ok_and(names::is_continue);
    let part = |part: &str| part.chars().map(|c| if valid(c) { c } else { '_' }).collect();
    let parts = scope.split('.').filter(|part| !part.is_empty());
    Cow::Owned(parts.map(part).collect::<Vec<String>>().join("."))
}

/// Whether no part of a scope is empty.
pub(super) fn is_scope(scope: &str) -> bool {
    scope.split('.').all(|part| !part.is_empty())
}

/// The scope that two scopes have in common: `layers.0` of `layers.0.norm` and `layers.0.mlp`.
/// `None` if they have none.
pub fn common_scope<'g>(a: Option<&'g str>, b: Option<&str>) -> Option<&'g str> {
    let (a, b) = (a?, b?);
    let mut end = 0;
    for (part, other) in a.split('.').zip(b.split('.')) {
        if part != other {
            break;
        }
        end += part.len() + 1;
    }
    a.get(..end.checked_sub(1)?)
}

impl Graph {
    /// The source line of a node's call, if it is known. Graph text does not contain it.
    pub fn loc(&self, node: NodeId) -> Option<Loc> {
        self.info.0.of(node).loc
    }

    /// The operator that the program called for a node: the in-place operator for its functional
    /// variant, the composite for its parts. Graph text does not contain it.
    pub fn called_op(&self, node: NodeId) -> &str {
        let called = self.info.0.text(self.info.0.of(node).op);
        called.unwrap_or_else(|| Callee::of(self, node).op)
    }

    /// The path of the module in whose code a node was made, if it is known.
    pub fn scope(&self, node: NodeId) -> Option<&str> {
        self.info.0.text(self.info.0.of(node).scope)
    }

    /// The scope of the call at position `at` of the body, if it is known.
    pub fn stmt_scope(&self, at: usize) -> Option<&str> {
        match *self.body.get(at)? {
            Stmt::Node(node) => self.scope(node),
            Stmt::Bind { .. } | Stmt::Assert { .. } => None,
        }
    }

    /// Where a node comes from: what a node gets that a pass makes from this one.
    pub fn info(&self, node: NodeId) -> NodeInfo<'_> {
        NodeInfo { loc: self.loc(node), op: Some(self.called_op(node)), scope: self.scope(node) }
    }

    /// Where a node comes from that a pass makes from several: the line and the operator of the
    /// last, and the scope that all have in common.
    pub fn info_of(&self, nodes: &[NodeId]) -> NodeInfo<'_> {
        let Some((last, rest)) = nodes.split_last() else { return NodeInfo::default() };
        let info = self.info(*last);
        let scope = rest.iter().fold(info.scope, |all, node| common_scope(all, self.scope(*node)));
        NodeInfo { scope, ..info }
    }

    /// Where the node that defines a value comes from. Inputs and constants have no information.
    pub fn producer_info(&self, value: ValueId) -> NodeInfo<'_> {
        self.producer(value).map(|node| self.info(node)).unwrap_or_default()
    }

    /// Sets the source lines of calls and assertions, by their position in the body: those of a
    /// text, for a graph that was parsed.
    pub fn set_stmt_locs(&mut self, loc: impl Fn(usize) -> Option<Loc>) {
        let InfoTable { nodes, asserts, .. } = &mut self.info.0;
        nodes.resize(self.nodes.len(), Entry::default());
        asserts.clear();
        for (at, stmt) in self.body.iter().enumerate() {
            match *stmt {
                Stmt::Node(node) => {
                    if let Some(entry) = nodes.get_mut(node.index()) {
                        entry.loc = loc(at);
                    }
                }
                Stmt::Assert { .. } => asserts.extend(loc(at).map(|loc| (at, loc))),
                Stmt::Bind { .. } => {}
            }
        }
    }

    /// The source line that recorded the `guard`-th guard, if known.
    pub fn guard_loc(&self, guard: usize) -> Option<Loc> {
        self.info.0.guards.get(guard).copied().flatten()
    }

    /// The source line of the call or the assertion at position `at` of the body, if known.
    pub fn stmt_loc(&self, at: usize) -> Option<Loc> {
        match *self.body.get(at)? {
            Stmt::Node(node) => self.loc(node),
            Stmt::Assert { .. } => {
                let asserts = &self.info.0.asserts;
                let i = asserts.binary_search_by_key(&at, |(at, _)| *at).ok()?;
                asserts.get(i).map(|(_, loc)| *loc)
            }
            Stmt::Bind { .. } => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scopes_have_whole_parts_in_common() {
        let common = |a, b| common_scope(Some(a), Some(b));
        assert_eq!(common("layers.0.norm", "layers.0.mlp"), Some("layers.0"));
        assert_eq!(common("layers.1", "layers.10"), Some("layers"));
        assert_eq!(common("layers.1", "layers.1"), Some("layers.1"));
        assert_eq!(common("layers.1.norm", "layers.1"), Some("layers.1"));
        assert_eq!(common("encoder", "decoder"), None);
        assert_eq!(common_scope(Some("encoder"), None), None);
    }

    #[test]
    fn scopes_are_texts_of_the_grammar() {
        assert_eq!(sanitized("layers.0.norm"), "layers.0.norm");
        assert_eq!(sanitized("größe x\n..1."), "gr__e_x_.1");
        assert_eq!(sanitized(".."), "");
    }
}
