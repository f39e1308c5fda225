//! The oracle: random programs that view, write and alias, run every way there is, and compared
//! with the eager run to the bit.
//!
//! [`generate`](generate::generate) makes a [`TestProgram`], which is an imperative graph with the
//! memory it is given. A [`Mode`] runs it. [`check`](fn@check) compares outputs, what is in memory
//! afterwards, effects, and who shares memory with whom; [`shrink`](shrink::shrink) makes what
//! fails small. `docs/oracle.md` says how to use it, and what may be refused.

mod check;
mod copy_stats;
mod exported;
mod fuzz;
pub mod generate;
mod library;
mod mode;
pub mod model;
mod outcome;
mod planned;
mod program;
mod program_builder;
mod random;
pub mod shrink;
mod stats;

pub use check::{Verdict, check, documented_refusal};
pub use copy_stats::CopyStats;
pub use fuzz::{FuzzFailure, FuzzReport, Fuzzer};
pub use library::register;
pub use mode::{
    CountedWrites, Eager, Mode, PreparedProgram, RunResult, Symbolic, Text, Traced, WriteCount,
    modes,
};
pub use outcome::Outcome;
pub use program::{InputLocation, MemoryInit, RunInputs, Sizes, TestProgram};
pub use random::Rng;
pub use stats::{FEATURES, Stats};
