//! The kernels of the CPU behind the boundary: the executors of this crate.

use super::launches::HostLaunch;
use crate::copy::CopyPlan;
use crate::loops::LoopKernel;
use crate::pointwise::PointwisePlan;
use crate::view::{View, ViewMut};
use maquette_device::{Backend, Binding, Computation, Kernel, Launch, Layout};
use maquette_ir::loops::{Axes, AxisId, LoopNest, outer_axes};
use maquette_ir::scalar_expr::ScalarExpr;
use maquette_ir::sym::SymbolId;
use smallvec::SmallVec;
use std::sync::Arc;

pub(super) struct HostBackend;

/// A row-wise kernel is refused for fewer rows than this if each has more elements than
/// [`LONG_ROW`]: the operators alone divide a row among threads.
const FEW_ROWS: i64 = 8;
const LONG_ROW: i64 = 32_768;

enum HostKernel {
    Zeros,
    Copy,
    Elements(Arc<ScalarExpr>),
    Nest(LoopKernel),
    /// A composed nest; if its operators are computed row by row, with the axes of the rows.
    Fused(LoopKernel, Option<Axes>),
}

impl LoopKernel {
    /// The kernel of the CPU for this nest, as the backend compiles it.
    pub fn on_host(&self) -> Arc<dyn Kernel> {
        Arc::new(HostKernel::Nest(self.clone()))
    }
}

impl Backend for HostBackend {
    fn compile(&self, computations: &[Computation]) -> Vec<Option<Arc<dyn Kernel>>> {
        let kernel = |computation: &Computation| -> Option<Arc<dyn Kernel>> {
            Some(Arc::new(match computation {
                Computation::Zeros => HostKernel::Zeros,
                Computation::Copy => HostKernel::Copy,
                Computation::Elements(expr) => HostKernel::Elements(expr.clone()),
                Computation::Nest(nest) => HostKernel::Nest(LoopKernel::new(nest.clone())),
                Computation::Fused { nest, rows } => {
                    let outer = match rows {
                        Some(rows) => Some(common_rows(nest, *rows)?),
                        None => None,
                    };
                    HostKernel::Fused(LoopKernel::composed(nest.clone()), outer)
                }
            }))
        };
        computations.iter().map(kernel).collect()
    }
}

/// Views of layouts, whose memory must not be accessed.
pub(super) fn views(layouts: &[&Layout]) -> SmallVec<[View<'static>; 4]> {
    // SAFETY: the memory is not accessed.
    let view =
        |l: &&Layout| unsafe { View::from_raw(std::ptr::null(), l.dtype, &l.sizes, &l.strides) };
    layouts.iter().map(view).collect()
}

/// As [`views`], of results.
pub(super) fn views_mut(layouts: &[&Layout]) -> SmallVec<[ViewMut<'static>; 2]> {
    // SAFETY: the memory is not accessed.
    let view = |l: &&Layout| unsafe {
        ViewMut::from_raw(std::ptr::null_mut(), l.dtype, &l.sizes, &l.strides)
    };
    layouts.iter().map(view).collect()
}

impl Kernel for HostKernel {
    fn bind(&self, binding: &Binding<'_>) -> Option<Arc<dyn Launch>> {
        let (operands, results) = (views(binding.operands), views_mut(binding.results));
        let in_place = binding.in_place;
        let launch = match (self, &operands[..], &results[..]) {
            (HostKernel::Zeros, ..) if in_place.is_empty() => HostLaunch::zeros(binding.results),
            (HostKernel::Copy, [from], [to]) if in_place.is_empty() => {
                HostLaunch::Copy(CopyPlan::new(from, to).ok()?)
            }
            (HostKernel::Zeros | HostKernel::Copy, ..) => return None,
            (HostKernel::Elements(expr), ..) => {
                let plan = PointwisePlan::new(expr, &operands, &results, in_place).ok()?;
                HostLaunch::Elements(Box::new(plan))
            }
            (HostKernel::Nest(kernel), ..) => HostLaunch::nest(kernel, binding)?,
            (HostKernel::Fused(kernel, outer), ..) => {
                let few = |outer: &Axes| has_few_rows(kernel.nest(), outer, binding.symbols);
                if outer.as_ref().is_some_and(few) {
                    return None;
                }
                HostLaunch::nest(kernel, binding)?
            }
        };
        Some(Arc::new(launch))
    }
}

/// The axes over which the executor runs all stages together; `None` if they do not contain the
/// leading `rows` dimensions, so that the stages do not run row by row.
fn common_rows(nest: &LoopNest, rows: usize) -> Option<Axes> {
    Some(outer_axes(nest, 0..nest.stages().len())).filter(|outer| outer.len() >= rows)
}

/// Whether there are so few rows, and so long ones, that threads are idle.
fn has_few_rows(nest: &LoopNest, outer: &[AxisId], symbols: &[Option<i64>]) -> bool {
    let value = |symbol: SymbolId| symbols.get(symbol.index()).copied().flatten();
    let extent = |axis: &AxisId| nest.symbols().eval(nest.extent(*axis), &value);
    let points = |axes: &[AxisId]| {
        axes.iter().map(|a| extent(a).unwrap_or(i64::MAX)).fold(1i64, i64::saturating_mul)
    };
    let all = nest.stages().iter().map(|stage| points(&stage.over)).max().unwrap_or(0);
    let count = points(outer);
    count < FEW_ROWS && all / count.max(1) > LONG_ROW
}
