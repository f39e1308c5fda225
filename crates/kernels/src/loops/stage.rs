//! The stages of a launch: the plan of their memory, and their computation in a panel.

use super::access::{Base, Buffer};
use super::launch::{Launch, Memory};
use super::schedule::{Panel, Panels};
use super::values::Values;
use super::{KERNEL, contract, fold, lines, scatter};
use crate::copy::copy;
use crate::error::Result;
use crate::pointwise::frame::Failure;
use crate::scratch::Scratch;
use crate::view::{Dims, Ptr, ViewMut, contiguous, numel};
use maquette_ir::DType;
use maquette_ir::loops::{Axes, AxisId, Source, Stage, StageId, StageKind, StageOutput};
use smallvec::{SmallVec, smallvec};

/// A stage with its values and outputs.
pub(super) struct StagePlan<'a> {
    pub stage: &'a Stage,
    pub id: StageId,
    /// The values of the expression. A contraction has those of each factor.
    pub values: SmallVec<[Values; 1]>,
    /// The outputs, with a stride for each dimension of the result.
    pub outputs: SmallVec<[Buffer; 2]>,
}

/// The stages of a launch, and the bytes of scratch memory that a task needs.
#[derive(Default)]
pub(super) struct Plan<'a> {
    pub stages: Vec<StagePlan<'a>>,
    bytes: usize,
}

/// The scratch memory of a task.
pub(super) struct PanelScratch(Scratch<i64>);

impl PanelScratch {
    pub fn new(plan: &Plan<'_>) -> Result<PanelScratch> {
        Ok(PanelScratch(Scratch::new(KERNEL, plan.bytes.div_ceil(8))?))
    }
}

impl<'a> Plan<'a> {
    /// Plans all stages of a launch.
    pub fn new(launch: &Launch<'a>, panels: &Panels) -> Result<Plan<'a>> {
        let mut plan = Plan::default();
        for (s, stage) in launch.nest.stages().iter().enumerate() {
            let next = plan.stage(launch, panels, StageId(s as u32), stage)?;
            plan.stages.push(next);
        }
        Ok(plan)
    }

    /// Takes scratch memory for elements.
    pub fn take(&mut self, dtype: DType, elements: usize) -> Base {
        let at = self.bytes;
        self.bytes = at.saturating_add(elements.saturating_mul(dtype.size())).next_multiple_of(64);
        Base::Scratch(at)
    }

    /// The tensor that a load reads.
    pub fn buffer(&self, launch: &Launch<'_>, from: Source) -> Option<Buffer> {
        match from {
            Source::Operand(o) => launch.operands.get(o.index()).map(|memory| Buffer {
                base: Base::Memory(memory.base),
                dtype: memory.dtype,
                strides: memory.strides.clone(),
            }),
            Source::Stage(output) => {
                self.stages.get(output.stage.index())?.outputs.get(output.output as usize).cloned()
            }
        }
    }

    fn stage(
        &mut self,
        launch: &Launch<'a>,
        panels: &Panels,
        id: StageId,
        stage: &'a Stage,
    ) -> Result<StagePlan<'a>> {
        let along: Axes = match &stage.kind {
            StageKind::Reduce { along, .. } | StageKind::Contract { along } => along.clone(),
            StageKind::Scan { along, .. } | StageKind::Sort { along, .. } => smallvec![*along],
            StageKind::Map | StageKind::Scatter { .. } => Axes::new(),
        };
        let in_panel = panels.outer.iter().skip(panels.fixed);
        let is_kept = |a: &&AxisId| !panels.outer.contains(a) && !along.contains(a);
        let kept: Axes = in_panel.chain(stage.over.iter().filter(is_kept)).copied().collect();
        let axes: Axes = kept.iter().chain(&along).copied().collect();
        let outputs = self.outputs(launch, panels, id, stage, &kept)?;
        let expr = stage.expr.clone();
        let values = match &stage.kind {
            StageKind::Map => {
                // The values are the outputs, and written in place.
                let dims = stage.axes();
                let places = outputs.iter().map(|o| o.access(&dims, &axes, panels)).collect();
                smallvec![Values::new(launch, panels, self, stage, expr, axes, Some(places))?]
            }
            StageKind::Contract { along } => contract::factors(launch, panels, self, stage, along)?,
            _ => smallvec![Values::new(launch, panels, self, stage, expr, axes, None)?],
        };
        Ok(StagePlan { stage, id, values, outputs })
    }

    /// Places the outputs of a stage: those of a map that are results in the result, others in
    /// scratch memory, row-major with the axes along which the stage combines last.
    fn outputs(
        &mut self,
        launch: &Launch<'_>,
        panels: &Panels,
        id: StageId,
        stage: &Stage,
        kept: &[AxisId],
    ) -> Result<SmallVec<[Buffer; 2]>> {
        let mut outputs = SmallVec::new();
        for (o, dtype) in stage.output_dtypes().into_iter().enumerate() {
            let output = StageOutput { stage: id, output: o as u8 };
            let result = launch.results_of(output).next();
            outputs.push(match (result, &stage.kind) {
                (Some(Memory { base, strides, .. }), StageKind::Map) => {
                    Buffer { base: Base::Memory(*base), dtype, strides: strides.clone() }
                }
                (_, StageKind::Scatter { .. }) => {
                    let sizes = launch.sizes(output.into())?;
                    let base = self.take(dtype, numel(&sizes));
                    Buffer { base, dtype, strides: contiguous(&sizes) }
                }
                (_, kind) => {
                    let last = match kind {
                        StageKind::Sort { keep: axis, .. }
                        | StageKind::Scan { along: axis, .. } => Some(*axis),
                        _ => None,
                    };
                    let dims: Axes = kept.iter().copied().chain(last).collect();
                    let sizes = panels.sizes(launch, &dims);
                    let base = self.take(dtype, numel(&sizes));
                    let row_major = Buffer { base, dtype, strides: contiguous(&sizes) };
                    let strides = row_major.access(&dims, &stage.axes(), panels).strides;
                    Buffer { strides, ..row_major }
                }
            });
        }
        Ok(outputs)
    }

    /// Computes all stages of a panel. Returns the first stage that fails, with its first failure.
    pub fn run_panel(
        &self,
        launch: &Launch<'_>,
        panels: &Panels,
        panel: &Panel,
        scratch: &mut PanelScratch,
    ) -> Result<Option<(usize, Failure)>> {
        let memory: Ptr<u8> = Ptr(scratch.0.get().as_mut_ptr().cast());
        for (s, plan) in self.stages.iter().enumerate() {
            for values in &plan.values {
                if let Some(failure) = values.run(launch, panels, panel, memory)? {
                    return Ok(Some((s, failure)));
                }
            }
            let cx = PanelContext { launch, panels, panel, memory };
            let failure = match &plan.stage.kind {
                StageKind::Map => None,
                StageKind::Reduce { fold, order, .. } => fold::reduce(&cx, plan, fold, *order)?,
                StageKind::Scan { fold, .. } => lines::scan(&cx, plan, fold)?,
                StageKind::Sort { keep, descending, .. } => {
                    lines::sort(&cx, plan, *keep, *descending)?;
                    None
                }
                StageKind::Contract { .. } => {
                    contract::multiply(&cx, plan)?;
                    None
                }
                StageKind::Scatter { into, combine } => {
                    let source = self.buffer(launch, *into);
                    scatter::scatter(&cx, plan, source, *combine)?
                }
            };
            if let Some(failure) = failure {
                return Ok(Some((s, failure)));
            }
            cx.copy_results(plan)?;
        }
        Ok(None)
    }
}

/// A panel that is being computed.
pub(super) struct PanelContext<'a> {
    pub launch: &'a Launch<'a>,
    pub panels: &'a Panels,
    pub panel: &'a Panel,
    pub memory: Ptr<u8>,
}

impl PanelContext<'_> {
    /// Copies the panel's part of a stage's outputs to the results that they are, unless it was
    /// computed there.
    fn copy_results(&self, plan: &StagePlan<'_>) -> Result<()> {
        for (o, buffer) in plan.outputs.iter().enumerate() {
            let output = StageOutput { stage: plan.id, output: o as u8 };
            let is_map = matches!(plan.stage.kind, StageKind::Map);
            for memory in self.launch.results_of(output).skip(usize::from(is_map)) {
                let (mut sizes, mut at) = (memory.sizes.clone(), 0);
                let mut strides = buffer.strides.clone();
                for (dim, axis) in plan.stage.axes().iter().enumerate() {
                    let started = self.panels.started().iter().position(|a| a == axis);
                    let Some(started) = started else { continue };
                    at += self.panel.start[started] * memory.strides[dim];
                    sizes[dim] =
                        if Some(axis) == self.panels.ranged() { self.panel.range } else { 1 };
                    if sizes[dim] == 1 {
                        strides[dim] = 0;
                    }
                }
                let dims = plan.stage.axes();
                let access = buffer.access(&dims, &dims, self.panels);
                let from = access.address(self.memory, self.panel);
                let to = at.wrapping_mul(memory.dtype.size() as i64) as isize;
                // SAFETY: the panel's part of the output, which was computed, and of the result,
                // which belongs to this panel alone.
                unsafe {
                    let from = crate::View::from_raw(from.0, buffer.dtype, &sizes, &strides);
                    let to = memory.base.0.wrapping_offset(to);
                    copy(&from, &mut ViewMut::from_raw(to, memory.dtype, &sizes, &memory.strides))?;
                }
            }
        }
        Ok(())
    }

    /// The sizes of values in this panel.
    pub fn sizes(&self, values: &Values) -> Dims {
        values.sizes(self.launch, self.panels, self.panel)
    }
}
