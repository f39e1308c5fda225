//! Launches of fused regions.

use super::{Builder, fake, launches::placed, wrong_graph};
use crate::instance::{Launch, Step, TensorAt};
use maquette_interp::{argument_value, arguments};
use maquette_ir::buffer_plan::{BufferView, ResultDest};
use maquette_ir::functional_ops::{Callee, FunctionalOp, List};
use maquette_ir::fused::{FusedProgram, FusedRegion};
use maquette_ir::graph::{Arg, ValueId};
use maquette_ir::sym::Expr;
use maquette_ops::{Error, Op, PreparedCall, RegionBuilder, Result, Tensor, Value};
use rustc_hash::FxHashMap;

impl Builder<'_> {
    /// Makes the launch of a region. Returns whether there is one for these sizes.
    ///
    /// # Errors
    /// The plan belongs to another graph.
    pub(super) fn region(
        &mut self,
        op: FunctionalOp<'_>,
        reads: &[(ValueId, BufferView)],
        results: &[(ValueId, ResultDest)],
    ) -> Result<bool> {
        let FunctionalOp::Fused { region, operands, integers, .. } = op else {
            return Err(wrong_graph());
        };
        let fused = self.planned.fused.as_ref().ok_or_else(wrong_graph)?;
        let region = fused.regions.get(region).ok_or_else(wrong_graph)?;
        let mut leaves: Vec<TensorAt> = Vec::new();
        for operand in operands {
            let view = reads.iter().find(|(v, _)| *operand == Arg::Value(*v));
            leaves.push(self.tensor(&view.ok_or_else(wrong_graph)?.1)?);
        }
        let mut targets: Vec<TensorAt> = Vec::new();
        for (v, to) in results {
            targets.push(self.target(*v, to)?.ok_or_else(wrong_graph)?);
        }
        let fakes = |at: &[TensorAt]| at.iter().map(fake).collect::<Vec<Tensor>>();
        let numbers = self.integers(region, integers)?;
        let call = prepared(fused, region, &numbers, &fakes(&leaves), &fakes(&targets));
        let Some((call, places)) = call.and_then(|call| placed(call, &leaves, &targets)) else {
            return Ok(false);
        };
        self.steps.push(Step::Launch(Box::new(Launch::new(call, places, None))));
        Ok(true)
    }

    fn integers(&self, region: &FusedRegion, given: List<'_>) -> Result<FxHashMap<Expr, i64>> {
        let values = given.iter().map(|e| self.bindings.eval(e));
        region.integers.iter().zip(values).map(|(e, value)| Ok((*e, value?))).collect()
    }
}

/// The kernel of a region, from fake operands to memory of the layouts of `outs`; `None` if there is
/// none for these sizes.
fn prepared(
    fused: &FusedProgram,
    region: &FusedRegion,
    numbers: &FxHashMap<Expr, i64>,
    operands: &[Tensor],
    outs: &[Tensor],
) -> Option<PreparedCall> {
    let graph = &fused.original.graph;
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
