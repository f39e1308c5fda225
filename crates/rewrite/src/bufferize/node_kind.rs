//! Decodes the nodes of a functional graph into the kinds that bufferization distinguishes: views,
//! stores, stride changes, barriers, empty tensors, and calls.

use crate::error::{Reason, Result};
use crate::functionalize::value_graph::{Interner, SpecId};
use maquette_ir::copy_cost::WriteModel;
use maquette_ir::functional_ops::{Callee, FunctionalOp, List, Region};
use maquette_ir::fused::FusionKind;
use maquette_ir::graph::{
    Arg, ArgEffect, Graph, ImageRole, NodeId, OpFacts, Placement, ValueId, ValueType,
};
use maquette_ir::sym::{Expr, SymbolId};
use maquette_ir::view::ViewSpec;
use smallvec::SmallVec;

/// What a node does with memory.
#[derive(Clone, Debug)]
pub(super) enum NodeKind {
    /// `ir::view`: `result` is the view `spec` of `base`.
    View { base: ValueId, spec: SpecId, result: ValueId },
    /// `ir::scatter`: `result` is `base` with the elements of `spec` replaced by `source`.
    Store { base: ValueId, source: ValueId, spec: SpecId, result: ValueId },
    /// `ir::strided`: the same value in declared strides.
    Strided { of: ValueId, result: ValueId },
    /// `ir::barrier`: the same value, in the same memory.
    Barrier { of: ValueId, result: ValueId },
    /// `ir::empty`: nothing reads an element of `result` before a store replaces it.
    Empty { result: ValueId },
    /// An operator, called functionally or through `ir::call`.
    Call(OpCall),
}

/// A call of an operator, by its effects on memory.
#[derive(Clone, Debug)]
pub(super) struct OpCall {
    /// The tensors that it reads and does not mutate, each once.
    pub reads: SmallVec<[ValueId; 3]>,
    /// A tensor of `reads` for each further argument that takes it: the kernel copies an
    /// overlapping operand for each argument.
    pub repeated_reads: SmallVec<[ValueId; 1]>,
    /// The tensors that it mutates: values before and after the call, in the order of the
    /// arguments.
    pub writes: SmallVec<[(ValueId, ValueId); 1]>,
    /// The tensors that it returns, apart from the mutated ones.
    pub results: SmallVec<[ValueId; 1]>,
    /// Where it can write its result.
    pub placement: Placement,
    /// Pairs of an operand and of a result that may be written over it, beside those of
    /// [`Placement::Elementwise`].
    pub overwrites: SmallVec<[(ValueId, ValueId); 1]>,
    /// What it does with images.
    pub images: ImageRole,
    /// It may observe strides, so operands must have their declared ones.
    pub observes_strides: bool,
    pub write_model: WriteModel,
    /// The dtype of its result is not that of its first operand.
    pub converts: bool,
}

impl NodeKind {
    /// Decodes a node. Fails if a node of the functional dialect is malformed.
    pub fn of(
        graph: &Graph,
        node: NodeId,
        facts: &dyn OpFacts,
        interner: &mut Interner,
    ) -> Result<NodeKind> {
        let results: SmallVec<[ValueId; 2]> = graph.result_values(node).collect();
        let malformed = || Reason::Malformed {
            op: graph.op_name(node).into(),
            detail: "its arguments or results are not those of the operator",
        };
        let op = FunctionalOp::of(graph, node).map_err(|_| malformed())?;
        let are_tensors = |values: &[ValueId]| values.iter().all(|v| is_tensor(graph, *v));
        Ok(match (op, results.as_slice()) {
            (FunctionalOp::View { base, region }, &[result]) if are_tensors(&[base, result]) => {
                NodeKind::View { base, spec: view_spec(region, interner)?, result }
            }
            (FunctionalOp::Scatter { base, source, region }, &[result])
                if are_tensors(&[base, source, result]) =>
            {
                NodeKind::Store { base, source, spec: view_spec(region, interner)?, result }
            }
            (FunctionalOp::Strided { operand }, &[result]) if are_tensors(&[operand, result]) => {
                NodeKind::Strided { of: operand, result }
            }
            (FunctionalOp::Barrier { operand }, &[result]) if are_tensors(&[operand, result]) => {
                NodeKind::Barrier { of: operand, result }
            }
            (FunctionalOp::Empty, &[result]) if is_tensor(graph, result) => {
                NodeKind::Empty { result }
            }
            (
                FunctionalOp::View { .. }
                | FunctionalOp::Scatter { .. }
                | FunctionalOp::Strided { .. }
                | FunctionalOp::Barrier { .. }
                | FunctionalOp::Empty,
                _,
            ) => return Err(malformed().into()),
            (FunctionalOp::Fused { kind, operands, overwrites, .. }, results) => {
                let call = OpCall::fused(graph, kind, operands, overwrites, results);
                NodeKind::Call(call.ok_or_else(malformed)?)
            }
            (
                FunctionalOp::Disjoint { .. }
                | FunctionalOp::Injective { .. }
                | FunctionalOp::Call(_),
                results,
            ) => NodeKind::Call(OpCall::of(graph, node, results, facts)?),
        })
    }

    /// Notes that the size `symbol` is known only from `value`, which this node computes: no memory
    /// can be reserved for the value before.
    ///
    /// # Errors
    /// The value lies in memory that exists before the node.
    pub fn bind(&mut self, graph: &Graph, symbol: SymbolId, value: ValueId) -> Result<()> {
        match self {
            NodeKind::Call(call) if call.writes.iter().all(|(_, after)| *after != value) => {
                call.placement = Placement::Allocates;
                Ok(())
            }
            _ => {
                let op = graph
                    .producer(value)
                    .map_or_else(String::new, |node| Callee::of(graph, node).op.to_owned());
                let symbol = graph.symbols().name(symbol).to_owned();
                Err(Reason::SizeFromView { op, symbol }.into())
            }
        }
    }
}

fn is_tensor(graph: &Graph, v: ValueId) -> bool {
    matches!(graph.value_type(v), ValueType::Tensor(_))
}

impl OpCall {
    /// The call of a kernel that computes a region; `None` if an operand or a result is not a
    /// tensor.
    fn fused(
        graph: &Graph,
        kind: FusionKind,
        operands: &[Arg],
        overwrites: List<'_>,
        results: &[ValueId],
    ) -> Option<OpCall> {
        let operand = |arg: &Arg| match arg {
            Arg::Value(v) if is_tensor(graph, *v) => Some(*v),
            _ => None,
        };
        let placement = match kind {
            FusionKind::Elements => Placement::Elementwise,
            _ => Placement::Anywhere,
        };
        let images = match kind {
            FusionKind::Elements => ImageRole::Keeps,
            FusionKind::Convolution => ImageRole::Makes,
            FusionKind::Rows | FusionKind::Maps | FusionKind::Product => ImageRole::Other,
        };
        let positions = overwrites.iter().map(|e| usize::try_from(e.as_i64()?).ok());
        let positions = positions.collect::<Option<SmallVec<[usize; 4]>>>()?;
        let pair = |pair: &[usize]| match *pair {
            [k, j] => Some((operand(operands.get(k)?)?, *results.get(j)?)),
            _ => None,
        };
        let overwrites = positions.chunks(2).map(pair).collect::<Option<_>>()?;
        results.iter().all(|v| is_tensor(graph, *v)).then_some(OpCall {
            overwrites,
            reads: operands.iter().map(operand).collect::<Option<_>>()?,
            repeated_reads: SmallVec::new(),
            writes: SmallVec::new(),
            results: results.into(),
            placement,
            images,
            observes_strides: false,
            write_model: WriteModel::default(),
            converts: false,
        })
    }

    fn of(graph: &Graph, node: NodeId, results: &[ValueId], facts: &dyn OpFacts) -> Result<OpCall> {
        let Callee { op, args, mutates, .. } = Callee::of(graph, node);
        let is_tensor = |v: ValueId| is_tensor(graph, v);
        let (mut reads, mut repeated_reads, mut mutated) =
            (SmallVec::new(), SmallVec::new(), SmallVec::<[ValueId; 2]>::new());
        let mut take = |index: Option<usize>, arg: Arg| {
            let writes =
                mutates && index.is_none_or(|i| facts.arg_effect(op, i) == ArgEffect::Write);
            graph.for_each_leaf(arg, &mut |leaf| match leaf {
                Arg::Value(v) if !is_tensor(v) => {}
                Arg::Value(v) if writes => mutated.push(v),
                Arg::Value(v) if reads.contains(&v) => repeated_reads.push(v),
                Arg::Value(v) => reads.push(v),
                _ => {}
            });
        };
        args.iter().enumerate().for_each(|(i, a)| take(Some(i), *a));
        graph
            .kwargs(node)
            .iter()
            .for_each(|(name, a)| take(facts.arg_index(op, graph.str(*name)), *a));
        let own = results.len().checked_sub(mutated.len()).ok_or_else(|| Reason::Malformed {
            op: op.into(),
            detail: "it has fewer results than arguments that it mutates",
        })?;
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
            overwrites: SmallVec::new(),
            reads,
            repeated_reads,
            writes,
            results,
            placement,
            images: facts.image_role(op),
        })
    }
}

/// The view that a region describes.
fn view_spec(region: Region<'_>, interner: &mut Interner) -> Result<SpecId> {
    let Region { sizes, strides, offset } = region;
    let [sizes, strides] = [sizes, strides].map(|l| l.iter().collect::<SmallVec<[Expr; 4]>>());
    let spec = ViewSpec::strided(offset, &sizes, &strides, &mut interner.symbols)?;
    Ok(interner.spec(spec))
}
