//! Memory dependences: the order that memory imposes on a graph that mutates.
//!
//! Values are sorted into alias classes by union-find: a result joins the class of the argument it
//! aliases, and everything else has a class of its own, because the overlap of inputs is a guard of
//! every callable. Within a class, a read follows the last write before it, and a write follows
//! that write and every read since. The effects on one resource form a chain, and so do calls that
//! draw random numbers. The cost is nearly linear in the number of arguments.

use super::Graph;
use super::deps::{Edge, EdgeKind};
use super::op_facts::{ArgEffect, MemoryFacts};
use super::types::{Arg, NodeId, ValueId, ValueType};
use crate::Effect;
use petgraph::unionfind::UnionFind;
use rustc_hash::FxHashMap;
use smallvec::SmallVec;

/// Who accessed a class last.
#[derive(Clone, Debug, Default)]
struct LastAccess {
    writer: Option<NodeId>,
    /// Since the last write.
    readers: Vec<NodeId>,
}

/// Adds the edges of memory and effects. Returns, for each value, the last node that writes to the
/// memory which the value may share.
pub(super) fn add_memory_edges(
    graph: &Graph,
    facts: &dyn MemoryFacts,
    edges: &mut Vec<(NodeId, NodeId, Edge)>,
) -> Vec<Option<NodeId>> {
    let classes = alias_classes(graph, facts);
    let mut accesses = vec![LastAccess::default(); classes.len()];
    let mut last_effects: FxHashMap<Effect<&str>, NodeId> = FxHashMap::default();
    let mut last_rng: Option<NodeId> = None;
    let mut accessed: Vec<(ValueId, ArgEffect)> = Vec::new();
    for node in graph.nodes() {
        let op = graph.op_name(node);
        accessed.clear();
        for_each_arg(graph, facts, node, |index, arg| {
            // A keyword unknown to the facts could do anything.
            let effect = index.map_or(ArgEffect::Write, |i| facts.arg_effect(op, i));
            for_each_tensor(graph, arg, |v| accessed.push((v, effect)));
        });
        // Reads first, so that a node which reads and writes a class does not wait for itself.
        for effect in [ArgEffect::Read, ArgEffect::Write] {
            for &(value, _) in accessed.iter().filter(|(_, e)| *e == effect) {
                let Some(access) = classes.get(value.index()).and_then(|&c| accesses.get_mut(c))
                else {
                    continue;
                };
                let mut edge = |from: NodeId, kind| {
                    if from != node {
                        edges.push((from, node, Edge { kind, value: Some(value) }));
                    }
                };
                if effect == ArgEffect::Read {
                    access.writer.into_iter().for_each(|w| edge(w, EdgeKind::ReadAfterWrite));
                    if access.readers.last() != Some(&node) {
                        access.readers.push(node);
                    }
                } else {
                    // Written memory may be read too: it comes after the last write either way.
                    access.writer.into_iter().for_each(|w| edge(w, EdgeKind::WriteAfterWrite));
                    access.readers.drain(..).for_each(|r| edge(r, EdgeKind::WriteAfterRead));
                    access.writer = Some(node);
                }
            }
        }
        let (own, of_op) = (graph.effect(node), facts.effect(op).map(Effect::named));
        let effects = own.into_iter().chain(of_op.filter(|effect| own != Some(*effect)));
        let mut before: SmallVec<[NodeId; 2]> =
            effects.filter_map(|effect| last_effects.insert(effect, node)).collect();
        if facts.uses_rng(op) {
            before.extend(last_rng.replace(node));
        }
        before.dedup();
        for before in before {
            edges.push((before, node, Edge { kind: EdgeKind::Order, value: None }));
        }
    }
    classes.iter().map(|&class| accesses.get(class)?.writer).collect()
}

impl Graph {
    /// The inputs and constants whose memory a node may write.
    pub fn written_externals(&self, facts: &dyn MemoryFacts) -> Vec<ValueId> {
        let classes = alias_classes(self, facts);
        let class = |v: ValueId| classes.get(v.index()).copied();
        let mut is_written = vec![false; classes.len()];
        for node in self.nodes() {
            let op = self.op_name(node);
            for_each_arg(self, facts, node, |index, arg| {
                if index.is_none_or(|i| facts.arg_effect(op, i) == ArgEffect::Write) {
                    for_each_tensor(self, arg, |v| {
                        if let Some(written) = class(v).and_then(|c| is_written.get_mut(c)) {
                            *written = true;
                        }
                    });
                }
            });
        }
        let written = |v: &ValueId| class(*v).and_then(|c| is_written.get(c)) == Some(&true);
        self.externals().filter(written).collect()
    }

    /// By value: whether it may lie in the memory of an input or a constant.
    pub fn in_external_memory(&self, facts: &dyn MemoryFacts) -> Vec<bool> {
        let classes = alias_classes(self, facts);
        let mut is_external = vec![false; self.values().len()];
        for v in self.externals() {
            is_external[classes[v.index()]] = true;
        }
        classes.iter().map(|class| is_external[*class]).collect()
    }

    /// The inputs and constants.
    fn externals(&self) -> impl Iterator<Item = ValueId> + '_ {
        self.inputs().iter().copied().chain(self.consts().iter().map(|c| c.value()))
    }
}

/// For each value, the number of its class.
fn alias_classes(graph: &Graph, facts: &dyn MemoryFacts) -> Vec<usize> {
    let mut classes: UnionFind<usize> = UnionFind::new(graph.values().len());
    for node in graph.nodes() {
        let op = graph.op_name(node);
        for (i, result) in graph.results(node).iter().enumerate() {
            let may_view = || !graph.copies(node) || facts.chooses_views(op);
            let Some(aliased) = facts.result_aliases(op, i).filter(|_| may_view()) else {
                continue;
            };
            for_each_arg(graph, facts, node, |index, arg| {
                if index == Some(aliased) {
                    for_each_tensor(graph, arg, |v| {
                        for r in result.values().iter() {
                            classes.union(r.index(), v.index());
                        }
                    });
                }
            });
        }
    }
    classes.into_labeling()
}

pub(super) fn for_each_arg(
    graph: &Graph,
    facts: &dyn MemoryFacts,
    node: NodeId,
    mut f: impl FnMut(Option<usize>, Arg),
) {
    for (i, &arg) in graph.args(node).iter().enumerate() {
        f(Some(i), arg);
    }
    for &(name, arg) in graph.kwargs(node) {
        f(facts.arg_index(graph.op_name(node), graph.str(name)), arg);
    }
}

pub(super) fn for_each_tensor(graph: &Graph, arg: Arg, mut f: impl FnMut(ValueId)) {
    graph.for_each_leaf(arg, &mut |leaf| {
        if let Arg::Value(v) = leaf
            && matches!(graph.value_type(v), ValueType::Tensor(_))
        {
            f(v);
        }
    });
}
