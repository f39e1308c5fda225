//! A caching allocator for host memory, as the caching allocators of PyTorch's accelerator
//! backends.
//!
//! Problem: the page faults of a fresh large block cost more than the kernels that fill the block,
//! and an aligned system allocation costs more than most operators on few elements. Two caches
//! solve this:
//!
//! - Blocks of at least `MIN_CACHED` bytes go to one process-wide free list, keyed by size class.
//!   Size classes are eighths of a power of two, so a block wastes at most a quarter. When the list
//!   would exceed `MAX_CACHED_BYTES`, it is emptied first.
//! - Blocks of up to `SMALL` bytes all have the size `SMALL` and go to a list per thread, which
//!   needs no lock.
//!
//! Sizes in between are left to the system allocator, which caches them itself.
//!
//! Safety of this module: a [`HostAlloc`] is the only handle to its allocation. It is moved, never
//! copied: from a cache to the caller of [`Memory::allocate`], and from [`Memory::free`] to a cache
//! or into [`HostAlloc::free`]. Every byte is initialised, because allocations are zeroed at first.

use maquette_device::{Address, Contents, Memory, OutOfMemory};
use std::alloc::Layout;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ptr::NonNull;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The alignment of every block in bytes: a cache line, and the widest vector.
pub(super) const ALIGN: usize = 64;
/// Blocks of at least this many bytes are cached process-wide.
const MIN_CACHED: usize = 128 << 10;
/// The size of the smallest blocks in bytes. Each thread caches some of these.
const SMALL: usize = 256;
/// The most small blocks that one thread caches.
const MAX_SMALL_CACHED: usize = 64;
/// The most bytes that the process-wide free list holds.
const MAX_CACHED_BYTES: usize = 1 << 30;

/// A heap allocation. The holder of this value owns the allocation and may free it once.
struct HostAlloc {
    ptr: NonNull<u8>,
    layout: Layout,
}

// SAFETY: an allocation is plain bytes. Its owner is responsible for all access through the
// pointer.
unsafe impl Send for HostAlloc {}
// SAFETY: as above; a shared `HostAlloc` exposes only its address.
unsafe impl Sync for HostAlloc {}

impl HostAlloc {
    fn fresh(size: usize) -> Option<HostAlloc> {
        let layout = Layout::from_size_align(size, ALIGN).ok()?;
        // SAFETY: the layout has a nonzero size.
        let ptr = NonNull::new(unsafe { std::alloc::alloc_zeroed(layout) })?;
        Some(HostAlloc { ptr, layout })
    }

    fn fill(&self, byte: u8) {
        // SAFETY: the allocation has `layout.size()` bytes, and no other handle to it exists.
        unsafe { self.ptr.write_bytes(byte, self.layout.size()) }
    }

    fn free(self) {
        // SAFETY: allocated in `fresh` with this layout; `self` is gone afterwards.
        unsafe { std::alloc::dealloc(self.ptr.as_ptr(), self.layout) }
    }
}

/// A thread's cache of small blocks, freed when the thread ends.
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

/// The size class of a request of `len` bytes, or `None` on overflow: from `MIN_CACHED` on, `len`
/// rounded up to an eighth of the next power of two, so that a cached block serves requests of
/// similar size.
fn rounded(len: usize) -> Option<usize> {
    if len < MIN_CACHED {
        return Some(len.max(SMALL));
    }
    len.checked_next_multiple_of(len.checked_next_power_of_two()? / 8)
}

fn reuse(size: usize) -> Option<HostAlloc> {
    if size == SMALL {
        // the cache is gone while its thread ends
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

/// The allocator of the host.
pub(super) struct HostMemory;

impl Memory for HostMemory {
    fn allocate(&self, len: usize, contents: Contents) -> Result<Address, OutOfMemory> {
        let failed = OutOfMemory { bytes: len };
        let size = rounded(len).ok_or(failed.clone())?;
        let reused = reuse(size);
        if let Some(alloc) = &reused {
            match contents {
                Contents::Zeros => alloc.fill(0),
                // makes reads before the first write visible in tests
                Contents::Any if cfg!(debug_assertions) => alloc.fill(0xCB),
                Contents::Any => {}
            }
        }
        // Fresh memory needs no explicit zeroing, because the system provides zero pages.
        let alloc = reused.or_else(|| HostAlloc::fresh(size)).ok_or(failed)?;
        Ok(Address::of_host(alloc.ptr))
    }

    unsafe fn free(&self, at: Address, len: usize) {
        // `allocate` found both for this length.
        let size = rounded(len).unwrap_or_default();
        let (Some(ptr), Ok(layout)) =
            (NonNull::new(at.as_ptr()), Layout::from_size_align(size, ALIGN))
        else {
            return;
        };
        let alloc = HostAlloc { ptr, layout };
        if size == SMALL {
            return cache_small(alloc);
        }
        if !(MIN_CACHED..=MAX_CACHED_BYTES).contains(&size) {
            return alloc.free();
        }
        if free_list().bytes + size > MAX_CACHED_BYTES {
            // blocks of sizes that the program no longer uses must not fill the cache forever
            self.release_cached();
        }
        let mut free_list = free_list();
        free_list.bytes += size;
        free_list.by_size.entry(size).or_default().push(alloc);
    }

    /// Frees the process-wide list, at most 1 GiB.
    fn release_cached(&self) {
        let released = std::mem::take(&mut *free_list());
        released.by_size.into_values().flatten().for_each(HostAlloc::free);
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
    // the cache is full, or the thread is ending
    if let Some(alloc) = alloc {
        alloc.free();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn size_classes_exceed_the_request_by_at_most_a_quarter() {
        for len in
            [SMALL, SMALL + 1, MIN_CACHED - 1, MIN_CACHED, MIN_CACHED + 1, 3 << 20, (5 << 20) + 13]
        {
            let size = rounded(len).unwrap();
            assert!(size >= len && size <= (len + len / 4).max(1), "{len} {size}");
        }
        assert_eq!(rounded(0), Some(SMALL));
        assert!(rounded(usize::MAX).is_none());
    }
}
