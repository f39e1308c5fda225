//! The factors of a product, and the axes along which they are matrices.

use crate::error::{KernelError, Result};
use crate::layout::merged;
use crate::loops::KERNEL;
use crate::loops::access::{Access, Base, Buffer};
use crate::loops::contract::dependencies;
use crate::loops::launch::Launch;
use crate::loops::stage::{PanelContext, Planner};
use crate::loops::values::{Destination, Values};
use crate::view::Dims;
use maquette_ir::DType;
use maquette_ir::loops::{Axes, AxisId, Stage};
use maquette_ir::scalar_expr::{Op, ScalarExpr};

/// The axes of a product: loops over products, then those of rows and of columns.
pub(super) struct Geometry {
    pub loops: Axes,
    pub rows: Axes,
    pub columns: Axes,
}

impl Geometry {
    /// The axes of a contraction with these factors. Rows and columns are the innermost axes that
    /// are one dimension of each tensor; the others are loops.
    pub fn new(
        launch: &Launch<'_>,
        kept: &[AxisId],
        [left, right]: [&Found; 2],
        result: Option<&Buffer>,
    ) -> Geometry {
        let of_result = |axis: AxisId| {
            let dim = kept.iter().position(|a| *a == axis);
            dim.and_then(|d| result?.strides.get(d).copied()).unwrap_or(0)
        };
        let group = |is: &dyn Fn(bool, bool) -> bool| -> Axes {
            let is_in = |a: &&AxisId| is(left.axes.contains(a), right.axes.contains(a));
            kept.iter().filter(is_in).copied().collect()
        };
        let split = |axes: &Axes, found: &Found| -> usize {
            let fits = |from: usize| {
                let own = &axes[from..];
                let sizes = launch.extents_of(own);
                let of = |stride: &dyn Fn(AxisId) -> i64| {
                    let strides: Dims = own.iter().map(|a| stride(*a)).collect();
                    merged(&sizes, &strides).is_some()
                };
                of(&|a| found.stride(a)) && of(&of_result)
            };
            (0..axes.len()).find(|from| fits(*from)).unwrap_or(axes.len())
        };
        let (rows, columns) = (group(&|_, in_right| !in_right), group(&|l, r| !l && r));
        let (row, column) = (split(&rows, left), split(&columns, right));
        let batch = group(&|in_left, in_right| in_left && in_right);
        let loops = batch.iter().chain(&rows[..row]).chain(&columns[..column]).copied().collect();
        Geometry { loops, rows: rows[row..].into(), columns: columns[column..].into() }
    }

    /// All axes, in order.
    pub fn axes(&self) -> Axes {
        self.loops.iter().chain(&self.rows).chain(&self.columns).copied().collect()
    }
}

/// A factor: where it is, with strides of the loops, of its rows or columns, and of the inner
/// dimension.
pub(super) struct Factor {
    pub at: FactorAt,
    pub dtype: DType,
    pub start: i64,
    loops: Dims,
    pub own: i64,
    pub inner: i64,
}

pub(super) enum FactorAt {
    Memory(usize),
    /// Evaluated to scratch memory.
    Scratch(Base, Box<Values>),
}

/// A factor before the geometry is known: strides by axes.
pub(super) struct Found {
    at: FactorAt,
    dtype: DType,
    start: i64,
    axes: Axes,
    strides: Dims,
    inner: i64,
}

/// The load that an expression is, if at all, but for widening.
fn only_load(expr: &ScalarExpr) -> Option<u32> {
    let is_half = |d: DType| matches!(d, DType::F16 | DType::BF16);
    match expr.instrs() {
        [load] => match load.op {
            Op::Input(k) => Some(k),
            _ => None,
        },
        [load, cast] if is_half(load.dtype) && cast.dtype == DType::F32 => {
            match (load.op, cast.op) {
                (Op::Input(k), Op::Cast(_)) => Some(k),
                _ => None,
            }
        }
        _ => None,
    }
}

impl Found {
    pub fn new(
        planner: &mut Planner<'_>,
        stage: &Stage,
        along: &[AxisId],
        output: usize,
    ) -> Result<Self> {
        let missing = || KernelError::argument(KERNEL, "a contraction has two factors");
        let expr = stage.expr.only_output(output).ok_or_else(missing)?;
        let needed = dependencies(stage, &expr);
        let is_kept = |a: &&AxisId| !along.contains(a) && needed.contains(a);
        let kept: Axes = stage.over.iter().filter(is_kept).copied().collect();
        let axes: Axes = kept.iter().chain(along).copied().collect();
        let inner_sizes = planner.launch.extents_of(along);
        let load = only_load(&expr).and_then(|k| stage.loads.get(k as usize));
        if let Some(load) = load.filter(|load| load.at.is_affine()) {
            let access: Access = planner.load(load, &axes)?;
            let (of_kept, of_inner) = access.strides.split_at(kept.len());
            if let (Some(memory), Some(inner)) = (access.memory(), merged(&inner_sizes, of_inner)) {
                let (at, dtype) = (FactorAt::Memory(memory), access.dtype());
                let (start, strides) = (access.start(), of_kept.into());
                return Ok(Found { at, dtype, start, axes: kept, strides, inner });
            }
        }
        let values = Values::new(planner, stage, &expr, axes, Destination::Scratch, &[])?;
        let buffer = values.buffers.first().ok_or_else(missing)?;
        let (base, dtype) = (buffer.base, buffer.dtype);
        let strides = buffer.strides.iter().take(kept.len()).copied().collect();
        let at = FactorAt::Scratch(base, Box::new(values));
        Ok(Found { at, dtype, start: 0, axes: kept, strides, inner: 1 })
    }

    fn stride(&self, axis: AxisId) -> i64 {
        self.axes.iter().position(|a| *a == axis).map_or(0, |d| self.strides[d])
    }

    pub fn factor(self, launch: &Launch<'_>, loops: &[AxisId], own: &[AxisId]) -> Factor {
        let strides: Dims = own.iter().map(|a| self.stride(*a)).collect();
        // The geometry merges them.
        let of_own = merged(&launch.extents_of(own), &strides).unwrap_or(0);
        let loops = loops.iter().map(|a| self.stride(*a)).collect();
        let Found { at, dtype, start, inner, .. } = self;
        Factor { at, dtype, start, loops, own: of_own, inner }
    }
}

impl Factor {
    /// The operand that it is in as one matrix for all coordinates of the loops, if it is.
    pub fn only_matrix(&self) -> Option<usize> {
        match self.at {
            FactorAt::Memory(memory) if self.loops.iter().all(|s| *s == 0) => Some(memory),
            _ => None,
        }
    }

    /// The address where the coordinates of the loops are `coords`.
    pub fn address(&self, cx: &PanelContext<'_>, coords: &[i64]) -> *const u8 {
        let base = match &self.at {
            FactorAt::Memory(memory) => cx.base(Base::Memory(*memory)),
            FactorAt::Scratch(base, _) => cx.base(*base),
        };
        let offset = dot(self.start, &self.loops, coords);
        base.0.wrapping_offset((offset * self.dtype.size() as i64) as isize)
    }
}

/// The offset of some coordinates.
pub(super) fn dot(start: i64, strides: &[i64], coords: &[i64]) -> i64 {
    strides.iter().zip(coords).fold(start, |sum, (stride, at)| sum + stride * at)
}
