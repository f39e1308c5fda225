//! Maquette traces Rust model code into graphs, with kernels of any origin as opaque operators that
//! no compiler looks into.
//!
//! ```
//! use maquette::prelude::*;
//!
//! // the kernel is opaque; the signature is the schema: doc::numpy_sin(Tensor x) -> Tensor
//! #[custom_op("doc::numpy_sin")]
//! fn numpy_sin(x: &Tensor) -> Result<Tensor> {
//!     Ok(Tensor::from(x.read::<f32>()?.mapv(f32::sin)))
//! }
//!
//! // what a tracer needs to know: the output's sizes and dtype
//! #[register_fake(numpy_sin)]
//! fn numpy_sin_fake(_cx: &FakeCtx, x: &Tensor) -> Result<Tensor> {
//!     Ok(x.new_empty(x.sizes(), x.dtype()))
//! }
//!
//! # fn main() -> Result<()> {
//! let x = Tensor::from([0.0f32, 1.0, 2.0]);
//! let traced = TraceOptions::symbolic().names(["x"]).trace(|x: Tensor| numpy_sin(&x) + 1.0, x)?;
//! println!("{}", traced.graph());
//!
//! let y = traced.run(Tensor::from([0.0f32; 5]))?;   // another size: the trace is symbolic
//! assert_eq!(y.to_vec::<f32>()?, [1.0; 5]);
//! # Ok(())
//! # }
//! ```
//!
//! The parts: [`Tensor`] and its operators; [`macro@custom_op`] and what can be registered for one;
//! [`trace()`] and [`TraceOptions`]; [`ExportOptions`] and [`Program`]; [`rewrite`]; and the graph
//! of [`ir`]. The guides are in [`guide`].
#![deny(unsafe_code)]
#![warn(missing_docs)]

pub mod io;
pub mod library;
pub mod rewrite;

pub use maquette_driver::{
    Condition, ExportOptions, InputKind, InputSpec, OutputKind, OutputSpec, Program,
    RangeConstraint, Signature,
};
pub use maquette_interp as interp;
pub use maquette_interp::check_calls;

pub use maquette_ir as ir;
pub use maquette_ir::graph::Graph;
pub use maquette_ir::sym::{SymBool, SymInt};
pub use maquette_ir::{DType, Device, DeviceKind, Layout, Loc, MemoryFormat, Scalar};
pub use maquette_macros::{Module, Tree, custom_op, register_fake, register_kernel};
pub use maquette_ops as ops;
pub use maquette_ops::module::{Module, Slot};
pub use maquette_ops::tree::Tree;
pub use maquette_ops::{
    Effect, Element, Error, ErrorKind, FakeCtx, IntoDims, Op, Reduction, Result, Tensor, Value,
    args, bail, ensure, fake, kwargs,
};
pub use maquette_trace::{Dim, TraceOptions, Traced, trace};
pub use {half, ndarray};
#[cfg(feature = "check")]
pub use {
    maquette_check as check, maquette_check::opcheck_suite, maquette_trace::assert_graph_snapshot,
};

/// What most programs use.
pub mod prelude {
    #[cfg(feature = "check")]
    pub use crate::assert_graph_snapshot;
    pub use crate::{
        DType, Device, DeviceKind, Dim, Effect, Error, ExportOptions, FakeCtx, Graph, IntoDims,
        Layout, MemoryFormat, Module, Op, Program, Result, Scalar, Slot, SymBool, SymInt, Tensor,
        TraceOptions, Traced, Tree, Value, args, bail, custom_op, ensure, kwargs, library, ops,
        register_fake, register_kernel, trace,
    };
}

/// What the macros' output names. Not for use by hand.
#[doc(hidden)]
pub mod __private {
    pub use maquette_ir::sym::SymInt;
    pub use maquette_ops::library::wrapper::{
        LazyOp, Written, boxed, integer, register_fake, register_kernel, tensors, values,
    };
    pub use maquette_ops::library::{Stage, StaticRegistration, Tag};
    pub use maquette_ops::module::{Module, Slot as ModuleSlot, State as ModuleState, visit_part};
    pub use maquette_ops::tree::{Leaves, TreeSpec, wrong_shape};
    pub use maquette_ops::{
        Args, Effect, IntoDims, Op, Result, Tensor, Tree, Value, custom_op, inventory,
    };
}

/// The guides. A test compiles and runs their snippets, except the one that is a test of its own.
pub mod guide {
    #[doc = include_str!("../docs/custom-operators.md")]
    pub mod custom_operators {}
    #[doc = include_str!("../docs/branching.md")]
    pub mod branching {}
    #[doc = include_str!("../docs/export.md")]
    pub mod export {}
    #[doc = include_str!("../docs/functionalization.md")]
    pub mod functionalization {}
    #[doc = include_str!("../docs/snapshots.md")]
    pub mod snapshots {}
}

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
