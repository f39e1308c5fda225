//! How a graph is called: what the interpreter and the compiled runtime have in common.
//!
//! ```text
//! inputs ── ExternalTensors ──> borrows, memory that inputs share
//!        ── Bindings ─────────> symbols, guards, assertions, metadata
//! node   ── Callable, arguments ──> a call ── NodeReturns, ResultRules ──> results
//! results ── OutputBuilder ───> outputs with the aliases of the original program
//! ```
//!
//! **Architecture invariant:** this crate runs nothing. The interpreter and the runtime decide in
//! which order nodes run, and where values are.
#![deny(unsafe_code)]
#![warn(missing_docs)]

mod arguments;
mod bindings;
mod callable;
mod captured;
mod copies;
mod errors;
mod external_tensors;
mod layouts;
pub mod metadata_check;
mod node_call;
mod outputs;
mod overrides;
mod results;
mod source_info;

pub use arguments::{argument_value, arguments};
pub use bindings::{Bindings, SymbolValues, bound_number, input_symbols};
pub use callable::Callable;
pub use captured::Captured;
pub use copies::{copy_for_write, copy_overlapping, copy_with_strides, with_strides};
pub use errors::{in_window, outside_modes, too_large, wrong_graph};
pub use external_tensors::{ExternalTensors, StorageId, storage_id};
pub use layouts::{ConcreteLayout, concrete_layout, extent};
pub use node_call::{NodeResults, NodeReturns, replace_mutated};
pub use outputs::{OutputBuilder, mutated};
pub use overrides::check_overrides;
pub use results::{PendingCheck, ResultRules, match_results};
pub use source_info::SourceInfo;
