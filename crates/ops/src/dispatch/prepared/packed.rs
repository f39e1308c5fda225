//! Launches with packed operands: weights in the layout that products read.
//!
//! A packed operand is a copy. The caller makes it once for many launches, and again when the memory
//! was written.
#![allow(unsafe_code)]

use super::{Kernel, PreparedCall};
use crate::error::{Error, Result};
use maquette_kernels::{Isa, LaunchPlan, PackKey, PackedOperand};

impl PreparedCall {
    fn packing_plan(&self) -> Option<&LaunchPlan> {
        match &self.kernel {
            Kernel::Nest(nest) => nest.packing_plan(),
            _ => None,
        }
    }

    /// The operands that are worth packing ahead of several launches.
    pub fn packs(&self) -> &[usize] {
        self.packing_plan().map_or(&[], LaunchPlan::packs)
    }

    /// What packed operand `packs()[index]` depends on, beside its address and its contents.
    pub fn pack_key(&self, index: usize) -> Option<PackKey> {
        self.packing_plan()?.pack_key(index)
    }

    /// Packs operand `packs()[index]`, which is at `address`.
    ///
    /// # Errors
    /// There is no such operand, or not enough memory.
    ///
    /// # Safety
    /// As for an operand of [`PreparedCall::launch`].
    pub unsafe fn pack(&self, index: usize, address: *const u8) -> Result<PackedOperand> {
        let missing = || Error::value("the call packs no such operand");
        let plan = self.packing_plan().ok_or_else(missing)?;
        let operand = plan.packs().get(index).and_then(|operand| self.operands.get(*operand));
        // SAFETY: the caller's promise.
        let view = unsafe { operand.ok_or_else(missing)?.layout.view_at(address) };
        Ok(plan.pack(Isa::detect(), index, &view)?)
    }

    /// As [`PreparedCall::launch`], with the operands [`PreparedCall::packs`] that are given in
    /// packed form. The bits are those of a launch without them.
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
        match (self.packing_plan(), &self.kernel) {
            (Some(plan), Kernel::Nest(nest)) if packed.iter().any(Option::is_some) => {
                self.check_count(addresses)?;
                let (isa, numbers) = (Isa::detect(), nest.numbers());
                // SAFETY: the caller's promise.
                Ok(unsafe { plan.run_packed_at(isa, addresses, numbers, packed) }?)
            }
            // SAFETY: the caller's promise.
            _ => unsafe { self.launch(addresses) },
        }
    }
}
