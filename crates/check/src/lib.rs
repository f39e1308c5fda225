//! Checks of operators: custom ones against their contract ([`opcheck`]), derivatives against
//! differences ([`gradcheck`]).
//!
//! **Architecture invariant:** nothing here is needed to run a program; it looks at the other crates
//! from outside, through what they publish.
#![deny(unsafe_code)]
#![warn(missing_docs)]

pub mod gradcheck;
pub mod opcheck;
mod rng;
// For the crates that test the project.
#[doc(hidden)]
pub mod values;

#[doc(hidden)]
pub use maquette_ops;
pub use rng::Rng;

// What is checked are operators.
use maquette_aten as _;
