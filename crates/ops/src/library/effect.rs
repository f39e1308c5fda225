//! Effects: what an operator does besides its outputs and mutations, and what that means to whoever reorders a graph.

use super::op::{Effect, Op, OpState};
use crate::error::{RegisterError, Result};
use maquette_ir::Loc;
use maquette_ir::graph::{ArgEffect, MemoryFacts};

impl Op {
    /// Declares the operator's effect, or with `None` that it has none. Graphs traced before keep what they recorded.
    ///
    /// # Errors
    /// There is no such operator, or without an effect it would have no purpose: it returns nothing and mutates nothing.
    #[track_caller]
    pub fn register_effect(&self, effect: impl Into<Option<Effect>>) -> Result<()> {
        let (loc, effect) = (Loc::caller(), effect.into());
        self.edit("effect", |state| {
            if effect.is_none() && has_no_purpose(state) {
                return Err(RegisterError::NoPurpose { op: self.name().into() }.into());
            }
            state.effect = effect;
            Ok(())
        })
        .map_err(|e| e.at(loc))
    }

    /// Whether it draws from a device's random numbers, which each call advances: program order decides who gets which.
    pub fn is_random(&self) -> bool {
        self.state().is_ok_and(|s| s.draws())
    }

    /// Whether a call whose results nobody needs may be left out, and two calls on equal arguments be one: it mutates nothing, has no effect,
    /// and draws no random numbers.
    pub fn is_pure(&self) -> bool {
        self.state().is_ok_and(|s| s.facts.mutated.is_empty() && s.effect.is_none() && !s.draws())
    }
}

impl OpState {
    fn draws(&self) -> bool {
        self.builtin.is_some_and(crate::aten::draws)
    }
}

/// Whether every call could be removed: it returns nothing, mutates nothing.
pub(super) fn has_no_purpose(state: &OpState) -> bool {
    state.schema.returns.is_empty() && state.facts.mutated.is_empty()
}

/// What registered operators do to memory, by name: the facts for [`Graph::dependence`](maquette_ir::graph::Graph::dependence). An operator that
/// is not registered may do anything.
#[derive(Clone, Copy, Debug, Default)]
pub struct Facts;

impl MemoryFacts for Facts {
    fn arg_index(&self, op: &str, name: &str) -> Option<usize> {
        Op::find(op).ok()?.schema().ok()?.arg_index(name)
    }

    fn arg_effect(&self, op: &str, arg: usize) -> ArgEffect {
        match Op::find(op) {
            Ok(op) if !op.mutates(arg) => ArgEffect::Read,
            _ => ArgEffect::Write,
        }
    }

    fn result_aliases(&self, op: &str, result: usize) -> Option<usize> {
        Op::find(op).ok()?.return_alias(result)
    }

    fn ordered(&self, op: &str) -> bool {
        Op::find(op).map_or(true, |op| op.effect().is_some())
    }

    fn random(&self, op: &str) -> bool {
        Op::find(op).map_or(true, |op| op.is_random())
    }
}
