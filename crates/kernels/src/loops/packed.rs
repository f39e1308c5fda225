//! What a plan makes of weights once for several launches: packed factors of products, and the values
//! that follow from weights alone.
//!
//! The scale and the shift of a batch norm follow from four weights. The first phases of the plan
//! compute them, and the maps behind the convolution read them. In a small layer these phases take as
//! long as a tenth of the convolution, on one thread.
//!
//! **Invariant:** the same phases run on the same operands as in a launch, so the bits are those of a
//! launch with the same numbers. The phases cannot fail, and write no result.

use super::KERNEL;
use super::access::Base;
use super::plan::{LaunchPlan, Phase, Run, push_addresses, total};
use super::product::{Pack, PackForm, PackKey, PackedOperand, ProductPlan};
use super::stage::StagePlan;
use crate::error::{KernelError, Result};
use crate::isa::Isa;
use crate::pages::{Lifetime, PackedElements};
use crate::view::{Ptr, View};
use maquette_ir::loops::{LoopNest, Source, StageKind};
use maquette_ir::{DType, Scalar};
use smallvec::SmallVec;
use std::sync::atomic::{AtomicU64, Ordering};

/// The most bytes of values that are kept: a plan of each layout has its own.
const MAX_BYTES: usize = 256 << 10;

/// The first phases of a plan, before a product, which read operands alone and write what they leave
/// to later phases.
pub(super) struct WeightPhases {
    /// How many phases.
    pub phases: usize,
    /// How many tensors they leave to later phases.
    pub kept: usize,
    /// The operands that they read.
    pub operands: SmallVec<[usize; 1]>,
    /// Tells their values from those of other plans.
    id: u64,
}

/// What the first phases of a plan leave to later ones.
pub(super) struct WeightValues {
    /// The number of the plan.
    plan: u64,
    /// The numbers of the launches.
    numbers: SmallVec<[Scalar; 2]>,
    pub memory: PackedElements<f64>,
}

impl WeightPhases {
    /// Finds them in a plan with so many operands and results. `None` if there are none.
    pub fn of(
        nest: &LoopNest,
        phases: &[Phase],
        stages: &[StagePlan],
        (tensors, kept): (usize, &[usize]),
    ) -> Option<WeightPhases> {
        static PLANS: AtomicU64 = AtomicU64::new(0);
        let count = phases.iter().position(|phase| phase.product.is_some())?;
        let last = phases[..count].last()?;
        if nest.results().iter().any(|result| result.stage.index() < last.stages.end) {
            return None;
        }
        let mut operands: SmallVec<[usize; 1]> = SmallVec::new();
        let mut of_phases = 0;
        for (stage, plan) in nest.stages().iter().zip(stages).take(last.stages.end) {
            let is_plain = matches!(stage.kind, StageKind::Map | StageKind::Reduce { .. });
            if !is_plain || stage.expr.may_fail() {
                return None;
            }
            for output in &plan.outputs {
                if let Base::Memory(at) = output.buffer.base {
                    of_phases = of_phases.max(at.checked_sub(tensors)? + 1);
                }
            }
            operands.extend(stage.loads.iter().filter_map(|load| match load.from {
                Source::Operand(operand) => Some(operand.index()),
                Source::Stage(_) => None,
            }));
        }
        operands.sort_unstable();
        operands.dedup();
        let id = PLANS.fetch_add(1, Ordering::Relaxed);
        let is_small = total(kept.get(..of_phases)?) <= MAX_BYTES;
        (of_phases > 0 && is_small).then_some(WeightPhases {
            phases: count,
            kept: of_phases,
            operands,
            id,
        })
    }
}

impl LaunchPlan {
    /// What is worth packing ahead of several launches, by the operands from which it is packed: the
    /// right factor of a product that is read where it is, or the weights from which the first phases
    /// compute values.
    pub fn packs(&self) -> &[SmallVec<[usize; 1]>] {
        &self.packs
    }

    /// Packs the operands `packs()[index]`, for launches of this plan with these numbers.
    ///
    /// # Errors
    /// There are no such operands, a view has another layout, the plan takes another number of numbers,
    /// or there is not enough memory.
    pub fn pack(
        &self,
        isa: Isa,
        index: usize,
        views: &[View<'_>],
        numbers: &[Scalar],
    ) -> Result<PackedOperand> {
        let operands = self.packs.get(index).map_or(&[][..], SmallVec::as_slice);
        let is_it = |(at, view): (&usize, &View<'_>)| {
            self.layouts.get(*at).is_some_and(|layout| layout.is_of(view))
        };
        let fit = operands.len() == views.len() && operands.iter().zip(views).all(is_it);
        match (self.packing(index), views) {
            (Some(product), [view]) if fit => product.pack(isa, view),
            (None, _) if fit && !operands.is_empty() => self.values(isa, operands, views, numbers),
            _ => Err(KernelError::argument(KERNEL, "the plan packs no operands of these layouts")),
        }
    }

    /// What the packed form of the operands `packs()[index]` depends on, beside their memory, in launches
    /// with these numbers; `None` if there are no such operands. Plans with equal keys take the same
    /// packed form.
    pub fn pack_key(&self, index: usize, numbers: &[Scalar]) -> Option<PackKey> {
        if let Some(product) = self.packing(index) {
            return Some(product.pack_key());
        }
        let WeightPhases { id, .. } =
            self.of_weights.as_ref().filter(|_| index < self.packs.len())?;
        let (form, numbers) = (PackForm::Values(*id), SmallVec::from_slice(numbers));
        Some(PackKey { form, dtype: DType::U8, start: 0, sizes: [0; 2], strides: [0; 2], numbers })
    }

    fn packing(&self, index: usize) -> Option<&ProductPlan> {
        let products = self.phases.iter().filter_map(|p| p.product.as_ref());
        products.filter(|p| p.packs().is_some()).nth(index)
    }

    /// The values of weights.
    fn values(
        &self,
        isa: Isa,
        operands: &[usize],
        views: &[View<'_>],
        numbers: &[Scalar],
    ) -> Result<PackedOperand> {
        let missing = || KernelError::argument(KERNEL, "the plan computes no values of weights");
        let of_weights = self.of_weights.as_ref().ok_or_else(missing)?;
        let kept = self.kept.get(..of_weights.kept).ok_or_else(missing)?;
        let n = total(kept).div_ceil(size_of::<f64>());
        let mut memory = PackedElements::<f64>::new(KERNEL, n, Lifetime::Cached)?;
        let mut addresses: SmallVec<[Ptr<u8>; 8]> = SmallVec::new();
        addresses.resize(self.layouts.len(), Ptr(std::ptr::null_mut()));
        for (at, view) in operands.iter().zip(views) {
            addresses[*at] = Ptr(view.as_ptr().cast_mut());
        }
        push_addresses(&mut addresses, kept, memory.get().as_mut_ptr().cast());
        let (scalars, addresses) = (&self.scalars_with(numbers)?[..], &addresses[..]);
        let run = Run { plan: self, isa, scalars, addresses, packed: &[] };
        self.phases[..of_weights.phases].iter().try_for_each(|phase| run.phase(phase))?;
        let (plan, numbers) = (of_weights.id, SmallVec::from_slice(numbers));
        Ok(PackedOperand(Pack::Values(WeightValues { plan, numbers, memory })))
    }

    /// The values of weights that a launch is given.
    ///
    /// # Errors
    /// They are of another plan.
    pub(super) fn packed_values<'a>(
        &self,
        packed: &[Option<&'a PackedOperand>],
        numbers: &[Scalar],
    ) -> Result<Option<&'a PackedElements<f64>>> {
        let Some(WeightPhases { id, .. }) = &self.of_weights else { return Ok(None) };
        let Some(Some(packed)) = packed.get(self.packs.len() - 1) else { return Ok(None) };
        match &packed.0 {
            Pack::Values(values) if values.plan == *id && values.numbers[..] == *numbers => {
                Ok(Some(&values.memory))
            }
            _ => Err(KernelError::argument(KERNEL, "values of weights are of another launch")),
        }
    }
}
