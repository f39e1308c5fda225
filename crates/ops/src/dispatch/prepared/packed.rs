//! Launches with packed operands: weights in the layout that products read.
//!
//! A packed operand is a copy. The caller makes it once for many launches, and again when the
//! memory was written.
#![allow(unsafe_code)]

use super::PreparedCall;
use crate::error::{Error, Result};
use maquette_device::{Address, Launch, PackKey, PackedOperand};
use smallvec::SmallVec;
use std::sync::Arc;

impl PreparedCall {
    fn bound(&self) -> Option<&Arc<dyn Launch>> {
        self.kernel.as_ref().map(|kernel| &kernel.launch)
    }

    /// What is worth packing ahead of several launches, by the operands from which it is packed.
    pub fn packs(&self) -> &[SmallVec<[usize; 1]>] {
        self.bound().map_or(&[], |launch| launch.packs())
    }

    /// What the packed form of the operands `packs()[index]` depends on, beside their addresses and
    /// their contents.
    pub fn pack_key(&self, index: usize) -> Option<PackKey> {
        self.bound()?.pack_key(index)
    }

    /// Packs the operands `packs()[index]`, which are at these addresses.
    ///
    /// # Errors
    /// There are no such operands, or not enough memory.
    ///
    /// # Safety
    /// As for operands of [`PreparedCall::launch`].
    pub unsafe fn pack(
        &self,
        index: usize,
        addresses: &[Address],
    ) -> Result<Arc<dyn PackedOperand>> {
        let missing = || Error::value("the call packs no such operands");
        let launch = self.bound().ok_or_else(missing)?;
        // SAFETY: the caller's promise.
        unsafe { launch.pack(index, addresses) }
            .map_err(|fault| Error::of_fault(self.device, fault, None))
    }
}
