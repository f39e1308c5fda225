//! [`OpState`]: the facts of an operator that a call needs, computed once per change of its
//! registrations.

use super::KernelFn;
use super::op::Op;
use super::registrations::Registered;
use super::tags::TagSet;
use crate::autograd::rule::Rule;
use crate::error::{Error, Result};
use crate::fake::FakeFn;
use crate::operator::{Lowering, OpDef};
use arc_swap::Guard;
use maquette_ir::schema::{Arg, Schema, Type};
use maquette_ir::{DeviceKind, Effect, Loc};
use smallvec::SmallVec;
use std::sync::{Arc, OnceLock};

/// The facts of a schema that dispatch needs, computed once per definition.
pub(crate) struct SchemaFacts {
    /// Arguments that may hold tensors.
    pub(crate) tensor_args: SmallVec<[u16; 4]>,
    /// Mutated arguments.
    pub(crate) mutated: SmallVec<[u16; 2]>,
    /// Arguments that may hold tensors and are not mutated.
    pub(crate) read: SmallVec<[u16; 4]>,
    /// For each return, the argument that it aliases.
    pub(crate) aliases: SmallVec<[Option<u16>; 2]>,
    /// The argument `device`, which selects the kernel of an operator without tensor arguments.
    pub(crate) device_arg: Option<u16>,
    pub(crate) tags: TagSet,
}

impl SchemaFacts {
    pub(crate) fn of(schema: &Schema, tags: TagSet) -> SchemaFacts {
        let pick = |f: &dyn Fn(&Arg) -> bool| {
            schema
                .args
                .iter()
                .enumerate()
                .filter(|(_, a)| f(a))
                .map(|(i, _)| i as u16)
                .collect::<SmallVec<[u16; 4]>>()
        };
        let aliases = schema
            .returns
            .iter()
            .map(|r| {
                let set = r.alias.as_ref()?;
                schema
                    .args
                    .iter()
                    .position(|a| a.alias.as_ref().is_some_and(|x| set.may_share(x)))
                    .map(|i| i as u16)
            })
            .collect();
        let tensor_args = pick(&|a| a.ty.is_tensors());
        let is_device = |a: &Arg| a.name == "device" && *a.ty.required() == Type::Device;
        SchemaFacts {
            device_arg: if tensor_args.is_empty() {
                pick(&is_device).first().copied()
            } else {
                None
            },
            tensor_args,
            mutated: schema.mutates().map(|i| i as u16).collect(),
            read: pick(&|a| a.ty.is_tensors() && !a.is_written()),
            aliases,
            tags,
        }
    }
}

/// A consistent snapshot of an operator. Calls read it without a lock; a registration replaces it.
pub(crate) struct OpState {
    pub(crate) schema: Arc<Schema>,
    pub(crate) facts: Arc<SchemaFacts>,
    pub(crate) builtin: Option<&'static OpDef>,
    /// The registered kernel for each kind of device.
    pub(crate) kernels: [Option<Registered<KernelFn>>; DeviceKind::ALL.len()],
    /// Whether the operator is builtin and a registration overrides its kernel on some device.
    pub(crate) overridden: bool,
    pub(crate) fake: Option<Registered<FakeFn>>,
    pub(crate) effect: Option<Effect>,
    /// The registered derivative.
    pub(crate) autograd: Option<Registered<Rule>>,
    /// As [`OpState::functional_variant`], after its first use.
    pub(super) functional_variant: OnceLock<(Op, &'static OpDef)>,
    pub(crate) defined_at: Loc,
}

impl OpState {
    /// The functional operator of a builtin operator that works in place, with its row. The look-up
    /// takes the lock of the registry, so it is made once.
    ///
    /// # Errors
    /// The operator is not one that works in place.
    pub(crate) fn functional_variant(&self) -> Result<(Op, &'static OpDef)> {
        if let Some(variant) = self.functional_variant.get() {
            return Ok(*variant);
        }
        let Some(Lowering::InPlace(name)) = self.builtin.map(|def| &def.lowering) else {
            return Err(Error::value("the operator has no functional variant"));
        };
        let op = Op::find(name)?;
        let row = op.state()?.builtin;
        let row = row.ok_or_else(|| Error::value(format!("{name} is not a builtin operator")))?;
        Ok(*self.functional_variant.get_or_init(|| (op, row)))
    }

    /// The table entry of a builtin operator that no registration overrides.
    pub(crate) fn plain_builtin(&self) -> Option<&'static OpDef> {
        self.builtin.filter(|_| !self.overridden)
    }

    /// Whether fake execution makes the calls that the operator consists of, which count its
    /// writes.
    pub(crate) fn parts_count_writes(&self) -> bool {
        let is_composite = |def: &OpDef| def.lowering.composite_body().is_some();
        self.fake.is_none() && self.builtin.is_some_and(is_composite)
    }

    /// The registered kernel for calls on a kind of device. If it is `None`, a builtin operator
    /// runs its own kernel, and a custom one has no kernel.
    pub(crate) fn kernel(&self, device: DeviceKind) -> Option<&KernelFn> {
        self.kernels[device as usize].as_ref().map(|k| &k.f)
    }

    /// The devices that have a kernel, for messages.
    pub(crate) fn available(&self) -> Vec<String> {
        let all: Vec<DeviceKind> =
            DeviceKind::ALL.into_iter().filter(|d| *d != DeviceKind::Meta).collect();
        let found: Vec<String> = all
            .iter()
            .filter(|d| self.kernels[**d as usize].is_some())
            .map(ToString::to_string)
            .collect();
        if found.len() == all.len() { vec!["every device".into()] } else { found }
    }
}

/// A loaded state. Unlike an `Arc`, it costs no reference count in the common case.
pub(crate) struct StateGuard(pub(super) Guard<Option<Arc<OpState>>>);

impl StateGuard {
    /// The state, for longer than one call.
    pub(super) fn share(&self) -> Arc<OpState> {
        match &*self.0 {
            Some(state) => state.clone(),
            None => unreachable!("a StateGuard is made only of a loaded state"),
        }
    }
}

impl std::ops::Deref for StateGuard {
    type Target = OpState;
    fn deref(&self) -> &OpState {
        match &*self.0 {
            Some(state) => state,
            None => unreachable!("a StateGuard is made only of a loaded state"),
        }
    }
}
