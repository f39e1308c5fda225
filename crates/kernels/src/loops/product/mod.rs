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

mod epilogue;
mod factor;
mod operand;

use super::KERNEL;
use super::access::Buffer;
use super::stage::{Output, PanelContext, Planner, StagePlan, Stop};
use crate::error::{KernelError, Result};
use crate::gemm::{EpilogueVisitor, PackedMatrix, RightFactor, over_batches, visited_product};
use crate::isa::Isa;
use crate::pointwise::frame::Failure;
use crate::thread_pool;
use crate::view::{Dims, Ptr, View, ViewMut, numel};
use epilogue::Epilogue;
use factor::{Factor, FactorAt, Found, Geometry};
use maquette_ir::DType;
use maquette_ir::loops::{AxisId, LoopNest, StageId, StageKind};
use operand::Operand;
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
    out: Option<Operand>,
    epilogue: Epilogue,
    /// The operand that can be packed, and its number among those of the plan.
    packs: Option<(usize, usize)>,
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
        let geometry = Geometry::new(launch, &kept, [&left, &right], result.as_ref());
        let epilogue = Epilogue::new(planner, &geometry)?;
        planner.phase.end = at + 1 + epilogue.maps();
        let dtype = stage.expr.output_dtypes().next().unwrap_or(DType::F32);
        let memory = result.or_else(|| {
            planner.is_read_later(id.into()).then(|| planner.keep(dtype, &kept, &geometry.axes()))
        });
        let operand = |buffer: &Buffer| {
            let stride = |axis: AxisId| {
                kept.iter().position(|a| *a == axis).map_or(0, |d| buffer.strides[d])
            };
            Operand::in_buffer(launch, &geometry, buffer, &stride)
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
        let is_large = sizes[1].saturating_mul(sizes[2]) >= MIN_PACKED;
        let is_matrix = sizes[0] > 1 && sizes[1] > 1;
        let operand = right.only_matrix().filter(|at| *at < launch.operands.len());
        let packs = operand.filter(|_| is_large && is_matrix).map(|operand| (operand, 0));
        let (factors, loops) = ([left, right], launch.extents_of(&geometry.loops));
        Ok(ProductPlan { stage: at, factors, loops, sizes, dtype, out, epilogue, packs })
    }

    /// The operand that can be packed.
    pub fn packs(&self) -> Option<usize> {
        self.packs.map(|(operand, _)| operand)
    }

    /// As [`ProductPlan::packs`]. In launches it has this number among packed operands.
    pub fn number_packed(&mut self, number: usize) -> Option<usize> {
        let (operand, of) = self.packs.as_mut()?;
        *of = number;
        Some(*operand)
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
        let packed = self.packs.and_then(|(_, number)| *cx.run.packed.get(number)?);
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
