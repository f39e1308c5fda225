//! What each node of a functional graph does, for whoever gives its values memory.

use crate::error::{Reason, Result};
use crate::functionalize::emit::{CALL, SCATTER, STRIDED, VIEW};
use crate::functionalize::value_graph::{Interner, SpecId};
use maquette_ir::copy_cost::WriteModel;
use maquette_ir::graph::{Arg, ArgEffect, Graph, NodeId, OpFacts, Placement, ValueId, ValueType};
use maquette_ir::sym::Expr;
use maquette_ir::view::ViewSpec;
use smallvec::SmallVec;

/// What a node does.
#[derive(Clone, Debug)]
pub(super) enum NodeKind {
    /// A view of a value.
    View { base: ValueId, spec: SpecId, result: ValueId },
    /// A value with a part replaced.
    Store { base: ValueId, source: ValueId, spec: SpecId, result: ValueId },
    /// The same value with strides.
    Strided { of: ValueId, result: ValueId },
    /// An operator.
    Call(OpCall),
}

/// A call of an operator.
#[derive(Clone, Debug)]
pub(super) struct OpCall {
    /// Tensors it reads and does not mutate.
    pub reads: SmallVec<[ValueId; 3]>,
    /// Those of them that it takes again: a copy of one is made for each argument.
    pub repeated_reads: SmallVec<[ValueId; 1]>,
    /// Tensors it mutates: their values before and after, in the order of arguments.
    pub writes: SmallVec<[(ValueId, ValueId); 1]>,
    /// Other tensors that it gives.
    pub results: SmallVec<[ValueId; 1]>,
    /// Where it can write its result.
    pub placement: Placement,
    /// It looks at strides.
    pub observes_strides: bool,
    pub write_model: WriteModel,
    /// Its results are of another dtype than its first operand.
    pub converts: bool,
}

impl NodeKind {
    pub fn of(
        graph: &Graph,
        node: NodeId,
        facts: &dyn OpFacts,
        interner: &mut Interner,
    ) -> Result<NodeKind> {
        let (args, results): (&[Arg], SmallVec<[ValueId; 2]>) =
            (graph.args(node), graph.result_values(node).collect());
        let malformed = || Reason::Internal("a node of a functional graph is malformed");
        match (graph.op_name(node), args, results.as_slice()) {
            (VIEW, [Arg::Value(base), at @ ..], [result]) => Ok(NodeKind::View {
                base: *base,
                spec: view_spec(graph, at, interner)?,
                result: *result,
            }),
            (SCATTER, [Arg::Value(base), Arg::Value(source), at @ ..], [result]) => {
                Ok(NodeKind::Store {
                    base: *base,
                    source: *source,
                    spec: view_spec(graph, at, interner)?,
                    result: *result,
                })
            }
            (STRIDED, [Arg::Value(of), _], [result]) => {
                Ok(NodeKind::Strided { of: *of, result: *result })
            }
            (VIEW | SCATTER | STRIDED, ..) => Err(malformed().into()),
            (op, _, results) => OpCall::of(graph, node, op, results, facts).map(NodeKind::Call),
        }
    }
}

impl OpCall {
    fn of(
        graph: &Graph,
        node: NodeId,
        op: &str,
        results: &[ValueId],
        facts: &dyn OpFacts,
    ) -> Result<OpCall> {
        let args = graph.args(node);
        let (op, skip) = match (op, args.first()) {
            (CALL, Some(Arg::Str(name))) => (graph.str(*name), 1),
            (op, _) => (op, 0),
        };
        let is_tensor = |v: ValueId| matches!(graph.value_type(v), ValueType::Tensor(_));
        let (mut reads, mut repeated_reads, mut mutated) =
            (SmallVec::new(), SmallVec::new(), SmallVec::<[ValueId; 2]>::new());
        let mut take = |index: Option<usize>, arg: Arg| {
            let writes =
                skip > 0 && index.is_none_or(|i| facts.arg_effect(op, i) == ArgEffect::Write);
            graph.for_each_leaf(arg, &mut |leaf| match leaf {
                Arg::Value(v) if !is_tensor(v) => {}
                Arg::Value(v) if writes => mutated.push(v),
                Arg::Value(v) if reads.contains(&v) => repeated_reads.push(v),
                Arg::Value(v) => reads.push(v),
                _ => {}
            });
        };
        args.iter().skip(skip).enumerate().for_each(|(i, a)| take(Some(i), *a));
        graph
            .kwargs(node)
            .iter()
            .for_each(|(name, a)| take(facts.arg_index(op, graph.str(*name)), *a));
        let own = results
            .len()
            .checked_sub(mutated.len())
            .ok_or(Reason::Internal("a call gives less than it mutates"))?;
        let writes = mutated.iter().copied().zip(results[own..].iter().copied()).collect();
        let results: SmallVec<[ValueId; 1]> =
            results[..own].iter().copied().filter(|v| is_tensor(*v)).collect();
        let single = own == 1 && results.len() == 1 && mutated.is_empty();
        let placement = if single { facts.placement(op) } else { Placement::Allocates };
        let dtype = |v: Option<&ValueId>| v.and_then(|v| graph.tensor_type(*v)).map(|t| t.dtype);
        let (from, to) = (dtype(reads.first()), dtype(results.first().or(mutated.first())));
        Ok(OpCall {
            write_model: WriteModel::of(op, facts),
            converts: from != to,
            observes_strides: facts.observes_strides(op),
            reads,
            repeated_reads,
            writes,
            results,
            placement,
        })
    }
}

/// Sizes, strides and an offset as a view.
fn view_spec(graph: &Graph, at: &[Arg], interner: &mut Interner) -> Result<SpecId> {
    let numbers = |a: &Arg| -> Option<SmallVec<[Expr; 4]>> {
        let Arg::List(list) = a else { return None };
        graph
            .list(*list)
            .iter()
            .map(|a| if let Arg::Int(e) = a { Some(*e) } else { None })
            .collect()
    };
    let parts = match at {
        [sizes, strides, Arg::Int(offset)] => {
            numbers(sizes).zip(numbers(strides)).map(|(n, s)| (n, s, *offset))
        }
        _ => None,
    };
    let (sizes, strides, offset) =
        parts.ok_or(Reason::Internal("a view is not given by integers"))?;
    let spec = ViewSpec::strided(offset, &sizes, &strides, &mut interner.symbols)?;
    Ok(interner.spec(spec))
}
