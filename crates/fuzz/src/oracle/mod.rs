//! The oracle: a differential fuzzer for everything that executes programs. Random programs that
//! view, mutate and alias are run in every mode and compared bit for bit with eager execution.
//!
//! [`generate`](generate::generate) creates a [`TestProgram`]: an imperative graph, with the memory
//! that its inputs view. A [`Mode`] runs it. [`check`](fn@check) compares the outputs, the contents
//! of memory afterwards, the order of effects, and which tensors share memory.
//! [`shrink`](shrink::shrink) reduces a failing program. `docs/oracle.md` describes its use, and
//! the refusals that are allowed.

mod check;
mod compiled;
mod copy_stats;
mod derivatives;
mod exported;
mod features;
mod fuzz;
pub mod generate;
mod gradients;
mod hostile;
mod library;
mod mode;
pub mod model;
mod on_device;
mod outcome;
mod planned;
mod program;
mod program_builder;
mod shared;
pub mod shrink;
mod statements;
mod stats;
mod subject;
mod texts;
mod unused_failure;

pub(crate) use check::is_internal;
pub use check::{
    BROKEN_PROMISE, HANDLED_WRITE, STATE, UNKNOWN_VIEW, Verdict, WRITTEN_GRADIENT, check,
    documented_refusal,
};
pub use copy_stats::CopyStats;
pub use features::FEATURES;
pub use fuzz::{FuzzFailure, FuzzReport, Fuzzer};
pub use library::register;
pub use maquette_check::Rng;
pub use mode::{
    CountedWrites, Eager, Mode, PreparedProgram, RunResult, Symbolic, Text, Traced, WriteCount,
    gradient_modes, modes,
};
pub use on_device::on_device;
pub(crate) use outcome::Comparison;
pub use outcome::Outcome;
pub use program::{Family, InputLocation, MemoryInit, RunInputs, Sizes, TestProgram};
pub use shared::SharedMode;
pub use stats::Stats;
pub use subject::Subject;
pub use texts::{Seeds, TextFailure, TextReport};
