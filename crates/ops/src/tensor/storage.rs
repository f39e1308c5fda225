//! Storages: the memory that tensors view, with its borrow table, its version counter and its
//! poison (the error of a failed write).
//!
//! Safety of this module: a [`Buffer`] or its owner keeps `len` bytes at its address alive until
//! the buffer is dropped. References into these bytes exist only under a borrow taken in
//! [`Storage::borrows`], which excludes all others during a write; see `access.rs`.
#![allow(unsafe_code)]

use crate::dispatch::failures::failed;
use crate::dispatch::mode::{self, Question};
use crate::error::{Error, Result};
use crate::tensor::borrow::Borrows;
use crate::tensor::kernel_scope;
use crate::tensor::meta::IntoDims;
use crate::tensor::{Tensor, TraceTag};
use maquette_device::{Address, Block, Contents, FailureSlot, OpenDevice, OutOfMemory};
use maquette_ir::{DType, Device, Loc};
use smallvec::SmallVec;
use std::any::Any;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

/// A buffer of bytes in the memory of a device.
pub(crate) struct Buffer {
    at: Address,
    len: usize,
    /// Whether host code may access the bytes at their address.
    is_host_memory: bool,
    owner: BufferOwner,
}

enum BufferOwner {
    Block(#[expect(dead_code, reason = "held to be dropped")] Block),
    /// An adopted vector: its capacity, and the function that frees it.
    Vector(usize, unsafe fn(NonNull<u8>, usize)),
    /// Memory owned by the caller's object; dropping the box releases it.
    Foreign(#[expect(dead_code, reason = "held to be dropped")] Box<dyn Any + Send + Sync>),
}

// SAFETY: the buffer is plain bytes, and every access goes through the borrow table of its storage.
unsafe impl Send for Buffer {}
// SAFETY: as above; a shared `Buffer` exposes no references.
unsafe impl Sync for Buffer {}

impl Buffer {
    /// A new block of a device.
    ///
    /// # Errors
    /// Memory runs out.
    pub(crate) fn allocate(
        device: &'static dyn OpenDevice,
        len: usize,
        contents: Contents,
    ) -> std::result::Result<Buffer, OutOfMemory> {
        let block = Block::allocate(device.memory(), len, contents)?;
        let is_host_memory = device.target().is_host_memory;
        Ok(Buffer { at: block.at(), len, is_host_memory, owner: BufferOwner::Block(block) })
    }

    /// Adopts a vector without copying.
    pub(crate) fn from_vec<T: crate::Element>(v: Vec<T>) -> Buffer {
        /// # Safety
        /// `ptr` and `capacity` belong to a forgotten `Vec<T>`, and this is the only call for that
        /// vector.
        unsafe fn free<T>(ptr: NonNull<u8>, capacity: usize) {
            // SAFETY: the caller's promise. Elements are `Copy`, so no element needs dropping and a
            // length of 0 suffices.
            drop(unsafe { Vec::<T>::from_raw_parts(ptr.as_ptr().cast(), 0, capacity) });
        }
        let mut v = std::mem::ManuallyDrop::new(v);
        let ptr = NonNull::new(v.as_mut_ptr().cast()).unwrap_or(NonNull::dangling());
        Buffer {
            at: Address::of_host(ptr),
            len: std::mem::size_of_val(v.as_slice()),
            is_host_memory: true,
            owner: BufferOwner::Vector(v.capacity(), free::<T>),
        }
    }

    /// A buffer over bytes that `owner` keeps alive.
    ///
    /// # Safety
    /// As [`Tensor::from_foreign`].
    unsafe fn foreign(bytes: NonNull<[u8]>, owner: Box<dyn Any + Send + Sync>) -> Buffer {
        Buffer {
            at: Address::of_host(bytes.cast()),
            len: bytes.len(),
            is_host_memory: true,
            owner: BufferOwner::Foreign(owner),
        }
    }

    /// The address of the first byte.
    pub(crate) fn at(&self) -> Address {
        self.at
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Whether host code may access the bytes at their address.
    pub(crate) fn is_host_memory(&self) -> bool {
        self.is_host_memory
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        let BufferOwner::Vector(capacity, free) = self.owner else { return };
        if let Some(ptr) = NonNull::new(self.at.as_ptr()) {
            // SAFETY: the pointer and capacity come from the vector forgotten in `from_vec`; they
            // are freed once.
            unsafe { free(ptr, capacity) }
        }
    }
}

impl Tensor {
    /// A row-major tensor of `sizes` over external memory (a mapped file, an array of another
    /// library), without copying. `owner` keeps the memory alive, and is dropped with the last view
    /// of the memory.
    ///
    /// The tensor is poisoned if the byte count does not match the sizes. Reading it is an error if
    /// the memory is not aligned for `dtype`.
    ///
    /// # Safety
    /// While `owner` lives, `bytes` must be initialised memory that any thread may read and write,
    /// and that is accessed only through this tensor and its views. For [`DType::Bool`], every byte
    /// must be 0 or 1.
    #[track_caller]
    pub unsafe fn from_foreign(
        bytes: NonNull<[u8]>,
        sizes: impl IntoDims,
        dtype: DType,
        owner: Box<dyn Any + Send + Sync>,
    ) -> Tensor {
        let loc = Loc::caller();
        // SAFETY: the caller's promise.
        let buffer = unsafe { Buffer::foreign(bytes, owner) };
        match Tensor::over(buffer, sizes, dtype) {
            Ok(t) => mode::host_data(t, loc),
            Err(e) => Tensor::poison(failed(e.at(loc))),
        }
    }
}

/// The contents of a storage.
pub(crate) enum Data {
    Memory(Buffer),
    /// Metadata only: fake and traced tensors, and the `meta` device.
    Fake,
}

/// The slot of launches on a device.
#[derive(Clone)]
pub struct LateSlot {
    /// The device.
    pub device: Device,
    /// The slot.
    pub slot: Arc<FailureSlot>,
    /// The line that started the run, for launches without a line.
    pub call_site: Option<Loc>,
}

impl LateSlot {
    /// The error of the first launch that has failed by now.
    pub fn error(&self) -> Option<Error> {
        let fault = self.slot.fault()?.clone();
        Some(Error::of_fault(self.device, fault, self.call_site))
    }

    /// Whether no launch can fail any more, and none has failed.
    fn is_harmless(&self) -> bool {
        self.slot.is_settled() && self.slot.fault().is_none()
    }
}

/// The error of a failed write, and the launches that may still fail.
#[derive(Default)]
pub(crate) struct Poison {
    error: Option<Error>,
    slots: SmallVec<[LateSlot; 1]>,
}

impl Poison {
    /// The error, if a launch has failed by now.
    fn found(&mut self) -> Option<Error> {
        if self.error.is_none() {
            self.error = self.slots.iter().find_map(LateSlot::error);
        }
        self.error.clone()
    }
}

/// The memory that one or more tensors view.
pub struct Storage {
    pub(crate) data: Data,
    pub(crate) borrows: Borrows,
    version: AtomicU64,
    /// The line of the last write, once a derivative depends on the contents.
    last_write: OnceLock<Mutex<Option<Loc>>>,
    /// Whether there is an error in `poison`, or a launch that may still fail. It changes under
    /// that lock.
    may_be_poisoned: AtomicBool,
    poison: Mutex<Poison>,
    made_in_epoch: u64,
}

impl Storage {
    pub(crate) fn new(data: Data) -> Storage {
        Storage {
            data,
            borrows: Borrows::default(),
            version: AtomicU64::new(0),
            last_write: OnceLock::new(),
            may_be_poisoned: AtomicBool::new(false),
            poison: Mutex::default(),
            made_in_epoch: kernel_scope::current_epoch(),
        }
    }

    /// When it was made, as [`kernel_scope`] counts.
    pub(crate) fn made_in_epoch(&self) -> u64 {
        self.made_in_epoch
    }

    /// The number of writes so far: each call adds one for each mutated argument. A traced function
    /// cannot ask for it.
    #[track_caller]
    pub fn version(&self) -> u64 {
        let what = "how often a storage was written";
        // A trace gets the error, which this cannot return.
        let _reported = mode::ask(Question::Surroundings, what, Loc::caller());
        self.writes()
    }

    /// As [`Storage::version`], for the library itself.
    pub(crate) fn writes(&self) -> u64 {
        self.version.load(Ordering::Relaxed)
    }

    /// Counts a write. Called by the dispatcher, and by a tracer for the storages of its trace.
    pub fn bump_version(&self) {
        self.version.fetch_add(1, Ordering::Relaxed);
        if let Some(last) = self.last_write.get() {
            *last.lock().unwrap_or_else(PoisonError::into_inner) = mode::current_loc();
        }
    }

    /// Counts no write, as of new memory: what a call writes while it makes its results is part of
    /// the call.
    pub(crate) fn forget_writes(&self) {
        self.version.store(0, Ordering::Relaxed);
    }

    /// From now on, keeps the line of the last write.
    pub(crate) fn watch_writes(&self) {
        self.last_write.get_or_init(Mutex::default);
    }

    /// The line of the last write, if writes are watched and the line is known.
    pub(crate) fn last_write(&self) -> Option<Loc> {
        *self.last_write.get()?.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Promises that nobody writes the storage any more: every later write is refused, through any
    /// tensor that views it. Nothing ends this.
    ///
    /// # Errors
    /// Someone writes the storage now.
    pub fn freeze(&self) -> Result<()> {
        Ok(self.borrows.freeze()?)
    }

    /// Whether [`Storage::freeze`] was called. A traced function cannot ask this.
    #[track_caller]
    pub fn is_frozen(&self) -> bool {
        // A trace gets the error, which this cannot return.
        let _reported =
            mode::ask(Question::Surroundings, "whether a storage is frozen", Loc::caller());
        self.borrows.is_frozen()
    }

    /// Marks the storage as captured by a running trace. Until the trace ends, no other thread can
    /// borrow it.
    pub fn capture(&self, trace: &Arc<TraceTag>) {
        self.borrows.capture(trace);
    }

    /// Records the error of a failed write. The first error is kept. No write of a frozen storage
    /// gets as far as its memory.
    pub(crate) fn poison(&self, e: &Error) {
        if !self.borrows.is_frozen() {
            let mut poison = self.lock_poison();
            poison.error.get_or_insert_with(|| e.clone());
            self.may_be_poisoned.store(true, Ordering::Release);
        }
    }

    /// The error of the write that failed. The storage is poisoned until a write replaces all of
    /// its contents ([`Storage::lift_poison`]).
    #[inline]
    pub(crate) fn poisoned(&self) -> Option<Error> {
        if self.may_be_poisoned.load(Ordering::Acquire) { self.lock_poison().found() } else { None }
    }

    /// Poisons the storage if a launch fails later: one that writes it, or that writes what it
    /// depends on.
    pub(crate) fn poison_late(&self, slots: &[LateSlot]) {
        if slots.is_empty() {
            return;
        }
        let mut poison = self.lock_poison();
        poison.slots.retain(|slot| !slot.is_harmless());
        for slot in slots.iter().filter(|slot| !slot.is_harmless()) {
            if !poison.slots.iter().any(|own| Arc::ptr_eq(&own.slot, &slot.slot)) {
                poison.slots.push(slot.clone());
            }
        }
        let may_be = poison.error.is_some() || !poison.slots.is_empty();
        self.may_be_poisoned.store(may_be, Ordering::Release);
    }

    /// The launches that may still fail, on which the contents depend.
    pub(crate) fn late_slots(&self) -> SmallVec<[LateSlot; 1]> {
        match self.may_be_poisoned.load(Ordering::Acquire) {
            true => self.lock_poison().slots.clone(),
            false => SmallVec::new(),
        }
    }

    /// Adds the context of `e` to the error of the storage, if both are the same occurrence.
    pub(crate) fn name_poison(&self, e: &Error) {
        if self.may_be_poisoned.load(Ordering::Acquire)
            && let Some(own) = &mut self.lock_poison().error
            && own.is_same(e)
        {
            *own = e.clone();
        }
    }

    /// Whether the storage is poisoned, or a launch may still poison it.
    #[inline]
    pub(crate) fn may_be_poisoned(&self) -> bool {
        self.may_be_poisoned.load(Ordering::Acquire)
    }

    /// Takes the error, and the launches that may still fail. The caller holds the borrow of a
    /// write that covers the storage, and [restores](Storage::restore_poison) them if that write
    /// fails.
    pub(crate) fn lift_poison(&self) -> Poison {
        let mut poison = self.lock_poison();
        self.may_be_poisoned.store(false, Ordering::Release);
        std::mem::take(&mut *poison)
    }

    /// Undoes [`Storage::lift_poison`].
    pub(crate) fn restore_poison(&self, lifted: Poison) {
        let mut poison = self.lock_poison();
        *poison = lifted;
        self.may_be_poisoned.store(true, Ordering::Release);
    }

    fn lock_poison(&self) -> MutexGuard<'_, Poison> {
        // no code panics while it holds the lock
        self.poison.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The length in bytes; 0 for a storage without data.
    pub fn len(&self) -> usize {
        match &self.data {
            Data::Memory(b) => b.len(),
            Data::Fake => 0,
        }
    }

    /// Whether the storage has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}
