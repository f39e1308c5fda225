//! Functionalization: what a program that mutates does, as a graph of values in which nothing mutates.
//!
//! **Architecture invariant:** nothing here knows of tensors, kernels or devices. Operators are known by name, and by what
//! [`MemoryFacts`] says of them.
#![deny(unsafe_code)]
#![warn(missing_docs)]

mod dag;
mod emit;
mod error;
mod functional;
mod lift;
mod memory;

pub use error::{FunctionalizeError, Reason};
pub use functional::{Functional, Mutation, Output, Outside};

use maquette_ir::graph::{Graph, MemoryFacts};

/// The name under which operators that mutate are called on copies. Its first argument is their name.
pub const CALL: &str = emit::CALL;

/// Makes a program functional.
///
/// # Errors
/// The program has no functional form: it writes to a tensor whose elements overlap, writes to two arguments of one operator that may
/// overlap, reads a storage beyond the tensor it belongs to or as another dtype.
pub fn functionalize(graph: &Graph, facts: &dyn MemoryFacts) -> Result<Functional, FunctionalizeError> {
    emit::emit(graph, lift::lift(graph, facts)?)
}
