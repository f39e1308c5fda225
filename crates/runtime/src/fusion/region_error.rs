//! The error of a fused region.
//!
//! A kernel knows that something failed, but not which operator, nor whether that was the first. The
//! operands are as they were, so the operators run once more, one by one, as the program before
//! fusion runs them: the first that fails has the error.

use maquette_interp::{SourceInfo, argument_value, arguments, in_window};
use maquette_ir::functional_ops::Callee;
use maquette_ir::fused::FusedRegion;
use maquette_ir::graph::{Arg, Graph, Stmt, ValueId};
use maquette_ir::sym::Expr;
use maquette_ops::{Error, Op, Result, Tensor, Value};
use rustc_hash::FxHashMap;

/// The error of the first operator of a region that fails on these operands; `None` if none does.
/// `numbers` are the values of the integers that the operators take.
pub(crate) fn region_error(
    graph: &Graph,
    region: &FusedRegion,
    numbers: &FxHashMap<Expr, i64>,
    operands: &[Tensor],
    source_info: &SourceInfo<'_>,
) -> Option<Error> {
    let mut values: FxHashMap<ValueId, Value> =
        region.operands.iter().copied().zip(operands.iter().cloned().map(Value::Tensor)).collect();
    for &node in &region.nodes {
        let missing = || Error::msg("a region reads a value that it does not have");
        let get = |v: ValueId| values.get(&v).cloned().ok_or_else(missing);
        let int = |e: Expr| match e.as_i64() {
            Some(n) => Ok(n.into()),
            None => Ok((*numbers.get(&e).ok_or_else(missing)?).into()),
        };
        let value = |arg: Arg| argument_value(graph, arg, &get, &int);
        let call = || -> Result<_> {
            let op = Op::find(graph.op_name(node))?;
            let args = arguments(graph, op, node, Callee::of(graph, node).args, &value)?;
            let results = op.call_at(args, graph.loc(node).unwrap_or(source_info.call_site))?;
            results.iter().flat_map(Value::tensors).try_for_each(|t| t.ok().map(drop))?;
            Ok(results)
        };
        match call() {
            Ok(results) => values.extend(graph.result_values(node).zip(results)),
            Err(e) => {
                let at = graph.body().iter().position(|stmt| *stmt == Stmt::Node(node));
                return Some(match at {
                    Some(at) => in_window(graph, e, at),
                    None => e,
                });
            }
        }
    }
    None
}
