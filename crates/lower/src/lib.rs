//! Lowering: from operators of a graph to kernels, as data that names no device.
//!
//! ```text
//! Op::lowered               what a builtin operator computes: an expression, or a loop nest
//! KernelFacts               which of them one kernel can compute, for the pass that fuses
//! lower_region              the kernel of a fused region, and what a launch of it binds
//! PreparedCall::of_kernel   the kernel on a device
//! ```
//!
//! A [`KernelDef`](maquette_ir::kernel_def::KernelDef) has symbols for sizes. So a device compiles
//! it once, and another size of a call binds other numbers.
//!
//! **Invariant.** A kernel computes the bits that its operators compute one by one.
#![deny(unsafe_code)]
#![warn(missing_docs)]

mod class;
mod facts;
mod lower_region;
mod region;
mod samples;
mod size_classes;

pub use facts::KernelFacts;
pub use lower_region::{LoweredRegion, lower_region};
pub use size_classes::SizeClasses;
