//! Joins tracing, passes and execution: [`ExportOptions`] makes a [`Program`] of a module, and
//! [`compile`] a function that compiles itself when it is called.
//!
//! **Architecture invariant:** an exported program shares no memory with the module it came from.
#![deny(unsafe_code)]
#![warn(missing_docs)]

mod compile;
mod export;
mod freeze;
mod given_outputs;
mod operators;

pub use compile::{CompileOptions, Compiled, Explanation, ProgramExplanation, Stance, compile};
pub use export::{
    CompiledProgram, Condition, ExportOptions, InputKind, InputSpec, OutputKind, OutputSpec,
    Program, RangeConstraint, Signature, SignatureSyntax,
};
pub use freeze::FreezeReport;
pub use maquette_pipeline::{
    AttentionExplanation, FastMath, NoAttentionReason, RecomputeExplanation,
};
