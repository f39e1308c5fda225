//! What a run writes over memory that other operators read.

use maquette_ir::functional_ops::FunctionalOp;
use maquette_ir::functional_program::{ExternalTensor, FunctionalGraph};
use maquette_ir::graph::{Arg, Graph, NodeId, ValueId};
use rustc_hash::FxHashMap;

/// The value of which a value is a view, through all views and barriers.
pub(crate) fn viewed(graph: &Graph, mut v: ValueId) -> ValueId {
    while let Some(node) = graph.producer(v)
        && let Ok(FunctionalOp::View { base, .. } | FunctionalOp::Barrier { operand: base }) =
            FunctionalOp::of(graph, node)
    {
        v = base;
    }
    v
}

/// What a run writes over memory that other operators read.
pub(crate) struct Overwrites {
    /// By value: the nodes after which its memory may hold another one.
    pub nodes: FxHashMap<ValueId, Vec<NodeId>>,
    /// By node that computes the new value of an input: the input.
    pub updates: FxHashMap<NodeId, ValueId>,
}

/// The nodes after which the memory of a value may hold another one: stores into it, calls that
/// mutate it, and what computes the new value of an input.
pub(crate) fn overwrites(program: &FunctionalGraph) -> Overwrites {
    let graph = &program.graph;
    let mut updates = FxHashMap::default();
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
            updates.insert(node, target);
        }
    }
    Overwrites { nodes: overwrites, updates }
}
