//! The values of an expression at all points of a panel.

use super::access::{Access, Base, Buffer};
use super::stage::{Outcome, PanelContext, Planner, unless};
use crate::error::Result;
use crate::pointwise::frame::Failure;
use crate::pointwise::place::{ComputedDim, Place};
use crate::pointwise::{Evaluation, Operands};
use crate::view::{Dims, Ptr, contiguous, numel};
use maquette_ir::loops::{Axes, AxisId, Stage};
use maquette_ir::scalar_expr::ScalarExpr;
use smallvec::SmallVec;

/// Where the values of an expression are written.
#[expect(clippy::large_enum_variant, reason = "it is passed on once a stage of a plan")]
pub(super) enum Destination {
    /// To these tensors, which are accessed at the same axes.
    Outputs(SmallVec<[Access; 2]>),
    /// To scratch memory, row-major.
    Scratch,
    /// In row-major order to the memory that each call of [`Values::run_part`] is given.
    Parts,
}

/// An expression of a stage, evaluated at all points of some axes.
pub(super) struct Values {
    /// The axes: those of the panel first.
    pub axes: Axes,
    loads: SmallVec<[Access; 2]>,
    outputs: SmallVec<[Access; 2]>,
    computed: SmallVec<[SmallVec<[ComputedDim; 2]>; 2]>,
    /// The values in scratch memory, row-major, if they are written there.
    pub buffers: SmallVec<[Buffer; 2]>,
    /// The coordinates that the expression has, by their places in what a panel starts.
    coords: SmallVec<[Option<usize>; 4]>,
    /// Row-major strides of the stage's points along the axes that a panel starts.
    index: SmallVec<[i64; 4]>,
    /// For each part of the plan.
    evaluations: [Option<Evaluation>; 2],
    has_one_part: bool,
}

impl Values {
    /// Plans the evaluation. The expression has the inputs of the stage, then `more`.
    pub fn new(
        planner: &mut Planner<'_>,
        stage: &Stage,
        expr: &ScalarExpr,
        axes: Axes,
        to: Destination,
        more: &[Access],
    ) -> Result<Values> {
        let (launch, panels) = (planner.launch, planner.panels);
        let sizes = panels.sizes(launch, &axes);
        let strides = contiguous(&sizes[0]);
        let mut buffers: SmallVec<[Buffer; 2]> = SmallVec::new();
        let outputs = match to {
            Destination::Outputs(outputs) => outputs,
            Destination::Scratch => {
                let n = numel(&sizes[0]);
                for dtype in expr.output_dtypes() {
                    let base = planner.take(dtype, n);
                    buffers.push(Buffer { base, dtype, strides: strides.clone() });
                }
                buffers.iter().map(|b| b.access(&axes, &axes, panels)).collect()
            }
            Destination::Parts => {
                let base = Base::Scratch(0);
                let row_major = |dtype| Buffer { base, dtype, strides: strides.clone() };
                let buffers = expr.output_dtypes().map(row_major);
                buffers.map(|b| b.access(&axes, &axes, panels)).collect()
            }
        };
        let mut loads: SmallVec<[Access; 2]> = SmallVec::new();
        for load in &stage.loads {
            loads.push(planner.load(load, &axes)?);
        }
        loads.extend(more.iter().cloned());
        let coords = expr.coords();
        let row_major = contiguous(&launch.extents_of(&stage.over));
        let index_stride =
            |axis: &AxisId| stage.over.iter().position(|a| a == axis).map_or(0, |d| row_major[d]);
        let started = |axis: &u32| panels.started().iter().position(|a| *a == AxisId(*axis));
        let mut values = Values {
            computed: loads.iter().map(|l| l.computed.clone()).collect(),
            loads,
            outputs,
            buffers,
            coords: coords.iter().map(started).collect(),
            index: panels.started().iter().map(index_stride).collect(),
            evaluations: [None, None],
            has_one_part: sizes[0] == sizes[1],
            axes,
        };
        let index: Dims = values.axes.iter().map(index_stride).collect();
        values.evaluations[0] = values.evaluation(expr, &coords, &index, &sizes[0])?;
        if !values.has_one_part {
            values.evaluations[1] = values.evaluation(expr, &coords, &index, &sizes[1])?;
        }
        Ok(values)
    }

    fn evaluation(
        &self,
        expr: &ScalarExpr,
        coords: &[u32],
        index: &[i64],
        sizes: &[i64],
    ) -> Result<Option<Evaluation>> {
        let along = |axis: &u32| -> Dims {
            self.axes.iter().map(|a| i64::from(*a == AxisId(*axis))).collect()
        };
        let along: SmallVec<[Dims; 4]> = coords.iter().map(along).collect();
        let accesses = self.loads.iter().chain(&self.outputs).map(|a| &a.strides[..]);
        let places = along.iter().map(|c| &c[..]).chain([index]);
        let strides: SmallVec<[&[i64]; 8]> = accesses.chain(places).collect();
        let coords = Some(coords);
        // A map may be written to the memory of what it reads.
        let is_same = |load: &Access| self.outputs.iter().any(|out| out.is_at(load));
        let in_place = self.loads.iter().position(is_same);
        let overlap = in_place.is_some();
        let is_own = self.loads.iter().any(|load| !load.computed.is_empty() && is_same(load));
        let computed = if is_own { &[][..] } else { &self.computed };
        let operands = Operands { sizes, strides: &strides, overlap, in_place, coords, computed };
        Evaluation::new(expr, &operands)
    }

    fn part(&self, cx: &PanelContext<'_>) -> Option<&Evaluation> {
        let part = if self.has_one_part { 0 } else { cx.part };
        self.evaluations[part].as_ref()
    }

    /// The addresses of the operands of the evaluation.
    fn bases(&self, cx: &PanelContext<'_>) -> SmallVec<[Ptr<u8>; 8]> {
        let number = |n: i64| Ptr(std::ptr::without_provenance_mut(n as usize));
        let first = |at: &Option<usize>| at.map_or(0, |i| cx.panel.start[i]);
        let index = self.index.iter().zip(&cx.panel.start).map(|(stride, start)| stride * start);
        let mut bases = SmallVec::new();
        bases.extend(self.loads.iter().chain(&self.outputs).map(|a| a.address(cx)));
        bases.extend(self.coords.iter().map(first).map(number));
        bases.push(number(index.sum()));
        bases
    }

    fn place<'a>(&'a self, cx: &PanelContext<'a>) -> Place<'a> {
        let index_operand = self.loads.len() + self.outputs.len() + self.coords.len();
        Place { scalars: cx.run.scalars, computed: &self.computed, index_operand }
    }

    /// Evaluates the expression at all points of a panel.
    pub fn run(&self, cx: &PanelContext<'_>) -> Outcome {
        let Some(evaluation) = self.part(cx) else { return Ok(()) };
        let (isa, bases, place) = (cx.run.isa, self.bases(cx), self.place(cx));
        unless(match evaluation.few() {
            Some(n) => evaluation.range(isa, &bases, Some(&place), 0, n),
            None => evaluation.run(isa, &bases, Some(&place))?,
        })
    }

    /// Evaluates the values `from..to` of a panel, in row-major order, into `out`, the address of
    /// value `from`. Returns the first failure.
    pub fn run_part(
        &self,
        cx: &PanelContext<'_>,
        from: usize,
        to: usize,
        out: Ptr<u8>,
    ) -> Option<Box<Failure>> {
        let evaluation = self.part(cx)?;
        let mut bases = self.bases(cx);
        let k = self.loads.len();
        bases[k] = Ptr(out.0.wrapping_sub(from * self.outputs[0].size()));
        evaluation.range(cx.run.isa, &bases, Some(&self.place(cx)), from, to)
    }
}
