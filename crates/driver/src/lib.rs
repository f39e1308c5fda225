//! Export: joins tracing, passes and execution into a [`Program`], and compiles it.
//!
//! **Architecture invariant:** an exported program shares no memory with the module it came from.
#![deny(unsafe_code)]
#![warn(missing_docs)]

mod export;

pub use export::{
    CompiledProgram, Condition, ExportOptions, InputKind, InputSpec, OutputKind, OutputSpec,
    Program, RangeConstraint, Signature,
};
