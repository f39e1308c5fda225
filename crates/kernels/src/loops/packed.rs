//! What a plan packs once for several launches: factors of products, and values of operands.
//!
//! The scale and the shift of a batch norm follow from four weights. The first phase of the plan
//! computes them, on one thread, and the maps after the convolution read them. In MobileNet-v2
//! these phases took 3 % of the time of a run.
//!
//! **Invariant:** the same phase runs on the same operands as in a launch with the same numbers, so
//! the bits are those of a launch. The phase cannot fail, and writes no result.

use super::KERNEL;
use super::access::Base;
use super::plan::{LaunchPlan, Phase, Run, push_addresses, total};
use super::product::{Packed, PackedOperand, ProductPlan};
use super::stage::StagePlan;
use crate::error::{KernelError, Result};
use crate::isa::Isa;
use crate::pages::{Lifetime, PackedElements};
use crate::view::{Ptr, View};
use maquette_device::PackKey;
use maquette_ir::Scalar;
use maquette_ir::loops::{LoopNest, Source, StageKind};
use smallvec::SmallVec;
use std::sync::atomic::{AtomicU64, Ordering};

/// The most bytes of values that a plan packs. Each plan has values of its own.
const MAX_BYTES: usize = 256 << 10;

/// The first phase of a plan, if it is not a product but a product follows: it reads operands
/// alone, and writes what it leaves to later phases.
pub(super) struct OperandPhase {
    /// How many tensors it leaves to later phases: the first ones that the plan keeps.
    pub kept: usize,
    /// The operands that it reads.
    pub operands: SmallVec<[usize; 1]>,
    /// Tells its values from those of other plans.
    id: u64,
}

/// What the first phase of a plan leaves to later ones.
pub(super) struct OperandValues {
    /// The number of the plan.
    plan: u64,
    /// The numbers of the launches.
    numbers: SmallVec<[Scalar; 2]>,
    pub memory: PackedElements<f64>,
}

impl OperandPhase {
    /// Finds it in a plan with so many operands and results.
    pub fn of(
        nest: &LoopNest,
        phases: &[Phase],
        stages: &[StagePlan],
        (tensors, kept): (usize, &[usize]),
    ) -> Option<OperandPhase> {
        static PLANS: AtomicU64 = AtomicU64::new(0);
        let [first @ Phase { product: None, .. }, _, ..] = phases else { return None };
        if nest.results().iter().any(|result| result.stage.index() < first.stages.end) {
            return None;
        }
        let mut operands: SmallVec<[usize; 1]> = SmallVec::new();
        let mut of_phase = 0;
        for (stage, plan) in nest.stages().iter().zip(stages).take(first.stages.end) {
            let is_plain = matches!(stage.kind, StageKind::Map | StageKind::Reduce { .. });
            if !is_plain || stage.expr.may_fail() {
                return None;
            }
            for output in &plan.outputs {
                if let Base::Memory(at) = output.buffer.base {
                    of_phase = of_phase.max(at.checked_sub(tensors)? + 1);
                }
            }
            operands.extend(stage.loads.iter().filter_map(|load| match load.from {
                Source::Operand(operand) => Some(operand.index()),
                Source::Stage(_) => None,
            }));
        }
        operands.sort_unstable();
        operands.dedup();
        let is_small = total(kept.get(..of_phase)?) <= MAX_BYTES;
        if of_phase == 0 || operands.is_empty() || !is_small {
            return None;
        }
        let id = PLANS.fetch_add(1, Ordering::Relaxed);
        Some(OperandPhase { kept: of_phase, operands, id })
    }
}

impl LaunchPlan {
    /// What is worth packing ahead of several launches, each by the operands from which it is
    /// packed: the right factors of products that are read where they are, then the values that the
    /// first phase computes of operands.
    pub fn packs(&self) -> &[SmallVec<[usize; 1]>] {
        &self.packs
    }

    /// Packs the operands `packs()[index]`, for launches of this plan with these numbers.
    ///
    /// # Errors
    /// There are no such operands, a view has another layout, a number is missing or too many, or
    /// there is not enough memory.
    pub fn pack(
        &self,
        isa: Isa,
        index: usize,
        views: &[View<'_>],
        numbers: &[Scalar],
    ) -> Result<PackedOperand> {
        let operands = self.packs.get(index).map_or(&[][..], SmallVec::as_slice);
        let is_it = |(at, view): (&usize, &View<'_>)| {
            self.layouts.get(*at).is_some_and(|layout| view.has_layout(layout))
        };
        let fit = operands.len() == views.len() && operands.iter().zip(views).all(is_it);
        match (self.packing(index), views) {
            (Some(product), [view]) if fit => product.pack(isa, view),
            (None, _) if fit && !operands.is_empty() => self.values(isa, operands, views, numbers),
            _ => Err(KernelError::argument(KERNEL, "the plan packs no operands of these layouts")),
        }
    }

    /// What the packed form of the operands `packs()[index]` depends on in launches with these
    /// numbers, beside the memory of the operands; `None` if there are no such operands. Plans with
    /// equal keys take the same packed form.
    pub fn pack_key(&self, index: usize, numbers: &[Scalar]) -> Option<PackKey> {
        if let Some(product) = self.packing(index) {
            return Some(product.pack_key());
        }
        let phase = self.of_operands.as_ref().filter(|_| index < self.packs.len())?;
        // No factor has a form of one number.
        let (form, numbers) = (SmallVec::from_slice(&[phase.id as i64]), numbers.into());
        Some(PackKey { form, numbers })
    }

    fn packing(&self, index: usize) -> Option<&ProductPlan> {
        let products = self.phases.iter().filter_map(|p| p.product.as_ref());
        products.filter(|p| p.packs().is_some()).nth(index)
    }

    /// The values that the first phase computes of operands.
    fn values(
        &self,
        isa: Isa,
        operands: &[usize],
        views: &[View<'_>],
        numbers: &[Scalar],
    ) -> Result<PackedOperand> {
        let missing = || KernelError::argument(KERNEL, "the plan packs no values of operands");
        let (Some(of_operands), [first, ..]) = (&self.of_operands, &self.phases[..]) else {
            return Err(missing());
        };
        let kept = self.kept.get(..of_operands.kept).ok_or_else(missing)?;
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
        run.phase(first)?;
        let (plan, numbers) = (of_operands.id, SmallVec::from_slice(numbers));
        Ok(PackedOperand(Packed::Values(OperandValues { plan, numbers, memory })))
    }

    /// The values of operands that a launch with these numbers is given.
    ///
    /// # Errors
    /// They are of another plan, or of other numbers.
    pub(super) fn packed_values<'a>(
        &self,
        packed: &[Option<&'a PackedOperand>],
        numbers: &[Scalar],
    ) -> Result<Option<&'a PackedElements<f64>>> {
        let Some(OperandPhase { id, .. }) = &self.of_operands else { return Ok(None) };
        let Some(Some(packed)) = packed.get(self.packs.len() - 1) else { return Ok(None) };
        match &packed.0 {
            Packed::Values(values) if values.plan == *id && values.numbers[..] == *numbers => {
                Ok(Some(&values.memory))
            }
            _ => Err(KernelError::argument(KERNEL, "values of operands are of another launch")),
        }
    }
}
