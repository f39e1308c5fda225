//! Contractions of floats, with the maps that follow them.
//!
//! A contraction becomes a product of matrices: the axes of both factors make a batch, those of one
//! its rows or columns, and the contracted ones the inner dimension. A factor that is a load is
//! read where it is, and half precision is widened on the way; others are evaluated before, but for
//! the windows of a convolution ([`Windows`]).
//!
//! Maps over the axes of the contraction are computed on finished rectangles of the product, while
//! these are in a near cache (an [epilogue visitor](crate::gemm::EpilogueVisitor)). The sums, and
//! what one map makes for the next, are in scratch memory of the rectangle, unless they are results
//! or a later phase reads them.
//!
//! **Invariant:** a map reads stages of the product at its own point, so that a rectangle needs no
//! other. Along the merged rows and the merged columns each tensor has one stride. A map for which
//! this does not hold begins the next phase.

mod chain;
mod epilogue;
mod factor;
mod image_maps;
mod joined;
mod operand;
mod packed;
mod planes;
mod windows;

use super::KERNEL;
use super::access::Buffer;
use super::stage::{Output, PanelContext, Planner, StagePlan, Stop};
use crate::error::{KernelError, Result};
use crate::gemm::{EpilogueVisitor, RightFactor, over_batches, visited_product};
use crate::pointwise::frame::Failure;
use crate::thread_pool;
use crate::view::{Dims, Ptr, View, ViewMut, numel};
pub(super) use joined::{Pace, joined_pace, run_joined};
pub(super) use packed::Packed;
pub use packed::PackedOperand;

use epilogue::Epilogue;
use factor::{Factor, FactorAt, Found, Geometry};
use maquette_ir::DType;
use maquette_ir::fault_injection::{Fault, fault_injected};
use maquette_ir::loops::{AxisId, LoopNest, Source, StageId, StageKind};
use operand::Operand;
use smallvec::SmallVec;
use std::ops::Range;
use windows::Windows;

/// Weights of fewer elements are not worth keeping in another layout. Neither are those of products
/// of one row, which reads each weight once in any layout.
const MIN_PACKED: usize = 64 * 64;

/// The same for the weights of windows, of which each is read for many pixels.
const MIN_PACKED_WINDOWS: usize = 16 * 16;

/// Weights of at most so many channels are multiplied where they are, if windows have one element.
/// A sum of so few products takes less time than its transpose in the kernel of packed weights.
/// Where windows have a stride or padding, the weights are packed at each launch.
const SHORT_SUMS: usize = 24;

/// Whether a stage is a contraction that is computed as a product here.
pub(super) fn is_product(nest: &LoopNest, at: usize) -> bool {
    let Some(stage) = nest.stages().get(at) else { return false };
    let output = StageId(at as u32).into();
    let is_float = |d: DType| matches!(d, DType::F32 | DType::F64);
    matches!(stage.kind, StageKind::Contract { .. })
        && stage.expr.output_dtypes().all(is_float)
        && nest.results().iter().filter(|r| **r == output).count() <= 1
}

/// What a product multiplies.
enum Factors {
    Matrices([Factor; 2]),
    Windows(Windows),
}

/// A product and its epilogue.
pub(super) struct ProductPlan {
    stage: usize,
    factors: Factors,
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
        let result = launch.results_of(id.into()).next().map(|result| planner.result(result));
        let windows = Windows::of(launch, stage, along).filter(|windows| {
            result.as_ref().is_none_or(|buffer| {
                let dim = |axis: AxisId| kept.iter().position(|a| *a == axis);
                windows.are_images(launch, &|axis| dim(axis).map_or(0, |d| buffer.strides[d]))
            })
        });
        let (found, geometry) = match &windows {
            Some(windows) => {
                let [loops, rows, columns] = windows.axes();
                (None, Geometry { loops, rows, columns })
            }
            None => {
                let [left, right] =
                    [Found::new(planner, stage, along, 0)?, Found::new(planner, stage, along, 1)?];
                let geometry = Geometry::new(launch, &kept, [&left, &right], result.as_ref());
                (Some([left, right]), geometry)
            }
        };
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
        let is_large = sizes[1].saturating_mul(sizes[2]) >= MIN_PACKED;
        let loops = launch.extents_of(&geometry.loops);
        let (factors, packs) = match (windows, found) {
            (Some(windows), _) => {
                let is_large = sizes[0].saturating_mul(sizes[2]) >= MIN_PACKED_WINDOWS;
                let is_short = windows.kernel == [1; 2] && sizes[2] <= SHORT_SUMS;
                let in_place = is_short || windows.is_depthwise;
                let is_packed = is_large && (windows.has_channels_last() || !in_place);
                let packs = is_packed.then_some(windows.weight);
                (Factors::Windows(windows), packs)
            }
            (None, Some([left, right])) => {
                let left = left.factor(launch, &geometry.loops, &geometry.rows);
                let right = right.factor(launch, &geometry.loops, &geometry.columns);
                let is_matrix = sizes[0] > 1 && sizes[1] > 1;
                let operand = right.only_matrix().filter(|at| *at < launch.operands.len());
                let packs = operand.filter(|_| is_large && is_matrix);
                (Factors::Matrices([left, right]), packs)
            }
            (None, None) => return Err(not_one()),
        };
        let packs = packs.map(|operand| (operand, 0));
        Ok(ProductPlan { stage: at, factors, loops, sizes, dtype, out, epilogue, packs })
    }

    /// Lets results be written over operands that the maps alone read: pairs of an operand and a
    /// result, by their numbers among the tensors in memory. Returns whether the maps can.
    pub fn overwrite(&mut self, nest: &LoopNest, pairs: &[(usize, usize)]) -> bool {
        let Some(stage) = nest.stages().get(self.stage) else { return false };
        let is_factor = |operand: usize| {
            if fault_injected(Fault::FactorsOverwritten) {
                return false;
            }
            let is_it = |from| matches!(from, Source::Operand(o) if o.index() == operand);
            stage.loads.iter().any(|load| is_it(load.from))
        };
        pairs.iter().all(|&(k, j)| !is_factor(k) && self.epilogue.overwrite(k, j))
    }

    /// Whether the maps run as one chain.
    #[cfg(test)]
    pub fn has_chain(&self) -> bool {
        self.epilogue.has_chain()
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
        let [m, n, _] = self.sizes;
        let products = numel(&self.loops);
        if m == 0 || n == 0 || products == 0 {
            return Ok(());
        }
        let factors = match &self.factors {
            Factors::Matrices(factors) => &factors[..],
            Factors::Windows(_) => &[],
        };
        for factor in factors {
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
        let packed = self.packed(cx)?;
        if let Factors::Windows(windows) = &self.factors {
            return match self.dtype {
                DType::F64 => self.convolve::<f64>(cx, windows, packed, failed),
                _ => self.convolve::<f32>(cx, windows, packed, failed),
            };
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
        let Some(Matrices { left, right, mut out }) = self.matrices(cx, &coords) else {
            return Ok(());
        };
        let right = RightFactor::of(&right, packed.and_then(PackedOperand::matrix));
        let visitor = Visitor { plan: self, cx, coords: &coords, first_row: 0, failed };
        let product = match self.dtype {
            DType::F64 => visited_product::<f64>,
            _ => visited_product::<f32>,
        };
        let (isa, factors) = (cx.run.isa, (&left, right));
        // SAFETY: the sizes are those of the plan. A packed matrix has the dtype of the factor.
        unsafe { product(isa, threads, factors, self.sizes, out.as_mut(), visitor.of_maps()) }
    }

    /// The matrices of the product at some coordinates of the loops.
    fn matrices<'a>(&self, cx: &PanelContext<'a>, coords: &[i64]) -> Option<Matrices<'a>> {
        let Factors::Matrices([a, b]) = &self.factors else { return None };
        let [m, n, k] = self.sizes.map(|n| n as i64);
        // SAFETY: the factors were computed, or checked when the launch was planned, at these
        // elements. Each element of the sums and of the results of maps is that of one product.
        unsafe {
            let (at_a, at_b) = (a.address(cx, coords), b.address(cx, coords));
            let left = View::from_raw(at_a, a.dtype, &[m, k], &[a.own, a.inner]);
            let right = View::from_raw(at_b, b.dtype, &[k, n], &[b.inner, b.own]);
            let out = self.out.as_ref().map(|out| {
                let address = out.address(cx, coords, [0, 0]).0;
                ViewMut::from_raw(address, self.dtype, &[m, n], &out.strides())
            });
            Some(Matrices { left, right, out })
        }
    }
}

/// The matrices of one product in memory.
struct Matrices<'a> {
    left: View<'a>,
    right: View<'a>,
    /// The sums, if they are needed in memory.
    out: Option<ViewMut<'a>>,
}

/// The epilogue of one product.
struct Visitor<'a> {
    plan: &'a ProductPlan,
    cx: &'a PanelContext<'a>,
    coords: &'a [i64],
    /// The row of the product where the rows that are visited begin.
    first_row: usize,
    failed: &'a (dyn Fn(usize, Failure) + Sync),
}

impl Visitor<'_> {
    /// The visitor, if the product has maps.
    fn of_maps(&self) -> Option<&dyn EpilogueVisitor> {
        match self.plan.epilogue.maps() {
            0 => None,
            _ => Some(self),
        }
    }
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
        let rows = rows.start + self.first_row..rows.end + self.first_row;
        let part = epilogue::Part { coords: self.coords, rows, columns, sums, scratch };
        let failure = self.plan.epilogue.run(self.cx, &part)?;
        if let Some((map, failure)) = failure {
            (self.failed)(self.plan.stage + 1 + map, failure);
        }
        Ok(())
    }
}
