//! The blocks of a test device: where the bytes are that an address stands for.

use maquette_device::{Address, Contents, Fault, OutOfMemory};
use maquette_kernels::host_memory;
use std::collections::BTreeMap;

/// The alignment of blocks, and the least distance between two of them.
pub(crate) const ALIGN: usize = 64;

/// The first address. No process has memory here: the number has more bits than an address of a
/// user's process on any 64-bit machine, and fewer than the byte that some machines ignore.
const FIRST: usize = 1 << 54;

/// The live blocks of a device.
pub(crate) struct Blocks {
    /// By address: the length, and where the bytes are.
    live: BTreeMap<usize, (usize, Address)>,
    next: usize,
}

impl Blocks {
    pub fn new() -> Blocks {
        Blocks { live: BTreeMap::new(), next: FIRST }
    }

    pub fn len(&self) -> usize {
        self.live.len()
    }

    /// A block with an address that was never used.
    ///
    /// # Errors
    /// The host has no memory.
    pub fn allocate(&mut self, len: usize, contents: Contents) -> Result<Address, OutOfMemory> {
        let bytes = host_memory().allocate(len, contents)?;
        let at = self.next;
        self.next = at + len.next_multiple_of(ALIGN) + ALIGN;
        self.live.insert(at, (len, bytes));
        Ok(Address::of_device(at))
    }

    /// Frees a block.
    ///
    /// # Errors
    /// There is no such block.
    pub fn free(&mut self, at: Address, len: usize) -> Result<(), Fault> {
        match self.live.remove(&at.number()) {
            Some((own, bytes)) if own == len => {
                // SAFETY: allocated with this length, and taken from the table.
                unsafe { host_memory().free(bytes, len) };
                Ok(())
            }
            _ => Err(Fault::StaleAddress { command: "free", at, bytes: len }),
        }
    }

    /// Where the bytes of an address are.
    ///
    /// # Errors
    /// Not all of them are in one live block.
    pub fn find(&self, command: &'static str, at: Address, len: usize) -> Result<Address, Fault> {
        let stale = Fault::StaleAddress { command, at, bytes: len };
        let before = self.live.range(..=at.number()).next_back();
        let (start, (own, bytes)) = before.ok_or(stale.clone())?;
        let offset = at.number() - start;
        match offset.checked_add(len) {
            Some(end) if end <= *own => Ok(bytes.offset(offset)),
            _ => Err(stale),
        }
    }
}
