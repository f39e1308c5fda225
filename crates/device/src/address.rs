//! Addresses in the memory of a device.

use std::fmt;
use std::ptr::{self, NonNull};

/// Where a byte lies in the memory of a device. Only the device's driver can dereference an
/// address; for everybody else it is a number to which offsets are added.
///
/// A pointer, not an integer, so that an address in host memory keeps its provenance.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(transparent)]
pub struct Address(*mut u8);

// SAFETY: an address is a number; whoever dereferences one answers for the access.
unsafe impl Send for Address {}
// SAFETY: as above.
unsafe impl Sync for Address {}

impl Address {
    /// The address of a byte of host memory.
    pub fn of_host(ptr: NonNull<u8>) -> Address {
        Address(ptr.as_ptr())
    }

    /// The address `number` of a device whose memory is not in the host's address space.
    pub fn of_device(number: usize) -> Address {
        Address(ptr::without_provenance_mut(number))
    }

    /// The pointer, for a driver whose memory is the host's.
    pub fn as_ptr(self) -> *mut u8 {
        self.0
    }

    /// The pointers, for a driver whose memory is the host's.
    pub fn as_ptrs(addresses: &[Address]) -> &[*mut u8] {
        // SAFETY: an address is a pointer, with the same representation.
        unsafe { &*(std::ptr::from_ref(addresses) as *const [*mut u8]) }
    }

    /// The address as a number.
    pub fn number(self) -> usize {
        self.0.addr()
    }

    /// The address `bytes` further on. Nothing is checked.
    #[must_use]
    pub fn offset(self, bytes: usize) -> Address {
        Address(self.0.wrapping_add(bytes))
    }

    /// The address `bytes` further on, or back. Nothing is checked.
    #[must_use]
    pub fn moved(self, bytes: i64) -> Address {
        Address(self.0.wrapping_offset(bytes as isize))
    }
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}", self.number())
    }
}
