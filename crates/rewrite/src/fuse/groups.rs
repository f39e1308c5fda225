//! The groups of operators that are computed together.

use maquette_ir::copy_cost::approximate_numel;
use maquette_ir::functional_ops::{FunctionalOp, is_functional_op};
use maquette_ir::functional_program::{ExternalTensor, FunctionalGraph};
use maquette_ir::fused::{
    FusedRegion, FusionClass, FusionFacts, FusionKind, NoFusionReason, Refusal,
};
use maquette_ir::graph::{Arg, Graph, NodeId, Stmt, ValueId};
use maquette_ir::sym::Expr;
use rustc_hash::{FxHashMap, FxHashSet};
use smallvec::SmallVec;

/// The most operators of a group, and the most tensors that it reads and returns.
const MAX_NODES: usize = 48;
const MAX_TENSORS: usize = 24;

/// The most groups that a search for a cycle visits.
const MAX_VISITS: usize = 256;

/// A set of nodes that one kernel computes.
#[derive(Clone, Debug)]
struct Group {
    /// In program order.
    nodes: Vec<NodeId>,
    kind: FusionKind,
    /// The sizes of the rows: the leading dimensions that all results have in common.
    sizes: SmallVec<[Expr; 4]>,
}

/// The groups of a graph.
pub(super) struct Groups {
    classes: Vec<Result<FusionClass, NoFusionReason>>,
    /// By node: the number of ordered nodes, assertions and bindings before it.
    intervals: Vec<u32>,
    /// By node: its group.
    of: Vec<Option<u32>>,
    groups: Vec<Option<Group>>,
    refused: Vec<Refusal>,
    outputs: FxHashSet<ValueId>,
    /// By value: the nodes after which its memory may hold another value.
    overwrites: FxHashMap<ValueId, Vec<NodeId>>,
}

impl Groups {
    pub fn of(program: &FunctionalGraph, facts: &dyn FusionFacts) -> Groups {
        let graph = &program.graph;
        let nodes = graph.node_count();
        let mut groups = Groups {
            classes: Vec::with_capacity(nodes),
            intervals: vec![0; nodes],
            of: vec![None; nodes],
            groups: Vec::new(),
            refused: Vec::new(),
            outputs: FxHashSet::default(),
            overwrites: overwrites(program),
        };
        for output in graph.outputs() {
            graph.for_each_leaf(*output, &mut |leaf| {
                if let Arg::Value(v) = leaf {
                    groups.outputs.insert(v);
                }
            });
        }
        let mut interval = 0;
        for stmt in graph.body() {
            let Stmt::Node(node) = *stmt else {
                interval += 1;
                continue;
            };
            let class = class(graph, node, facts);
            interval += u32::from(is_ordered(graph, node, class));
            groups.intervals[node.index()] = interval;
            groups.classes.push(class);
            if let Ok(class) = class {
                groups.add(graph, node, class);
            }
        }
        groups
    }

    /// Puts a node into a group of its own, and joins that with those of its producers.
    fn add(&mut self, graph: &Graph, node: NodeId, class: FusionClass) {
        let Some(group) = Group::of(graph, node, class) else { return };
        self.of[node.index()] = Some(self.groups.len() as u32);
        self.groups.push(Some(group));
        let mut producers: SmallVec<[(u64, NodeId); 4]> = SmallVec::new();
        for_each_producer(graph, node, |v, producer| {
            let sizes = graph.tensor_type(v).map_or(&[][..], |ty| &ty.sizes);
            let bytes = approximate_numel(sizes);
            match producers.iter_mut().find(|(_, p)| *p == producer) {
                Some((sum, _)) => *sum = sum.saturating_add(bytes),
                None => producers.push((bytes, producer)),
            }
        });
        // The largest value first, and in program order those of one size.
        producers.sort_by_key(|(bytes, producer)| (std::cmp::Reverse(*bytes), producer.index()));
        for (_, producer) in producers {
            if let Err(reason) = self.join(graph, producer, node) {
                self.refused.push(Refusal { producer, consumer: node, reason });
            }
        }
    }

    fn group(&self, node: NodeId) -> Option<(u32, &Group)> {
        let id = (*self.of.get(node.index())?)?;
        Some((id, self.groups.get(id as usize)?.as_ref()?))
    }

    /// Joins the groups of a node and of one of its producers.
    fn join(
        &mut self,
        graph: &Graph,
        producer: NodeId,
        node: NodeId,
    ) -> Result<(), NoFusionReason> {
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
        if self.intervals[producer.index()] != self.intervals[node.index()] {
            return Err(NoFusionReason::Effect);
        }
        let joined = first.joined(second, graph)?;
        if joined.nodes.len() > MAX_NODES || self.tensors(graph, &joined.nodes) > MAX_TENSORS {
            return Err(NoFusionReason::Limits);
        }
        self.find_overwrite(graph, &joined.nodes)?;
        self.find_cycle(graph, &joined.nodes)?;
        for member in &second.nodes.clone() {
            self.of[member.index()] = Some(from);
        }
        self.groups[to as usize] = None;
        self.groups[from as usize] = Some(joined);
        Ok(())
    }

    /// Fails if the memory of an operand of a set of nodes may hold another value when the last of
    /// them runs: the operand would have to be copied.
    fn find_overwrite(&self, graph: &Graph, nodes: &[NodeId]) -> Result<(), NoFusionReason> {
        let (Some(first), Some(last)) = (nodes.first(), nodes.last()) else { return Ok(()) };
        let is_between = |n: &NodeId| first < n && n < last && nodes.binary_search(n).is_err();
        let is_overwritten = |v: ValueId| {
            let overwrites = self.overwrites.get(&viewed(graph, v));
            overwrites.is_some_and(|nodes| nodes.iter().any(is_between))
        };
        match operands(graph, nodes).into_iter().any(is_overwritten) {
            true => Err(NoFusionReason::Written),
            false => Ok(()),
        }
    }

    /// Fails if a path of the graph leaves a set of nodes and comes back to it.
    fn find_cycle(&self, graph: &Graph, nodes: &[NodeId]) -> Result<(), NoFusionReason> {
        let Some(first) = nodes.first() else { return Ok(()) };
        let is_in = |n: &NodeId| nodes.binary_search(n).is_ok();
        let (mut seen, mut stack) = (FxHashSet::default(), Vec::new());
        let expand = |n: NodeId, stack: &mut Vec<NodeId>| {
            for_each_producer(graph, n, |_, producer| stack.push(producer));
        };
        nodes.iter().for_each(|n| expand(*n, &mut stack));
        stack.retain(|n| !is_in(n));
        let mut visits = 0;
        while let Some(node) = stack.pop() {
            if is_in(&node) {
                return Err(NoFusionReason::Cycle);
            }
            let group = self.group(node);
            let members = group.map_or(std::slice::from_ref(&node), |(_, g)| &g.nodes);
            // A node depends on those before it. That may miss a cycle through a group with a
            // member before the node and one behind it: then the graph cannot be built.
            if members.last().is_none_or(|last| last < first) {
                continue;
            }
            let key = group.map_or(node.index() as u64, |(id, _)| u64::from(id) | 1 << 32);
            if !seen.insert(key) {
                continue;
            }
            visits += 1;
            if visits > MAX_VISITS {
                return Err(NoFusionReason::Limits);
            }
            members.iter().for_each(|n| expand(*n, &mut stack));
        }
        Ok(())
    }

    /// The edges between operators that could not be joined, and are not in one group all the same.
    pub fn refusals(&self, graph: &Graph) -> Vec<Refusal> {
        let key = |r: &Refusal| ((r.producer, r.consumer), r.reason);
        let refused: FxHashMap<(NodeId, NodeId), NoFusionReason> =
            self.refused.iter().map(key).collect();
        let mut refusals = Vec::new();
        for consumer in graph.nodes() {
            let mut seen: SmallVec<[NodeId; 4]> = SmallVec::new();
            for_each_producer(graph, consumer, |_, producer| {
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
        refusals
    }

    /// The number of tensors that a set of nodes reads and returns.
    fn tensors(&self, graph: &Graph, nodes: &[NodeId]) -> usize {
        operands(graph, nodes).len() + self.results(graph, nodes).len()
    }

    /// The values of a set of nodes that something outside reads.
    fn results(&self, graph: &Graph, nodes: &[NodeId]) -> Vec<ValueId> {
        let is_outside = |n: &NodeId| nodes.binary_search(n).is_err();
        let is_read =
            |v: &ValueId| graph.users(*v).iter().any(is_outside) || self.outputs.contains(v);
        nodes.iter().flat_map(|n| graph.result_values(*n)).filter(is_read).collect()
    }

    /// The regions: the groups of at least two operators, in the order of their last ones.
    pub fn regions(&self, graph: &Graph) -> Vec<FusedRegion> {
        let groups = self.groups.iter().flatten().filter(|g| g.nodes.len() > 1);
        let region = |group: &Group| {
            let Group { nodes, kind, sizes } = group.clone();
            let outer = sizes.len();
            let (operands, results) = (operands(graph, &nodes), self.results(graph, &nodes));
            let integers = integers(graph, &nodes);
            FusedRegion { kind, outer, nodes, operands, integers, results }
        };
        let mut regions: Vec<FusedRegion> = groups.map(region).collect();
        regions.sort_by_key(|region| region.nodes.last().copied());
        regions
    }
}

/// The value of which a value is a view, through all views.
fn viewed(graph: &Graph, mut v: ValueId) -> ValueId {
    while let Some(node) = graph.producer(v)
        && let Ok(FunctionalOp::View { base, .. }) = FunctionalOp::of(graph, node)
    {
        v = base;
    }
    v
}

/// The nodes after which the memory of a value may hold another one: stores into it, calls that
/// mutate it, and what computes the new value of an input.
fn overwrites(program: &FunctionalGraph) -> FxHashMap<ValueId, Vec<NodeId>> {
    let graph = &program.graph;
    let mut overwrites: FxHashMap<ValueId, Vec<NodeId>> = FxHashMap::default();
    for node in graph.nodes() {
        match FunctionalOp::of(graph, node) {
            Ok(FunctionalOp::Scatter { base, .. }) => {
                overwrites.entry(viewed(graph, base)).or_default().push(node);
            }
            Ok(FunctionalOp::Call(callee)) if callee.mutates => graph.for_each_operand(node, |v| {
                overwrites.entry(viewed(graph, v)).or_default().push(node);
            }),
            _ => {}
        }
    }
    let inputs = graph.inputs().len() - program.memories.len().min(graph.inputs().len());
    for mutation in &program.mutations {
        let target = match mutation.target {
            ExternalTensor::Input(i) => graph.inputs().get(i).copied(),
            ExternalTensor::SharedMemory(i) => graph.inputs().get(inputs + i).copied(),
            ExternalTensor::Const(i) => graph.consts().get(i).map(|c| c.value()),
        };
        if let (Some(target), Some(Arg::Value(v))) = (target, graph.outputs().get(mutation.result))
            && let Some(node) = graph.producer(viewed(graph, *v))
        {
            overwrites.entry(target).or_default().push(node);
        }
    }
    overwrites
}

/// How a node can be fused; an error for nodes of the functional dialect.
fn class(
    graph: &Graph,
    node: NodeId,
    facts: &dyn FusionFacts,
) -> Result<FusionClass, NoFusionReason> {
    if graph.has_effect(node) {
        return Err(NoFusionReason::Effect);
    }
    match FunctionalOp::of(graph, node) {
        Ok(FunctionalOp::Call(callee)) if !is_functional_op(callee.op) && !callee.mutates => {
            facts.class(graph, node)
        }
        Ok(FunctionalOp::View { .. }) => Err(NoFusionReason::NotAffine),
        _ => Err(NoFusionReason::Opaque),
    }
}

/// Whether a node has to keep its place: its effect, its random numbers or its error would come at
/// another time than that of its neighbours, and after other writes.
fn is_ordered(graph: &Graph, node: NodeId, class: Result<FusionClass, NoFusionReason>) -> bool {
    use NoFusionReason::{Assert, Effect, Opaque, Overridden, SizeFromData};
    match FunctionalOp::of(graph, node) {
        Ok(
            FunctionalOp::View { .. } | FunctionalOp::Scatter { .. } | FunctionalOp::Strided { .. },
        ) => graph.has_effect(node),
        _ => matches!(class, Err(Assert | Effect | Opaque | Overridden | SizeFromData)),
    }
}

impl Group {
    /// The group of one node; `None` if it has no results, or a result that is no tensor.
    fn of(graph: &Graph, node: NodeId, class: FusionClass) -> Option<Group> {
        let mut results = graph.result_values(node);
        let first = graph.tensor_type(results.next()?)?;
        let (kind, outer) = match class {
            FusionClass::Elements => (FusionKind::Elements, first.sizes.len()),
            FusionClass::Rows { outer } => (FusionKind::Rows, outer),
            FusionClass::Product => (FusionKind::Product, first.sizes.len()),
        };
        let sizes: SmallVec<[Expr; 4]> = first.sizes.get(..outer)?.into();
        let has_rows = |v: ValueId| {
            graph.tensor_type(v).is_some_and(|ty| ty.sizes.get(..outer) == Some(&sizes[..]))
        };
        results.all(has_rows).then_some(Group { nodes: vec![node], kind, sizes })
    }

    /// Both groups as one.
    fn joined(&self, other: &Group, graph: &Graph) -> Result<Group, NoFusionReason> {
        use FusionKind::{Elements, Product, Rows};
        let common = self.sizes.len().min(other.sizes.len());
        let same_rows = common > 0 && self.sizes[..common] == other.sizes[..common];
        let (kind, sizes) = match (self.kind, other.kind) {
            (Elements, Elements) if self.sizes == other.sizes => (Elements, &self.sizes[..]),
            (Product, Elements) if self.sizes == other.sizes => (Product, &self.sizes[..]),
            (Product, _) | (_, Product) => return Err(NoFusionReason::LosesSpecialisation),
            _ if same_rows => (Rows, &self.sizes[..common]),
            _ => return Err(NoFusionReason::OtherRows),
        };
        let mut nodes: Vec<NodeId> = self.nodes.iter().chain(&other.nodes).copied().collect();
        nodes.sort_unstable();
        // A value of fewer dimensions is broadcast to other rows than its own.
        let rank = |v: ValueId| graph.tensor_type(v).map_or(0, |ty| ty.sizes.len());
        for &node in nodes.iter().filter(|_| kind == Rows) {
            let wide = graph.result_values(node).map(rank).max().unwrap_or(0);
            let mut fits = true;
            for_each_producer(graph, node, |v, producer| {
                fits &= nodes.binary_search(&producer).is_err() || rank(v) >= wide;
            });
            if !fits {
                return Err(NoFusionReason::OtherRows);
            }
        }
        Ok(Group { nodes, kind, sizes: sizes.into() })
    }
}

/// Calls `f` with the tensors that a node reads and the nodes that compute them.
fn for_each_producer(graph: &Graph, node: NodeId, mut f: impl FnMut(ValueId, NodeId)) {
    graph.for_each_operand(node, |v| {
        if graph.tensor_type(v).is_some()
            && let Some(producer) = graph.producer(v)
        {
            f(v, producer);
        }
    });
}

/// The tensors that a set of nodes reads from outside, in the order of their first uses.
fn operands(graph: &Graph, nodes: &[NodeId]) -> Vec<ValueId> {
    let mut operands: Vec<ValueId> = Vec::new();
    for &node in nodes {
        graph.for_each_operand(node, |v| {
            let is_own = graph.producer(v).is_some_and(|p| nodes.binary_search(&p).is_ok());
            if !is_own && graph.tensor_type(v).is_some() && !operands.contains(&v) {
                operands.push(v);
            }
        });
    }
    operands
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
