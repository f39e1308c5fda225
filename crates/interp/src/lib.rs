//! The reference interpreter: executes graphs operator by operator, and checks everything that the
//! trace took for granted.
//!
//! [`Interpreter`] is the one entry. An [`ExecutionMode`] says what is executed: a graph as it was
//! traced, a functional graph in new memory, or a functional graph in the memory of a plan. All
//! modes give the same results, write the same inputs and return outputs that alias the same
//! tensors, so each is a reference for the others.
//!
//! ```
//! use maquette_interp::Interpreter;
//! use maquette_ir::graph::Graph;
//! use maquette_ops::{Tensor, Value};
//!
//! let graph: Graph = "graph g(%x: f32[2]) -> (f32[2]) {
//!     %y: f32[2] = aten::relu(%x)
//!     return %y
//! }"
//! .parse()?;
//! let x = Value::from(Tensor::from([1.0f32, -1.0]));
//! let results = Interpreter::new(&graph).run(&[x])?.results;
//! assert_eq!(results[0].tensor()?.to_vec::<f32>()?, [1.0, 0.0]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! `frame` holds the values of one run; `functional` and `buffered` are the two ways to execute the
//! nodes of functional graphs; `calling_convention` writes results back and lays outputs out;
//! `bindings` binds symbols and checks metadata; `copies` makes copies with chosen strides.
//!
//! **Architecture invariant:** this crate knows the form of functional graphs and plans, and no
//! pass that makes them. It calls operators one by one, as the program would.
#![deny(unsafe_code)]
#![warn(missing_docs)]

mod bindings;
mod buffered;
mod calling_convention;
mod captured;
mod check_calls;
mod copies;
mod external_tensors;
mod frame;
mod functional;
mod interpreter;
pub mod metadata_check;
mod source_info;

pub use bindings::input_symbols;
pub use captured::Captured;
pub use check_calls::check_calls;
pub use interpreter::{Execution, Interpreter};
pub use maquette_ir::copy_cost::Traffic;
pub use maquette_ir::functional_program::ExecutionMode;
pub use source_info::SourceInfo;
