//! Launches with packed weights.
//!
//! Safety of this module: see [`run`](super).
#![allow(unsafe_code)]

use super::Run;
use crate::instance::{External, Launch};
use crate::packed_weights::{PackedWeight, WeightPlace};
use crate::planned::Planned;
use maquette_device::{Address, FailureSlot, PackedOperand};
use maquette_invoke::ExternalTensors;
use maquette_ops::internals::TensorInternals;
use maquette_ops::{Result, Tensor, Value};
use smallvec::SmallVec;
use std::sync::Arc;

fn storage_address(t: &Tensor) -> Result<usize> {
    Ok(Arc::as_ptr(t.own_storage()?).addr())
}

impl Planned {
    /// The addresses of the storages that a run writes, in order.
    pub(super) fn written_storages(
        &self,
        external: &ExternalTensors,
    ) -> Result<SmallVec<[usize; 4]>> {
        let mut written: SmallVec<[usize; 4]> = SmallVec::new();
        for which in self.written() {
            written.push(storage_address(external.get(which)?)?);
        }
        for output in external.outputs() {
            written.push(storage_address(output)?);
        }
        written.sort_unstable();
        Ok(written)
    }
}

impl Run<'_> {
    /// Launches with packed weights. What cannot be packed is read where it is.
    pub(super) fn launch_packed(
        &self,
        launch: &Launch,
        addresses: &[Address],
        slot: Option<&Arc<FailureSlot>>,
    ) -> Result<()> {
        let weights = launch.weights.iter().enumerate();
        let packed = weights
            .map(|(index, weight)| self.packed(launch, index, weight.as_deref()?, addresses));
        let packed: SmallVec<[Option<Arc<dyn PackedOperand>>; 2]> = packed.collect();
        // SAFETY: see the module. A packed weight is of the present version.
        unsafe { launch.call.launch(addresses, &packed, slot) }
    }

    /// The packed form of weights, as they are now.
    fn packed(
        &self,
        launch: &Launch,
        index: usize,
        weight: &PackedWeight,
        addresses: &[Address],
    ) -> Option<Arc<dyn PackedOperand>> {
        let operands = launch.call.packs().get(index)?;
        let mut at: SmallVec<[Address; 8]> = SmallVec::new();
        let mut places: SmallVec<[WeightPlace<'_>; 8]> = SmallVec::new();
        for (operand, tensor) in operands.iter().zip(weight.tensors()) {
            let tensor = match tensor {
                External::Const(i) => self.external.consts().get(i)?,
                External::Input(i) => match self.inputs.get(i)? {
                    Value::Tensor(t) => t,
                    _ => return None,
                },
            };
            // A weight may share its storage with what the program writes.
            if self.written.binary_search(&storage_address(tensor).ok()?).is_ok() {
                return None;
            }
            let address = *addresses.get(*operand)?;
            at.push(address);
            places.push(WeightPlace { storage: tensor.own_storage().ok()?, address });
        }
        // SAFETY: see the module. The run has borrowed the weights for reading.
        weight.of(&places, || unsafe { launch.call.pack(index, &at) })
    }
}
