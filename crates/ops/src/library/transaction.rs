//! The transactional update of an operator's registrations: definitions, kernels, fake kernels,
//! derivatives and effects are added and removed, or nothing changes.

use super::key::DispatchKey;
use super::op::{BUILTINS_CHANGED, GENERATION, Op};
use super::registrations::{
    self, Candidate, Definition, Registered, RegistrationOwner, Registrations,
};
use super::typed::Signature;
use crate::autograd::AutogradRule;
use crate::error::{Error, RegisterError, Result};
use crate::fake::FakeFn;
use maquette_ir::{Effect, Loc};
use std::sync::Arc;
use std::sync::atomic::Ordering;

impl Op {
    /// Changes the registrations as a transaction: if `change` or a check fails, nothing changes.
    /// A change begins a new [`generation`].
    pub(super) fn update(
        &self,
        change: impl FnOnce(&mut Registrations) -> Result<()>,
    ) -> Result<()> {
        self.transact(change, true)
    }

    /// [`Op::update`], with a new generation or, for the first state of a builtin operator, without
    /// one.
    pub(super) fn transact(
        &self,
        change: impl FnOnce(&mut Registrations) -> Result<()>,
        begins_generation: bool,
    ) -> Result<()> {
        // These are declared before the lock, and thus dropped after its release. A removed kernel
        // may own a `Library`, whose `Drop` takes locks of this kind itself.
        let mut next: Registrations;
        let (_old_registrations, _old_state);
        let mut registrations = self.lock_registrations();
        next = registrations.clone();
        if let (Some(def), None) = (self.0.builtin, &next.definition) {
            next.definition = Some(registrations::builtin_definition(def)?);
        }
        change(&mut next)?;
        let state = next.resolve(self.0.builtin)?;
        registrations.mark_removed(&next);
        // Who sees the new state or the new generation must see that the operator has changed. So
        // the operator is later than every generation until the number of its own is known. The
        // lock is held: of two changes, the later one has the greater number.
        if begins_generation {
            self.0.changed_at.store(u64::MAX, Ordering::Release);
            if self.is_builtin() {
                BUILTINS_CHANGED.store(true, Ordering::Release);
            }
        }
        _old_state = self.0.state.swap(state.map(Arc::new));
        if begins_generation {
            let began = GENERATION.fetch_add(1, Ordering::AcqRel) + 1;
            self.0.changed_at.store(began, Ordering::Release);
        }
        _old_registrations = std::mem::replace(&mut *registrations, next);
        Ok(())
    }

    /// Defines the operator. With `replace`, an existing definition is replaced with all its
    /// registrations; otherwise it is an error.
    pub(super) fn define(
        &self,
        definition: &Definition,
        replace: bool,
        add: impl FnOnce(&mut Registrations) -> Result<()>,
    ) -> Result<()> {
        self.update(|registrations| {
            if self.is_builtin() {
                return Err(RegisterError::Builtin { op: self.name().into() }.into());
            }
            if let Some(first) =
                registrations.definition.as_ref().filter(|_| !replace).map(|d| d.loc)
            {
                return Err(RegisterError::Duplicate { op: self.name().into(), first }.into());
            }
            if replace {
                *registrations = Registrations::default();
            }
            registrations.definition = Some(definition.clone());
            add(registrations)?;
            registrations.check_purpose()
        })
    }

    /// Stores the error of a failed static registration, which every call will return.
    pub(crate) fn fail(&self, e: Error) {
        // The update itself fails only if the schema of a table entry is invalid.
        let _remembered = self.update(|registrations| {
            registrations.failed.get_or_insert(e);
            Ok(())
        });
    }

    /// # Errors
    /// The operator is not defined. Registration by handle, unlike by name, requires a definition.
    pub(super) fn require(&self, what: &str) -> Result<()> {
        let (failed, defined) = {
            let registrations = self.lock_registrations();
            (registrations.failed.clone(), registrations.definition.is_some() || self.is_builtin())
        };
        match failed {
            Some(e) => Err(e),
            None if !defined => {
                Err(RegisterError::Missing { op: self.name().into(), what: what.into() }.into())
            }
            None => Ok(()),
        }
    }

    /// Adds a kernel. The operator need not be defined yet.
    pub(super) fn add_kernel(
        &self,
        key: DispatchKey,
        f: Candidate,
        signature: Option<Signature>,
        owner: RegistrationOwner,
        loc: Loc,
    ) -> Result<()> {
        let new = Registered::new(f, signature, owner, loc);
        self.update(|registrations| registrations.push_kernel(*self, key, new.clone()))
            .map_err(|e| e.at(loc))
    }

    /// Adds a fake kernel.
    pub(crate) fn add_fake(
        &self,
        f: FakeFn,
        signature: Option<Signature>,
        owner: RegistrationOwner,
        loc: Loc,
    ) -> Result<()> {
        let new = Registered::new(f, signature, owner, loc);
        self.update(|registrations| {
            Registrations::push(*self, "fake kernel", &mut registrations.fake, new.clone())
        })
        .map_err(|e| e.at(loc))
    }

    /// Registers an owner's derivative.
    pub(super) fn add_autograd(
        &self,
        rule: AutogradRule,
        owner: RegistrationOwner,
        loc: Loc,
    ) -> Result<()> {
        self.update(|registrations| registrations.push_autograd(*self, rule, owner, loc))
            .map_err(|e| e.at(loc))
    }

    /// Registers an owner's declaration of the effect.
    pub(super) fn add_effect(
        &self,
        effect: Option<Effect>,
        owner: RegistrationOwner,
        loc: Loc,
    ) -> Result<()> {
        let new = Registered::new(effect, None, owner, loc);
        let set = |registrations: &mut Registrations| {
            registrations.effect.retain(|r| r.owner != owner);
            registrations.effect.push(new);
            registrations.check_purpose()
        };
        self.update(set).map_err(|e| e.at(loc))
    }

    /// Removes all registrations of an owner.
    pub(super) fn release(&self, owner: RegistrationOwner) {
        // Removing registrations cannot introduce a contradiction, so the update cannot fail.
        let _released = self.update(|registrations| {
            registrations.release(owner);
            Ok(())
        });
    }
}
