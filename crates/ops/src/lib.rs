//! Tensors and operators: storages and their borrows, the registry and the dispatcher, and the
//! vocabulary of the tables of builtin operators.
//!
//! **Architecture invariant:** nothing here knows of graphs or passes. A tracer is a
//! [`Mode`](mode::Mode) like any other, and a traced tensor is a handle with a number that only the
//! tracer understands.
#![deny(unsafe_code, unsafe_op_in_unsafe_fn)]
#![warn(missing_docs)]

pub mod autograd;
mod dispatch;
mod error;
pub mod func;
mod functional_call;
#[doc(hidden)]
pub mod internals;
pub mod library;
mod methods;
pub mod module;
#[doc(hidden)]
pub mod operator;
pub mod random;
mod scope;
mod scoped_cell;
mod tensor;
pub mod tree;

pub use dispatch::autocast::{autocast, autocast_dtype, without_autocast};
pub use dispatch::device::with_default_device;
pub use dispatch::fake::FakeCtx;
pub use dispatch::panics::with_silent_panics;
#[doc(hidden)]
pub use dispatch::prepared::composed_nests;
pub use dispatch::prepared::{
    KernelBinding, LoweredBody, LoweredCall, LoweredNest, PlacedOperand, PreparedCall,
    PreparedKernel, Work,
};
pub use dispatch::threads::num_threads;
pub use dispatch::value::{Args, Outputs, Value, ValueKind};
pub use dispatch::value_list::ValueList;
pub use dispatch::write_counts::{
    call_writes, concrete_numel, contiguous_copy_writes, copy_writes,
};
pub use dispatch::{call, call_kw, fake, mode};
pub use error::{
    AccessError, AutogradError, CallError, CompileError, Error, ErrorKind, ExportError, FakeError,
    GuardFailure, RegisterError, Remedy, Result, RunError, TraceError, Violation,
};
pub use library::{Effect, Kwargs, Op, Resource, custom_op};
pub use maquette_device::release_cached_memory;
pub use maquette_ir::graph::MAX_LIST_DEPTH;
pub use maquette_kernels::{occupying_a_core, with_num_threads};
pub use methods::index::{Index, IntoIndex, NewAxis, SliceRange};
pub use methods::{Operand, Recurrence};
pub use module::Module;
pub use operator::Reduction;
pub use scope::named_scope;
pub use tensor::access::{ReadGuard, WriteGuard};
pub use tensor::arena::Arena;
pub use tensor::borrow::Access;
pub use tensor::by_storage::{ByStorage, any_may_overlap};
pub use tensor::clone_storages::StorageCloner;
pub use tensor::element::Element;
pub use tensor::holder::RunInput;
pub use tensor::kernel_scope::is_in_kernel;
pub use tensor::meta::{Concrete, Dims, IntoDims, Meta};
pub use tensor::run_borrow::{RunBorrow, RunTensor, RunTensors};
pub use tensor::storage::Storage;
pub use tensor::{Tensor, TraceSlot, TraceTag};
pub use tree::Tree;

#[doc(hidden)]
pub use inventory;

// For opcheck.
#[doc(hidden)]
pub use dispatch::panics::message_of as message_of_panic;

/// What macros name.
#[doc(hidden)]
pub mod __private {
    pub use half::{bf16, f16};
    pub use maquette_ir::graph::ArithOp;
    pub use maquette_ir::{DType, Loc};
}
