//! Errors of launches on a device whose work is done later.
//!
//! The launches of a run share a [slot](FailureSlot): after the first that fails, the device leaves
//! out the others, so that the memory of the caller is as after the error on the CPU. What the run
//! writes from the first launch on that may fail is poisoned if the slot has an error, and so is
//! what depends on inputs that may still be poisoned.

use super::Run;
use crate::instance::{Launch, Origin};
use maquette_device::FailureSlot;
use maquette_invoke::ExternalTensors;
use maquette_ir::Device;
use maquette_ir::buffer_plan::BufferId;
use maquette_ops::internals::{LateSlot, StorageInternals, TensorInternals, reports_late};
use maquette_ops::{Result, Tensor, Value};
use smallvec::SmallVec;
use std::sync::Arc;

/// How the late errors of a run are found.
pub(super) struct LateErrors {
    slot: Arc<FailureSlot>,
    /// The slots of what the run writes: those of its inputs, and its own as soon as a launch may
    /// have failed.
    slots: SmallVec<[LateSlot; 1]>,
    may_have_failed: bool,
}

impl LateErrors {
    /// `None` on a device that reports errors at once.
    ///
    /// # Errors
    /// A tensor is poisoned.
    pub fn of_run(device: Device, external: &ExternalTensors) -> Result<Option<LateErrors>> {
        if !reports_late(device) {
            return Ok(None);
        }
        let mut slots: SmallVec<[LateSlot; 1]> = SmallVec::new();
        let inputs = external.graph_inputs().iter().flat_map(Value::tensors);
        for t in inputs.chain(external.consts()) {
            slots.extend(t.own_storage()?.late_slots());
        }
        Ok(Some(LateErrors { slot: Arc::default(), slots, may_have_failed: false }))
    }

    /// The slots of what a launch writes.
    fn after(&mut self, device: Device, launch: &Launch) -> &[LateSlot] {
        if launch.call.may_fail() && !self.may_have_failed {
            self.may_have_failed = true;
            self.slots.push(LateSlot { device, slot: self.slot.clone() });
        }
        &self.slots
    }
}

impl Run<'_> {
    /// The slot of launches, on a device that reports errors late.
    pub(super) fn slot(&self) -> Option<&Arc<FailureSlot>> {
        self.late.as_ref().map(|late| &late.slot)
    }

    /// Poisons what a launch has written, if it or an earlier one fails later.
    #[cold]
    pub(super) fn poison_late(&mut self, launch: &Launch) -> Result<()> {
        let Some(late) = &mut self.late else { return Ok(()) };
        let slots = late.after(self.planned.device, launch);
        if slots.is_empty() {
            return Ok(());
        }
        let writes: &[BufferId] = match &launch.origin {
            Origin::Infallible { writes, .. } => writes,
            Origin::Node(node) => &node.writes,
            Origin::Region(region) => &region.writes,
        };
        let written = writes.iter().map(|buffer| buffer.index());
        // Operators that are called read the arena, too.
        let arenas = self.planned.plan.buffers.len()..self.memory.bases.len();
        for base in written.chain(arenas) {
            let base = self.memory.bases.get(base);
            if let Some(tensor) = base.and_then(|base| base.tensor.as_ref()) {
                tensor.own_storage()?.poison_late(slots);
            }
        }
        Ok(())
    }
}

/// Ends what is left of an earlier run in the memory of an arena.
pub(super) fn forget_late(arena: &Tensor) {
    if let Ok(storage) = arena.own_storage() {
        storage.forget_late();
    }
}
