//! Passes over graphs: programs that mutate as graphs of values, and plans for their memory.
//! [`Interpreter`](crate::interp::Interpreter) runs them. See `docs/functionalization.md`.

pub use maquette_rewrite::*;
