//! Launches of fused regions.
//!
//! A region with reshapes can write only memory whose strides fit the sizes of its kernel. Results
//! that lie otherwise, such as parts of a concatenation, are computed in row-major memory first.

use super::{Builder, fake, launches::placed, planned_buffers, wrong_graph};
use crate::instance::{Launch, LaunchSource, LaunchedRegion, RegionByNodes, Step, TensorAt};
use maquette_invoke::Bindings;
use maquette_ir::buffer_plan::{BufferView, ResultDest};
use maquette_ir::functional_ops::{FunctionalOp, List};
use maquette_ir::fused::FusedRegion;
use maquette_ir::graph::{Arg, ValueId};
use maquette_ir::sym::Expr;
use maquette_lower::{LoweredRegion, lower_region};
use maquette_ops::{PreparedCall, Result, Tensor};
use rustc_hash::FxHashMap;
use std::slice;

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
        let FunctionalOp::Fused { region: index, operands, integers, .. } = op else {
            return Err(wrong_graph());
        };
        let planned = self.planned;
        let fused = planned.fused.as_ref().ok_or_else(wrong_graph)?;
        let region = fused.regions.get(index).ok_or_else(wrong_graph)?;
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
        let (graph, classes) = (&fused.original.graph, &planned.size_classes);
        let operands = fakes(&leaves);
        let launched = |targets: &[TensorAt]| LaunchedRegion {
            region: index,
            operands: leaves.clone(),
            integers: numbers.clone(),
            writes: planned_buffers(planned, targets),
        };
        let launch = |bindings: &Bindings<'_>, targets: &[TensorAt]| {
            let size = |e: Expr| bindings.eval_in(graph.symbols(), e).ok();
            let LoweredRegion { op, def, binding, failing } =
                lower_region(graph, region, classes, &size, &operands, &fakes(targets))?;
            let call = PreparedCall::of_kernel(op, planned.device, &def, binding)?;
            let named = failing.first().or(region.nodes.last());
            let (name, loc) = named.map(|node| (graph.called_op(*node), graph.loc(*node)))?;
            let (call, places) = placed(call.with_origin(name.into(), loc), &leaves, targets)?;
            let source = match region.may_fail {
                false => {
                    let writes = planned_buffers(planned, targets);
                    LaunchSource::Infallible { region: Some(index), writes }
                }
                true => LaunchSource::Region(Box::new(launched(targets))),
            };
            Some(Step::Launch(Box::new(Launch::new(call, places, source))))
        };
        if let Some(step) = launch(&self.bindings, &targets) {
            self.steps.push(step);
            return Ok(true);
        }
        if let Some(steps) = self.through_memory(&targets, &launch)? {
            self.steps.extend(steps);
            return Ok(true);
        }
        if self.depth == 0 {
            return Ok(false);
        }
        // The program before fusion cannot run, as earlier segments have run.
        let region = launched(&targets);
        self.lends_memory = true;
        self.steps.push(Step::Region(Box::new(RegionByNodes { region, targets })));
        Ok(true)
    }

    /// The launch of a region into row-major memory, and copies to `targets`. `None` if there is
    /// none.
    ///
    /// # Errors
    /// A size does not fit.
    fn through_memory(
        &mut self,
        targets: &[TensorAt],
        launch: &dyn Fn(&Bindings<'_>, &[TensorAt]) -> Option<Step>,
    ) -> Result<Option<Vec<Step>>> {
        let mut end = self.buffer_bytes;
        let temporary = |at: &TensorAt| self.temporary(at, &mut end);
        let sources = targets.iter().map(temporary).collect::<Result<Vec<TensorAt>>>()?;
        let Some(step) = launch(&self.bindings, &sources) else { return Ok(None) };
        let copies = sources.iter().zip(targets).map(|(source, target)| {
            let call = PreparedCall::copy(&fake(source), &fake(target))?;
            let (call, places) = placed(call, slice::from_ref(source), slice::from_ref(target))?;
            let writes = planned_buffers(self.planned, slice::from_ref(target));
            let source = LaunchSource::Infallible { region: None, writes };
            Some(Step::Launch(Box::new(Launch::new(call, places, source))))
        });
        Ok(std::iter::once(Some(step)).chain(copies).collect())
    }

    fn integers(&self, region: &FusedRegion, given: List<'_>) -> Result<FxHashMap<Expr, i64>> {
        let values = given.iter().map(|e| self.bindings.eval(e));
        region.integers.iter().zip(values).map(|(e, value)| Ok((*e, value?))).collect()
    }
}
