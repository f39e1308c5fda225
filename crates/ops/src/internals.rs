//! What the other crates of the workspace need and a program does not: answers that a trace does
//! not check.
//!
//! A program asks a tensor for its state by methods that fail a running trace, where a run of the
//! graph would get another answer. A tracer, an interpreter and a driver ask on their own behalf.
//! The traits have the unchecked methods, so that no program reaches these without naming this
//! module.

use crate::dispatch::mode;
use crate::error::{Error, Result};
use crate::library::Op;
use crate::tensor::Tensor;
use crate::tensor::create::opened;
use crate::tensor::meta::{Concrete, Meta};
use crate::tensor::storage::Storage;
use maquette_device::Address;
use maquette_ir::Device;
use maquette_ir::sym::SymInt;
use smallvec::SmallVec;
use std::sync::Arc;

pub use crate::autograd::grad_mode::is_grad_enabled;
pub use crate::dispatch::device::default_device;
pub use crate::functional_call::in_functional_call;
pub use crate::scope::{ModuleScope, current_scope, enter};
pub use crate::tensor::borrow::unobserved;
pub use crate::tensor::storage::LateSlot;

/// Runs `f` with all modes and autocast disabled, for what is not part of the program: a run of a
/// graph, or a computation of a mode itself.
pub fn without_modes<R>(f: impl FnOnce() -> R) -> R {
    mode::without_modes(f)
}

/// The unchecked methods of [`Tensor`].
pub trait TensorInternals {
    /// As [`Tensor::ok`].
    ///
    /// # Errors
    /// As [`Tensor::ok`].
    fn alive(&self) -> Result<&Tensor>;
    /// As [`Tensor::storage`].
    ///
    /// # Errors
    /// The tensor is poisoned.
    fn own_storage(&self) -> Result<&Arc<Storage>>;
    /// As [`Tensor::shares_storage`], of the storages that represent the program's in a trace.
    fn has_storage_of(&self, other: &Tensor) -> bool;
    /// As [`Tensor::is_same`], of the handles that represent the program's in a trace.
    fn is_same_handle(&self, other: &Tensor) -> bool;
    /// As [`Tensor::version`].
    fn writes(&self) -> u64;
    /// As [`Tensor::requires_grad`].
    fn tracks_gradient(&self) -> bool;
    /// Whether the tensor is the result of a recorded call.
    fn is_recorded(&self) -> bool;
    /// Whether someone else has borrowed memory that the tensor sees.
    fn is_accessed(&self) -> bool;
    /// The address of the first element on the device. All elements lie inside the storage. Any
    /// aligned address if there are none.
    ///
    /// # Errors
    /// The tensor is poisoned, has no data, or exceeds its storage.
    fn address(&self) -> Result<Address>;
    /// Copies the elements of another tensor, which may share memory with this one.
    ///
    /// # Errors
    /// Another access conflicts with a borrow of either tensor.
    fn copy_shared_elements_(&self, from: &Tensor) -> Result<()>;
}

/// The unchecked methods of [`Meta`].
pub trait MetaInternals {
    /// The offset of the first element in the storage, in elements.
    fn offset(&self) -> SymInt;
    /// The layout in concrete numbers, or `None` if a size, a stride or the offset is symbolic.
    fn concrete(&self) -> Option<Concrete>;
}

/// The unchecked methods of [`Storage`].
pub trait StorageInternals {
    /// As [`Storage::version`].
    fn writes(&self) -> u64;
    /// The launches that may still fail, on which the contents depend.
    fn late_slots(&self) -> SmallVec<[LateSlot; 1]>;
    /// Poisons the storage if a launch fails later: one that writes it, or that writes what it
    /// depends on.
    fn poison_late(&self, slots: &[LateSlot]);
    /// Ends what earlier launches left: the contents will be new.
    fn forget_late(&self);
}

/// Waits until a device has done all that it was given.
///
/// # Errors
/// A command has failed.
#[doc(hidden)]
pub fn wait_for(device: Device) -> Result<()> {
    if device == Device::Cpu {
        return Ok(());
    }
    let queue = opened(device)?.queue();
    queue.wait(queue.fence()).map_err(|fault| Error::of_fault(device, fault, None))
}

/// Whether launches on a device may fail after their call has returned.
#[doc(hidden)]
pub fn reports_late(device: Device) -> bool {
    device != Device::Cpu && opened(device).is_ok_and(|device| device.target().reports_late)
}

/// Whether fake execution makes the calls that an operator consists of, which count its writes.
#[doc(hidden)]
pub fn parts_count_writes(op: Op) -> bool {
    op.state().is_ok_and(|state| state.parts_count_writes())
}

impl MetaInternals for Meta {
    #[inline]
    fn offset(&self) -> SymInt {
        self.offset
    }

    #[inline]
    fn concrete(&self) -> Option<Concrete> {
        Meta::concrete(self)
    }
}

impl StorageInternals for Storage {
    #[inline]
    fn writes(&self) -> u64 {
        Storage::writes(self)
    }

    fn late_slots(&self) -> SmallVec<[LateSlot; 1]> {
        Storage::late_slots(self)
    }

    fn poison_late(&self, slots: &[LateSlot]) {
        Storage::poison_late(self, slots);
    }

    fn forget_late(&self) {
        drop(Storage::lift_poison(self));
    }
}

impl TensorInternals for Tensor {
    #[inline]
    fn alive(&self) -> Result<&Tensor> {
        Tensor::alive(self)
    }

    #[inline]
    fn own_storage(&self) -> Result<&Arc<Storage>> {
        Tensor::own_storage(self)
    }

    #[inline]
    fn has_storage_of(&self, other: &Tensor) -> bool {
        Tensor::has_storage_of(self, other)
    }

    #[inline]
    fn is_same_handle(&self, other: &Tensor) -> bool {
        Tensor::is_same_handle(self, other)
    }

    #[inline]
    fn writes(&self) -> u64 {
        Tensor::writes(self)
    }

    #[inline]
    fn tracks_gradient(&self) -> bool {
        crate::autograd::history::requires_grad(self)
    }

    fn is_recorded(&self) -> bool {
        self.tracks_gradient() && crate::autograd::history::leaf(self).is_none()
    }

    fn is_accessed(&self) -> bool {
        Tensor::is_accessed(self)
    }

    #[track_caller]
    fn address(&self) -> Result<Address> {
        Tensor::address(self)
    }

    fn copy_shared_elements_(&self, from: &Tensor) -> Result<()> {
        Tensor::copy_shared_elements_(self, from)
    }
}
