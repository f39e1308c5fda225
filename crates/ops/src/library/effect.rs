//! Effects: registration, and the queries by which passes decide whether a call may be moved,
//! merged or removed.

use super::op::{Op, ask_registrations};
use super::registrations::RegistrationOwner;
use super::tags::Tag;
use crate::error::Result;
use maquette_ir::{Effect, Loc};

impl Op {
    /// Declares the operator's effect, or with `None` that it has none. A graph keeps the effect
    /// that the operator had when the graph was traced.
    ///
    /// # Errors
    /// The operator is not defined, or it would have no purpose: it returns nothing, mutates
    /// nothing and has no effect.
    #[track_caller]
    pub fn register_effect(&self, effect: impl Into<Option<Effect>>) -> Result<()> {
        let loc = Loc::caller();
        self.require("effect").map_err(|e| e.at(loc))?;
        self.add_effect(effect.into(), RegistrationOwner::FOREVER, loc)
    }

    /// Whether the operator draws random numbers from a device's generator. Each draw advances the
    /// generator, so such calls must keep their order.
    pub fn is_random(&self) -> bool {
        self.tags().contains(Tag::NondeterministicSeeded)
    }

    /// Whether the operator is pure: it mutates nothing, has no effect and draws no random numbers.
    /// A pass may remove an unused call, and merge two calls with equal arguments.
    #[track_caller]
    pub fn is_pure(&self) -> bool {
        ask_registrations(Loc::caller());
        self.state().is_ok_and(|s| {
            s.facts.mutated.is_empty()
                && s.effect.is_none()
                && !s.facts.tags.contains(Tag::NondeterministicSeeded)
        })
    }
}
