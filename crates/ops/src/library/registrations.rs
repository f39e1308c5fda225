//! What is registered for an operator: for each purpose a stack, of which the newest is active. The
//! [`OpState`] that calls read is worked out from it whenever a registration comes or goes, so that
//! what comes back when one goes is what would be there without it.

use super::infer::check_signature;
use super::key::DispatchKey;
use super::op::{Effect, Op};
use super::state::{OpState, SchemaFacts};
use super::typed::Signature;
use super::{KernelFn, rules};
use crate::aten::OpDef;
use crate::dispatch::value::Args;
use crate::error::{Error, RegisterError, Result};
use crate::fake::FakeFn;
use maquette_ir::schema::Schema;
use maquette_ir::{DeviceKind, Loc};
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Who made a registration, and so when it goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RegistrationOwner(u64);

impl RegistrationOwner {
    /// Registrations that stay.
    pub(crate) const FOREVER: RegistrationOwner = RegistrationOwner(0);

    /// One like no other.
    pub(crate) fn new() -> RegistrationOwner {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        RegistrationOwner(NEXT.fetch_add(1, Ordering::Relaxed))
    }
}

/// Something registered, where, and by whom.
#[derive(Clone)]
pub(crate) struct Registered<F> {
    pub(crate) f: F,
    pub(crate) loc: Loc,
    pub(super) owner: RegistrationOwner,
    /// Of a typed kernel.
    signature: Option<Arc<Signature>>,
    /// Whether it is still registered.
    pub(super) alive: Arc<AtomicBool>,
}

impl<F> Registered<F> {
    pub(super) fn new(
        f: F,
        signature: Option<Signature>,
        owner: RegistrationOwner,
        loc: Loc,
    ) -> Registered<F> {
        // here, so that no call has to ask whether it is installed
        crate::dispatch::panics::install_hook();
        Registered {
            f,
            loc,
            owner,
            signature: signature.map(Arc::new),
            alive: Arc::new(AtomicBool::new(true)),
        }
    }

    pub(super) fn with<G>(&self, f: G) -> Registered<G> {
        Registered {
            f,
            loc: self.loc,
            owner: self.owner,
            signature: self.signature.clone(),
            alive: self.alive.clone(),
        }
    }
}

/// What a key may lead to.
#[derive(Clone)]
pub(crate) enum Candidate {
    Kernel(KernelFn),
    /// As if nothing were registered for the key.
    Fallthrough,
}

/// A stack: the newest registration is the active one.
pub(crate) type Stack<F> = Vec<Registered<F>>;

/// A live definition.
#[derive(Clone)]
pub(crate) struct Definition {
    pub(super) schema: Arc<Schema>,
    pub(super) facts: Arc<SchemaFacts>,
    /// Every tensor may be mutated, whatever the kernel's signature says.
    pub(super) mutates_unknown: bool,
    /// The kernel that came with it: what runs on a device whose own is disabled.
    pub(super) initial: Option<Registered<KernelFn>>,
    pub(super) owner: RegistrationOwner,
    pub(super) loc: Loc,
}

/// All registrations of an operator.
#[derive(Clone, Default)]
pub(crate) struct Registrations {
    /// Why a static registration failed: the operator is unusable.
    pub(super) failed: Option<Error>,
    pub(super) definition: Option<Definition>,
    pub(super) kernels: [Stack<Candidate>; DeviceKind::ALL.len()],
    pub(super) default: Stack<Candidate>,
    pub(super) fake: Stack<FakeFn>,
    pub(super) effect: Stack<Option<Effect>>,
    pub(super) out_variant: Stack<Op>,
    /// By kind of device: whether its kernel is enabled, as the guards that are alive say.
    pub(super) switches: [Vec<(RegistrationOwner, bool)>; DeviceKind::ALL.len()],
}

/// A builtin operator's definition is its entry in the table.
pub(super) fn builtin_definition(def: &'static OpDef) -> Result<Definition> {
    let schema = Schema::from_str(def.schema)?;
    let facts = Arc::new(SchemaFacts::of(&schema, rules::of_builtin(def)));
    Ok(Definition {
        schema: Arc::new(schema),
        facts,
        mutates_unknown: false,
        initial: None,
        owner: RegistrationOwner::FOREVER,
        loc: def.loc,
    })
}

impl Registrations {
    /// Adds a kernel under a key. A kernel under `meta` is a fake kernel that does not look at its
    /// context.
    pub(super) fn push_kernel(
        &mut self,
        op: Op,
        key: DispatchKey,
        new: Registered<Candidate>,
    ) -> Result<()> {
        let what = key.what();
        match (key.device(), &new.f) {
            (Some(DeviceKind::Meta), Candidate::Kernel(f)) => {
                let f = f.clone();
                let fake: FakeFn = Arc::new(move |_, args| f(&mut Args::from(args)));
                Registrations::push(op, &what, &mut self.fake, new.with(fake))
            }
            (Some(device), _) => {
                Registrations::push(op, &what, &mut self.kernels[device as usize], new)
            }
            (None, _) => Registrations::push(op, &what, &mut self.default, new),
        }
    }

    /// Adds to a stack; an owner has one place in it.
    pub(super) fn push<F>(
        op: Op,
        what: &str,
        stack: &mut Stack<F>,
        new: Registered<F>,
    ) -> Result<()> {
        if let Some(first) = stack.iter().find(|r| r.owner == new.owner) {
            return Err(RegisterError::DuplicateKernel {
                op: op.name().into(),
                what: what.into(),
                first: first.loc,
            }
            .into());
        }
        stack.push(new);
        Ok(())
    }

    /// Removes what the owner registered.
    pub(super) fn release(&mut self, owner: RegistrationOwner) {
        fn keep<F>(stack: &mut Stack<F>, owner: RegistrationOwner) {
            stack.retain(|r| r.owner != owner);
        }
        self.definition.take_if(|d| d.owner == owner);
        self.kernels.iter_mut().chain([&mut self.default]).for_each(|s| keep(s, owner));
        keep(&mut self.fake, owner);
        keep(&mut self.effect, owner);
        keep(&mut self.out_variant, owner);
        self.switches.iter_mut().for_each(|s| s.retain(|(o, _)| *o != owner));
    }

    /// Whether the guards that are alive leave the device's kernel enabled.
    fn enabled(&self, device: DeviceKind) -> bool {
        self.switches[device as usize].last().is_none_or(|(_, on)| *on)
    }

    /// What a call on the device runs: its own kernel, the default one, the one that came with the
    /// definition if its own is disabled.
    pub(super) fn resolve_kernel(&self, device: DeviceKind) -> Option<Registered<KernelFn>> {
        fn newest(stack: &Stack<Candidate>) -> Option<Registered<KernelFn>> {
            let r = stack.last()?;
            match &r.f {
                Candidate::Kernel(f) => Some(r.with(f.clone())),
                Candidate::Fallthrough => None,
            }
        }
        let (own, on) = (&self.kernels[device as usize], self.enabled(device));
        let own_kernel = if on { newest(own) } else { None };
        let initial =
            || self.definition.as_ref().filter(|_| !on && !own.is_empty())?.initial.clone();
        own_kernel.or_else(|| newest(&self.default)).or_else(initial)
    }

    /// The state that calls read; none while the operator is not defined.
    ///
    /// # Errors
    /// A kernel is not of the schema, or for a device although nothing could choose it.
    pub(super) fn resolve(&self, builtin: Option<&'static OpDef>) -> Result<Option<OpState>> {
        let (None, Some(definition)) = (&self.failed, &self.definition) else { return Ok(None) };
        self.check(definition)?;
        let kernels: [Option<Registered<KernelFn>>; DeviceKind::ALL.len()] = DeviceKind::ALL
            .map(|d| if d == DeviceKind::Meta { None } else { self.resolve_kernel(d) });
        Ok(Some(OpState {
            schema: definition.schema.clone(),
            facts: definition.facts.clone(),
            builtin,
            overridden: builtin.is_some() && kernels.iter().any(Option::is_some),
            kernels,
            fake: self.fake.last().cloned(),
            effect: self.effect_of(definition),
            defined_at: definition.loc,
        }))
    }

    /// The effect. What would have no purpose without one, as after the library that registered it
    /// went, keeps its place in order.
    fn effect_of(&self, definition: &Definition) -> Option<Effect> {
        let registered = self.effect.last().and_then(|r| r.f);
        registered.or_else(|| rules::is_pointless(&definition.schema).then_some(Effect::Ordered))
    }

    /// # Errors
    /// Nothing would show that the operator ran.
    pub(super) fn check_purpose(&self) -> Result<()> {
        match &self.definition {
            Some(d)
                if rules::is_pointless(&d.schema)
                    && self.effect.last().is_none_or(|r| r.f.is_none()) =>
            {
                Err(RegisterError::NoPurpose { op: d.schema.name.to_string() }.into())
            }
            _ => Ok(()),
        }
    }

    fn check(&self, definition: &Definition) -> Result<()> {
        let Definition { schema, facts, .. } = definition;
        let typed = |signature: &Option<Arc<Signature>>, what: &str, loc: Loc| match signature {
            Some(s) => check_signature(definition, s, what).map_err(|e| e.at(loc)),
            None => Ok(()),
        };
        for (device, stack) in DeviceKind::ALL.iter().zip(&self.kernels) {
            let what = DispatchKey::from(*device).what();
            stack.iter().try_for_each(|r| typed(&r.signature, &what, r.loc))?;
            if !stack.is_empty() && facts.tensor_args.is_empty() && facts.device_arg.is_none() {
                return Err(RegisterError::NoDispatchArgument {
                    op: schema.name.to_string(),
                    schema: schema.to_string(),
                }
                .into());
            }
        }
        self.default.iter().try_for_each(|r| typed(&r.signature, "kernel", r.loc))?;
        self.fake.iter().try_for_each(|r| typed(&r.signature, "fake kernel", r.loc))?;
        match self.fake.last() {
            Some(r) if facts.tags.returns_arguments() => Err(Error::from(RegisterError::Invalid {
                op: schema.name.to_string(),
                detail: "it returns its arguments, as its tag says, so its outputs are known \
                    without a fake kernel; remove that"
                    .into(),
            })
            .at(r.loc)),
            _ => Ok(()),
        }
    }

    /// What is registered, for people, in the order of devices: `cpu kernel (src/ops.rs:12)`.
    pub(super) fn describe(&self) -> Vec<String> {
        fn each<F>(
            out: &mut Vec<String>,
            stack: &Stack<F>,
            what: impl Fn(&F) -> String,
            off: &str,
        ) {
            for (i, r) in stack.iter().enumerate() {
                let state = if i + 1 < stack.len() { ", overridden" } else { off };
                out.push(format!("{} ({}{state})", what(&r.f), r.loc));
            }
        }
        let kernel = |key: DispatchKey| {
            move |c: &Candidate| match c {
                Candidate::Kernel(_) => key.what(),
                Candidate::Fallthrough => format!("{key} fallthrough"),
            }
        };
        let mut out = Vec::new();
        for (device, stack) in DeviceKind::ALL.into_iter().zip(&self.kernels) {
            each(
                &mut out,
                stack,
                kernel(device.into()),
                if self.enabled(device) { "" } else { ", disabled" },
            );
        }
        each(&mut out, &self.default, kernel(DispatchKey::Default), "");
        each(&mut out, &self.fake, |_| "fake kernel".into(), "");
        each(
            &mut out,
            &self.effect,
            |e| e.map_or("no effect".into(), |e| format!("effect {e:?}").to_lowercase()),
            "",
        );
        each(&mut out, &self.out_variant, |o| format!("out variant {}", o.name()), "");
        out
    }

    /// The marks of what is registered.
    fn marks(&self) -> impl Iterator<Item = &Arc<AtomicBool>> {
        let kernels = self.kernels.iter().chain([&self.default]).flatten().map(|r| &r.alive);
        kernels.chain(self.definition.iter().filter_map(|d| d.initial.as_ref()).map(|r| &r.alive))
    }

    /// Marks what `self` has and `next` has no more: kernels got by `get_kernel` look at it.
    pub(super) fn mark_gone(&self, next: &Registrations) {
        for mark in self.marks().filter(|m| !next.marks().any(|n| Arc::ptr_eq(m, n))) {
            mark.store(false, Ordering::Release);
        }
    }
}
