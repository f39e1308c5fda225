//! Calls of custom operators of which all is known but for memory.
//!
//! Such a call goes to the kernel without the dispatcher. Its arguments are coerced once, and those
//! that need no memory of one run are kept between runs. The returns are compared with numbers.
//! Returns that differ from what the graph declares take the path of every other call, which
//! reports the error, or gives them the declared strides.

use super::places::HandleLife;
use super::{NodeArguments, TensorAt};
use maquette_invoke::{Bindings, NodeReturns};
use maquette_ir::DType;
use maquette_ir::buffer_plan::BufferId;
use maquette_ir::fault_injection::{Fault, fault_injected};
use maquette_ir::graph::{Graph, NodeId, Res, ValueId};
use maquette_ops::{Args, Op, PreparedKernel, Value};
use smallvec::SmallVec;

/// A call of a kernel.
pub(crate) struct KernelCall {
    pub kernel: PreparedKernel,
    /// The arguments, without the tensors.
    pub template: Args,
    /// The tensors among the arguments.
    pub operands: SmallVec<[KernelOperand; 4]>,
    /// The place of its arguments among those that runs keep.
    pub kept: u32,
    /// For each return of the operator, what it has to be. `None` if a number depends on data.
    pub returns: Option<SmallVec<[ExpectedResult; 2]>>,
}

/// A tensor among the arguments of a kernel.
pub(crate) struct KernelOperand {
    /// The position of the argument.
    pub index: usize,
    pub at: TensorAt,
    /// Whether the handle is the same in every run: the memory is the arena's.
    pub is_kept: bool,
}

/// What a return of an operator has to be.
pub(crate) enum ExpectedResult {
    /// A mutated argument, which is not a result of the node.
    Argument,
    /// A tensor of these sizes and strides, on the device of the call.
    Tensor {
        dtype: DType,
        sizes: SmallVec<[i64; 4]>,
        strides: SmallVec<[i64; 4]>,
        /// Its buffer; `None` if it is not used.
        buffer: Option<BufferId>,
    },
}

impl ExpectedResult {
    /// Whether a returned tensor has the dtype, sizes and strides. The stride of a dimension of
    /// size 1 addresses no element. The layout of an empty tensor is for the other path.
    pub fn fits(&self, returned: &Value) -> bool {
        let (dtype, sizes, strides) = match self {
            ExpectedResult::Argument => return true,
            ExpectedResult::Tensor { dtype, sizes, strides, .. } => (*dtype, sizes, strides),
        };
        let Value::Tensor(t) = returned else { return false };
        let meta = t.meta();
        meta.dtype == dtype
            && meta.layout == maquette_ir::Layout::Strided
            && meta.sizes.len() == sizes.len()
            && meta.sizes.iter().zip(sizes).all(|(n, m)| *m != 0 && n.as_i64() == Some(*m))
            && meta
                .strides
                .iter()
                .zip(strides)
                .zip(sizes)
                .all(|((s, r), n)| *n == 1 || s.as_i64() == Some(*r))
    }
}

impl KernelCall {
    /// The call of a node. `None` if it has to go through the dispatcher: the operator cannot be
    /// prepared, a number among the arguments depends on data, an argument is a list of tensors, or
    /// a mutated tensor may overlap another.
    pub fn new(op: Op, arguments: &NodeArguments, kept: u32) -> Option<KernelCall> {
        let (args, leaves) = arguments.template()?;
        if fault_injected(Fault::MutatedInAnyOrder) || args.iter().any(holds_tensors) {
            return None;
        }
        let mut template = args.clone();
        let kernel = op.prepare_kernel(&mut template)?;
        let mut operands: SmallVec<[KernelOperand; 4]> = SmallVec::new();
        let mut next = leaves.iter();
        for (index, arg) in template.iter_mut().enumerate() {
            if let Value::Tensor(_) = arg {
                let at = next.next()?.clone();
                operands.push(KernelOperand { index, is_kept: at.handle == HandleLife::Arena, at });
                *arg = Value::None;
            }
        }
        let writes = |o: &KernelOperand| op.mutates(o.index);
        let shares_bytes = |a: &TensorAt, b: &TensorAt| {
            a.base == b.base && a.bounds.0 < b.bounds.1 && b.bounds.0 < a.bounds.1
        };
        let overlap = |(i, o): (usize, &KernelOperand)| {
            let mut others = operands.iter().enumerate().filter(|(j, _)| *j != i);
            writes(o) && others.any(|(_, other)| shares_bytes(&other.at, &o.at))
        };
        if next.next().is_some() || operands.iter().enumerate().any(overlap) {
            return None;
        }
        Some(KernelCall { kernel, template, operands, kept, returns: None })
    }
}

/// Whether a value is a list of tensors.
fn holds_tensors(value: &Value) -> bool {
    matches!(value, Value::List(_)) && value.tensors().next().is_some()
}

/// What the returns of a node's operator have to be. `returned` are the buffers of its results.
/// `None` if a return is not a tensor, a size depends on data, or a symbol is bound to the size of
/// one.
pub(super) fn expected_returns(
    graph: &Graph,
    bindings: &Bindings<'_>,
    node: NodeId,
    returns: &NodeReturns,
    returned: &[(ValueId, BufferId)],
    binds: impl Fn(ValueId) -> bool,
) -> Option<SmallVec<[ExpectedResult; 2]>> {
    let mut results = graph.results(node).iter();
    let mut expected: SmallVec<[ExpectedResult; 2]> = SmallVec::new();
    for &left_out in returns.left_out() {
        if left_out {
            expected.push(ExpectedResult::Argument);
            continue;
        }
        let Some(&Res::Value(v)) = results.next() else { return None };
        let ty = graph.tensor_type(v).filter(|_| !binds(v))?;
        let eval = |exprs: &[maquette_ir::sym::Expr]| -> Option<SmallVec<[i64; 4]>> {
            exprs.iter().map(|e| bindings.eval(*e).ok()).collect()
        };
        let buffer = returned.iter().find(|(u, _)| *u == v).map(|(_, b)| *b);
        let (sizes, strides) = (eval(&ty.sizes)?, eval(&ty.strides)?);
        expected.push(ExpectedResult::Tensor { dtype: ty.dtype, sizes, strides, buffer });
    }
    // The results after those are the mutated arguments, whose memory the plan knows.
    let is_mutated =
        |r: &Res| matches!(r, Res::Value(v) if graph.tensor_type(*v).is_some() && !binds(*v));
    results.all(is_mutated).then_some(expected)
}
