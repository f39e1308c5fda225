//! Contractions of floats, with the maps that follow them.
//!
//! A contraction becomes a product of matrices: the axes of both factors make a batch, those of one
//! its rows or columns, and the contracted ones the inner dimension. A factor that is a load is read
//! where it is, and half precision is widened on the way; others are evaluated before.
//!
//! Maps over the axes of the contraction are computed on finished rectangles of the product, while
//! these are in a near cache (an [epilogue visitor](crate::gemm::EpilogueVisitor)). The sums, and
//! what one map makes for the next, are in scratch memory of the rectangle, unless they are results
//! or a later phase reads them.
//!
//! **Invariant:** a map reads stages of the product at its own point, so that a rectangle needs no
//! other. Along the merged rows and the merged columns each tensor has one stride. A map for which
//! this does not hold begins the next phase.

use super::access::{Access, Base};
use super::contract::dependencies;
use super::epilogue::Epilogue;
use super::launch::Launch;
use super::stage::{Output, PanelContext, Planner, StagePlan, Stop};
use super::values::{Destination, Values};
use super::{KERNEL, epilogue};
use crate::error::{KernelError, Result};
use crate::gemm::{EpilogueVisitor, PackedMatrix, RightFactor, over_batches, visited_product};
use crate::isa::Isa;
use crate::pointwise::frame::Failure;
use crate::thread_pool;
use crate::view::{Dims, Ptr, View, ViewMut, numel};
use maquette_ir::DType;
use maquette_ir::loops::{Axes, AxisId, LoopNest, Stage, StageId, StageKind};
use maquette_ir::scalar_expr::{Op, ScalarExpr};
use smallvec::SmallVec;
use std::ops::Range;

/// Weights of fewer elements are not worth keeping in another layout. Neither are those of products
/// of one row, which reads each weight once in any layout.
const MIN_PACKED: usize = 64 * 64;

/// What makes the same packed operand of the same memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PackKey {
    dtype: DType,
    start: i64,
    sizes: [usize; 2],
    strides: [i64; 2],
}

/// An operand of a launch in the layout that products read. It is for the process that made it, and
/// for plans with products of its sizes.
#[derive(Debug)]
pub struct PackedOperand {
    matrix: PackedMatrix,
}

impl PackedOperand {
    /// The bytes of memory that it takes.
    pub fn bytes(&self) -> usize {
        self.matrix.bytes()
    }
}

/// Whether a stage is a contraction that is computed as a product here.
pub(super) fn is_product(nest: &LoopNest, at: usize) -> bool {
    let Some(stage) = nest.stages().get(at) else { return false };
    let output = StageId(at as u32).into();
    let is_float = |d: DType| matches!(d, DType::F32 | DType::F64);
    matches!(stage.kind, StageKind::Contract { .. })
        && stage.expr.output_dtypes().all(is_float)
        && nest.results().iter().filter(|r| **r == output).count() <= 1
}

/// The one stride of some axes, if they are one dimension of a tensor.
pub(super) fn merged(sizes: &[i64], strides: &[i64]) -> Option<i64> {
    if sizes.contains(&0) {
        return Some(0);
    }
    let (mut n, mut step) = (1, 0);
    for (&size, &stride) in sizes.iter().zip(strides).rev() {
        match n {
            _ if size == 1 => continue,
            1 => step = stride,
            _ if stride != step * n => return None,
            _ => {}
        }
        n *= size;
    }
    Some(step)
}

/// The axes of a product: loops over products, then those of rows and of columns.
pub(super) struct Geometry {
    pub loops: Axes,
    pub rows: Axes,
    pub columns: Axes,
}

impl Geometry {
    /// All axes, in order.
    pub fn axes(&self) -> Axes {
        self.loops.iter().chain(&self.rows).chain(&self.columns).copied().collect()
    }
}

/// A factor: where it is, with strides of the loops, of its rows or columns, and of the inner
/// dimension.
struct Factor {
    at: FactorAt,
    dtype: DType,
    start: i64,
    loops: Dims,
    own: i64,
    inner: i64,
}

enum FactorAt {
    Memory(usize),
    /// Evaluated to scratch memory.
    Scratch(Base, Box<Values>),
}

/// A factor before the geometry is known: strides by axes.
struct Found {
    at: FactorAt,
    dtype: DType,
    start: i64,
    axes: Axes,
    strides: Dims,
    inner: i64,
}

/// A product and its epilogue.
pub(super) struct ProductPlan {
    stage: usize,
    factors: [Factor; 2],
    /// The extents of the loops.
    loops: Dims,
    /// m, n and k.
    sizes: [usize; 3],
    dtype: DType,
    /// The sums in memory, if they are needed there.
    out: Option<epilogue::Operand>,
    epilogue: Epilogue,
    packs: Option<usize>,
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
    fn new(
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
        let values = Values::new(planner, stage, &expr, axes, Destination::Scratch)?;
        let buffer = values.buffers.first().ok_or_else(missing)?;
        let (base, dtype) = (buffer.base, buffer.dtype);
        let strides = buffer.strides.iter().take(kept.len()).copied().collect();
        let at = FactorAt::Scratch(base, Box::new(values));
        Ok(Found { at, dtype, start: 0, axes: kept, strides, inner: 1 })
    }

    fn stride(&self, axis: AxisId) -> i64 {
        self.axes.iter().position(|a| *a == axis).map_or(0, |d| self.strides[d])
    }

    fn factor(self, launch: &Launch<'_>, loops: &[AxisId], own: &[AxisId]) -> Factor {
        let strides: Dims = own.iter().map(|a| self.stride(*a)).collect();
        // The geometry merges them.
        let of_own = merged(&launch.extents_of(own), &strides).unwrap_or(0);
        let loops = loops.iter().map(|a| self.stride(*a)).collect();
        let Found { at, dtype, start, inner, .. } = self;
        Factor { at, dtype, start, loops, own: of_own, inner }
    }
}

impl Factor {
    /// The address where the coordinates of the loops are `coords`.
    fn address(&self, cx: &PanelContext<'_>, coords: &[i64]) -> *const u8 {
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

impl ProductPlan {
    /// Plans the product of the first stage of the planner's phase, which is extended by the maps
    /// that follow it on rectangles.
    pub fn new(planner: &mut Planner<'_>) -> Result<ProductPlan> {
        let (launch, at) = (planner.launch, planner.phase.start);
        let not_one = || KernelError::argument(KERNEL, "the stage is no contraction");
        let stage = launch.nest.stages().get(at).ok_or_else(not_one)?;
        let StageKind::Contract { along } = &stage.kind else { return Err(not_one()) };
        let (id, kept) = (StageId(at as u32), stage.axes());
        let [left, right] =
            [Found::new(planner, stage, along, 0)?, Found::new(planner, stage, along, 1)?];
        let result = launch.results_of(id.into()).next().map(|result| planner.result(result));
        let of_result = |axis: AxisId| {
            let dim = kept.iter().position(|a| *a == axis);
            dim.and_then(|d| result.as_ref()?.strides.get(d).copied()).unwrap_or(0)
        };
        let group = |is: &dyn Fn(bool, bool) -> bool| -> Axes {
            let is_in = |a: &&AxisId| is(left.axes.contains(a), right.axes.contains(a));
            kept.iter().filter(is_in).copied().collect()
        };
        // The innermost axes that are one dimension of each tensor; the others are loops.
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
        let (row, column) = (split(&rows, &left), split(&columns, &right));
        let batch = group(&|in_left, in_right| in_left && in_right);
        let loops = batch.iter().chain(&rows[..row]).chain(&columns[..column]).copied().collect();
        let (rows, columns) = (rows[row..].into(), columns[column..].into());
        let geometry = Geometry { loops, rows, columns };

        let epilogue = Epilogue::new(planner, &geometry)?;
        planner.phase.end = at + 1 + epilogue.maps();
        let dtype = stage.expr.output_dtypes().next().unwrap_or(DType::F32);
        let memory = result.or_else(|| {
            planner.is_read_later(id.into()).then(|| planner.keep(dtype, &kept, &geometry.axes()))
        });
        let operand = |buffer: &super::access::Buffer| {
            let stride = |axis: AxisId| {
                kept.iter().position(|a| *a == axis).map_or(0, |d| buffer.strides[d])
            };
            epilogue::Operand::in_buffer(launch, &geometry, buffer, &stride)
        };
        let out = memory.as_ref().and_then(operand);
        let outputs: SmallVec<[Output; 2]> =
            memory.into_iter().map(|buffer| Output { access: buffer.whole(), buffer }).collect();
        planner.stages.push(StagePlan::of_product(SmallVec::new(), outputs));
        let epilogue = epilogue.finish(planner, &geometry);
        let size = |axes: &[AxisId]| numel(&launch.extents_of(axes));
        let sizes = [size(&geometry.rows), size(&geometry.columns), size(along)];
        let left = left.factor(launch, &geometry.loops, &geometry.rows);
        let right = right.factor(launch, &geometry.loops, &geometry.columns);
        let packs = match right.at {
            FactorAt::Memory(memory)
                if memory < launch.operands.len()
                    && sizes[1].saturating_mul(sizes[2]) >= MIN_PACKED
                    && sizes[0] > 1
                    && sizes[1] > 1
                    && right.loops.iter().all(|s| *s == 0) =>
            {
                Some(memory)
            }
            _ => None,
        };
        let (factors, loops) = ([left, right], launch.extents_of(&geometry.loops));
        Ok(ProductPlan { stage: at, factors, loops, sizes, dtype, out, epilogue, packs })
    }

    /// The operand that can be packed.
    pub fn packs(&self) -> Option<usize> {
        self.packs
    }

    /// What its packed operand depends on, beside the memory of the operand.
    pub fn pack_key(&self) -> PackKey {
        let ([_, b], [_, n, k]) = (&self.factors, self.sizes);
        PackKey { dtype: b.dtype, start: b.start, sizes: [k, n], strides: [b.inner, b.own] }
    }

    /// Packs the right factor, which is in a view of its operand.
    pub fn pack(&self, isa: Isa, view: &View<'_>) -> Result<PackedOperand> {
        let ([_, b], [_, n, k]) = (&self.factors, self.sizes);
        let address = view.as_ptr().wrapping_offset((b.start * b.dtype.size() as i64) as isize);
        // SAFETY: the view has the layout of the plan, for which loads were checked.
        let b =
            unsafe { View::from_raw(address, b.dtype, &[k as i64, n as i64], &[b.inner, b.own]) };
        Ok(PackedOperand { matrix: PackedMatrix::on(isa, &b)? })
    }

    /// Computes the product and its epilogue. `failed` gets the failures of stages.
    ///
    /// # Errors
    /// There is not enough memory, or a packed operand is of another plan.
    pub fn run(
        &self,
        cx: &PanelContext<'_>,
        failed: &(dyn Fn(usize, Failure) + Sync),
    ) -> Result<()> {
        let [m, n, k] = self.sizes;
        let products = numel(&self.loops);
        if m == 0 || n == 0 || products == 0 {
            return Ok(());
        }
        for factor in &self.factors {
            let FactorAt::Scratch(_, values) = &factor.at else { continue };
            if let Err(stop) = values.run(cx) {
                return match *stop {
                    Stop::Error(e) => Err(e),
                    Stop::Failure(failure) => {
                        failed(self.stage, failure);
                        Ok(())
                    }
                };
            }
        }
        if self.out.is_none() && self.epilogue.maps() == 0 {
            // Nothing reads the sums.
            return Ok(());
        }
        let packed = self.packs.and_then(|operand| {
            let at = cx.run.plan.packs().iter().position(|o| *o == operand)?;
            *cx.run.packed.get(at)?
        });
        if let Some(packed) = packed {
            let b = &self.factors[1];
            if packed.matrix.sizes() != [k as i64, n as i64] || packed.matrix.dtype() != b.dtype {
                let message = "a packed operand is of another plan";
                return Err(KernelError::argument(KERNEL, message));
            }
        }
        let threads = thread_pool::num_threads();
        over_batches(products, self.sizes, threads, &|i, threads| {
            self.product(cx, i, threads, packed, failed)
        })
    }

    /// Computes one product of the loops.
    fn product(
        &self,
        cx: &PanelContext<'_>,
        index: usize,
        threads: usize,
        packed: Option<&PackedOperand>,
        failed: &(dyn Fn(usize, Failure) + Sync),
    ) -> Result<()> {
        let mut coords: Dims = self.loops.clone();
        let mut rest = index as i64;
        for at in coords.iter_mut().rev() {
            let extent = *at;
            *at = rest % extent;
            rest /= extent;
        }
        let [m, n, k] = self.sizes.map(|n| n as i64);
        let [a, b] = &self.factors;
        let of_maps = Visitor { plan: self, cx, coords: &coords, failed };
        let visitor: Option<&dyn EpilogueVisitor> = match self.epilogue.maps() {
            0 => None,
            _ => Some(&of_maps),
        };
        // SAFETY: the factors were computed, or checked when the launch was planned, at these
        // elements. Each element of the sums and of the results of maps is that of one product.
        unsafe {
            let (at_a, at_b) = (a.address(cx, &coords), b.address(cx, &coords));
            let left = View::from_raw(at_a, a.dtype, &[m, k], &[a.own, a.inner]);
            let right = View::from_raw(at_b, b.dtype, &[k, n], &[b.inner, b.own]);
            let right = match packed {
                Some(packed) => RightFactor::Packed(&packed.matrix),
                None => RightFactor::Matrix(&right),
            };
            let mut out = self.out.as_ref().map(|out| {
                let address = out.address(cx, &coords, [0, 0]).0;
                ViewMut::from_raw(address, self.dtype, &[m, n], &out.strides())
            });
            let (factors, isa) = ((&left, right), cx.run.isa);
            let product = match self.dtype {
                DType::F64 => visited_product::<f64>,
                _ => visited_product::<f32>,
            };
            product(isa, threads, factors, self.sizes, out.as_mut(), visitor)
        }
    }
}

/// The epilogue of one product.
struct Visitor<'a> {
    plan: &'a ProductPlan,
    cx: &'a PanelContext<'a>,
    coords: &'a [i64],
    failed: &'a (dyn Fn(usize, Failure) + Sync),
}

impl EpilogueVisitor for Visitor<'_> {
    fn scratch(&self, elements: usize) -> usize {
        self.plan.epilogue.scratch(elements)
    }

    unsafe fn visit(
        &self,
        rows: Range<usize>,
        columns: Range<usize>,
        sums: (Ptr<u8>, [i64; 2]),
        scratch: Ptr<u8>,
    ) -> Result<()> {
        let part = epilogue::Part { coords: self.coords, rows, columns, sums, scratch };
        let failure = self.plan.epilogue.run(self.cx, &part)?;
        if let Some((map, failure)) = failure {
            (self.failed)(self.plan.stage + 1 + map, failure);
        }
        Ok(())
    }
}
