//! Rematerialization: computes values again in place of keeping them, to need less memory.
//!
//! **Problem.** The graph of a training step keeps what its forward part computes until its
//! backward part reads it. Many of these values follow cheaply from others that are kept as well:
//!
//! ```text
//! %a = aten::mm(%x, %w)            %a = aten::mm(%x, %w)
//! %h = aten::gelu(%a)              %h = aten::gelu(%a)
//! …                                …                                %h is not kept
//!                                  %b = ir::barrier(%a)
//!                                  %i = aten::gelu(%b)
//! %g = aten::mm(%h, %d)            %g = aten::mm(%i, %d)
//! ```
//!
//! **Algorithm.** As the min-cut partitioner of PyTorch's AOTAutograd, with the statement at which
//! most memory is in use in the place of the border between forward and backward part: so the pass
//! has to know neither. Of the values that operators after that statement read, a minimum cut
//! ([`network`]) chooses which are kept, and which are computed again from these. It weighs the
//! bytes that are kept against the traffic of what runs again, by a price. Under a bound the price
//! is the greatest for which the statement keeps to the bound, found by bisection: cuts for falling
//! prices are nested (Gallo, Grigoriadis and Tarjan, "A fast parametric maximum flow algorithm",
//! 1989). Without a bound it is the least. What runs again does so before its first use ([`emit`]).
//! The pass repeats this for the statement at which most memory is in use then, until the bound
//! holds, or nothing helps.
//!
//! **Invariants.** The program has the values, effects and assertions of the original, in the same
//! order, and its plan copies no more than the original program. Never computed again are operators
//! with effects, random ones, those that mutate, those whose results bind symbols, and those of
//! which [`OpFacts::recomputation`] says so. Nothing is read from memory that was overwritten by
//! then: a parameter that is updated in place is not kept for longer.
//!
//! **Cost.** At most [`MAX_ROUNDS`] rounds with about 50 cuts each, by Dinic's algorithm on at most
//! [`network::MAX_VERTICES`] vertices.

mod candidates;
mod emit;
mod lifetimes;
mod network;

use crate::bufferize::plan;
use crate::error::FunctionalizeError;
use candidates::Candidates;
use lifetimes::{Lifetimes, Peak};
use maquette_ir::buffer_plan::BufferPlan;
use maquette_ir::functional_program::FunctionalGraph;
use maquette_ir::graph::{NodeId, OpFacts};
use network::{BYTE, Choice, Network};
use rustc_hash::FxHashSet;
use std::borrow::Cow;

/// The most statements across which less is kept.
const MAX_ROUNDS: usize = 64;

/// The prices that are tried for a statement if there is no bound, or it cannot be met there: those
/// of expensive operators by factors of two, and of others by steps.
fn prices() -> impl Iterator<Item = u64> {
    const STEP: u64 = BYTE / 16;
    (0..STEP.ilog2()).map(|i| 1 << i).chain((1..=BYTE / STEP).map(|i| i * STEP))
}

/// The numbers of statements after a peak within which a value is rather kept, the first to try
/// first.
const SHORT_GAPS: [usize; 3] = [16, 8, 4];

/// What is computed again, and for how little memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Rematerialization {
    bound: Option<u64>,
    expensive: bool,
}

impl Rematerialization {
    /// As little memory as possible.
    pub const fn least() -> Rematerialization {
        Rematerialization { bound: None, expensive: false }
    }

    /// At most this many bytes beside inputs, constants and outputs, and as little work as that
    /// takes.
    pub const fn within(bytes: u64) -> Rematerialization {
        Rematerialization { bound: Some(bytes), expensive: false }
    }

    /// Whether products, convolutions, attention and their like may be computed again, too. The
    /// default is `false`.
    pub const fn expensive(self, yes: bool) -> Rematerialization {
        Rematerialization { expensive: yes, ..self }
    }

    /// The bound in bytes; `None` for as little memory as possible.
    pub const fn bound(self) -> Option<u64> {
        self.bound
    }

    /// Another bound in bytes.
    pub const fn with_bound(self, bytes: u64) -> Rematerialization {
        Rematerialization { bound: Some(bytes), ..self }
    }

    /// Whether a peak is low enough.
    fn is_met(self, peak: u64) -> bool {
        self.bound.is_some_and(|bound| peak <= bound)
    }
}

/// A program in which values are computed again.
#[derive(Clone, Debug)]
pub struct Rematerialized {
    /// The program.
    pub program: FunctionalGraph,
    /// Its plan.
    pub plan: BufferPlan,
    /// How many operators run again, views included.
    pub recomputed: usize,
    /// An estimate of the most bytes that the original program needs at one time, beside inputs,
    /// constants and outputs. A symbolic size counts as 64, and nothing is fused.
    pub peak_before: u64,
    /// The same for this program.
    pub peak: u64,
}

/// Computes values of a program again in place of keeping them. `None` if nothing is gained, or the
/// program needs no more than the bound as it is.
///
/// # Errors
/// The graph is not valid.
pub fn rematerialize(
    original: &FunctionalGraph,
    facts: &dyn OpFacts,
    options: &Rematerialization,
) -> Result<Option<Rematerialized>, FunctionalizeError> {
    let mut best: Option<Rematerialized> = None;
    let mut program = Cow::Borrowed(original);
    let mut lifetimes = Lifetimes::of(&program.graph, facts);
    let (peak_before, mut recomputed) = (lifetimes.peak().bytes, 0);
    for _ in 0..MAX_ROUNDS {
        let peak = lifetimes.peak();
        if options.is_met(peak.bytes) {
            break;
        }
        let Some(next) = round(&program, facts, options, &lifetimes)? else { break };
        let reached = next.lifetimes.peak();
        let plan = plan(&next.program, facts)?;
        if !next.program.within_eager_copies(&plan) {
            break;
        }
        recomputed += next.recomputed;
        (program, lifetimes) = (Cow::Owned(next.program), next.lifetimes);
        if reached.bytes < best.as_ref().map_or(peak_before, |best| best.peak) {
            let (program, peak) = (program.clone().into_owned(), reached.bytes);
            best = Some(Rematerialized { program, plan, recomputed, peak_before, peak });
        }
    }
    Ok(best)
}

/// An estimate of the most bytes that a program needs at one time, as [`Rematerialized::peak`].
pub fn estimated_peak(program: &FunctionalGraph, facts: &dyn OpFacts) -> u64 {
    Lifetimes::of(&program.graph, facts).peak().bytes
}

/// A program with less kept across one statement.
struct Round {
    program: FunctionalGraph,
    lifetimes: Lifetimes,
    recomputed: usize,
}

impl Round {
    /// The program in which nodes run again after a statement; `None` if it needs no less.
    fn new(
        program: &FunctionalGraph,
        facts: &dyn OpFacts,
        before: Peak,
        again: &[NodeId],
    ) -> Result<Option<Round>, FunctionalizeError> {
        let (program, recomputed) = emit::emit(program, before.at, again)?;
        let lifetimes = Lifetimes::of(&program.graph, facts);
        let lowers = lifetimes.peak().height() < before.height();
        Ok((recomputed > 0 && lowers).then_some(Round { program, lifetimes, recomputed }))
    }

    fn height(&self) -> (u64, usize) {
        self.lifetimes.peak().height()
    }

    /// The program without the nodes that would run again a few statements after the peak, if it
    /// needs no more: a cut does not see that memory is needed again at once.
    fn without_short_gaps(
        self,
        program: &FunctionalGraph,
        facts: &dyn OpFacts,
        options: &Rematerialization,
        lifetimes: &Lifetimes,
        again: &[NodeId],
    ) -> Result<Option<Round>, FunctionalizeError> {
        let graph = &program.graph;
        let peak = lifetimes.peak();
        for gap in SHORT_GAPS {
            let mut kept: FxHashSet<NodeId> = FxHashSet::default();
            for &node in again.iter().rev() {
                let mut users = graph.result_values(node).flat_map(|v| graph.users(v));
                let is_far = |user: &NodeId| {
                    kept.contains(user) || lifetimes.statements[user.index()] > peak.at + gap
                };
                if users.any(is_far) {
                    kept.insert(node);
                }
            }
            let fewer: Vec<NodeId> = again.iter().copied().filter(|n| kept.contains(n)).collect();
            if fewer.len() < again.len()
                && let Some(round) = Round::new(program, facts, peak, &fewer)?
                && (round.height() <= self.height() || options.is_met(round.height().0))
            {
                return Ok(Some(round));
            }
        }
        Ok(Some(self))
    }
}

/// Keeps less across the statement at which most memory is in use. `None` if nothing helps.
fn round(
    program: &FunctionalGraph,
    facts: &dyn OpFacts,
    options: &Rematerialization,
    lifetimes: &Lifetimes,
) -> Result<Option<Round>, FunctionalizeError> {
    let peak = lifetimes.peak();
    let candidates = Candidates::new(program, facts, options, lifetimes, peak.at);
    let network = Network::new(&program.graph, &candidates);
    // What the statement itself needs is needed whatever is kept across it.
    let own = peak.bytes.saturating_sub(lifetimes.kept_across(peak.at));
    let fits = |choice: &Choice| options.is_met(own.saturating_add(choice.kept));
    let mut most = network.choice(1);
    if fits(&most) {
        let (mut low, mut high) = (1, BYTE);
        while high - low > 1 {
            let price = low.midpoint(high);
            let choice = network.choice(price);
            match fits(&choice) {
                true => (low, most) = (price, choice),
                false => high = price,
            }
        }
        if let Some(round) = Round::new(program, facts, peak, &most.again)? {
            return round.without_short_gaps(program, facts, options, lifetimes, &most.again);
        }
    }
    // What is computed again may be kept for long in its turn, so that less is more.
    let mut best: Option<(Round, Vec<NodeId>)> = None;
    let mut tried: Vec<NodeId> = Vec::new();
    for price in prices() {
        let again = network.choice(price).again;
        if again.is_empty() {
            break;
        }
        if again == tried {
            continue;
        }
        if let Some(round) = Round::new(program, facts, peak, &again)?
            && best.as_ref().is_none_or(|(best, _)| round.height() < best.height())
        {
            best = Some((round, again.clone()));
        }
        tried = again;
    }
    match best {
        Some((best, again)) => best.without_short_gaps(program, facts, options, lifetimes, &again),
        None => Ok(None),
    }
}
