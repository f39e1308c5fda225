//! Trace Rust model code with opaque custom operators into graphs, and run them.
#![forbid(unsafe_code)]
#![warn(missing_docs)]

pub use maquette_macros::{Tree, custom_op, register_fake, register_kernel};
pub use maquette_ops::*;

/// What most programs use.
pub mod prelude {
    pub use crate::{Effect, Error, FakeCtx, Op, Result, Tensor, Tree, Value, args, custom_op, library, register_fake, register_kernel};
}

/// What the code of the macros names. Not for other use.
#[doc(hidden)]
pub mod __private {
    pub use maquette_ops::library::wrapper::{LazyOp, Written, tensors, values};
    pub use maquette_ops::library::{Stage, StaticRegistration};
    pub use maquette_ops::tree::{Leaves, TreeSpec, wrong_shape};
    pub use maquette_ops::{Args, Effect, Op, Result, Tree, Value, custom_op, inventory};
}
