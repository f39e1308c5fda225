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
    Fused(LoopKernel, Option<Rows>),
}

/// The rows of a kernel that computes operators row by row.
struct Rows {
    /// Whether the executor runs all stages row by row.
    are_common: bool,
    /// The axes over which all stages can run together.
    outer: Axes,
}

impl LoopKernel {
    /// The kernel of the CPU for this nest, as the backend compiles it.
    pub fn on_host(&self) -> Arc<dyn Kernel> {
        Arc::new(HostKernel::Nest(self.clone()))
    }
}

impl Backend for HostBackend {
    fn compile(&self, computations: &[Computation]) -> Vec<Option<Arc<dyn Kernel>>> {
        let kernel = |computation: &Computation| match computation {
            Computation::Zeros => HostKernel::Zeros,
            Computation::Copy => HostKernel::Copy,
            Computation::Elements(expr) => HostKernel::Elements(expr.clone()),
            Computation::Nest(nest) => HostKernel::Nest(LoopKernel::new(nest.clone())),
            Computation::Fused { nest, rows } => {
                let rows = rows.map(|rows| Rows::of(nest, rows));
                HostKernel::Fused(LoopKernel::composed(nest.clone()), rows)
            }
        };
        computations.iter().map(|c| Some(Arc::new(kernel(c)) as Arc<dyn Kernel>)).collect()
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
            (HostKernel::Fused(kernel, rows), ..) => {
                if rows.as_ref().is_some_and(|rows| !rows.pay(kernel.nest(), binding.symbols)) {
                    return None;
                }
                HostLaunch::nest(kernel, binding)?
            }
        };
        Some(Arc::new(launch))
    }
}

impl Rows {
    /// Those of a nest in which `rows` leading dimensions make a row.
    fn of(nest: &LoopNest, rows: usize) -> Rows {
        let outer = outer_axes(nest, 0..nest.stages().len());
        Rows { are_common: outer.len() >= rows, outer }
    }

    /// Whether the executor runs all stages row by row, and threads have enough rows.
    fn pay(&self, nest: &LoopNest, symbols: &[Option<i64>]) -> bool {
        let value = |symbol: SymbolId| symbols.get(symbol.index()).copied().flatten();
        let extent = |axis: &AxisId| nest.symbols().eval(nest.extent(*axis), &value);
        let points = |axes: &[AxisId]| {
            axes.iter().map(|a| extent(a).unwrap_or(i64::MAX)).fold(1i64, i64::saturating_mul)
        };
        let all = nest.stages().iter().map(|stage| points(&stage.over)).max().unwrap_or(0);
        let count = points(&self.outer);
        self.are_common && (count >= FEW_ROWS || all / count.max(1) <= LONG_ROW)
    }
}
