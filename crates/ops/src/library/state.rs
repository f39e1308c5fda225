//! [`OpState`]: what a call needs to know of an operator, worked out once a registration.

use super::KernelFn;
use super::op::Effect;
use super::registrations::Registered;
use super::tags::TagSet;
use crate::aten::OpDef;
use crate::fake::FakeFn;
use arc_swap::Guard;
use maquette_ir::schema::{Arg, Schema, Type};
use maquette_ir::{DeviceKind, Loc};
use smallvec::SmallVec;
use std::sync::Arc;

/// What dispatching asks of a definition, worked out once.
pub(crate) struct SchemaFacts {
    /// Arguments that may hold tensors.
    pub(crate) tensor_args: SmallVec<[u16; 4]>,
    /// Mutated arguments.
    pub(crate) mutated: SmallVec<[u16; 2]>,
    /// Those that may hold tensors, and are not mutated.
    pub(crate) read: SmallVec<[u16; 4]>,
    /// For each return, the argument it is or views.
    pub(crate) aliases: SmallVec<[Option<u16>; 2]>,
    /// The argument `device` that chooses the kernel where there are no tensors.
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

/// One consistent state of an operator: calls read it without a lock, registrations replace it.
pub(crate) struct OpState {
    pub(crate) schema: Arc<Schema>,
    pub(crate) facts: Arc<SchemaFacts>,
    pub(crate) builtin: Option<&'static OpDef>,
    /// By kind of device, what a call runs.
    pub(crate) kernels: [Option<Registered<KernelFn>>; DeviceKind::ALL.len()],
    /// A builtin operator has kernels besides its own.
    pub(crate) overridden: bool,
    pub(crate) fake: Option<Registered<FakeFn>>,
    pub(crate) effect: Option<Effect>,
    pub(crate) defined_at: Loc,
}

impl OpState {
    /// The entry of a builtin operator that no registration has replaced.
    pub(crate) fn plain_builtin(&self) -> Option<&'static OpDef> {
        self.builtin.filter(|_| !self.overridden)
    }

    /// The kernel of a call on this kind of device; none where a builtin operator's own is to run,
    /// or where there is none at all.
    pub(crate) fn kernel(&self, device: DeviceKind) -> Option<&KernelFn> {
        self.kernels[device as usize].as_ref().map(|k| &k.f)
    }

    /// The devices a call can go to, for messages.
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

/// A loaded state. Cheaper than an `Arc`.
pub(crate) struct StateGuard(pub(super) Guard<Option<Arc<OpState>>>);

impl std::ops::Deref for StateGuard {
    type Target = OpState;
    fn deref(&self) -> &OpState {
        match &*self.0 {
            Some(state) => state,
            None => unreachable!("a StateGuard is made only of a loaded state"),
        }
    }
}
