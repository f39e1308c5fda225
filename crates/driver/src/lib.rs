//! Export: joins tracing, passes and execution into a [`Program`].
//!
//! **Architecture invariant:** an exported program shares no memory with the module it came from.
#![deny(unsafe_code)]
#![warn(missing_docs)]

mod export;

pub use export::{
    Condition, ExportOptions, InputKind, InputSpec, OutputKind, OutputSpec, Program,
    RangeConstraint, Signature,
};
