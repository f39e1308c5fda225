//! The operators of a fused region, one by one, as the program before fusion runs them.
//!
//! There are two uses. A kernel that fails knows that something failed, but not which operator, nor
//! whether that was the first: the operands are as they were, so the operators run once more, and
//! the first that fails has the error. And in a program whose sizes depend on data, a region may
//! turn out to have no kernel for the sizes of a run when the operators before it are done.

use maquette_invoke::{SourceInfo, argument_value, arguments, in_window};
use maquette_ir::functional_ops::{Callee, FunctionalOp};
use maquette_ir::fused::FusedRegion;
use maquette_ir::graph::{Arg, Graph, NodeId, Stmt, ValueId};
use maquette_ir::sym::Expr;
use maquette_ops::{Error, Op, Result, Tensor, Value, mode};
use rustc_hash::FxHashMap;

/// The results of a region on these operands. `numbers` are the values of the integers that the
/// operators take.
///
/// # Errors
/// That of the first operator that fails, with its line and window.
pub(crate) fn run_nodes(
    graph: &Graph,
    region: &FusedRegion,
    numbers: &FxHashMap<Expr, i64>,
    operands: &[Tensor],
    source_info: &SourceInfo<'_>,
) -> Result<Vec<Tensor>> {
    let missing = || Error::msg("a region reads a value that it does not have");
    let mut values: FxHashMap<ValueId, Value> =
        region.operands.iter().copied().zip(operands.iter().cloned().map(Value::Tensor)).collect();
    for &node in &region.nodes {
        let get = |v: ValueId| values.get(&v).cloned().ok_or_else(missing);
        let int = |e: Expr| match e.as_i64() {
            Some(n) => Ok(n.into()),
            None => Ok((*numbers.get(&e).ok_or_else(missing)?).into()),
        };
        let results = match FunctionalOp::of(graph, node) {
            Ok(FunctionalOp::View { base, region }) => {
                let size = |e: Expr| e.as_i64().or_else(|| numbers.get(&e).copied());
                let sizes = region.sizes.iter().map(size).collect::<Option<Vec<i64>>>();
                let base = get(base)?;
                let base = base.tensor().map_err(|_| missing())?;
                let sizes = sizes.ok_or_else(missing)?;
                let viewed = mode::with_builtin_kernels(|| base.reshape(sizes));
                vec![Value::Tensor(viewed.ok()?.clone())]
            }
            _ => {
                let value = |arg: Arg| argument_value(graph, arg, &get, &int);
                call(graph, node, &value, source_info).map_err(|e| {
                    let at = graph.body().iter().position(|stmt| *stmt == Stmt::Node(node));
                    at.map_or(e.clone(), |at| in_window(graph, e, at))
                })?
            }
        };
        values.extend(graph.result_values(node).zip(results));
    }
    let result = |v: &ValueId| match values.get(v) {
        Some(Value::Tensor(t)) => Ok(t.clone()),
        _ => Err(missing()),
    };
    region.results.iter().map(result).collect()
}

/// Calls the operator of a node.
fn call(
    graph: &Graph,
    node: NodeId,
    value: &dyn Fn(Arg) -> Result<Value>,
    source_info: &SourceInfo<'_>,
) -> Result<Vec<Value>> {
    let op = Op::find(graph.op_name(node))?;
    let args = arguments(graph, op, node, Callee::of(graph, node).args, value)?;
    let results = op.call_at(args, graph.loc(node).unwrap_or(source_info.call_site))?;
    results.iter().flat_map(Value::tensors).try_for_each(|t| t.ok().map(drop))?;
    Ok(results.into_iter().collect())
}
