//! Random tests of the project: programs whose eager run is the oracle ([`oracle`]), chains of
//! operators that fuse ([`chains`]), calls of every operator ([`random_calls`]), shared compiled
//! functions on many threads ([`soak`]), and a checker of buffer plans ([`plan_check`]).
//!
//! **Architecture invariant:** no other library depends on this crate.
#![deny(unsafe_code)]
#![warn(missing_docs)]

pub mod chains;
pub mod oracle;
pub mod plan_check;
pub mod random_calls;
pub mod soak;

#[doc(hidden)]
pub use maquette_ops;

// Programs call the builtin operators by name.
use maquette_aten as _;
