//! The passes that make a graph a program which runs fast, in their order: [`compile`] runs them,
//! and [`Executable`](crate::runtime::Executable) takes what they make.
//!
//! ```
//! use maquette::pipeline::{Pass, PassOptions, compile_observed};
//! use maquette::prelude::*;
//! use std::ops::ControlFlow;
//!
//! let traced = trace(|x: Tensor| (x * 2.0).relu().add_(1.0), Tensor::ones([4], DType::F32))?;
//! // What each pass makes of the graph; `maquette explain --after PASS` prints the same.
//! let mut seen = Vec::new();
//! compile_observed(traced.graph(), &PassOptions::new(), &mut |pass, program| {
//!     seen.push((pass, program.graph().clone()));
//!     Ok(ControlFlow::Continue(()))
//! })?;
//! let nodes = |of: Pass| seen.iter().find(|(pass, _)| *pass == of).unwrap().1.node_count();
//! assert_eq!((nodes(Pass::SelectPlan), nodes(Pass::Fuse)), (3, 1));
//! # Ok::<(), Error>(())
//! ```

/// The forms of a program between tracing and execution.
pub use maquette_ir::program_form::{PlannedProgram, ProgramForm};
pub use maquette_pipeline::*;
