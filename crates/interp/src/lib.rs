//! The reference interpreter: executes graphs operator by operator, and checks every assumption of
//! the trace.
//!
//! [`Interpreter`] is the entry point. An [`ExecutionMode`] selects the program: a traced graph, a
//! functional graph in new memory, or a functional graph in the memory of a buffer plan. All modes
//! give the same results, write the same inputs and return outputs with the same aliases, so each
//! mode is a reference for the others.
//!
//! ```
//! # use maquette_aten as _;
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
//! `frame` holds the values of one run. `functional` and `buffered` execute the nodes of functional
//! graphs in new and in planned memory. `calling_convention` writes mutations back and builds
//! outputs. What the compiled runtime needs, too, is in `maquette-invoke`: bindings of symbols,
//! checks of metadata, arguments, results and outputs.
//!
//! **Architecture invariant:** this crate runs functional graphs and buffer plans by their
//! definitions in `ir`. It knows none of the passes that make them.
#![deny(unsafe_code)]
#![warn(missing_docs)]

mod buffered;
mod calling_convention;
mod check_calls;
mod fake_values;
mod frame;
mod functional;
mod interpreter;

pub use check_calls::check_calls;
pub use fake_values::FakeValues;
pub use interpreter::{Execution, Interpreter};
pub use maquette_ir::copy_cost::Traffic;
pub use maquette_ir::functional_program::ExecutionMode;
