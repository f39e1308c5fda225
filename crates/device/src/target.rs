//! What a device can do.

/// Facts about a device. Data, no functions: a target can be printed, compared and kept in a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// The alignment of every block in bytes: a power of two, 64 at least. Buffers of a program lie
    /// at multiples of 64 bytes in a block.
    pub alignment: usize,
    /// Whether host code may dereference the addresses of the device once its queue is done with
    /// them.
    pub is_host_memory: bool,
    /// Whether a launch may fail after its call has returned: its error is in its
    /// [slot](crate::FailureSlot) after a wait. Never together with `is_host_memory`: host code
    /// would have to wait before each access.
    pub reports_late: bool,
    /// Whether the kernels that users register for the CPU serve the device, too: on copies in host
    /// memory, as operators of the library without a kernel for the device.
    pub runs_host_kernels: bool,
}
