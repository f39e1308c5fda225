//! Tensors and operators: storages and their borrows, the registry and the dispatcher, the table of builtin operators.
//!
//! **Architecture invariant:** nothing here knows of graphs or passes. A tracer is a [`Mode`](mode::Mode) like any other, and a traced
//! tensor is a handle with a number that only the tracer understands.
#![deny(unsafe_code, unsafe_op_in_unsafe_fn)]
#![warn(missing_docs)]

mod access;
pub mod aten;
mod borrow;
mod copies;
mod device;
mod dispatch;
mod eager;
mod element;
mod error;
pub mod fake;
mod fit;
mod into;
pub mod library;
mod loans;
mod memory;
mod meta;
mod methods;
pub mod mode;
pub mod module;
mod overlap;
pub mod random;
mod shape;
mod storage;
mod tensor;
mod traffic;
pub mod tree;
mod value;

pub use access::{ReadGuard, WriteGuard};
pub use aten::Reduction;
pub use borrow::Access;
pub use copies::Copies;
pub use dispatch::{call, call_kw};
pub use element::Element;
pub use error::{AccessError, CallError, Error, ErrorKind, ExportError, FakeError, RegisterError, Result, RunError, TraceError, Violation};
pub use fake::FakeCtx;
pub use library::{Effect, Kwargs, Op, custom_op};
pub use memory::release_kept_memory;
pub use meta::{Concrete, Dims, IntoDims, Meta};
pub use methods::index::{Index, IntoIndex, NewAxis, SliceRange};
pub use methods::{Operand, Recurrence};
pub use module::Module;
pub use storage::Storage;
pub use tensor::{Slot, Tensor, TraceTag};
pub use traffic::{elements, traffic_of_call, traffic_of_copy, traffic_of_rows};
pub use tree::Tree;
pub use value::{Args, Outputs, Value, ValueKind};

#[doc(hidden)]
pub use inventory;

/// What macros name.
#[doc(hidden)]
pub mod __private {
    pub use half::{bf16, f16};
    pub use maquette_ir::DType;
}
