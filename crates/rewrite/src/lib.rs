//! Functionalization: what a program that mutates does, as a graph of values in which nothing mutates.
//!
//! [`functionalize`] lifts the program: every storage becomes a value with versions. At [`Level::Exact`] the lifted program then goes through an
//! e-graph, in which operators that mutate leave for their functional twins, stores are forwarded to loads, and what nobody sees is
//! dropped; see [`rules`].
//!
//! **Architecture invariant:** nothing here knows of tensors, kernels or devices. Operators are known by name, and by what
//! [`OpFacts`] says of them.
#![deny(unsafe_code)]
#![warn(missing_docs)]

mod algebra;
mod dag;
mod egraph;
mod emit;
mod error;
mod functional;
mod inplace;
mod lift;
mod memory;
mod places;

pub use error::{FunctionalizeError, Reason};
pub use functional::{Functional, Mutation, Output, Outside, SharedMemory, Stats};
pub use inplace::plan;

use lift::Group;
use maquette_ir::graph::{Graph, OpFacts};

/// The name under which operators that mutate are called on copies. Its first argument is their name.
pub const CALL: &str = emit::CALL;

/// How much is rewritten.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Level {
    /// The program is lifted and nothing else: every operator that mutates is called on copies, every view is taken anew.
    LiftOnly,
    /// Every rule that keeps each bit.
    #[default]
    Exact,
}

/// How a program is made functional.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Options {
    level: Level,
    stop_at: Option<u64>,
    shared: Vec<Vec<usize>>,
}

impl Options {
    /// Every exact rule.
    pub fn new() -> Options {
        Options::default()
    }

    /// How much is rewritten.
    pub fn level(self, level: Level) -> Options {
        Options { level, ..self }
    }

    /// Stops after rules have added so many equalities: to find the one that breaks a program, by bisection.
    pub fn stopping_at(self, n: u64) -> Options {
        Options { stop_at: Some(n), ..self }
    }

    /// Inputs that see one memory, as numbers of inputs; their types say where in it each begins. The functional graph takes that memory as one
    /// more input. Inputs that are in no group share memory with none that is written.
    pub fn sharing(self, groups: impl IntoIterator<Item = Vec<usize>>) -> Options {
        Options { shared: groups.into_iter().collect(), ..self }
    }
}

/// Makes a program functional.
///
/// # Errors
/// The program has no functional form: it writes to a tensor whose elements overlap, writes to two arguments of one operator that may
/// overlap, reads a storage beyond the tensor it belongs to or as another dtype.
pub fn functionalize(graph: &Graph, facts: &dyn OpFacts, options: &Options) -> Result<Functional, FunctionalizeError> {
    let mut groups: Vec<Group> = options.shared.iter().cloned().map(Group::of).collect();
    let lifted = loop {
        match lift::lift(graph, facts, &groups) {
            Err(FunctionalizeError { kind: Reason::Outside { reach: Some((input, start, end)), .. }, loc }) => {
                // the program sees more of an input's memory than the input: all of it becomes an input
                let group = match groups.iter_mut().find(|g| g.inputs.contains(&input)) {
                    Some(group) => group,
                    None => {
                        groups.push(Group::of(vec![input]));
                        let last = groups.len() - 1;
                        &mut groups[last]
                    }
                };
                let wider = (group.start.min(start), group.end.max(end));
                if wider == (group.start, group.end) {
                    return Err(FunctionalizeError { kind: Reason::Internal("memory that was widened is too narrow"), loc });
                }
                (group.start, group.end) = wider;
            }
            lifted => break lifted?,
        }
    };
    let (lifted, stats) = match options.level {
        Level::LiftOnly => (lifted, Stats::default()),
        Level::Exact => match egraph::optimize(lifted.clone(), facts, options.stop_at) {
            // what the rules made of it is no program: the lifted one is
            Err(FunctionalizeError { kind: Reason::Internal(why), .. }) => (lifted, Stats { stopped: why, ..Stats::default() }),
            done => done?,
        },
    };
    emit::emit(graph, lifted, stats)
}

/// The rules of [`Level::Exact`], by name and equation.
pub fn rules() -> impl Iterator<Item = (&'static str, &'static str)> {
    egraph::rules().iter().map(|r| (r.name, r.law))
}
