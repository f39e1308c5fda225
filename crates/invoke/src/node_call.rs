//! Calls of the nodes of functional graphs, through `ir::call` or directly.

use crate::bindings::Bindings;
use maquette_ir::Loc;
use maquette_ir::functional_ops::Callee;
use maquette_ir::graph::{Graph, NodeId, ViewSource};
use maquette_ops::{Args, Error, FakeError, Op, Outputs, Result, Tensor, Value};
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
    /// For each result of the node: the argument of which the fake kernel promised it to be a view.
    promised: SmallVec<[Option<usize>; 4]>,
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
        let left_out = |i: &usize| mutates && aliased(*i) == Some(true);
        let views = returns.clone().any(|i| aliased(i) == Some(false));
        let promised = match views && op.view_source() == ViewSource::Promise {
            true => {
                let viewed = |i| op.return_alias(i).filter(|a| !op.mutates(*a));
                returns.clone().filter(|i| !left_out(i)).map(viewed).collect()
            }
            false => SmallVec::new(),
        };
        Ok(NodeReturns { views, left_out: returns.map(|i| left_out(&i)).collect(), promised })
    }

    /// Compares the views that a call in a functional graph returned with the promise of the fake
    /// kernel. The offsets in their types count from the first elements of the viewed arguments.
    ///
    /// # Errors
    /// A view begins at another element.
    pub fn check_views(
        &self,
        graph: &Graph,
        bindings: &Bindings<'_>,
        node: NodeId,
        results: &NodeResults,
    ) -> Result<()> {
        let outputs = graph.results(node).iter().zip(&results.outputs).zip(&self.promised);
        for (output, ((declared, returned), viewed)) in outputs.enumerate() {
            let base = viewed.and_then(|arg| results.arguments.get(arg)?.tensors().next());
            let Some(start) = base.and_then(|base| base.storage_offset().as_i64()) else {
                continue;
            };
            for (v, t) in declared.values().iter().zip(returned.tensors()) {
                let is_empty = t.sizes().iter().any(|n| n.as_i64() == Some(0));
                let (Some(ty), Some(found)) = (graph.tensor_type(v), t.storage_offset().as_i64())
                else {
                    continue;
                };
                let (expected, found) = (bindings.eval(ty.offset)?, found - start);
                if !is_empty && expected != found {
                    return Err(FakeError::Mismatch {
                        output,
                        what: "the offset in the viewed argument".into(),
                        expected: expected.to_string(),
                        found: found.to_string(),
                    }
                    .into());
                }
            }
        }
        Ok(())
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
