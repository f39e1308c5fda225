//! The intermediate representation: graphs, tensor types, symbolic sizes, operator schemas, typing
//! rules and views.
//!
//! **Architecture invariant:** this crate knows no operator by name, holds no tensor data and runs
//! no kernel.
#![deny(unsafe_code)]
#![warn(missing_docs)]

pub mod buffer_plan;
pub mod copy_cost;
mod device;
mod dtype;
mod effect;
#[doc(hidden)]
pub mod fault_injection;
pub mod functional_ops;
pub mod functional_program;
pub mod fused;
pub mod graph;
pub mod kernel_def;
mod layout;
mod loc;
pub mod loops;
pub mod program_form;
mod scalar;
pub mod scalar_expr;
pub mod schema;
pub mod sym;
pub mod typing;
pub mod view;

pub use device::{Device, DeviceKind, ParseDeviceError};
pub use dtype::{Category, DType, ParseDTypeError};
pub use effect::{Effect, Resource};
pub use layout::{Layout, MemoryFormat, ParseLayoutError};
pub use loc::Loc;
pub use scalar::Scalar;
