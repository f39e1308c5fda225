//! What joins tracing, passes and execution.
//!
//! **Architecture invariant:** nothing here computes: it calls what the crates below do, in order, and hands results over.
#![deny(unsafe_code)]
#![warn(missing_docs)]

mod functional;

pub use functional::{run_functional, run_planned};
