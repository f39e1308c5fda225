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
use maquette_device::Contents;
use maquette_ir::DType;
use std::ptr::NonNull;
use std::sync::Arc;

/// Bytes on the host, aligned to 64, of which tensors of any dtype are views.
pub struct Arena {
    bytes: Tensor,
    address: NonNull<u8>,
}

// SAFETY: the address is that of the storage, which is `Send` and `Sync`; using it is unsafe.
unsafe impl Send for Arena {}
// SAFETY: as above.
unsafe impl Sync for Arena {}

impl Arena {
    /// `len` bytes of any value.
    ///
    /// # Errors
    /// Memory runs out.
    pub fn new(len: usize) -> Result<Arena> {
        let meta = Meta::contiguous([len as i64], DType::U8);
        let failed =
            || AccessError::Allocation { sizes: dims_text(&meta.sizes), dtype: meta.dtype };
        let device = opened(meta.device)?;
        let buffer = Buffer::allocate(device, len, Contents::Any).map_err(|_| failed())?;
        let address = NonNull::new(buffer.at().as_ptr()).ok_or_else(failed)?;
        let storage = Arc::new(Storage::new(Data::Memory(buffer)));
        Ok(Arena { bytes: Tensor::live_node(meta, storage, None, Grant::NONE), address })
    }

    /// The address of the first byte.
    pub fn address(&self) -> NonNull<u8> {
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

    /// Memory for `len` elements in a storage of its own. The elements have any value.
    ///
    /// # Errors
    /// Memory runs out.
    pub fn new_memory(len: i64, dtype: DType) -> Result<Tensor> {
        Tensor::allocate_to_fill(Meta::contiguous([len], dtype))
    }
}
