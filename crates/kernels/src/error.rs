//! Errors of the executors.

pub use maquette_device::KernelError;

pub(crate) type Result<T, E = KernelError> = std::result::Result<T, E>;
