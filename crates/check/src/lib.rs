//! Checking: custom operators against their contract, builtin ones against recorded calls,
//! elementary functions against exact values.
//!
//! **Architecture invariant:** nothing here is needed to run a program; it looks at the other rooms
//! from outside, through what they publish.
#![deny(unsafe_code)]
#![warn(missing_docs)]

#[cfg(feature = "accuracy")]
pub mod accuracy;
pub mod chains;
pub mod conform;
pub mod gradcheck;
pub mod opcheck;
pub mod oracle;
pub mod plan_check;
pub mod random_calls;
pub mod soak;
mod values;

#[doc(hidden)]
pub use maquette_ops;
