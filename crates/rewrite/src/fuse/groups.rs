//! The groups of operators that are computed together.

use super::Alone;
use super::edges::Edges;
use super::order::Order;
use crate::overwrites::{Overwrites, overwrites};
use maquette_ir::copy_cost::approximate_numel;
use maquette_ir::functional_ops::{FunctionalOp, is_functional_op};
use maquette_ir::functional_program::FunctionalGraph;
use maquette_ir::fused::{
    FusedRegion, Fusible, FusionClass, FusionFacts, FusionKind, Gain, NoFusionReason, ProductPair,
    Refusal,
};
use maquette_ir::graph::{Arg, Graph, NodeId, Stmt, ValueId};
use maquette_ir::sym::Expr;
use rustc_hash::FxHashMap;
use smallvec::{SmallVec, smallvec};
use std::cmp::Reverse;

/// The most operators of a group, and the most tensors that it reads and returns.
const MAX_NODES: usize = 48;
const MAX_TENSORS: usize = 24;

/// A set of nodes that one kernel computes.
#[derive(Clone, Debug)]
pub(super) struct Group {
    /// In program order.
    pub nodes: Vec<NodeId>,
    pub kind: FusionKind,
    /// The sizes of the rows: the leading dimensions that all results have in common. With reshapes
    /// between operators, the lists of sizes that their results have, those of the first one first.
    pub sizes: SmallVec<[Sizes; 1]>,
}

type Sizes = SmallVec<[Expr; 4]>;

/// The groups of a graph.
pub(super) struct Groups<'g> {
    pub graph: &'g Graph,
    pub edges: Edges<'g>,
    pub classes: Vec<Result<Fusible, NoFusionReason>>,
    pub order: Order,
    /// By node: its group.
    of: Vec<Option<u32>>,
    groups: Vec<Option<Group>>,
    pub refused: Vec<Refusal>,
    /// Products that share a factor and are not computed together.
    pub apart: Vec<Refusal>,
    /// Pairs of products that share a factor and are computed together.
    pub joined: Vec<ProductPair>,
    pub overwrites: Overwrites,
}

impl<'g> Groups<'g> {
    pub fn of(
        program: &'g FunctionalGraph,
        facts: &dyn FusionFacts,
        apart: Vec<Refusal>,
        alone: &Alone,
    ) -> Groups<'g> {
        let graph = &program.graph;
        let nodes = graph.node_count();
        let mut groups = Groups {
            graph,
            edges: Edges::of(graph),
            classes: Vec::with_capacity(nodes),
            order: Order::of(program),
            of: vec![None; nodes],
            groups: Vec::new(),
            refused: Vec::new(),
            apart,
            joined: Vec::new(),
            overwrites: overwrites(program),
        };
        for stmt in graph.body() {
            let Stmt::Node(node) = *stmt else {
                groups.order.add_statement();
                continue;
            };
            let class = class(graph, node, facts);
            let own = class.and_then(|fusible| match (alone.get(&node), fusible.gain) {
                (Some(reason), _) => Err(*reason),
                (None, Gain::Never) => Err(NoFusionReason::LosesSpecialisation),
                (None, _) => Ok(fusible),
            });
            groups.order.add(graph, node, class, own.is_ok());
            let class = own;
            groups.classes.push(class);
            if let Ok(Fusible { class, .. }) = class {
                groups.add(node, class);
            }
        }
        groups.join_in_order();
        groups
    }

    /// Puts a node into a group of its own, and joins that with those of its producers.
    fn add(&mut self, node: NodeId, class: FusionClass) {
        let graph = self.graph;
        let Some(group) = Group::of(&self.edges, node, class) else { return };
        self.of[node.index()] = Some(self.groups.len() as u32);
        self.groups.push(Some(group));
        let mut producers: SmallVec<[(u64, NodeId); 4]> = SmallVec::new();
        self.edges.for_each_producer(node, |v, producer| {
            let sizes = graph.tensor_type(v).map_or(&[][..], |ty| &ty.sizes);
            let bytes = approximate_numel(sizes);
            match producers.iter_mut().find(|(_, p)| *p == producer) {
                Some((sum, _)) => *sum = sum.saturating_add(bytes),
                None => producers.push((bytes, producer)),
            }
        });
        // The largest value first. Of those of one size elementwise ones, so that a product meets
        // an update as a whole, and then in program order.
        producers.sort_by_key(|(bytes, producer)| {
            (Reverse(*bytes), !self.is_elementwise(*producer), producer.index())
        });
        for (_, producer) in producers {
            if let Err(reason) = self.join(producer, node) {
                self.refused.push(Refusal { producer, consumer: node, reason });
            }
        }
    }

    pub(super) fn group(&self, node: NodeId) -> Option<(u32, &Group)> {
        let id = (*self.of.get(node.index())?)?;
        Some((id, self.groups.get(id as usize)?.as_ref()?))
    }

    /// Joins the groups of a node and of one of its producers.
    pub(super) fn join(&mut self, producer: NodeId, node: NodeId) -> Result<(), NoFusionReason> {
        let class = |n: NodeId| self.classes.get(n.index()).copied();
        if let Some(Err(reason)) = class(producer) {
            return Err(reason);
        }
        let (Some((from, first)), Some((to, second))) = (self.group(producer), self.group(node))
        else {
            return Err(NoFusionReason::OtherRows);
        };
        if from == to {
            return Ok(());
        }
        self.check_order([&first.nodes, &second.nodes])?;
        let joined = self.joined(first, second, producer, node)?;
        self.check(&joined)?;
        self.replace(from, to, joined);
        Ok(())
    }

    /// Fails if no kernel may compute a group.
    pub(super) fn check(&self, group: &Group) -> Result<(), NoFusionReason> {
        let nodes = self.edges.with_reshapes(&group.nodes);
        if group.nodes.len() > MAX_NODES || self.tensors(&nodes) > MAX_TENSORS {
            return Err(NoFusionReason::Limits);
        }
        self.find_overwrite(&nodes)?;
        self.find_failure(&nodes)?;
        self.find_update(group.kind, &nodes)?;
        self.find_cycle(&group.nodes)
    }

    /// Puts one group in the place of two.
    pub(super) fn replace(&mut self, from: u32, to: u32, joined: Group) {
        for member in &joined.nodes {
            self.of[member.index()] = Some(from);
        }
        self.groups[to as usize] = None;
        self.groups[from as usize] = Some(joined);
    }

    /// The edges between operators that could not be joined, and are not in one group all the same.
    pub fn refusals(&self) -> Vec<Refusal> {
        let key = |r: &Refusal| ((r.producer, r.consumer), r.reason);
        let refused: FxHashMap<_, NoFusionReason> = self.refused.iter().map(key).collect();
        let mut refusals = Vec::new();
        for consumer in self.graph.nodes().filter(|n| !self.edges.is_reshape(*n)) {
            let mut seen: SmallVec<[NodeId; 4]> = SmallVec::new();
            let stored_into = match FunctionalOp::of(self.graph, consumer) {
                Ok(FunctionalOp::Scatter { base, .. }) => Some(base),
                _ => None,
            };
            self.edges.for_each_producer(consumer, |v, producer| {
                // What a store keeps is not computed again.
                if stored_into == Some(v) {
                    return;
                }
                let group = |n: NodeId| self.of.get(n.index()).copied().flatten();
                let is_joined = group(consumer).is_some() && group(consumer) == group(producer);
                if is_joined || seen.contains(&producer) {
                    return;
                }
                seen.push(producer);
                let reason = match self.classes.get(consumer.index()) {
                    Some(Err(reason)) => Some(*reason),
                    _ => refused.get(&(producer, consumer)).copied(),
                };
                let reason = reason.unwrap_or(NoFusionReason::Opaque);
                refusals.push(Refusal { producer, consumer, reason });
            });
        }
        let is_one = |r: &&Refusal| {
            let [a, b] = [r.producer, r.consumer].map(|n| self.group(n).map(|(id, _)| id));
            a == b
        };
        refusals.extend(self.apart.iter().filter(|r| !is_one(r)));
        refusals
    }

    /// Whether a node computes each element from elements at its position.
    pub(super) fn is_elementwise(&self, node: NodeId) -> bool {
        self.class_of(node) == Some(FusionClass::Elements)
    }

    pub(super) fn is_contraction(&self, node: NodeId) -> bool {
        let class = self.class_of(node);
        matches!(class, Some(FusionClass::Product { .. } | FusionClass::Convolution))
    }

    fn class_of(&self, node: NodeId) -> Option<FusionClass> {
        self.classes.get(node.index())?.ok().map(|fusible| fusible.class)
    }

    /// The left factor of a node that is a product.
    pub(super) fn left_factor(&self, node: NodeId) -> Option<ValueId> {
        let Some(FusionClass::Product { left }) = self.class_of(node) else { return None };
        let mut tensors: SmallVec<[ValueId; 4]> = SmallVec::new();
        self.graph.for_each_operand(node, |v| {
            tensors.extend(self.graph.tensor_type(v).map(|_| v));
        });
        tensors.get(left?).copied()
    }

    /// The number of tensors that a set of nodes reads and returns.
    fn tensors(&self, nodes: &[NodeId]) -> usize {
        self.edges.operands(nodes).len() + self.edges.results(nodes).len()
    }

    /// The regions: the groups of at least two operators, in the order of their last ones.
    pub fn regions(&self) -> Vec<FusedRegion> {
        let groups = self.groups.iter().flatten().filter(|g| g.nodes.len() > 1);
        let mut regions: Vec<FusedRegion> = groups.map(|group| self.region(group)).collect();
        regions.sort_by_key(|region| region.nodes.last().copied());
        regions
    }

    pub(super) fn region(&self, group: &Group) -> FusedRegion {
        let outer = group.sizes.first().map_or(0, |sizes| sizes.len());
        let nodes = self.edges.with_reshapes(&group.nodes);
        let (mut operands, results) = (self.edges.operands(&nodes), self.edges.results(&nodes));
        // Those of the first contraction come first, as that operator has them.
        if let Some(node) = nodes.iter().find(|node| self.is_contraction(**node)) {
            let mut own: Vec<ValueId> = Vec::new();
            self.graph.for_each_operand(*node, |v| own.push(v));
            operands.sort_by_key(|v| own.iter().position(|o| o == v).unwrap_or(own.len()));
        }
        let integers = integers(self.graph, &nodes);
        let overwrites = self.overwrites_of(group.kind, &nodes, &operands, &results);
        let (kind, may_fail) = (group.kind, self.order.failing(&nodes).next().is_some());
        FusedRegion { kind, outer, nodes, operands, integers, results, overwrites, may_fail }
    }

    /// Both groups as one, of which a node of the second reads a value of a node of the first.
    fn joined(
        &self,
        first: &Group,
        second: &Group,
        producer: NodeId,
        consumer: NodeId,
    ) -> Result<Group, NoFusionReason> {
        use FusionKind::{Convolution, Elements, Maps, Product, Rows};
        let (kind, sizes) = match (first.kind, second.kind) {
            (Elements | Maps | Product | Convolution, Maps) | (Maps, Elements) => {
                let same = self.has_same_elements(first, second, producer, consumer);
                // No reshapes: a nest has its own sizes.
                if !same || first.sizes.len() > 1 || first.sizes != second.sizes {
                    return Err(NoFusionReason::OtherRows);
                }
                let kind = if first.kind.is_contraction() { first.kind } else { Maps };
                (kind, first.sizes.clone())
            }
            (Elements | Product | Convolution, Elements)
                if self.has_same_elements(first, second, producer, consumer) =>
            {
                let mut sizes = first.sizes.clone();
                sizes.extend(second.sizes.iter().filter(|s| !first.sizes.contains(s)).cloned());
                (first.kind, sizes)
            }
            (Product | Convolution, _) | (_, Product | Convolution) => {
                return Err(NoFusionReason::LosesSpecialisation);
            }
            (Maps, _) | (_, Maps) => return Err(NoFusionReason::OtherRows),
            _ => (Rows, smallvec![first.rows_with(second).ok_or(NoFusionReason::OtherRows)?]),
        };
        let mut nodes: Vec<NodeId> = first.nodes.iter().chain(&second.nodes).copied().collect();
        nodes.sort_unstable();
        // A value of fewer dimensions is broadcast to other rows than its own.
        let rank = |v: ValueId| self.graph.tensor_type(v).map_or(0, |ty| ty.sizes.len());
        for &node in nodes.iter().filter(|_| kind == Rows) {
            let wide = self.graph.result_values(node).map(rank).max().unwrap_or(0);
            let mut fits = true;
            self.edges.for_each_producer(node, |v, producer| {
                let is_plain = rank(v) >= wide && self.edges.origin(v) == v;
                fits &= nodes.binary_search(&producer).is_err() || is_plain;
            });
            if !fits {
                return Err(NoFusionReason::OtherRows);
            }
        }
        Ok(Group { nodes, kind, sizes })
    }

    /// Whether the elements of two groups are those of a value between them.
    pub(super) fn has_same_elements(
        &self,
        first: &Group,
        second: &Group,
        producer: NodeId,
        consumer: NodeId,
    ) -> bool {
        let has = |group: &Group, v: ValueId| {
            let ty = self.graph.tensor_type(v);
            ty.is_some_and(|ty| group.sizes.contains(&ty.sizes))
        };
        let mut same = true;
        self.edges.for_each_producer(consumer, |v, of| {
            same &= of != producer || has(first, self.edges.origin(v)) && has(second, v);
        });
        same
    }
}

/// How a node can be fused; an error for nodes of the functional dialect.
fn class(graph: &Graph, node: NodeId, facts: &dyn FusionFacts) -> Result<Fusible, NoFusionReason> {
    if graph.has_effect(node) {
        return Err(NoFusionReason::Effect);
    }
    match FunctionalOp::of(graph, node) {
        Ok(FunctionalOp::Call(callee)) if !is_functional_op(callee.op) && !callee.mutates => {
            facts.class(graph, node)
        }
        Ok(FunctionalOp::View { .. } | FunctionalOp::Scatter { .. } | FunctionalOp::Empty) => {
            Err(NoFusionReason::NotAffine)
        }
        Ok(FunctionalOp::Barrier { .. }) => Err(NoFusionReason::Barrier),
        _ => Err(NoFusionReason::Opaque),
    }
}

impl Group {
    /// The group of one node; `None` if nothing reads its results, or one is not a tensor.
    fn of(edges: &Edges<'_>, node: NodeId, class: FusionClass) -> Option<Group> {
        let graph = edges.graph;
        let is_read = |v: &ValueId| edges.is_read(*v);
        let mut results = graph.result_values(node).filter(is_read);
        let first = graph.tensor_type(results.next()?)?;
        let (kind, outer) = match class {
            FusionClass::Elements => (FusionKind::Elements, first.sizes.len()),
            FusionClass::Rows { outer } => (FusionKind::Rows, outer),
            FusionClass::Maps => (FusionKind::Maps, first.sizes.len()),
            FusionClass::Product { .. } => (FusionKind::Product, first.sizes.len()),
            FusionClass::Convolution => (FusionKind::Convolution, first.sizes.len()),
        };
        let sizes: SmallVec<[Expr; 4]> = first.sizes.get(..outer)?.into();
        let has_rows = |v: ValueId| {
            graph.tensor_type(v).is_some_and(|ty| ty.sizes.get(..outer) == Some(&sizes[..]))
        };
        let sizes_of = |sizes| Group { nodes: vec![node], kind, sizes: smallvec![sizes] };
        results.all(has_rows).then(|| sizes_of(sizes))
    }

    /// The rows that both groups have in common; `None` if there are none.
    fn rows_with(&self, other: &Group) -> Option<Sizes> {
        let ([own], [others]) = (&self.sizes[..], &other.sizes[..]) else { return None };
        let common = own.len().min(others.len());
        (common > 0 && own[..common] == others[..common]).then(|| own[..common].into())
    }
}

/// The integers among the arguments of a set of nodes that are not constants.
fn integers(graph: &Graph, nodes: &[NodeId]) -> Vec<Expr> {
    let mut integers: Vec<Expr> = Vec::new();
    for &node in nodes {
        let args = graph.args(node).iter().chain(graph.kwargs(node).iter().map(|(_, a)| a));
        args.for_each(|arg| {
            graph.for_each_leaf(*arg, &mut |leaf| {
                if let Arg::Int(e) = leaf
                    && e.as_i64().is_none()
                    && !integers.contains(&e)
                {
                    integers.push(e);
                }
            });
        });
    }
    integers
}
