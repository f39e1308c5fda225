//! CPU executors of the kernel classes, over raw strided buffers.
//!
//! Every executor is a safe function over [`View`]s; making a view from raw parts is the unsafe step. Results are the same
//! bits at any number of threads and on every instruction set. Nothing panics: what does not fit is a [`KernelError`].
//!
//! **Architecture invariant:** this crate knows no tensor, graph or operator.
#![deny(unsafe_op_in_unsafe_fn)]
#![warn(missing_docs)]

mod element;
mod error;
mod isa;
mod layout;
mod math;
mod pointwise;
mod pool;
mod view;

pub use element::{Class, Element};
pub use error::KernelError;
pub use isa::Isa;
pub use pointwise::{pointwise, pointwise_on};
pub use pool::num_threads;
pub use view::{Dims, View, ViewMut};
