//! Errors of launches on a device whose work is done later.
//!
//! The launches of a run share a [slot](maquette_device::FailureSlot): after the first that fails,
//! the device leaves out the others, so that the memory of the caller is as after the error on the
//! CPU. From the first launch on that the values of its operands can make fail, the run has a slot
//! of its own for them: what was written before is right, whatever they do. A step that is not a
//! launch waits for them.
//!
//! **Invariant:** a storage that a launch writes has the slots of the launch, and of everything
//! that the launch reads.
//!
//! **Cost:** for each launch, a look at the storages that it reads and writes.

use super::Run;
use crate::instance::{Launch, LaunchSource, Segment};
use maquette_invoke::SourceInfo;
use maquette_ir::Device;
use maquette_ir::buffer_plan::BufferId;
use maquette_ops::internals::{
    LateSlot, StorageInternals, TensorInternals, reports_late, wait_for,
};
use maquette_ops::{Result, Tensor};
use smallvec::SmallVec;
use std::sync::Arc;

/// How the late errors of a run are found.
pub(super) struct LateErrors {
    /// The slot of the next launch.
    slot: LateSlot,
    /// The slots of what the run has read and launched so far.
    slots: SmallVec<[LateSlot; 2]>,
    /// Whether an earlier launch may have failed by its operands.
    may_have_failed: bool,
}

impl LateErrors {
    /// `None` on a device that reports errors at once.
    pub fn of_run(device: Device, source_info: &SourceInfo<'_>) -> Option<LateErrors> {
        reports_late(device).then(|| {
            let (slot, call_site) = (Arc::default(), Some(source_info.call_site));
            let slot = LateSlot { device, slot, call_site };
            LateErrors { slots: SmallVec::from_elem(slot.clone(), 1), slot, may_have_failed: false }
        })
    }

    /// Gets a slot for the launches from the first on that its operands can make fail.
    fn before(&mut self, launch: &Launch) {
        if launch.call.may_fail() && !self.may_have_failed {
            self.may_have_failed = true;
            self.slot = LateSlot { slot: Arc::default(), ..self.slot.clone() };
            self.slots.push(self.slot.clone());
        }
    }

    fn add(&mut self, slots: impl IntoIterator<Item = LateSlot>) {
        for new in slots {
            if !self.slots.iter().any(|own| Arc::ptr_eq(&own.slot, &new.slot)) {
                // Errors of operands come before those of the run.
                self.slots.insert(0, new);
            }
        }
    }
}

impl Run<'_> {
    /// Enqueues a launch on a device that reports errors late. What the launch writes is poisoned if
    /// the launch fails, or another one on which it depends.
    #[inline(never)]
    pub(super) fn launch_late(&mut self, segment: &Segment, launch: &Launch) -> Result<()> {
        let Some(late) = &mut self.late else { return Ok(()) };
        late.before(launch);
        let slot = late.slot.slot.clone();
        self.launch(segment, launch, Some(&slot))?;
        self.poison_late(launch)
    }

    /// Waits for earlier launches that may have failed, before a step that may write memory of the
    /// caller, or has another effect.
    ///
    /// # Errors
    /// An earlier launch has failed.
    pub(super) fn wait_for_launches(&self) -> Result<()> {
        let Some(late) = self.late.as_ref().filter(|late| late.may_have_failed) else {
            return Ok(());
        };
        wait_for(late.slot.device)?;
        late.slot.error().map_or(Ok(()), Err)
    }

    /// Poisons what a launch has written, if the launch fails later, or one on which it depends.
    fn poison_late(&mut self, launch: &Launch) -> Result<()> {
        let Some(late) = &mut self.late else { return Ok(()) };
        let tensor_of = |base: usize| self.memory.bases.get(base)?.tensor.as_ref();
        for place in &launch.places {
            if let Some(tensor) = tensor_of(place.base as usize) {
                late.add(tensor.own_storage()?.late_slots());
            }
        }
        let writes: &[BufferId] = match &launch.source {
            LaunchSource::Infallible { writes, .. } => writes,
            LaunchSource::Node(node) => &node.writes,
            LaunchSource::Region(region) => &region.writes,
        };
        let written = writes.iter().map(|buffer| buffer.index());
        // Operators that are called read the arena, too.
        let arenas = self.planned.plan.buffers.len()..self.memory.bases.len();
        for tensor in written.chain(arenas).filter_map(tensor_of) {
            tensor.own_storage()?.poison_late(&late.slots);
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
