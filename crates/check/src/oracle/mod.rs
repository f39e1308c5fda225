//! The oracle: random programs that view, write and alias, run every way there is, and compared with the eager run to the bit.
//!
//! [`generate`](generate::generate) makes a [`Program`], which is an imperative graph with the memory it is given. A [`Mode`] runs it. [`check`](fn@check)
//! compares outputs, what is in memory afterwards, effects, and who shares memory with whom; [`shrink`](shrink::shrink) makes what fails small.
//! `docs/oracle.md` says how to use it, and what may be refused.

mod campaign;
mod check;
mod copies;
mod draft;
mod exported;
pub mod generate;
mod library;
mod mode;
pub mod model;
mod outcome;
mod planned;
mod program;
mod random;
pub mod shrink;
mod stats;

pub use campaign::{Campaign, Failure, Report};
pub use check::{Verdict, check, published};
pub use copies::Copies;
pub use library::register;
pub use mode::{Counted, Eager, Mode, Prepared, Ran, Symbolic, Text, Traced, Written, modes};
pub use outcome::Outcome;
pub use program::{Given, Memory, Place, Program, Sizes};
pub use random::Rng;
pub use stats::{FEATURES, Stats};
