//! The boundary between the library and the devices that hold tensors and compute on them.
//!
//! ```text
//! Driver ── devices, open ──> OpenDevice ── target ──> Target   what the device can do, as data
//!                                        ── memory ──> Memory   blocks of bytes
//!                                        ── backend ─> Backend  kernels, from computations as data
//!                                        ── queue  ──> Queue    commands, in one order
//! ```
//!
//! A driver serves all devices of one [kind](maquette_ir::DeviceKind), and registers itself by
//! [`register_driver!`](crate::register_driver). The CPU is a driver like any other. Code above
//! this crate names no driver: [`open`] finds the driver of a device.
//!
//! Memory has opaque [addresses](Address): only the driver that allocated a block may use its
//! address. A [`Queue`] takes commands in program order, may return before they are done, and keeps
//! their order. Host code sees what they did after [`Queue::wait`]. The error of a kernel that runs
//! later is in the [`FailureSlot`] of its launch then, with what the launch belongs to.
//!
//! **The contract is unsafe and checks nothing**, as `wgpu-hal`'s: bounds, borrows, layouts and
//! lifetimes are checked by the callers, once. An error is what no caller can foresee: memory runs
//! out, a device is lost. The shape of the run side follows IREE's HAL, that of the whole the five
//! parts of a device in tinygrad.
//!
//! [`conformance`] is the suite that every driver passes.
#![warn(missing_docs)]
#![deny(unsafe_op_in_unsafe_fn)]

mod address;
pub mod conformance;
mod driver;
mod fault;
mod kernel;
mod kernel_error;
mod layout;
mod memory;
mod queue;
mod target;

pub use address::Address;
pub use driver::{Driver, DriverEntry, Missing, OpenDevice, drivers, open, release_cached_memory};
pub use fault::{Failing, FailureSlot, Fault, Origin};
pub use kernel::{Backend, Binding, Computation, Kernel, Launch, PackKey, PackedOperand};
pub use kernel_error::KernelError;
pub use layout::{Dims, Layout};
pub use memory::{Block, Contents, Memory, OutOfMemory};
pub use queue::{Elements, Fence, Queue};
pub use target::Target;

#[doc(hidden)]
pub use inventory;
