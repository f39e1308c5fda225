//! Turns a mutating program into an equivalent functional graph, and plans its memory.
//!
//! [`functionalize()`] lifts the program: every storage becomes a value with versions. At
//! [`Level::Exact`] the lifted program then goes through an e-graph, in which mutating operators
//! are replaced by their functional variants, stores are forwarded to loads, and unused values are
//! dropped; see [`rules`]. [`plan()`] assigns memory to the values of the functional graph.
//! [`functionalize_in_place`] does both, within a bound on copies.
//!
//! **Architecture invariant:** this crate knows no tensor and no kernel. It treats no operator by
//! its name: it asks [`OpFacts`] about each. Devices are data that it copies from the graph.
#![deny(unsafe_code)]
#![warn(missing_docs)]

mod concats;
mod error;
mod fuse;
mod overwrites;
mod rematerialize;
mod select_plan;
/// From a mutating program to a functional graph: lifted, rewritten in an e-graph, and emitted.
mod functionalize {
    pub(crate) mod bound_schemas;
    pub(crate) mod egraph;
    pub(crate) mod emit;
    pub(crate) mod lift;
    pub(crate) mod op_info;
    pub(crate) mod value_graph;
    pub(crate) mod view_queries;
}
mod bufferize;

pub use bufferize::plan;
pub use concats::decompose_concats;
pub use error::{CopyCause, FunctionalizeError, Reason, StatementContext, UnknownView};
pub use fuse::fuse;
pub use maquette_ir::functional_program::{
    ExecutionMode, ExternalTensor, FunctionalGraph, Mutation, Output, RewriteStats, SharedMemory,
};
pub use rematerialize::{Rematerialization, Rematerialized, estimated_peak, rematerialize};
pub use select_plan::{functionalize_in_place, select_plan};

use functionalize::bound_schemas::bound_schemas;
use functionalize::lift::requirements::Requirements;
use functionalize::{egraph, emit, lift};
use lift::Lifted;
use maquette_ir::graph::{Graph, OpFacts};
use maquette_ir::schema::closest;
use rustc_hash::FxHashSet;

/// How much is rewritten.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Level {
    /// The program is only lifted: every mutating operator is called on copies, and every load of a
    /// part of a storage is a view of the storage's current version.
    LiftOnly,
    /// Every rule that preserves each bit.
    #[default]
    Exact,
}

/// How a program is made functional.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Options {
    level: Level,
    stop_at: Option<u64>,
    shared: Vec<Vec<usize>>,
    no_signed_zeros: bool,
    only: Option<Vec<String>>,
    disable_forwarding: bool,
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

    /// Stops after the rules have added `n` equalities, to find a wrong one by bisection.
    pub fn stopping_at(self, n: u64) -> Options {
        Options { stop_at: Some(n), ..self }
    }

    /// Whether `0.0` and `-0.0` may be exchanged, so that `x + 0.0` is `x`. This is the only option
    /// that lets a rule change bits. The default is `false`.
    pub fn no_signed_zeros(self, yes: bool) -> Options {
        Options { no_signed_zeros: yes, ..self }
    }

    /// Uses these of the [`rules`] and no others.
    pub fn only<'a>(self, rules: impl IntoIterator<Item = &'a str>) -> Options {
        Options { only: Some(rules.into_iter().map(str::to_owned).collect()), ..self }
    }

    /// Turns off store forwarding while lifting. All stores then enter the e-graph, and only rules
    /// forward them.
    pub fn disable_forwarding(self, yes: bool) -> Options {
        Options { disable_forwarding: yes, ..self }
    }

    /// Groups of inputs that may share memory, by their indices. The offsets in their types say
    /// where in the memory each of them begins. The functional graph takes the memory of a group as
    /// one more input. An input that is in no group shares no memory that the program writes.
    pub fn sharing(self, groups: impl IntoIterator<Item = Vec<usize>>) -> Options {
        Options { shared: groups.into_iter().collect(), ..self }
    }

    /// Checks that the named rules exist, and that inputs which share memory are distinct tensors.
    fn check(&self, graph: &Graph) -> Result<(), FunctionalizeError> {
        let unknown =
            self.only.iter().flatten().find(|name| rules().all(|(known, _)| known != **name));
        if let Some(name) = unknown {
            let similar = closest(name, rules().map(|(known, _)| known));
            return Err(Reason::UnknownRule { name: name.clone(), similar }.into());
        }
        let mut seen = FxHashSet::default();
        for &input in self.shared.iter().flatten() {
            let refused = match graph.inputs().get(input) {
                None => {
                    let inputs = graph.inputs().len();
                    format!("input {input} is out of range; the number of inputs is {inputs}")
                }
                Some(&v) if graph.tensor_type(v).is_none() => {
                    format!("input {input}, `{}`, is not a tensor", graph.value_name(v))
                }
                Some(&v) if !seen.insert(input) => {
                    format!("input {input}, `{}`, is named twice", graph.value_name(v))
                }
                Some(_) => continue,
            };
            return Err(Reason::InvalidSharing(refused).into());
        }
        Ok(())
    }
}

/// Makes a program functional.
///
/// # Errors
/// The program has no functional form: it writes to a tensor whose elements overlap, writes to two
/// arguments of one operator that may overlap, reads a storage beyond the tensor it belongs to or
/// as another dtype; the graph takes a result for a view that has to be a copy; the options name a
/// rule or an input that does not exist.
pub fn functionalize(
    graph: &Graph,
    facts: &dyn OpFacts,
    options: &Options,
) -> Result<FunctionalGraph, FunctionalizeError> {
    options.check(graph)?;
    let schemas = bound_schemas(graph, facts)?;
    match options.level {
        Level::LiftOnly => {
            let lifted = lift(graph, facts, options, false)?;
            emit::emit(graph, lifted, &schemas, RewriteStats::default())
        }
        Level::Exact => match egraph::optimize(
            lift(graph, facts, options, !options.disable_forwarding)?,
            facts,
            options,
        ) {
            // rewriting failed: fall back to the lifted program
            Err(FunctionalizeError { kind: Reason::Internal(why), .. }) => emit::emit(
                graph,
                lift(graph, facts, options, false)?,
                &schemas,
                RewriteStats { stopped: why, ..RewriteStats::default() },
            ),
            done => done.and_then(|(lifted, stats)| emit::emit(graph, lifted, &schemas, stats)),
        },
    }
}

/// Lifts a program, and restarts when it discovers a requirement.
fn lift(
    graph: &Graph,
    facts: &dyn OpFacts,
    options: &Options,
    forward_stores: bool,
) -> Result<Lifted, FunctionalizeError> {
    let mut requirements = Requirements::sharing(&options.shared);
    let mut refused: Option<FunctionalizeError> = None;
    loop {
        let (lifted, discovered) = lift::lift(graph, facts, &requirements, forward_stores);
        match lifted {
            // memory of symbolic sizes cannot be widened
            Err(e @ FunctionalizeError { kind: Reason::SymbolicAliasing, .. }) => {
                return Err(refused.unwrap_or(e));
            }
            lifted if discovered.is_empty() => return lifted,
            lifted => refused = lifted.err().or(refused),
        }
        if !requirements.extend(discovered) {
            return Err(FunctionalizeError {
                statement: refused.and_then(|e| e.statement),
                kind: Reason::Internal("lifting reports a requirement that it already has"),
            });
        }
    }
}

/// The rules of [`Level::Exact`], by name and equation.
pub fn rules() -> impl Iterator<Item = (&'static str, &'static str)> {
    egraph::rules().iter().map(|r| (r.name, r.equation))
}
