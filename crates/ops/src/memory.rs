//! Host memory that is kept for reuse: the pages of a fresh large block cost more than the kernels that fill it.
//!
//! Safety of this module: a [`Place`] is the only handle to its allocation, and is moved, never copied: from a block to the list, from the
//! list to a block, or into `free`. All bytes are initialised, since every allocation was made zeroed.
#![allow(unsafe_code)]

use std::alloc::Layout;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::mem::ManuallyDrop;
use std::ptr::NonNull;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Cache-line and vector alignment of every block.
const ALIGN: usize = 64;
/// Blocks from this size on are kept for every thread; those below it but for the smallest are left to the allocator, which keeps such itself.
const LEAST: usize = 128 << 10;
/// The smallest blocks are of this size, and each thread keeps some: aligned allocation costs more than most operators on few elements.
const SMALL: usize = 256;
/// So many.
const SMALL_KEPT: usize = 64;
/// At most so many bytes are kept.
const MOST_KEPT: usize = 1 << 30;

/// An allocation; whoever holds the value may free it, once.
struct Place {
    ptr: NonNull<u8>,
    layout: Layout,
}

// SAFETY: an allocation is plain bytes; what is read or written through its pointer is the business of its owner.
unsafe impl Send for Place {}
// SAFETY: as above; a shared place gives nothing but its address.
unsafe impl Sync for Place {}

impl Place {
    fn fresh(size: usize) -> Option<Place> {
        let layout = Layout::from_size_align(size, ALIGN).ok()?;
        // SAFETY: the layout has a nonzero size.
        let ptr = NonNull::new(unsafe { std::alloc::alloc_zeroed(layout) })?;
        Some(Place { ptr, layout })
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
struct Small(Vec<Place>);

impl Drop for Small {
    fn drop(&mut self) {
        self.0.drain(..).for_each(Place::free);
    }
}

thread_local! {
    static SMALL_BLOCKS: RefCell<Small> = const { RefCell::new(Small(Vec::new())) };
}

#[derive(Default)]
struct Kept {
    by_size: BTreeMap<usize, Vec<Place>>,
    bytes: usize,
}

static KEPT: Mutex<Kept> = Mutex::new(Kept { by_size: BTreeMap::new(), bytes: 0 });

fn kept() -> MutexGuard<'static, Kept> {
    KEPT.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Sizes are rounded up to eighths of a power of two, so that a block serves requests of about its size.
fn rounded(len: usize) -> Option<usize> {
    if len < LEAST {
        return Some(len.max(SMALL));
    }
    len.checked_next_multiple_of(len.checked_next_power_of_two()? / 8)
}

fn reuse(size: usize) -> Option<Place> {
    if size == SMALL {
        // a thread that is ending has none
        return SMALL_BLOCKS.try_with(|s| s.borrow_mut().0.pop()).ok().flatten();
    }
    if size < LEAST {
        return None;
    }
    let mut kept = kept();
    let place = kept.by_size.get_mut(&size)?.pop()?;
    kept.bytes -= size;
    Some(place)
}

/// Bytes on the host; dropping them keeps or frees them.
pub(crate) struct Block(ManuallyDrop<Place>);

impl Block {
    /// At least `len` bytes, all zero; `None` where the memory cannot be had. Fresh memory costs no zeroing: the system hands out zero pages.
    pub(crate) fn zeroed(len: usize) -> Option<Block> {
        let size = rounded(len)?;
        let reused = reuse(size).inspect(|place| place.fill(0));
        Some(Block(ManuallyDrop::new(reused.or_else(|| Place::fresh(size))?)))
    }

    /// At least `len` bytes of any value, for those who write them all.
    pub(crate) fn any(len: usize) -> Option<Block> {
        let size = rounded(len)?;
        let place = reuse(size).or_else(|| Place::fresh(size))?;
        if cfg!(debug_assertions) {
            // whoever reads before writing is seen in tests
            place.fill(0xCB);
        }
        Some(Block(ManuallyDrop::new(place)))
    }

    /// Where it begins.
    pub(crate) fn ptr(&self) -> NonNull<u8> {
        self.0.ptr
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        // SAFETY: taken once, here; the block is gone afterwards.
        let place = unsafe { ManuallyDrop::take(&mut self.0) };
        let size = place.layout.size();
        if size == SMALL {
            return keep_small(place);
        }
        if !(LEAST..=MOST_KEPT).contains(&size) {
            return place.free();
        }
        if kept().bytes + size > MOST_KEPT {
            // sizes that are no longer asked for must not stay for ever
            release_kept_memory();
        }
        let mut kept = kept();
        kept.bytes += size;
        kept.by_size.entry(size).or_default().push(place);
    }
}

fn keep_small(place: Place) {
    let mut place = Some(place);
    let _ = SMALL_BLOCKS.try_with(|s| {
        let list = &mut s.borrow_mut().0;
        if list.len() < SMALL_KEPT {
            list.extend(place.take());
        }
    });
    // there are enough, or the thread is ending
    if let Some(place) = place {
        place.free();
    }
}

/// Gives the memory that was kept for reuse, at most 1 GiB, back to the system.
pub fn release_kept_memory() {
    let released = std::mem::take(&mut *kept());
    released.by_size.into_values().flatten().for_each(Place::free);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_as_long_as_asked_and_little_longer() {
        for len in [SMALL, SMALL + 1, LEAST - 1, LEAST, LEAST + 1, 3 << 20, (5 << 20) + 13] {
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
        release_kept_memory();
    }
}
