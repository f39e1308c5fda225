//! The registrations of an operator: for each purpose a stack, whose newest entry is active.
//!
//! Every change of a stack recomputes the [`OpState`] that calls read. Removing a registration
//! therefore gives the state that the operator would have if it had never been registered.

use super::infer::check_signature;
use super::key::DispatchKey;
use super::op::Op;
use super::state::{OpState, SchemaFacts};
use super::typed::Signature;
use super::{KernelFn, rules};
use crate::autograd::AutogradRule;
use crate::autograd::rule::Rule;
use crate::dispatch::value::Args;
use crate::error::{AutogradError, Error, RegisterError, Result};
use crate::fake::FakeFn;
use crate::operator::OpDef;
use maquette_ir::schema::Schema;
use maquette_ir::{DeviceKind, Effect, Loc};
use std::str::FromStr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

/// The owner of a registration: a library, a [`KernelSwitch`](super::KernelSwitch), or nobody.
/// Registrations of an owner are removed together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RegistrationOwner(u64);

impl RegistrationOwner {
    /// The owner of permanent registrations.
    pub(crate) const FOREVER: RegistrationOwner = RegistrationOwner(0);

    /// A new owner.
    pub(crate) fn new() -> RegistrationOwner {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        RegistrationOwner(NEXT.fetch_add(1, Ordering::Relaxed))
    }
}

/// A registered item (a kernel, a fake kernel, an effect, …) with its source line and owner.
#[derive(Clone)]
pub(crate) struct Registered<F> {
    pub(crate) f: F,
    pub(crate) loc: Loc,
    pub(super) owner: RegistrationOwner,
    /// The signature, if the item is a typed kernel.
    signature: Option<Arc<Signature>>,
    /// Whether the item is still registered. Handles from `get_kernel` share this flag.
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

/// A registration under a dispatch key.
#[derive(Clone)]
pub(crate) enum Candidate {
    Kernel(KernelFn),
    /// Calls skip the kernels under this key.
    Fallthrough,
}

/// A stack: the newest registration is the active one.
pub(crate) type Stack<F> = Vec<Registered<F>>;

/// The definition of an operator.
#[derive(Clone)]
pub(crate) struct Definition {
    pub(super) schema: Arc<Schema>,
    pub(super) facts: Arc<SchemaFacts>,
    /// Every tensor argument may be mutated, whatever the kernel's signature says.
    pub(super) mutates_unknown: bool,
    /// The kernel of the definition. It runs on a device whose own kernel is disabled.
    pub(super) initial: Option<Registered<KernelFn>>,
    pub(super) owner: RegistrationOwner,
    pub(super) loc: Loc,
}

/// All registrations of an operator.
#[derive(Clone, Default)]
pub(crate) struct Registrations {
    /// The error of a failed static registration. It makes the operator unusable.
    pub(super) failed: Option<Error>,
    pub(super) definition: Option<Definition>,
    pub(super) kernels: [Stack<Candidate>; DeviceKind::ALL.len()],
    pub(super) default: Stack<Candidate>,
    pub(super) fake: Stack<FakeFn>,
    pub(super) effect: Stack<Option<Effect>>,
    pub(super) autograd: Stack<Rule>,
    pub(super) out_variant: Stack<Op>,
    /// By kind of device: the live [`KernelSwitch`](super::KernelSwitch)es. The newest decides
    /// whether the device's kernel is enabled.
    pub(super) switches: [Vec<(RegistrationOwner, bool)>; DeviceKind::ALL.len()],
}

/// The definition of a builtin operator, from its table entry.
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
    /// Adds a kernel under a key. A kernel under `meta` becomes a fake kernel that ignores its
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

    /// Adds a derivative.
    ///
    /// # Errors
    /// The owner has registered one.
    pub(super) fn push_autograd(
        &mut self,
        op: Op,
        rule: AutogradRule,
        owner: RegistrationOwner,
        loc: Loc,
    ) -> Result<()> {
        let new = Registered::new(Rule::Custom(rule), None, owner, loc);
        Registrations::push(op, "derivative", &mut self.autograd, new)
    }

    /// Pushes an item. An owner can have only one item on a stack.
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

    /// Removes all registrations of an owner.
    pub(super) fn release(&mut self, owner: RegistrationOwner) {
        fn keep<F>(stack: &mut Stack<F>, owner: RegistrationOwner) {
            stack.retain(|r| r.owner != owner);
        }
        self.definition.take_if(|d| d.owner == owner);
        self.kernels.iter_mut().chain([&mut self.default]).for_each(|s| keep(s, owner));
        keep(&mut self.fake, owner);
        keep(&mut self.effect, owner);
        keep(&mut self.autograd, owner);
        keep(&mut self.out_variant, owner);
        self.switches.iter_mut().for_each(|s| s.retain(|(o, _)| *o != owner));
    }

    /// Whether the device's kernel is enabled.
    fn enabled(&self, device: DeviceKind) -> bool {
        self.switches[device as usize].last().is_none_or(|(_, on)| *on)
    }

    /// The registered kernel for calls on a device: the device's own, else the default one, else,
    /// if the device's own is disabled, the definition's.
    pub(super) fn resolve_kernel(&self, device: DeviceKind) -> Option<Registered<KernelFn>> {
        let (own, enabled) = (&self.kernels[device as usize], self.enabled(device));
        let own_kernel = if enabled { active_kernel(own) } else { None };
        let initial =
            || self.definition.as_ref().filter(|_| !enabled && !own.is_empty())?.initial.clone();
        own_kernel.or_else(|| self.default_kernel()).or_else(initial)
    }

    /// The active kernel for devices without their own.
    pub(super) fn default_kernel(&self) -> Option<Registered<KernelFn>> {
        active_kernel(&self.default)
    }

    /// The state that calls read; `None` while the operator is not defined.
    ///
    /// # Errors
    /// A kernel's signature contradicts the schema, or a kernel is for a device although the schema
    /// has no argument that could select a device; or an operator that mutates its arguments has a
    /// derivative.
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
            autograd: self.autograd.last().cloned(),
            defined_at: definition.loc,
            functional_variant: OnceLock::new(),
        }))
    }

    /// The effect. An operator that returns and mutates nothing has lost its purpose if the library
    /// that registered its effect is gone. Its calls then keep program order, the safe assumption.
    fn effect_of(&self, definition: &Definition) -> Option<Effect> {
        let registered = self.effect.last().and_then(|r| r.f);
        registered.or_else(|| rules::is_pointless(&definition.schema).then_some(Effect::Ordered))
    }

    /// # Errors
    /// The operator returns nothing, mutates nothing and has no effect.
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
        if let Some(r) = self.autograd.last().filter(|_| schema.is_mutable()) {
            let (op, schema) = (schema.name.to_string(), schema.to_string());
            return Err(Error::from(AutogradError::NotFunctional { op, schema }).at(r.loc));
        }
        match self.fake.last() {
            Some(r) if facts.tags.returns_arguments() => Err(Error::from(RegisterError::Invalid {
                op: schema.name.to_string(),
                detail: "its tag says that it returns its arguments, so it needs no fake kernel; \
                    remove the fake kernel"
                    .into(),
            })
            .at(r.loc)),
            _ => Ok(()),
        }
    }

    /// Descriptions of all registrations, in the order of devices: `cpu kernel (src/ops.rs:12)`.
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
            |e| match e {
                None => "no effect".into(),
                Some(Effect::Ordered) => "effect ordered".into(),
                Some(Effect::On(resource)) => format!("effect on {resource:?}"),
            },
            "",
        );
        each(&mut out, &self.autograd, |_| "derivative".into(), "");
        each(&mut out, &self.out_variant, |o| format!("out variant {}", o.name()), "");
        out
    }

    /// The `alive` flags of all kernels.
    fn alive_flags(&self) -> impl Iterator<Item = &Arc<AtomicBool>> {
        let kernels = self.kernels.iter().chain([&self.default]).flatten().map(|r| &r.alive);
        kernels.chain(self.definition.iter().filter_map(|d| d.initial.as_ref()).map(|r| &r.alive))
    }

    /// Clears the `alive` flag of each kernel that is in `self` and not in `next`, so that handles
    /// from `get_kernel` refuse to call it.
    pub(super) fn mark_removed(&self, next: &Registrations) {
        let is_kept = |flag: &Arc<AtomicBool>| next.alive_flags().any(|n| Arc::ptr_eq(flag, n));
        for flag in self.alive_flags().filter(|flag| !is_kept(flag)) {
            flag.store(false, Ordering::Release);
        }
    }
}

/// The newest entry of a stack, if it is a kernel and not a fallthrough.
fn active_kernel(stack: &Stack<Candidate>) -> Option<Registered<KernelFn>> {
    let newest = stack.last()?;
    match &newest.f {
        Candidate::Kernel(f) => Some(newest.with(f.clone())),
        Candidate::Fallthrough => None,
    }
}
