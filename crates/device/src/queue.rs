//! Commands to a device.

use crate::address::Address;
use crate::fault::Fault;

/// Elements of one width in the memory of a device.
#[derive(Clone, Copy, Debug)]
pub struct Elements<'a> {
    /// The address of the first element.
    pub at: Address,
    /// The size of an element in bytes: 1, 2, 4 or 8.
    pub width: usize,
    /// The number of elements along each dimension.
    pub sizes: &'a [i64],
    /// The step along each dimension, in elements; not negative.
    pub strides: &'a [i64],
}

/// A point in the order of a queue: all commands received before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Fence(pub u64);

/// The commands of a device, in one order. A command may be done after its call returned; the next
/// commands see what it did.
pub trait Queue: Send + Sync {
    /// Copies bytes from the host. `from` can be reused as soon as the call returns.
    ///
    /// # Errors
    /// The device is lost.
    ///
    /// # Safety
    /// `to` is the address of `from.len()` allocated bytes that no other thread's commands access
    /// until this command is done.
    unsafe fn upload(&self, from: &[u8], to: Address) -> Result<(), Fault>;

    /// Copies bytes to the host, after waiting for all commands so far.
    ///
    /// # Errors
    /// As [`Queue::wait`].
    ///
    /// # Safety
    /// `from` is the address of `to.len()` allocated bytes that no other thread's commands write
    /// meanwhile.
    unsafe fn download(&self, from: Address, to: &mut [u8]) -> Result<(), Fault>;

    /// Copies elements to elements of equal width and sizes, in other strides.
    ///
    /// # Errors
    /// The device is lost.
    ///
    /// # Safety
    /// All elements are allocated. No two elements of `to` share a byte, and none shares a byte
    /// with an element of `from`. No other thread's commands write the source or access the target
    /// until this command is done.
    unsafe fn copy(&self, from: Elements<'_>, to: Elements<'_>) -> Result<(), Fault>;

    /// The point after all commands so far.
    fn fence(&self) -> Fence;

    /// Waits until all commands before a point are done.
    ///
    /// # Errors
    /// The first fault of a command since the last wait, but for errors of kernels: they are in the
    /// slots of their launches.
    fn wait(&self, fence: Fence) -> Result<(), Fault>;
}
