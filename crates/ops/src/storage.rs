//! Storages: the memory that tensors view, with its borrows, its version and its poison.
//!
//! Safety of this module: a [`HostBuffer`] owns `len` bytes at `ptr` until it is dropped. Nobody makes a reference into it except
//! through a borrow taken in [`Storage::borrows`], which keeps writers apart from everybody else; see `access.rs`.
#![allow(unsafe_code)]

use crate::borrow::Borrows;
use crate::error::Error;
use crate::memory::Block;
use std::ptr::NonNull;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes on the host.
pub(crate) struct HostBuffer {
    ptr: NonNull<u8>,
    len: usize,
    owner: Owner,
}

enum Owner {
    Block(#[expect(dead_code, reason = "held to be dropped")] Block),
    /// An adopted vector, by its capacity and what frees it.
    Vector(usize, unsafe fn(NonNull<u8>, usize)),
}

// SAFETY: the buffer is plain bytes, and every access goes through the borrow table of the storage that owns it.
unsafe impl Send for HostBuffer {}
// SAFETY: as above; shared access alone hands out no references.
unsafe impl Sync for HostBuffer {}

impl HostBuffer {
    /// A block's first `len` bytes.
    pub(crate) fn of_block(block: Block, len: usize) -> HostBuffer {
        HostBuffer { ptr: block.ptr(), len, owner: Owner::Block(block) }
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
        HostBuffer { ptr, len: std::mem::size_of_val(v.as_slice()), owner: Owner::Vector(v.capacity(), free::<T>) }
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
            Owner::Block(_) => {}
            // SAFETY: from a vector forgotten in `from_vec`, and freed once.
            Owner::Vector(capacity, free) => unsafe { free(self.ptr, capacity) },
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
        Storage { data, borrows: Borrows::default(), version: AtomicU64::new(0), poison: OnceLock::new() }
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
