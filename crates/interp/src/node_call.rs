//! Calls of the nodes of functional graphs, through `ir::call` or directly.

use maquette_ir::Loc;
use maquette_ir::functional_ops::Callee;
use maquette_ir::graph::{Graph, NodeId};
use maquette_ops::{Args, Error, Op, Outputs, Result, Tensor, Value};
use smallvec::SmallVec;

/// The results of a node.
pub struct NodeResults {
    /// The operator's returns, then the mutated tensors. Returns that alias a mutated argument are
    /// left out.
    pub outputs: Outputs,
    /// The number of the operator's returns among them.
    pub returned: usize,
    /// The arguments of the call, if the operator may return a view of one.
    pub arguments: Args,
}

/// What becomes of the returns of a node's operator.
#[derive(Clone, Debug)]
pub struct NodeReturns {
    /// Whether a return may be a view of an argument that is not mutated.
    views: bool,
    /// For each return, whether it is left out.
    left_out: SmallVec<[bool; 4]>,
}

impl NodeReturns {
    /// The returns of the operator that a node calls.
    ///
    /// # Errors
    /// The operator does not exist.
    pub fn of(graph: &Graph, op: Op, node: NodeId) -> Result<NodeReturns> {
        let mutates = Callee::of(graph, node).mutates;
        let aliased = |i: usize| op.return_alias(i).map(|a| op.mutates(a));
        let returns = 0..op.schema()?.returns.len();
        Ok(NodeReturns {
            views: returns.clone().any(|i| aliased(i) == Some(false)),
            left_out: returns.map(|i| mutates && aliased(i) == Some(true)).collect(),
        })
    }

    /// For each return of the operator, whether it is left out because it is a mutated argument.
    pub fn left_out(&self) -> &[bool] {
        &self.left_out
    }

    /// Calls the operator. `mutated` are the tensors among the arguments that it mutates, as
    /// [`replace_mutated`] returns them.
    ///
    /// # Errors
    /// As [`Op::call_at`].
    pub fn call(
        &self,
        op: Op,
        arguments: Args,
        mutated: SmallVec<[Value; 2]>,
        loc: Loc,
    ) -> Result<NodeResults> {
        let kept = if self.views { arguments.clone() } else { Args::new() };
        let outputs = op.call_at(arguments, loc)?;
        Ok(NodeResults { arguments: kept, ..self.results(outputs, mutated) })
    }

    /// The results of the node from the operator's returns, none of which is a view of an argument.
    pub fn results(&self, mut outputs: Outputs, mutated: SmallVec<[Value; 2]>) -> NodeResults {
        if self.left_out.contains(&true) {
            let mut left_out = self.left_out.iter();
            outputs.retain(|_| left_out.next() != Some(&true));
        }
        let returned = outputs.len();
        outputs.extend(mutated);
        NodeResults { outputs, returned, arguments: Args::new() }
    }
}

/// Replaces each mutated tensor among the arguments of a node by `by(tensor)`. Returns the
/// replacements in the order of the node's arguments.
///
/// # Errors
/// The error of `by`; the operator does not exist.
pub fn replace_mutated(
    graph: &Graph,
    op: Op,
    node: NodeId,
    arguments: &mut Args,
    by: &mut dyn FnMut(&Tensor) -> Result<Tensor>,
) -> Result<SmallVec<[Value; 2]>> {
    let mut mutated = SmallVec::new();
    if !op.is_mutable() {
        return Ok(mutated);
    }
    for index in given_arg_indices(graph, op, node)? {
        if let Some(argument) = arguments.get_mut(index).filter(|_| op.mutates(index)) {
            *argument = match &*argument {
                Value::Tensor(t) => Value::Tensor(by(t)?),
                other => other.map_tensors(by)?,
            };
            mutated.extend(argument.tensors().cloned().map(Value::Tensor));
        }
    }
    Ok(mutated)
}

/// The schema indices of a node's arguments, positional ones first, in the node's order.
fn given_arg_indices(graph: &Graph, op: Op, node: NodeId) -> Result<SmallVec<[usize; 6]>, Error> {
    let positional = Callee::of(graph, node).args.len();
    let schema = op.schema()?;
    let named =
        graph.kwargs(node).iter().filter_map(|(name, _)| schema.arg_index(graph.str(*name)));
    Ok((0..positional).chain(named).collect())
}
