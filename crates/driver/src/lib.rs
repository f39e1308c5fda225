//! Export: joins tracing, passes and execution into a [`Program`].
//!
//! **Architecture invariant:** nothing here computes. It calls the crates below in order.
#![deny(unsafe_code)]
#![warn(missing_docs)]

mod export;

pub use export::{
    Condition, ExportOptions, InputKind, InputSpec, OutputKind, OutputSpec, Program,
    RangeConstraint, Signature,
};
