//! Host memory that is cached for reuse: the pages of a fresh large block cost more than the
//! kernels that fill it.
//!
//! Safety of this module: a [`HostAlloc`] is the only handle to its allocation, and is moved, never
//! copied: from a block to the list, from the list to a block, or into `free`. All bytes are
//! initialised, since every allocation was made zeroed.
#![allow(unsafe_code)]

use std::alloc::Layout;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::mem::ManuallyDrop;
use std::ptr::NonNull;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Cache-line and vector alignment of every block.
const ALIGN: usize = 64;
/// Blocks from this size on are kept for every thread; those below it but for the smallest are left
/// to the allocator, which keeps such itself.
const MIN_CACHED: usize = 128 << 10;
/// The smallest blocks are of this size, and each thread keeps some: aligned allocation costs more
/// than most operators on few elements.
const SMALL: usize = 256;
/// So many.
const MAX_SMALL_CACHED: usize = 64;
/// At most so many bytes are free_list.
const MAX_CACHED_BYTES: usize = 1 << 30;

/// An allocation; whoever holds the value may free it, once.
struct HostAlloc {
    ptr: NonNull<u8>,
    layout: Layout,
}

// SAFETY: an allocation is plain bytes; what is read or written through its pointer is the business
// of its owner.
unsafe impl Send for HostAlloc {}
// SAFETY: as above; a shared alloc gives nothing but its address.
unsafe impl Sync for HostAlloc {}

impl HostAlloc {
    fn fresh(size: usize) -> Option<HostAlloc> {
        let layout = Layout::from_size_align(size, ALIGN).ok()?;
        // SAFETY: the layout has a nonzero size.
        let ptr = NonNull::new(unsafe { std::alloc::alloc_zeroed(layout) })?;
        Some(HostAlloc { ptr, layout })
    }

    fn fill(&self, byte: u8) {
        // SAFETY: the allocation is so many bytes long, and nobody else has it.
        unsafe { self.ptr.write_bytes(byte, self.layout.size()) }
    }

    fn free(self) {
        // SAFETY: allocated in `fresh` with this layout; `self` is gone afterwards.
        unsafe { std::alloc::dealloc(self.ptr.as_ptr(), self.layout) }
    }
}

/// A thread's small blocks, freed with it.
struct SmallBlocks(Vec<HostAlloc>);

impl Drop for SmallBlocks {
    fn drop(&mut self) {
        self.0.drain(..).for_each(HostAlloc::free);
    }
}

thread_local! {
    static SMALL_BLOCKS: RefCell<SmallBlocks> = const { RefCell::new(SmallBlocks(Vec::new())) };
}

#[derive(Default)]
struct FreeList {
    by_size: BTreeMap<usize, Vec<HostAlloc>>,
    bytes: usize,
}

static FREE_LIST: Mutex<FreeList> = Mutex::new(FreeList { by_size: BTreeMap::new(), bytes: 0 });

fn free_list() -> MutexGuard<'static, FreeList> {
    FREE_LIST.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Sizes are rounded up to eighths of a power of two, so that a block serves requests of about its
/// size.
fn rounded(len: usize) -> Option<usize> {
    if len < MIN_CACHED {
        return Some(len.max(SMALL));
    }
    len.checked_next_multiple_of(len.checked_next_power_of_two()? / 8)
}

fn reuse(size: usize) -> Option<HostAlloc> {
    if size == SMALL {
        // a thread that is ending has none
        return SMALL_BLOCKS.try_with(|s| s.borrow_mut().0.pop()).ok().flatten();
    }
    if size < MIN_CACHED {
        return None;
    }
    let mut free_list = free_list();
    let alloc = free_list.by_size.get_mut(&size)?.pop()?;
    free_list.bytes -= size;
    Some(alloc)
}

/// Bytes on the host; dropping them caches or frees them.
pub(crate) struct Block(ManuallyDrop<HostAlloc>);

impl Block {
    /// At least `len` bytes, all zero; `None` where the memory cannot be had. Fresh memory costs no
    /// zeroing: the system hands out zero pages.
    pub(crate) fn zeroed(len: usize) -> Option<Block> {
        let size = rounded(len)?;
        let reused = reuse(size).inspect(|alloc| alloc.fill(0));
        Some(Block(ManuallyDrop::new(reused.or_else(|| HostAlloc::fresh(size))?)))
    }

    /// At least `len` bytes of any value, for those who write them all.
    pub(crate) fn any(len: usize) -> Option<Block> {
        let size = rounded(len)?;
        let alloc = reuse(size).or_else(|| HostAlloc::fresh(size))?;
        if cfg!(debug_assertions) {
            // whoever reads before writing is seen in tests
            alloc.fill(0xCB);
        }
        Some(Block(ManuallyDrop::new(alloc)))
    }

    /// Where it begins.
    pub(crate) fn ptr(&self) -> NonNull<u8> {
        self.0.ptr
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        // SAFETY: taken once, here; the block is gone afterwards.
        let alloc = unsafe { ManuallyDrop::take(&mut self.0) };
        let size = alloc.layout.size();
        if size == SMALL {
            return cache_small(alloc);
        }
        if !(MIN_CACHED..=MAX_CACHED_BYTES).contains(&size) {
            return alloc.free();
        }
        if free_list().bytes + size > MAX_CACHED_BYTES {
            // sizes that are no longer asked for must not stay for ever
            release_cached_memory();
        }
        let mut free_list = free_list();
        free_list.bytes += size;
        free_list.by_size.entry(size).or_default().push(alloc);
    }
}

fn cache_small(alloc: HostAlloc) {
    let mut alloc = Some(alloc);
    let _ = SMALL_BLOCKS.try_with(|s| {
        let list = &mut s.borrow_mut().0;
        if list.len() < MAX_SMALL_CACHED {
            list.extend(alloc.take());
        }
    });
    // there are enough, or the thread is ending
    if let Some(alloc) = alloc {
        alloc.free();
    }
}

/// Gives the memory that was cached for reuse, at most 1 GiB, back to the system.
pub fn release_cached_memory() {
    let released = std::mem::take(&mut *free_list());
    released.by_size.into_values().flatten().for_each(HostAlloc::free);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_as_long_as_asked_and_little_longer() {
        for len in
            [SMALL, SMALL + 1, MIN_CACHED - 1, MIN_CACHED, MIN_CACHED + 1, 3 << 20, (5 << 20) + 13]
        {
            let size = rounded(len).unwrap();
            assert!(size >= len && size <= (len + len / 4).max(1), "{len} {size}");
        }
        assert_eq!(rounded(0), Some(SMALL));
        assert!(rounded(usize::MAX).is_none());
    }

    #[test]
    fn reused_memory_is_zero_where_zeros_are_asked_for() {
        // a size that no other test asks for
        let len = 777 << 10;
        for _ in 0..3 {
            let block = Block::zeroed(len).unwrap();
            // SAFETY: the block is this long and ours alone.
            let bytes = unsafe { std::slice::from_raw_parts_mut(block.ptr().as_ptr(), len) };
            assert!(bytes.iter().all(|b| *b == 0));
            bytes.fill(1);
        }
        release_cached_memory();
    }
}
