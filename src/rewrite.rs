//! Passes over graphs: programs that mutate as graphs of values. See `docs/functionalization.md`.

pub use maquette_driver::{Traffic, run_functional, run_in_place, run_planned};
pub use maquette_rewrite::*;
