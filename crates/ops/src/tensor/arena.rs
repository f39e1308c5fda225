//! Memory in which a compiled program keeps its values.
//!
//! Safety of this module: a view of an arena has the dtype that the caller names. The caller of
//! [`Tensor::bytes_as`] promises that its bytes are values of this dtype whenever they are read.
#![allow(unsafe_code)]

use crate::error::{AccessError, Result};
use crate::tensor::borrow::Grant;
use crate::tensor::create::opened;
use crate::tensor::meta::Meta;
use crate::tensor::storage::{Buffer, Data, Storage};
use crate::tensor::{Tensor, dims_text};
use maquette_device::{Address, Contents};
use maquette_ir::{DType, Device};
use std::sync::Arc;

/// Bytes of a device, aligned to 64, of which tensors of any dtype are views.
pub struct Arena {
    bytes: Tensor,
    address: Address,
}

impl Arena {
    /// `len` bytes of any value on a device.
    ///
    /// # Errors
    /// Memory runs out, or the device cannot be used.
    pub fn new(device: Device, len: usize) -> Result<Arena> {
        let meta = Meta::contiguous([len as i64], DType::U8).on(device);
        let failed =
            || AccessError::Allocation { sizes: dims_text(&meta.sizes), dtype: meta.dtype };
        let device = opened(meta.device)?;
        let buffer = Buffer::allocate(device, len, Contents::Any).map_err(|_| failed())?;
        let address = buffer.at();
        let storage = Arc::new(Storage::new(Data::Memory(buffer)));
        Ok(Arena { bytes: Tensor::live_node(meta, storage, None, Grant::NONE), address })
    }

    /// The address of the first byte.
    pub fn address(&self) -> Address {
        self.address
    }

    /// All bytes as a tensor of `u8`.
    pub fn bytes(&self) -> Tensor {
        self.bytes.clone()
    }
}

impl Tensor {
    /// Whether a guard, a call or a run accesses the storage now, other than those to which the
    /// handle belongs.
    pub(crate) fn is_accessed(&self) -> bool {
        self.own_storage().is_ok_and(|storage| storage.borrows.is_accessed(self))
    }

    /// The same storage seen through other metadata, the dtype included. The offset of `meta`
    /// counts elements from the start of the storage. An access checks that they are inside the
    /// storage.
    ///
    /// # Errors
    /// The tensor is poisoned.
    ///
    /// # Safety
    /// Whenever an element of the result is read, its bytes are a value of the dtype.
    pub unsafe fn bytes_as(&self, meta: Meta) -> Result<Tensor> {
        self.view_of(meta)
    }

    /// Memory of a device for `len` elements in a storage of its own. The elements have any value.
    ///
    /// # Errors
    /// Memory runs out, or the device cannot be used.
    pub fn new_memory(device: Device, len: i64, dtype: DType) -> Result<Tensor> {
        Tensor::allocate_to_fill(Meta::contiguous([len], dtype).on(device))
    }
}
