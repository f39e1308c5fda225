//! Launches of fused regions.

use super::{Builder, fake, launches::placed, wrong_graph};
use crate::fusion::region_call;
use crate::instance::{Launch, Step, TensorAt};
use maquette_ir::buffer_plan::{BufferView, ResultDest};
use maquette_ir::functional_ops::{FunctionalOp, List};
use maquette_ir::fused::FusedRegion;
use maquette_ir::graph::{Arg, ValueId};
use maquette_ir::sym::Expr;
use maquette_ops::{Result, Tensor};
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
        let graph = &fused.original.graph;
        let call = region_call(graph, region, &numbers, &fakes(&leaves), &fakes(&targets));
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
