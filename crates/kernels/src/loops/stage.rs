//! The stages of a launch: the plan of their memory, and their computation in a panel.

use super::access::{Access, Base, Buffer};
use super::launch::Launch;
use super::plan::Run;
use super::rows::{self, RowPlan};
use super::schedule::{Panel, Panels};
use super::values::{Destination, Values};
use super::{contract, fold, hoist, in_place, lines, scatter};
use crate::copy::copy;
use crate::error::{KernelError, Result};
use crate::pointwise::frame::Failure;
use crate::view::{Dims, Ptr, View, ViewMut, contiguous, numel};
use maquette_device::Layout;
use maquette_ir::DType;
use maquette_ir::loops::{Axes, AxisId, Load, Source, Stage, StageId, StageKind, StageOutput};
use maquette_ir::scalar_expr::ScalarExpr;
use smallvec::{SmallVec, smallvec};
use std::ops::Range;

/// The plan of a stage.
pub(super) struct StagePlan {
    /// The values of the expression, unless they are read where they are. A contraction has those
    /// of each factor.
    pub values: SmallVec<[Values; 1]>,
    /// The rows of a fold, scan or sort.
    pub rows: Option<RowPlan>,
    /// What a scatter copies: the source, and its sizes.
    pub into: Option<(Buffer, Dims)>,
    pub outputs: SmallVec<[Output; 2]>,
    copies: SmallVec<[ResultCopy; 1]>,
}

impl StagePlan {
    /// A stage that a product computes, with the tensors that later phases read.
    pub fn of_product(values: SmallVec<[Values; 1]>, outputs: SmallVec<[Output; 2]>) -> StagePlan {
        StagePlan { values, rows: None, into: None, outputs, copies: SmallVec::new() }
    }
}

/// An output of a stage.
pub(super) struct Output {
    /// The tensor, with a stride for each dimension of the result.
    pub buffer: Buffer,
    /// The tensor in a panel: row-major, unless the stage is a map or a contraction.
    pub access: Access,
}

/// The outputs of a stage, and the copies of them.
type Outputs = (SmallVec<[Output; 2]>, SmallVec<[ResultCopy; 1]>);

/// A copy of a panel's part of an output to a result.
struct ResultCopy {
    from: Access,
    to: Access,
    dtype: DType,
    /// The sizes, and the strides of both sides, for each part of the plan.
    sizes: [Dims; 2],
    strides: [Dims; 2],
}

/// The plans of stages, as they are made.
pub(super) struct Planner<'a> {
    pub launch: &'a Launch<'a>,
    pub panels: &'a Panels,
    /// What the expressions of stages are replaced by: the same on bits.
    moved: &'a [Option<ScalarExpr>],
    pub stages: Vec<StagePlan>,
    /// The bytes of scratch memory that a task needs.
    pub bytes: usize,
    /// The stages that are computed together.
    pub phase: Range<usize>,
    /// The bytes of each tensor that a phase leaves to later ones.
    pub kept: Vec<usize>,
}

impl<'a> Planner<'a> {
    pub fn new(
        launch: &'a Launch<'a>,
        panels: &'a Panels,
        moved: &'a [Option<ScalarExpr>],
        (stages, kept): (Vec<StagePlan>, Vec<usize>),
        phase: Range<usize>,
    ) -> Planner<'a> {
        Planner { launch, panels, moved, stages, bytes: 0, phase, kept }
    }

    /// Plans the stages of the phase.
    pub fn plan(&mut self) -> Result<()> {
        for s in self.phase.clone() {
            let Some(stage) = self.launch.nest.stages().get(s) else { break };
            let next = self.stage(StageId(s as u32), stage)?;
            self.stages.push(next);
        }
        Ok(())
    }

    /// The expression of a stage, or the same on bits.
    pub fn expr<'s>(&'s self, id: StageId, stage: &'s Stage) -> &'s ScalarExpr {
        self.moved.get(id.index()).and_then(Option::as_ref).unwrap_or(&stage.expr)
    }

    /// Whether a stage of a later phase reads an output.
    pub fn is_read_later(&self, output: StageOutput) -> bool {
        let from = Source::Stage(output);
        let is_read = |s: &Stage| {
            let is_into = matches!(s.kind, StageKind::Scatter { into, .. } if into == from);
            is_into || s.loads.iter().any(|load| load.from == from)
        };
        self.launch.nest.stages().iter().skip(self.phase.end).any(is_read)
    }

    /// Memory for an output of these sizes, as a whole, for later phases: row-major in the order
    /// `dims` of its `axes`.
    pub fn keep(&mut self, dtype: DType, axes: &[AxisId], dims: &[AxisId]) -> Buffer {
        let sizes = self.launch.extents_of(dims);
        let base = self.launch.operands.len() + self.launch.results.len() + self.kept.len();
        self.kept.push(numel(&sizes).saturating_mul(dtype.size()));
        let in_order = contiguous(&sizes);
        let stride = |axis: &AxisId| {
            dims.iter().position(|a| a == axis).and_then(|d| in_order.get(d)).copied().unwrap_or(0)
        };
        Buffer { base: Base::Memory(base), dtype, strides: axes.iter().map(stride).collect() }
    }

    /// Takes scratch memory for elements.
    pub fn take(&mut self, dtype: DType, elements: usize) -> Base {
        let at = self.bytes;
        let end = at.saturating_add(elements.saturating_mul(dtype.size()));
        // The largest number of bytes is refused where the memory is taken.
        self.bytes = end.checked_next_multiple_of(64).unwrap_or(usize::MAX);
        Base::Scratch(at)
    }

    /// The access of a load at some axes.
    pub fn load(&self, load: &Load, axes: &[AxisId]) -> Result<Access> {
        let buffer = |from| self.buffer(from);
        Access::of_load(self.launch, self.panels, &buffer, load, axes)
    }

    /// The tensor that a load reads.
    fn buffer(&self, from: Source) -> Option<Buffer> {
        match from {
            Source::Operand(o) => {
                let Layout { dtype, strides, .. } = self.launch.operands.get(o.index())?.clone();
                Some(Buffer { base: Base::Memory(o.index()), dtype, strides })
            }
            Source::Stage(output) => {
                let stage = self.stages.get(output.stage.index())?;
                Some(stage.outputs.get(output.output as usize)?.buffer.clone())
            }
        }
    }

    /// The memory of a result.
    pub fn result(&self, (result, layout): (usize, &Layout)) -> Buffer {
        let base = Base::Memory(self.launch.operands.len() + result);
        Buffer { base, dtype: layout.dtype, strides: layout.strides.clone() }
    }

    fn stage(&mut self, id: StageId, stage: &Stage) -> Result<StagePlan> {
        let along: Axes = match &stage.kind {
            StageKind::Reduce { along, .. } | StageKind::Contract { along } => along.clone(),
            StageKind::Scan { along, .. } | StageKind::Sort { along, .. } => smallvec![*along],
            StageKind::Map | StageKind::Scatter { .. } => Axes::new(),
        };
        let in_panel = self.panels.outer.iter().skip(self.panels.fixed);
        let is_kept = |a: &&AxisId| !self.panels.outer.contains(a) && !along.contains(a);
        let kept: Axes = in_panel.chain(stage.over.iter().filter(is_kept)).copied().collect();
        let axes: Axes = kept.iter().chain(&along).copied().collect();
        let (outputs, copies) = self.outputs(id, stage, &kept)?;
        let (mut rows, mut into) = (None, None);
        let values = match &stage.kind {
            StageKind::Map => {
                // The values are the outputs, and written in place.
                let places = outputs.iter().map(|o| o.access.clone()).collect();
                let to = Destination::Outputs(places);
                let expr = self.expr(id, stage).clone();
                hoist::map(self, stage, &expr, axes, to)?
            }
            StageKind::Contract { along } => contract::factors(self, stage, along)?,
            StageKind::Scatter { into: source, .. } => {
                into = self.buffer(*source).zip(Some(self.launch.sizes(id.into())?));
                smallvec![Values::new(self, stage, &stage.expr, axes, Destination::Scratch, &[])?]
            }
            StageKind::Reduce { .. } | StageKind::Scan { .. } | StageKind::Sort { .. } => {
                let (plan, values) = rows::plan(self, stage, &axes, kept.len())?;
                rows = Some(plan);
                values
            }
        };
        Ok(StagePlan { values, rows, into, outputs, copies })
    }

    /// Places the outputs of a stage. An output that is a result is computed there if the stage can
    /// write it. Others are in scratch memory, row-major with the axis along which the stage
    /// combines last, and are copied to the results that they are.
    fn outputs(&mut self, id: StageId, stage: &Stage, kept: &[AxisId]) -> Result<Outputs> {
        let last = match stage.kind {
            StageKind::Sort { keep: axis, .. } | StageKind::Scan { along: axis, .. } => Some(axis),
            _ => None,
        };
        let is_scatter = matches!(stage.kind, StageKind::Scatter { .. });
        let takes_strides = matches!(stage.kind, StageKind::Map | StageKind::Contract { .. });
        let dims: Axes = kept.iter().copied().chain(last).collect();
        let (axes, panels) = (stage.axes(), self.panels);
        let sizes = match is_scatter {
            true => self.launch.sizes(id.into()).map(|sizes| [sizes.clone(), sizes])?,
            false => panels.sizes(self.launch, &dims),
        };
        let row_major = contiguous(&sizes[0]);
        let (mut outputs, mut copies) = (SmallVec::new(), SmallVec::new());
        for (o, dtype) in stage.output_dtypes().into_iter().enumerate() {
            let output = StageOutput { stage: id, output: o as u8 };
            let results: SmallVec<[Buffer; 2]> =
                self.launch.results_of(output).map(|r| self.result(r)).collect();
            let in_result = results.iter().position(|result| {
                let in_order = || result.access(&axes, &dims, panels).strides == row_major;
                !is_scatter && (takes_strides || in_order())
            });
            let later = || in_place::later_result(self.launch, stage, output);
            let in_result_or_later =
                in_result.map(|i| results[i].clone()).or_else(|| Some(self.result(later()?)));
            let buffer = match in_result_or_later {
                Some(buffer) => buffer,
                None if self.is_read_later(output) && is_scatter => {
                    let base = self.launch.operands.len() + self.launch.results.len();
                    let base = Base::Memory(base + self.kept.len());
                    self.kept.push(numel(&sizes[0]).saturating_mul(dtype.size()));
                    Buffer { base, dtype, strides: row_major.clone() }
                }
                None if self.is_read_later(output) => {
                    let fixed = self.panels.outer.iter().take(self.panels.fixed);
                    let order: Axes = fixed.chain(&dims).copied().collect();
                    self.keep(dtype, &axes, &order)
                }
                None => {
                    let base = self.take(dtype, numel(&sizes[0]));
                    let in_panel = Buffer { base, dtype, strides: row_major.clone() };
                    match is_scatter {
                        true => in_panel,
                        false => {
                            let strides = in_panel.access(&dims, &axes, panels).strides;
                            Buffer { strides, ..in_panel }
                        }
                    }
                }
            };
            // The dimensions of a scatter have no axes.
            let access = |buffer: &Buffer| match is_scatter {
                true => buffer.whole(),
                false => buffer.access(&axes, &dims, panels),
            };
            let others = results.iter().enumerate().filter(|(i, _)| Some(*i) != in_result);
            copies.extend(others.map(|(_, result)| {
                let (from, to) = (access(&buffer), access(result));
                let strides = [from.strides.clone(), to.strides.clone()];
                ResultCopy { from, to, dtype, sizes: sizes.clone(), strides }
            }));
            let access = access(&buffer);
            outputs.push(Output { buffer, access });
        }
        Ok((outputs, copies))
    }
}

/// Why a panel is not computed to its end.
#[derive(Debug)]
pub(super) enum Stop {
    Error(KernelError),
    Failure(Failure),
}

/// The outcome of a part of a panel. It is no larger than a pointer: to move a larger one waits
/// for all stores of the part.
pub(super) type Outcome<E = Stop> = std::result::Result<(), Box<E>>;

impl From<KernelError> for Box<Stop> {
    fn from(error: KernelError) -> Box<Stop> {
        Box::new(Stop::Error(error))
    }
}

impl From<Failure> for Box<Stop> {
    fn from(failure: Failure) -> Box<Stop> {
        Box::new(Stop::Failure(failure))
    }
}

/// The outcome of what may have failed.
pub(super) fn unless(failure: Option<Box<Failure>>) -> Outcome {
    failure.map_or(Ok(()), |failure| Err((*failure).into()))
}

/// A panel that is being computed.
pub(super) struct PanelContext<'a> {
    pub run: &'a Run<'a>,
    pub panels: &'a Panels,
    pub panel: &'a Panel,
    /// The part of the plan for this panel.
    pub part: usize,
    memory: Ptr<u8>,
}

impl<'a> PanelContext<'a> {
    pub fn new(
        run: &'a Run<'a>,
        panels: &'a Panels,
        panel: &'a Panel,
        memory: Ptr<u8>,
    ) -> PanelContext<'a> {
        PanelContext { run, panels, panel, part: panels.part(panel), memory }
    }

    /// Computes the stages of a phase in the panel, up to the first that fails.
    pub fn phase(&self, phase: Range<usize>) -> Outcome<(usize, Stop)> {
        let (plans, stages) = (&self.run.plan.stages, self.run.plan.nest.stages());
        for (s, (plan, stage)) in
            plans.iter().zip(stages).enumerate().take(phase.end).skip(phase.start)
        {
            self.stage(plan, stage).map_err(|stop| Box::new((s, *stop)))?;
        }
        Ok(())
    }
}

impl PanelContext<'_> {
    fn stage(&self, plan: &StagePlan, stage: &Stage) -> Outcome {
        if !plan.rows.as_ref().is_some_and(RowPlan::is_in_parts) {
            for values in &plan.values {
                values.run(self)?;
            }
        }
        match (&stage.kind, &plan.rows) {
            (StageKind::Reduce { fold, order, .. }, Some(rows)) => {
                fold::reduce(self, plan, stage, rows, fold, *order)?;
            }
            (StageKind::Scan { fold, order, .. }, Some(rows)) => {
                lines::scan(self, plan, stage, rows, (fold, *order))?
            }
            (StageKind::Sort { keep, descending, .. }, Some(rows)) => {
                lines::sort(self, plan, rows, *keep, *descending)?;
            }
            (StageKind::Contract { along }, _) => {
                contract::multiply(self, plan, stage, along)?;
            }
            (StageKind::Scatter { combine, .. }, _) => scatter::scatter(self, plan, *combine)?,
            _ => {}
        }
        for copy in &plan.copies {
            self.copy(copy)?;
        }
        Ok(())
    }

    fn copy(&self, c: &ResultCopy) -> Result<()> {
        let (sizes, [from, to]) = (&c.sizes[self.part], &c.strides);
        // SAFETY: the panel's part of the output, which was computed, and of the result, which
        // belongs to this panel alone.
        unsafe {
            let from = View::from_raw(c.from.address(self).0, c.dtype, sizes, from);
            copy(&from, &mut ViewMut::from_raw(c.to.address(self).0, c.dtype, sizes, to))
        }
    }

    /// The address of a base.
    pub fn base(&self, base: Base) -> Ptr<u8> {
        match base {
            Base::Memory(at) => self.run.addresses[at],
            Base::Scratch(at) => Ptr(self.memory.0.wrapping_add(at)),
        }
    }

    /// The extent of an axis.
    pub fn extent(&self, axis: AxisId) -> i64 {
        self.run.plan.extents.get(axis.index()).copied().unwrap_or(0)
    }

    /// The extents of some axes.
    pub fn extents_of(&self, axes: &[AxisId]) -> Dims {
        axes.iter().map(|a| self.extent(*a)).collect()
    }
}
