//! Memory of a device, in blocks.

use crate::address::Address;
use std::fmt;

/// What is in a new block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Contents {
    /// Every byte is 0.
    Zeros,
    /// Bytes of any value, for callers that write every byte.
    Any,
}

/// A device has no memory for a block.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no memory for {bytes} bytes")]
pub struct OutOfMemory {
    /// The number of bytes that were asked for.
    pub bytes: usize,
}

/// The allocator of a device.
pub trait Memory: Send + Sync {
    /// A block of at least `len` bytes, aligned as [`Target::alignment`](crate::Target) says. It
    /// belongs to the caller until [`Memory::free`].
    ///
    /// # Errors
    /// Memory runs out.
    fn allocate(&self, len: usize, contents: Contents) -> Result<Address, OutOfMemory>;

    /// Takes a block back, after the commands that the queue has received so far.
    ///
    /// # Safety
    /// `at` is what [`Memory::allocate`] returned for `len`, and was not freed since. No later
    /// command and no host code uses the block.
    unsafe fn free(&self, at: Address, len: usize);

    /// Gives memory that is kept for later blocks back to the system.
    fn release_cached(&self);
}

/// A block of device memory, which is freed when it is dropped.
pub struct Block {
    at: Address,
    len: usize,
    memory: &'static dyn Memory,
}

impl Block {
    /// `len` bytes of a device's memory.
    ///
    /// # Errors
    /// Memory runs out.
    pub fn allocate(
        memory: &'static dyn Memory,
        len: usize,
        contents: Contents,
    ) -> Result<Block, OutOfMemory> {
        Ok(Block { at: memory.allocate(len, contents)?, len, memory })
    }

    /// The address of the first byte.
    pub fn at(&self) -> Address {
        self.at
    }

    /// The number of bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether the block has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        // SAFETY: the block was allocated with this length, is freed once, and its owner ends the
        // use of its address with it.
        unsafe { self.memory.free(self.at, self.len) }
    }
}

impl fmt::Debug for Block {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes at {:?}", self.len, self.at)
    }
}
