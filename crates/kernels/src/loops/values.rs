//! The values of an expression at all points of a panel.

use super::access::{Access, Buffer};
use super::launch::Launch;
use super::schedule::{Panel, Panels};
use super::stage::Plan;
use crate::error::Result;
use crate::pointwise::frame::Failure;
use crate::pointwise::place::{ComputedDim, Place};
use crate::pointwise::{Evaluation, Operands};
use crate::view::{Dims, Ptr, contiguous, numel};
use maquette_ir::loops::{Axes, AxisId, Stage};
use maquette_ir::scalar_expr::{Op, ScalarExpr};
use smallvec::SmallVec;

/// An expression of a stage, evaluated at all points of some axes.
pub(super) struct Values {
    expr: ScalarExpr,
    /// The axes: those of the panel first.
    pub axes: Axes,
    loads: SmallVec<[Access; 2]>,
    computed: SmallVec<[SmallVec<[ComputedDim; 2]>; 2]>,
    outputs: SmallVec<[Access; 2]>,
    /// The values in scratch memory, row-major, unless they were given another place.
    pub buffers: SmallVec<[Buffer; 2]>,
    coords: SmallVec<[u32; 4]>,
    /// Row-major strides of the stage's points, along the axes and along those that a panel starts.
    index: (Dims, SmallVec<[i64; 4]>),
    /// For a panel of the whole range, and for the last one of a line.
    evaluations: [Option<Evaluation>; 2],
}

impl Values {
    /// Plans the evaluation. The values are written to `places`, which are accesses at the same
    /// axes, or else to scratch memory in row-major order.
    pub fn new(
        launch: &Launch<'_>,
        panels: &Panels,
        plan: &mut Plan<'_>,
        stage: &Stage,
        expr: ScalarExpr,
        axes: Axes,
        places: Option<SmallVec<[Access; 2]>>,
    ) -> Result<Values> {
        let sizes = panels.sizes(launch, &axes);
        let mut buffers = SmallVec::new();
        let outputs = match places {
            Some(places) => places,
            None => {
                let (strides, n) = (contiguous(&sizes), numel(&sizes));
                for dtype in expr.output_dtypes() {
                    let base = plan.take(dtype, n);
                    buffers.push(Buffer { base, dtype, strides: strides.clone() });
                }
                buffers.iter().map(|b: &Buffer| b.access(&axes, &axes, panels)).collect()
            }
        };
        let mut loads: SmallVec<[Access; 2]> = SmallVec::new();
        for load in &stage.loads {
            let buffer = |from| plan.buffer(launch, from);
            loads.push(Access::of_load(launch, panels, &buffer, load, &axes)?);
        }
        let coords = expr.instrs().iter().filter_map(|i| match i.op {
            Op::Coord(axis) => Some(axis),
            _ => None,
        });
        let mut coords: SmallVec<[u32; 4]> = coords.collect();
        coords.sort_unstable();
        coords.dedup();
        let row_major = contiguous(&launch.extents_of(&stage.over));
        let index_stride =
            |axis: &AxisId| stage.over.iter().position(|a| a == axis).map_or(0, |d| row_major[d]);
        let index = (
            axes.iter().map(index_stride).collect(),
            panels.started().iter().map(index_stride).collect(),
        );
        let computed = loads.iter().map(|l| l.computed.clone()).collect();
        let evaluations = [None, None];
        let mut values =
            Values { expr, axes, loads, computed, outputs, buffers, coords, index, evaluations };
        values.evaluations[0] = values.evaluation(&sizes)?;
        if let Some(tail) = panels.tail(launch) {
            let mut sizes = sizes;
            for (size, axis) in sizes.iter_mut().zip(&values.axes) {
                if Some(axis) == panels.ranged() {
                    *size = tail;
                }
            }
            values.evaluations[1] = values.evaluation(&sizes)?;
        }
        Ok(values)
    }

    fn evaluation(&self, sizes: &[i64]) -> Result<Option<Evaluation>> {
        let along = |axis: u32| -> Dims {
            self.axes.iter().map(|a| i64::from(*a == AxisId(axis))).collect()
        };
        let coords: SmallVec<[Dims; 4]> = self.coords.iter().map(|a| along(*a)).collect();
        let accesses = self.loads.iter().chain(&self.outputs).map(|a| &a.strides[..]);
        let places = coords.iter().map(|c| &c[..]).chain([&self.index.0[..]]);
        let strides: SmallVec<[&[i64]; 8]> = accesses.chain(places).collect();
        let coords = Some(&self.coords[..]);
        let operands =
            Operands { sizes, strides: &strides, overlap: false, in_place: None, coords };
        Evaluation::new(&self.expr, &operands)
    }

    /// Evaluates the expression at all points of a panel. Returns the first failure.
    pub fn run(
        &self,
        launch: &Launch<'_>,
        panels: &Panels,
        panel: &Panel,
        scratch: Ptr<u8>,
    ) -> Result<Option<Failure>> {
        let which = usize::from(panel.range != panels.range);
        let Some(evaluation) = &self.evaluations[which] else { return Ok(None) };
        let number = |n: i64| Ptr(std::ptr::without_provenance_mut(n as usize));
        let first = |axis: &u32| {
            let started = panels.started().iter().position(|a| *a == AxisId(*axis));
            started.and_then(|i| panel.start.get(i)).copied().unwrap_or(0)
        };
        let index = self.index.1.iter().zip(&panel.start).map(|(stride, start)| stride * start);
        let accesses = self.loads.iter().chain(&self.outputs);
        let bases: SmallVec<[Ptr<u8>; 8]> = accesses
            .map(|a| a.address(scratch, panel))
            .chain(self.coords.iter().map(first).map(number))
            .chain([number(index.sum())])
            .collect();
        let place = Place {
            scalars: &launch.scalars,
            computed: &self.computed,
            index_operand: bases.len() - 1,
        };
        evaluation.run(launch.isa, &bases, Some(&place))
    }

    /// The sizes of the values in a panel.
    pub fn sizes(&self, launch: &Launch<'_>, panels: &Panels, panel: &Panel) -> Dims {
        let size = |axis: &AxisId| match panels.ranged() {
            Some(ranged) if ranged == axis => panel.range,
            _ => launch.extent(*axis),
        };
        self.axes.iter().map(size).collect()
    }
}
