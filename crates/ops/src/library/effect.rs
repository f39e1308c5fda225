//! Effects: what an operator does besides its outputs and mutations, and what that means to whoever
//! reorders a graph.

use super::op::{Effect, Op};
use super::registrations::RegistrationOwner;
use super::tags::Tag;
use crate::error::Result;
use maquette_ir::Loc;

impl Op {
    /// Declares the operator's effect, or with `None` that it has none. Graphs traced before keep
    /// what they recorded.
    ///
    /// # Errors
    /// There is no such operator, or without an effect it would have no purpose: it returns nothing
    /// and mutates nothing.
    #[track_caller]
    pub fn register_effect(&self, effect: impl Into<Option<Effect>>) -> Result<()> {
        let loc = Loc::caller();
        self.require("effect").map_err(|e| e.at(loc))?;
        self.add_effect(effect.into(), RegistrationOwner::FOREVER, loc)
    }

    /// Whether it draws from a device's random numbers, which each call advances: program order
    /// decides who gets which.
    pub fn is_random(&self) -> bool {
        self.tags().contains(Tag::NondeterministicSeeded)
    }

    /// Whether a call whose results nobody needs may be left out, and two calls on equal arguments
    /// be one: it mutates nothing, has no effect, and draws no random numbers.
    pub fn is_pure(&self) -> bool {
        self.state().is_ok_and(|s| {
            s.facts.mutated.is_empty()
                && s.effect.is_none()
                && !s.facts.tags.contains(Tag::NondeterministicSeeded)
        })
    }
}
