//! The kernel of a fused region.

use maquette_interp::{argument_value, arguments};
use maquette_ir::functional_ops::{Callee, FunctionalOp};
use maquette_ir::fused::FusedRegion;
use maquette_ir::graph::{Arg, Graph, ValueId};
use maquette_ir::sym::Expr;
use maquette_ops::{Error, Op, PreparedCall, RegionBuilder, Tensor, Value};
use rustc_hash::FxHashMap;

/// The kernel of a region, from fake operands to memory of the layouts of `outs`; `None` if there
/// is none for these sizes.
pub(crate) fn region_call(
    graph: &Graph,
    region: &FusedRegion,
    numbers: &FxHashMap<Expr, i64>,
    operands: &[Tensor],
    outs: &[Tensor],
) -> Option<PreparedCall> {
    let mut builder = RegionBuilder::new(region.kind, region.outer, operands, outs)?;
    let mut values: FxHashMap<ValueId, Tensor> =
        region.operands.iter().copied().zip(operands.iter().cloned()).collect();
    for &node in &region.nodes {
        let missing = || Error::msg("a region reads a value that it does not have");
        let get = |v: ValueId| Ok(Value::Tensor(values.get(&v).cloned().ok_or_else(missing)?));
        let int = |e: Expr| match e.as_i64() {
            Some(n) => Ok(n.into()),
            None => Ok((*numbers.get(&e).ok_or_else(missing)?).into()),
        };
        if let FunctionalOp::View { base, region } = FunctionalOp::of(graph, node).ok()? {
            let size = |e: Expr| e.as_i64().or_else(|| numbers.get(&e).copied());
            let sizes = region.sizes.iter().map(size).collect::<Option<Vec<i64>>>()?;
            let viewed = builder.reshape(values.get(&base)?, &sizes)?;
            values.extend(graph.result_values(node).map(|v| (v, viewed.clone())));
            continue;
        }
        let op = Op::find(graph.op_name(node)).ok()?;
        let value = |arg: Arg| argument_value(graph, arg, &get, &int);
        let args = arguments(graph, op, node, Callee::of(graph, node).args, &value).ok()?;
        let results = builder.call(op, args)?;
        values.extend(graph.result_values(node).zip(results));
    }
    let results = region.results.iter().map(|v| values.get(v).cloned());
    builder.finish(&results.collect::<Option<Vec<Tensor>>>()?, outs)
}
