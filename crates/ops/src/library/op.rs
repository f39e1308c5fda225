//! [`Op`]: a handle to an operator, and what is registered for it.

use crate::aten::OpDef;
use crate::error::{CallError, Error, ErrorKind, RegisterError, Result};
use crate::fake::FakeFn;
use crate::value::{Args, Outputs, Value};
use arc_swap::{ArcSwapOption, Guard};
use maquette_ir::schema::{OpName, Schema, Type};
use maquette_ir::{DeviceKind, Loc};
use smallvec::SmallVec;
use std::fmt;
use std::str::FromStr;
use std::sync::{Arc, Mutex, PoisonError};

/// What an operator does besides computing its outputs and mutating its arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Effect {
    /// Calls keep program order, and are never dropped, duplicated or merged.
    Ordered,
}

/// A kernel over boxed arguments. Mutated arguments are handles to write through, not slots to assign.
pub type KernelFn = Arc<dyn Fn(&mut [Value]) -> Result<Outputs> + Send + Sync>;

/// A registered function and where it was registered.
#[derive(Clone)]
pub(crate) struct Registered<F> {
    pub(crate) f: F,
    pub(crate) loc: Loc,
}

/// What dispatching asks of a schema, worked out once.
pub(crate) struct Facts {
    /// Arguments that may hold tensors.
    pub(crate) tensor_args: SmallVec<[u16; 4]>,
    /// Mutated arguments.
    pub(crate) mutated: SmallVec<[u16; 2]>,
    /// For each return, the argument it is or views.
    pub(crate) aliases: SmallVec<[Option<u16>; 2]>,
    /// The argument `device` that chooses the kernel where there are no tensors.
    pub(crate) device_arg: Option<u16>,
}

impl Facts {
    fn of(schema: &Schema) -> Facts {
        fn holds_tensors(ty: &Type) -> bool {
            match ty {
                Type::Tensor => true,
                Type::Optional(t) | Type::List(t, _) => holds_tensors(t),
                _ => false,
            }
        }
        let pick = |f: &dyn Fn(&maquette_ir::schema::Arg) -> bool| {
            schema.args.iter().enumerate().filter(|(_, a)| f(a)).map(|(i, _)| i as u16).collect::<SmallVec<[u16; 4]>>()
        };
        let aliases = schema
            .returns
            .iter()
            .map(|r| {
                let set = r.alias.as_ref()?;
                schema.args.iter().position(|a| a.alias.as_ref().is_some_and(|x| set.may_share(x))).map(|i| i as u16)
            })
            .collect();
        let tensor_args = pick(&|a| holds_tensors(&a.ty));
        let is_device = |a: &maquette_ir::schema::Arg| {
            a.name == "device" && matches!(&a.ty, Type::Device) || matches!(&a.ty, Type::Optional(t) if **t == Type::Device)
        };
        Facts {
            device_arg: if tensor_args.is_empty() { pick(&is_device).first().copied() } else { None },
            tensor_args,
            mutated: schema.mutates().map(|i| i as u16).collect(),
            aliases,
        }
    }
}

/// One consistent state of an operator: calls read it without a lock, registrations replace it.
pub(crate) struct OpState {
    pub(crate) schema: Arc<Schema>,
    pub(crate) facts: Arc<Facts>,
    pub(crate) builtin: Option<&'static OpDef>,
    pub(crate) kernels: [Option<Registered<KernelFn>>; DeviceKind::ALL.len()],
    /// For devices without a kernel of their own.
    pub(crate) default_kernel: Option<Registered<KernelFn>>,
    pub(crate) fake: Option<Registered<FakeFn>>,
    pub(crate) effect: Option<Effect>,
    pub(crate) defined_at: Loc,
}

impl Clone for OpState {
    fn clone(&self) -> OpState {
        OpState {
            schema: self.schema.clone(),
            facts: self.facts.clone(),
            kernels: self.kernels.clone(),
            default_kernel: self.default_kernel.clone(),
            fake: self.fake.clone(),
            ..*self
        }
    }
}

impl OpState {
    pub(crate) fn new(schema: Schema, loc: Loc) -> OpState {
        OpState {
            facts: Arc::new(Facts::of(&schema)),
            schema: Arc::new(schema),
            builtin: None,
            kernels: [const { None }; DeviceKind::ALL.len()],
            default_kernel: None,
            fake: None,
            effect: None,
            defined_at: loc,
        }
    }

    pub(crate) fn kernel(&self, device: DeviceKind) -> Option<&KernelFn> {
        self.kernels[device as usize].as_ref().or(self.default_kernel.as_ref()).map(|k| &k.f)
    }

    /// The devices a call can go to, for messages.
    pub(crate) fn available(&self) -> Vec<String> {
        if self.default_kernel.is_some() {
            return vec!["every device".into()];
        }
        DeviceKind::ALL.iter().filter(|d| self.kernels[**d as usize].is_some()).map(ToString::to_string).collect()
    }
}

/// An operator's permanent place. Registrations come and go; the place stays, so that handles are plain references.
pub(crate) struct OpEntry {
    pub(crate) name: Arc<str>,
    builtin: Option<&'static OpDef>,
    state: ArcSwapOption<OpState>,
    /// Serialises registrations; holds the reason where a static registration failed.
    update: Mutex<Option<Error>>,
}

impl OpEntry {
    pub(crate) fn new(name: &str, builtin: Option<&'static OpDef>) -> OpEntry {
        OpEntry { name: name.into(), builtin, state: ArcSwapOption::empty(), update: Mutex::new(None) }
    }
}

/// A handle to an operator, builtin or custom. Copying it is free.
#[derive(Clone, Copy)]
pub struct Op(pub(crate) &'static OpEntry);

impl PartialEq for Op {
    fn eq(&self, other: &Op) -> bool {
        std::ptr::eq(self.0, other.0)
    }
}
impl Eq for Op {}

impl fmt::Debug for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Op({})", self.name())
    }
}

impl Op {
    /// The full name, `namespace::name` or `namespace::name.overload`.
    pub fn name(&self) -> &'static str {
        &self.0.name
    }

    pub(crate) fn shared_name(&self) -> &'static Arc<str> {
        &self.0.name
    }

    /// The schema, or why there is none.
    pub fn schema(&self) -> Result<Arc<Schema>> {
        Ok(self.state()?.schema.clone())
    }

    /// The registered effect.
    pub fn effect(&self) -> Option<Effect> {
        self.state().ok().and_then(|s| s.effect)
    }

    /// Where it was defined.
    pub fn defined_at(&self) -> Option<Loc> {
        self.state().ok().map(|s| s.defined_at)
    }

    /// How a builtin operator is executed: the kernel class, or `view`, `composite`, `in place of …`.
    pub fn lowering(&self) -> Option<String> {
        self.0.builtin.map(|def| def.lowering.to_string())
    }

    /// Builtin, not registered at run time.
    pub fn is_builtin(&self) -> bool {
        self.0.builtin.is_some()
    }

    /// Whether a tracer can know its outputs: it is builtin, has a fake kernel, or needs none, because each return is a mutated argument.
    pub fn has_fake(&self) -> bool {
        let given = |a: &Option<u16>, s: &OpState| a.is_some_and(|a| s.facts.mutated.contains(&a));
        self.state().is_ok_and(|s| s.builtin.is_some() || s.fake.is_some() || s.facts.aliases.iter().all(|a| given(a, &s)))
    }

    /// What is registered and where, for people: `cpu kernel (src/ops.rs:12)`.
    pub fn registrations(&self) -> Vec<String> {
        let Ok(state) = self.state() else { return Vec::new() };
        if state.builtin.is_some() {
            return vec![format!("builtin ({})", state.defined_at)];
        }
        let mut all = vec![format!("defined ({})", state.defined_at)];
        let mut add = |what: String, loc: Loc| all.push(format!("{what} ({loc})"));
        for (kind, kernel) in DeviceKind::ALL.iter().zip(&state.kernels) {
            kernel.iter().for_each(|k| add(format!("{kind} kernel"), k.loc));
        }
        state.default_kernel.iter().for_each(|k| add("kernel for every device".into(), k.loc));
        state.fake.iter().for_each(|k| add("fake kernel".into(), k.loc));
        all.extend(state.effect.map(|e| format!("effect: {e:?}")));
        all
    }

    /// Whether an argument is mutated.
    pub fn mutates(&self, index: usize) -> bool {
        self.state().is_ok_and(|s| s.facts.mutated.iter().any(|&i| usize::from(i) == index))
    }

    /// Whether any argument is mutated.
    pub fn is_mutable(&self) -> bool {
        self.state().is_ok_and(|s| !s.facts.mutated.is_empty())
    }

    /// Whether the fake rule looks at its arguments' metadata only, so that a tracer may give it traced tensors as they are.
    pub fn fake_takes_traced(&self) -> bool {
        use crate::aten::Lowering::{Pointwise, View};
        self.0.builtin.is_some_and(|def| matches!(def.lowering, Pointwise(_) | View(_)))
    }

    /// The argument that a return is or views, by the schema.
    pub fn return_alias(&self, index: usize) -> Option<usize> {
        self.state().ok().and_then(|s| s.facts.aliases.get(index).copied().flatten()).map(usize::from)
    }

    pub(crate) fn arg_name(&self, index: usize) -> String {
        self.state().ok().and_then(|s| s.schema.args.get(index).map(|a| a.name.clone())).unwrap_or_else(|| format!("#{index}"))
    }

    /// Calls it with boxed arguments, in the schema's order; trailing defaults may be left out.
    ///
    /// # Errors
    /// The arguments do not fit the schema, there is no kernel for their device, or the kernel fails.
    #[track_caller]
    pub fn call(self, args: Args) -> Result<Outputs> {
        crate::dispatch::dispatch(self, args, Loc::caller())
    }

    /// As [`Op::call`], on behalf of the line `loc`.
    ///
    /// # Errors
    /// As [`Op::call`].
    pub fn call_at(self, args: Args, loc: Loc) -> Result<Outputs> {
        crate::dispatch::dispatch(self, args, loc)
    }

    /// The value of an argument that a call leaves out; `None` where it must be given.
    pub fn default_value(&self, index: usize) -> Option<Value> {
        self.state().ok().and_then(|s| s.schema.args.get(index).and_then(super::default_value))
    }

    pub(crate) fn state(&self) -> Result<StateGuard> {
        let state = self.0.state.load();
        if state.is_some() {
            return Ok(StateGuard(state));
        }
        self.first_state()
    }

    /// Builtin operators are parsed at their first use.
    #[cold]
    fn first_state(&self) -> Result<StateGuard> {
        let lock = self.0.update.lock().unwrap_or_else(PoisonError::into_inner);
        if self.0.state.load().is_none() {
            let Some(def) = self.0.builtin else {
                return Err(lock.clone().unwrap_or_else(|| super::registry::unknown(self.name())));
            };
            let schema = Schema::from_str(def.schema)?;
            let state = OpState { builtin: Some(def), ..OpState::new(schema, def.loc) };
            self.0.state.store(Some(Arc::new(state)));
        }
        Ok(StateGuard(self.0.state.load()))
    }

    /// Defines the operator, unless it is defined already.
    pub(crate) fn define(&self, state: OpState) -> Result<()> {
        let _lock = self.0.update.lock().unwrap_or_else(PoisonError::into_inner);
        let taken = self.0.builtin.map(|d| d.loc).or_else(|| self.0.state.load().as_ref().map(|s| s.defined_at));
        if let Some(first) = taken {
            return Err(RegisterError::Duplicate { op: self.name().into(), first }.into());
        }
        self.0.state.store(Some(Arc::new(state)));
        Ok(())
    }

    /// Remembers why a static registration failed: every call says so.
    pub(crate) fn fail(&self, e: Error) {
        let mut lock = self.0.update.lock().unwrap_or_else(PoisonError::into_inner);
        self.0.state.store(None);
        lock.get_or_insert(e);
    }

    /// Replaces the state by an edited copy.
    pub(crate) fn edit(&self, what: &str, f: impl FnOnce(&mut OpState) -> Result<()>) -> Result<()> {
        let missing = || RegisterError::Missing { op: self.name().into(), what: what.into() };
        let before =
            self.state().map_err(|e| if matches!(e.kind(), ErrorKind::Call(CallError::Unknown { .. })) { missing().into() } else { e })?;
        drop(before);
        let _lock = self.0.update.lock().unwrap_or_else(PoisonError::into_inner);
        let mut state = self.0.state.load().as_ref().map(|s| OpState::clone(s)).ok_or_else(missing)?;
        f(&mut state)?;
        self.0.state.store(Some(Arc::new(state)));
        Ok(())
    }

    pub(crate) fn duplicate(&self, what: &str, first: Loc) -> Error {
        RegisterError::DuplicateKernel { op: self.name().into(), what: what.into(), first }.into()
    }

    /// The operator of an [`OpName`].
    pub fn find(name: &str) -> Result<Op> {
        super::registry::find(name)
    }

    /// The parsed name.
    pub fn op_name(&self) -> Result<OpName> {
        Ok(self.state()?.schema.name.clone())
    }
}

/// A loaded state. Cheaper than an `Arc`.
pub(crate) struct StateGuard(Guard<Option<Arc<OpState>>>);

impl std::ops::Deref for StateGuard {
    type Target = OpState;
    fn deref(&self) -> &OpState {
        match &*self.0 {
            Some(state) => state,
            None => unreachable!("a StateGuard is made only of a loaded state"),
        }
    }
}
