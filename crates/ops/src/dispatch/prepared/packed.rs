//! Launches with packed operands: weights in the layout that products read.
//!
//! A packed operand is a copy. The caller makes it once for many launches, and again when the
//! memory was written.
#![allow(unsafe_code)]

use super::{Kernel, PreparedCall};
use crate::error::{Error, Result};
use maquette_ir::Scalar;
use maquette_kernels::{Isa, LaunchPlan, PackKey, PackedOperand, View};
use smallvec::SmallVec;

impl PreparedCall {
    /// The plan of launches with packed operands, and their numbers.
    fn packing(&self) -> Option<(&LaunchPlan, &[Scalar])> {
        match &self.kernel {
            Kernel::Nest(nest) => Some((nest.packing_plan()?, nest.numbers())),
            _ => None,
        }
    }

    /// What is worth packing ahead of several launches, by the operands from which it is packed.
    pub fn packs(&self) -> &[SmallVec<[usize; 1]>] {
        self.packing().map_or(&[], |(plan, _)| plan.packs())
    }

    /// What the packed form of the operands `packs()[index]` depends on, beside their addresses and
    /// their contents.
    pub fn pack_key(&self, index: usize) -> Option<PackKey> {
        let (plan, numbers) = self.packing()?;
        plan.pack_key(index, numbers)
    }

    /// Packs the operands `packs()[index]`, which are at these addresses.
    ///
    /// # Errors
    /// There are no such operands, or not enough memory.
    ///
    /// # Safety
    /// As for operands of [`PreparedCall::launch`].
    pub unsafe fn pack(&self, index: usize, addresses: &[*const u8]) -> Result<PackedOperand> {
        let missing = || Error::value("the call packs no such operands");
        let (plan, numbers) = self.packing().ok_or_else(missing)?;
        let operands = plan.packs().get(index).ok_or_else(missing)?;
        let mut views: SmallVec<[View<'_>; 4]> = SmallVec::new();
        for (operand, address) in operands.iter().zip(addresses) {
            let operand = self.operands.get(*operand).ok_or_else(missing)?;
            // SAFETY: the caller's promise.
            views.push(unsafe { operand.layout.view_at(*address) });
        }
        Ok(plan.pack(Isa::detect(), index, &views, numbers)?)
    }

    /// As [`PreparedCall::launch`], with those of [`PreparedCall::packs`] that are given in packed
    /// form. The bits are those of a launch without them.
    ///
    /// # Errors
    /// As for [`PreparedCall::launch`]; a packed operand is of another call.
    ///
    /// # Safety
    /// As for [`PreparedCall::launch`].
    pub unsafe fn launch_packed(
        &self,
        addresses: &[*mut u8],
        packed: &[Option<&PackedOperand>],
    ) -> Result<()> {
        match self.packing() {
            Some((plan, numbers)) if packed.iter().any(Option::is_some) => {
                self.check_count(addresses)?;
                // SAFETY: the caller's promise.
                Ok(unsafe { plan.run_packed_at(Isa::detect(), addresses, numbers, packed) }?)
            }
            // SAFETY: the caller's promise.
            _ => unsafe { self.launch(addresses) },
        }
    }
}
