//! Storages: the memory that tensors view, with its borrows, its version and its poison.
//!
//! Safety of this module: a [`HostBuffer`] owns `len` bytes at `ptr`, itself or by its owner, until
//! it is dropped. Nobody makes a reference into it except through a borrow taken in
//! [`Storage::borrows`], which keeps writers apart from everybody else; see `access.rs`.
#![allow(unsafe_code)]

use crate::error::Error;
use crate::mode;
use crate::tensor::Tensor;
use crate::tensor::alloc::Block;
use crate::tensor::borrow::Borrows;
use crate::tensor::meta::IntoDims;
use maquette_ir::{DType, Loc};
use std::any::Any;
use std::ptr::NonNull;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes on the host.
pub(crate) struct HostBuffer {
    ptr: NonNull<u8>,
    len: usize,
    owner: BufferOwner,
}

enum BufferOwner {
    Block(#[expect(dead_code, reason = "held to be dropped")] Block),
    /// An adopted vector, by its capacity and what frees it.
    Vector(usize, unsafe fn(NonNull<u8>, usize)),
    /// Somebody else's memory; dropping the box gives it back.
    Foreign(#[expect(dead_code, reason = "held to be dropped")] Box<dyn Any + Send + Sync>),
}

// SAFETY: the buffer is plain bytes, and every access goes through the borrow table of the storage
// that owns it.
unsafe impl Send for HostBuffer {}
// SAFETY: as above; shared access alone hands out no references.
unsafe impl Sync for HostBuffer {}

impl HostBuffer {
    /// A block's first `len` bytes.
    pub(crate) fn of_block(block: Block, len: usize) -> HostBuffer {
        HostBuffer { ptr: block.ptr(), len, owner: BufferOwner::Block(block) }
    }

    /// Adopts a vector without copying.
    pub(crate) fn from_vec<T: crate::Element>(v: Vec<T>) -> HostBuffer {
        /// # Safety
        /// `ptr` and `capacity` are those of a forgotten `Vec<T>`, given here once.
        unsafe fn free<T>(ptr: NonNull<u8>, capacity: usize) {
            // SAFETY: the caller's; elements are `Copy`, so a length of 0 drops them all.
            drop(unsafe { Vec::<T>::from_raw_parts(ptr.as_ptr().cast(), 0, capacity) });
        }
        let mut v = std::mem::ManuallyDrop::new(v);
        let ptr = NonNull::new(v.as_mut_ptr().cast()).unwrap_or(NonNull::dangling());
        HostBuffer {
            ptr,
            len: std::mem::size_of_val(v.as_slice()),
            owner: BufferOwner::Vector(v.capacity(), free::<T>),
        }
    }

    /// Bytes that belong to `owner`.
    ///
    /// # Safety
    /// As [`Tensor::from_foreign`].
    unsafe fn foreign(bytes: NonNull<[u8]>, owner: Box<dyn Any + Send + Sync>) -> HostBuffer {
        HostBuffer { ptr: bytes.cast(), len: bytes.len(), owner: BufferOwner::Foreign(owner) }
    }

    pub(crate) fn ptr(&self) -> NonNull<u8> {
        self.ptr
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }
}

impl Drop for HostBuffer {
    fn drop(&mut self) {
        match self.owner {
            BufferOwner::Block(_) => {}
            // SAFETY: from a vector forgotten in `from_vec`, and freed once.
            BufferOwner::Vector(capacity, free) => unsafe { free(self.ptr, capacity) },
            BufferOwner::Foreign(_) => {}
        }
    }
}

impl Tensor {
    /// A row-major tensor of `sizes` over memory that belongs to somebody else (a mapped file, an
    /// array of another library), without copying. `owner` is dropped when the last view of the
    /// memory is; until then it keeps the memory alive.
    ///
    /// Poisoned where the bytes are not as many as the sizes need. Memory that is not aligned for
    /// `dtype` is refused when it is read.
    ///
    /// # Safety
    /// While `owner` lives, `bytes` is initialised memory that may be read and written from any
    /// thread, and that nobody reads or writes but through this tensor and its views. Of
    /// [`DType::Bool`], every byte is 0 or 1.
    #[track_caller]
    pub unsafe fn from_foreign(
        bytes: NonNull<[u8]>,
        sizes: impl IntoDims,
        dtype: DType,
        owner: Box<dyn Any + Send + Sync>,
    ) -> Tensor {
        let loc = Loc::caller();
        // SAFETY: the caller's.
        let buffer = unsafe { HostBuffer::foreign(bytes, owner) };
        match Tensor::over(buffer, sizes, dtype) {
            Ok(t) => mode::host_data(t, loc),
            Err(e) => Tensor::poison(e.at(loc)),
        }
    }
}

/// What a storage holds.
pub(crate) enum Data {
    Host(HostBuffer),
    /// Metadata only: fake and traced tensors, and the `meta` device.
    Fake,
}

/// The memory that one or more tensors view.
pub struct Storage {
    pub(crate) data: Data,
    pub(crate) borrows: Borrows,
    version: AtomicU64,
    poison: OnceLock<Error>,
}

impl Storage {
    pub(crate) fn new(data: Data) -> Storage {
        Storage {
            data,
            borrows: Borrows::default(),
            version: AtomicU64::new(0),
            poison: OnceLock::new(),
        }
    }

    /// How often it was written to: once for each mutated argument of each call.
    pub fn version(&self) -> u64 {
        self.version.load(Ordering::Relaxed)
    }

    /// Counts a write. The dispatcher does, and a tracer for the storages of its trace.
    pub fn bump_version(&self) {
        self.version.fetch_add(1, Ordering::Relaxed);
    }

    /// Records a failed write; the first stays.
    pub(crate) fn poison(&self, e: &Error) {
        let _ = self.poison.set(e.clone());
    }

    pub(crate) fn poisoned(&self) -> Option<&Error> {
        self.poison.get()
    }

    /// The length in bytes; 0 where there is no data.
    pub fn len(&self) -> usize {
        match &self.data {
            Data::Host(b) => b.len(),
            Data::Fake => 0,
        }
    }

    /// No bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}
