//! The order that memory imposes on a graph that mutates.
//!
//! Values are sorted into classes that may share a storage: a result joins the class of the
//! argument it aliases, and everything else has a class of its own, as which inputs overlap is a
//! guard of every callable. Within a class, a read comes after the last write before it, and a
//! write after every read since and after that write.

use super::Graph;
use super::deps::{Edge, EdgeKind};
use super::types::{Arg, NodeId, ValueId, ValueType};
use crate::DType;
use petgraph::unionfind::UnionFind;

/// What an operator does with an argument's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ArgEffect {
    /// It may read it.
    Read,
    /// It may read and write it.
    Write,
}

/// What operators do to memory, as their schemas say. Arguments and results are numbered as in the
/// schema.
pub trait MemoryFacts {
    /// The number of an argument given by keyword; `None` if the operator has none of this name.
    fn arg_index(&self, op: &str, name: &str) -> Option<usize>;
    /// The name of an argument, for messages.
    fn arg_name(&self, op: &str, arg: usize) -> Option<String> {
        let _ = (op, arg);
        None
    }
    /// What an operator does with an argument.
    fn arg_effect(&self, op: &str, arg: usize) -> ArgEffect;
    /// The argument whose storage a result shares, or may share.
    fn result_aliases(&self, op: &str, result: usize) -> Option<usize>;
    /// Whether an operator has an effect beyond its arguments, so that it keeps its place among its
    /// like. A node that the graph marks has one.
    fn has_effect(&self, op: &str) -> bool;
    /// Whether an operator may tell tensors of equal elements and different strides apart.
    fn observes_strides(&self, op: &str) -> bool {
        let _ = op;
        true
    }
    /// Whether an operator draws random numbers, so that it keeps its place among its like: each
    /// call advances the sequence.
    fn uses_rng(&self, op: &str) -> bool {
        let _ = op;
        false
    }
    /// Whether an operator is one that a program or library registered, for pictures.
    fn is_custom(&self, op: &str) -> bool {
        let _ = op;
        false
    }
}

/// An argument of a call, as far as the call's dtypes depend on it.
#[derive(Clone, Debug, PartialEq)]
pub enum ArgKind<'a> {
    /// A tensor.
    Tensor {
        /// Its dtype.
        dtype: DType,
        /// Its sizes; where they are symbolic, those of one call among many.
        sizes: &'a [i64],
    },
    /// An absent optional.
    None,
    /// An integer; `None` if it is symbolic.
    Int(Option<i64>),
    /// A floating-point number.
    Float(f64),
    /// A boolean.
    Bool(bool),
    /// A string.
    Str(&'a str),
    /// An element type.
    DType(DType),
    /// A list.
    List(Vec<ArgKind<'a>>),
}

/// What an operator computes for each element, of its first argument or its first two, broadcast
/// and promoted. The function is PyTorch's, for every dtype: integers wrap, and NaN in either
/// operand is NaN.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "the names are the documentation")]
pub enum ArithOp {
    Add,
    Sub,
    Mul,
    Div,
    Max,
    Min,
    And,
    Or,
    Neg,
    Abs,
    Relu,
    /// All bits; of bools, their negation.
    Not,
}

/// Where an operator can write its only result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Placement {
    /// To a tensor of any strides; each element is read before its place is written, so it may be
    /// where an operand of the same sizes lies.
    Elementwise,
    /// To a tensor of any strides, apart from the operands.
    Anywhere,
    /// To a tensor of the strides that it would choose, apart from the operands; for others it has
    /// to be copied.
    Dense,
    /// To memory that it makes, or its result is not one tensor.
    Allocates,
}

/// What rewriting needs to know of operators.
pub trait OpFacts: MemoryFacts {
    /// For an operator that writes its first argument and nothing else: the operator, of the same
    /// arguments, whose result, in the argument's sizes, is converted to its dtype and written.
    fn functional_variant(&self, op: &str) -> Option<&str> {
        let _ = op;
        None
    }
    /// Where an operator can write its result.
    fn placement(&self, op: &str) -> Placement {
        let _ = op;
        Placement::Allocates
    }
    /// Whether the only result of an operator has the elements of its first argument in row-major
    /// order, converted where the dtypes differ.
    fn preserves_elements(&self, op: &str) -> bool {
        let _ = op;
        false
    }
    /// Whether an operator computes nothing: all that it makes or writes are elements of the first
    /// operand that is only read, at most converted.
    fn is_data_movement(&self, op: &str) -> bool {
        self.preserves_elements(op)
    }
    /// The argument of an operator that is an offset from the start of its first argument's
    /// storage, wherever that tensor begins.
    fn absolute_offset_arg(&self, op: &str) -> Option<usize> {
        let _ = op;
        None
    }
    /// Whether an operator that returns a view may give elements of the storage that its tensor
    /// does not have.
    fn view_may_exceed_base(&self, op: &str) -> bool {
        let _ = op;
        true
    }
    /// For an operator that returns another operand's elements in the sizes and the dtype of its
    /// first: that operand.
    fn copied_operand(&self, op: &str) -> Option<usize> {
        let _ = op;
        None
    }
    /// The operator that converts its argument to the dtype given by the keyword `dtype`.
    fn conversion(&self) -> Option<&str> {
        None
    }
    /// Whether an operator reads its argument's storage, of which values have no more than their
    /// own elements, in their own order.
    fn observes_storage(&self, op: &str) -> bool {
        let _ = op;
        false
    }
    /// Whether an operator's results are numbers that the types of its arguments tell. Only the
    /// types tell all of them: values have no strides along dimensions of size 1.
    fn is_metadata_query(&self, op: &str) -> bool {
        let _ = op;
        false
    }
    /// Whether an operator that mutates reads operands from copies where they lie in what it
    /// mutates. Others leave that to the operators they call.
    fn copies_operands(&self, op: &str) -> bool {
        let _ = op;
        true
    }
    /// Whether what an operator computes depends on the metadata of its first argument, and not on
    /// its contents.
    fn ignores_contents(&self, op: &str) -> bool {
        let _ = op;
        false
    }
    /// The dtype of an operator's only result, in the sizes of its first argument; `None` if it has
    /// others, or is not known.
    fn result_dtype(
        &self,
        op: &str,
        args: &[ArgKind<'_>],
        kwargs: &[(&str, ArgKind<'_>)],
    ) -> Option<DType> {
        let _ = (op, args, kwargs);
        None
    }
    /// What an operator computes of these arguments, if it is one of the functions that rewriting
    /// knows.
    fn arith_op(
        &self,
        op: &str,
        args: &[ArgKind<'_>],
        kwargs: &[(&str, ArgKind<'_>)],
    ) -> Option<ArithOp> {
        let _ = (op, args, kwargs);
        None
    }
}

/// Who accessed a class last.
#[derive(Clone, Debug, Default)]
struct LastAccess {
    writer: Option<NodeId>,
    /// Since the last write.
    readers: Vec<NodeId>,
}

/// Adds the edges of memory and effects. Returns, for each value, the node that writes last to the
/// memory the value may lie in.
pub(super) fn add_memory_edges(
    graph: &Graph,
    facts: &dyn MemoryFacts,
    edges: &mut Vec<(NodeId, NodeId, Edge)>,
) -> Vec<Option<NodeId>> {
    let classes = alias_classes(graph, facts);
    let mut accesses = vec![LastAccess::default(); classes.len()];
    let (mut last_effect, mut last_rng) = (None, None);
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
        for (is, last) in [
            (graph.has_effect(node) || facts.has_effect(op), &mut last_effect),
            (facts.uses_rng(op), &mut last_rng),
        ] {
            if is && let Some(before) = last.replace(node) {
                edges.push((before, node, Edge { kind: EdgeKind::Order, value: None }));
            }
        }
    }
    classes.iter().map(|&class| accesses.get(class)?.writer).collect()
}

/// For each value, the number of its class.
fn alias_classes(graph: &Graph, facts: &dyn MemoryFacts) -> Vec<usize> {
    let mut classes: UnionFind<usize> = UnionFind::new(graph.values().len());
    for node in graph.nodes() {
        let op = graph.op_name(node);
        for (i, result) in graph.results(node).iter().enumerate() {
            let Some(aliased) = facts.result_aliases(op, i).filter(|_| !graph.copies(node)) else {
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
