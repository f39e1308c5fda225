//! What joins tracing, passes and execution.
//!
//! **Architecture invariant:** nothing here computes: it calls what the crates below do, in order,
//! and hands results over.
#![deny(unsafe_code)]
#![warn(missing_docs)]

mod export;
mod functional;

pub use export::{
    Condition, ExportOptions, InputKind, InputSpec, OutputKind, OutputSpec, Program,
    RangeConstraint, Signature,
};
pub use functional::{run_functional, run_in_place, run_planned};
pub use maquette_ir::copy_cost::Traffic;
