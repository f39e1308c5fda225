//! [`Op`]: a handle to an operator, with its calls and queries.

use super::registrations::Registrations;
use super::state::{OpState, StateGuard};
use super::tags::TagSet;
use crate::dispatch::mode::{self, Question};
use crate::dispatch::value::{Args, Outputs, Value};
use crate::error::Result;
use crate::operator::OpDef;
use arc_swap::ArcSwapOption;
use maquette_ir::schema::{OpName, Schema};
use maquette_ir::{Effect, Loc};
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A kernel over boxed arguments. It writes mutated arguments through their handles.
pub type KernelFn = Arc<dyn Fn(&[Value]) -> Result<Outputs> + Send + Sync>;

/// An operator's entry in the registry. It is never freed, although its registrations may be
/// removed, so that handles are plain references.
pub(crate) struct OpEntry {
    pub(crate) name: Arc<str>,
    pub(super) builtin: Option<&'static OpDef>,
    pub(super) state: ArcSwapOption<OpState>,
    registrations: Mutex<Registrations>,
    /// The [`generation`] that the last change of the registrations began; 0 if there was none.
    pub(super) changed_at: AtomicU64,
}

/// The number of changes of registrations so far, of all operators.
pub(super) static GENERATION: AtomicU64 = AtomicU64::new(0);

/// The number of changes of registrations so far, of all operators. What is derived from operators
/// is valid as long as none of them has [changed](Op::changed_at) since the generation in which
/// the derivation began. A cache can therefore ask for this one number, and look at its operators
/// only when the number has changed.
#[track_caller]
pub fn generation() -> u64 {
    ask_registrations(Loc::caller());
    GENERATION.load(Ordering::Acquire)
}

/// Whether a registration has changed a builtin operator.
pub(super) static BUILTINS_CHANGED: AtomicBool = AtomicBool::new(false);

/// Whether a registration has ever changed a builtin operator in this process. If none has, no
/// builtin operator is overridden, and nobody has to look at them.
#[doc(hidden)]
pub fn builtins_changed() -> bool {
    BUILTINS_CHANGED.load(Ordering::Acquire)
}

/// Fails a running trace, in which a program asks for what may change until a run.
pub(crate) fn ask_registrations(loc: Loc) {
    // A trace gets the error, which the callers cannot return.
    let _reported = mode::ask(Question::Surroundings, "what is registered for an operator", loc);
}

impl OpEntry {
    pub(crate) fn new(name: &str, builtin: Option<&'static OpDef>) -> OpEntry {
        OpEntry {
            name: name.into(),
            builtin,
            state: ArcSwapOption::empty(),
            registrations: Mutex::default(),
            changed_at: AtomicU64::new(0),
        }
    }
}

/// A handle to an operator, builtin or custom. It is a reference, and cheap to copy.
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

    /// The schema.
    ///
    /// # Errors
    /// The operator is not defined, or its static registration failed.
    pub fn schema(&self) -> Result<Arc<Schema>> {
        Ok(self.state()?.schema.clone())
    }

    /// The registered effect.
    #[track_caller]
    pub fn effect(&self) -> Option<Effect> {
        ask_registrations(Loc::caller());
        self.state().ok().and_then(|s| s.effect)
    }

    /// The source line of the definition.
    pub fn defined_at(&self) -> Option<Loc> {
        self.state().ok().map(|s| s.defined_at)
    }

    /// The [`generation`] that the last change of the operator's registrations began: its
    /// definition, a kernel, a fake kernel or an effect. 0 for a builtin operator without
    /// registrations.
    #[track_caller]
    pub fn changed_at(&self) -> u64 {
        ask_registrations(Loc::caller());
        self.0.changed_at.load(Ordering::Acquire)
    }

    /// The lowering of a builtin operator, as text: its kernel class, or `view`, `composite`, `in
    /// place of …`.
    pub fn lowering(&self) -> Option<String> {
        self.0.builtin.map(|def| def.lowering.to_string())
    }

    /// What computes a builtin operator: `data` (a scalar expression, an index map or a loop nest),
    /// `composite`, or `call: ` with the reason.
    pub fn computation(&self) -> Option<String> {
        self.0.builtin.map(|def| def.lowering.computation())
    }

    /// What the derivative of a builtin operator is: `expression`, `parts` or `rule`, or `none: `
    /// or `refused: ` with the reason.
    pub fn derivative(&self) -> Option<String> {
        self.0.builtin.map(|def| def.derivative.to_string())
    }

    /// Whether the operator is builtin and no registration overrides its kernel.
    #[track_caller]
    pub fn is_plain_builtin(&self) -> bool {
        ask_registrations(Loc::caller());
        self.state().is_ok_and(|state| state.plain_builtin().is_some())
    }

    /// Whether the operator is in the table of builtin operators.
    pub fn is_builtin(&self) -> bool {
        self.0.builtin.is_some()
    }

    /// Whether a tracer can compute the metadata of the outputs: the operator is builtin, has a
    /// fake kernel, or returns only mutated arguments.
    #[track_caller]
    pub fn has_fake(&self) -> bool {
        ask_registrations(Loc::caller());
        self.state().is_ok_and(|s| {
            let given = |a: &Option<u16>| a.is_some_and(|a| s.facts.mutated.contains(&a));
            s.builtin.is_some() || s.fake.is_some() || s.facts.aliases.iter().all(given)
        })
    }

    /// The tags of the definition. Those of a builtin operator follow from its lowering.
    pub fn tags(&self) -> TagSet {
        self.state().map(|s| s.facts.tags).unwrap_or_default()
    }

    /// Descriptions of all registrations, such as `cpu kernel (src/ops.rs:12)`. Overridden and
    /// disabled kernels are marked.
    #[track_caller]
    pub fn registrations(&self) -> Vec<String> {
        ask_registrations(Loc::caller());
        let defined = self.state().ok().map(|s| {
            let what = if s.builtin.is_some() { "builtin" } else { "defined" };
            format!("{what} ({})", s.defined_at)
        });
        defined.into_iter().chain(self.lock_registrations().describe()).collect()
    }

    /// Whether an argument is mutated.
    pub fn mutates(&self, index: usize) -> bool {
        self.state().is_ok_and(|s| s.facts.mutated.iter().any(|&i| usize::from(i) == index))
    }

    /// Whether any argument is mutated.
    pub fn is_mutable(&self) -> bool {
        self.state().is_ok_and(|s| !s.facts.mutated.is_empty())
    }

    /// Whether the fake kernel reads only metadata of its arguments, so that a tracer can pass
    /// traced tensors without converting them to fake tensors.
    pub fn fake_takes_traced(&self) -> bool {
        use crate::operator::Lowering::{Pointwise, View};
        self.0.builtin.is_some_and(|def| matches!(def.lowering, Pointwise(_) | View(_)))
    }

    /// The argument that a return aliases, by the schema.
    pub fn return_alias(&self, index: usize) -> Option<usize> {
        self.state()
            .ok()
            .and_then(|s| s.facts.aliases.get(index).copied().flatten())
            .map(usize::from)
    }

    pub(crate) fn arg_name(&self, index: usize) -> String {
        self.state()
            .ok()
            .and_then(|s| s.schema.args.get(index).map(|a| a.name.clone()))
            .unwrap_or_else(|| format!("#{index}"))
    }

    /// Calls the operator with boxed arguments in the schema's order. Trailing arguments with
    /// defaults may be omitted.
    ///
    /// # Errors
    /// The arguments do not fit the schema, there is no kernel for their device, or the kernel
    /// fails.
    #[inline]
    #[track_caller]
    pub fn call(self, mut args: Args) -> Result<Outputs> {
        crate::dispatch::dispatch(self, &mut args, Loc::caller())
    }

    /// As [`Op::call`], with keyword arguments: `op.call_kw(args![&x], kwargs![alpha = 2])`.
    ///
    /// # Errors
    /// As [`Op::call`]; a keyword is unknown, or an argument is given twice.
    #[track_caller]
    pub fn call_kw(self, args: Args, kwargs: super::Kwargs) -> Result<Outputs> {
        let loc = Loc::caller();
        let mut args =
            super::complete(self, args, kwargs).map_err(|e| e.in_call(self.shared_name(), loc))?;
        crate::dispatch::dispatch(self, &mut args, loc)
    }

    /// As [`Op::call`]; errors and traces name the source line `loc`.
    ///
    /// # Errors
    /// As [`Op::call`].
    pub fn call_at(self, mut args: Args, loc: Loc) -> Result<Outputs> {
        crate::dispatch::dispatch(self, &mut args, loc)
    }

    /// Whether the operator is a builtin that consists of calls of other operators, and no
    /// registration overrides it.
    #[track_caller]
    pub fn is_composite(self) -> bool {
        ask_registrations(Loc::caller());
        self.state().is_ok_and(|state| {
            state.plain_builtin().is_some_and(|def| def.lowering.composite_body().is_some())
        })
    }

    /// Calls the operators that a composite consists of, in place of the composite, as PyTorch's
    /// decompositions do. Each call names the source line `loc`. `None` if the operator is not a
    /// [composite](Op::is_composite).
    ///
    /// # Errors
    /// The error of a call, or the arguments do not fit the schema.
    pub fn decompose(self, mut args: Args, loc: Loc) -> Option<Result<Outputs>> {
        let state = self.state().ok()?;
        let body = state.plain_builtin()?.lowering.composite_body()?;
        let coerced = crate::dispatch::coerce_args::coerce_args(&state, &mut args);
        if let Some(mode) = mode::active().mode() {
            mode.decomposed(self);
        }
        Some(coerced.and_then(|()| crate::mode::on_behalf_of(loc, || body(&args))))
    }

    /// The default value of an argument; `None` if the argument is required.
    pub fn default_value(&self, index: usize) -> Option<Value> {
        self.state().ok().and_then(|s| s.schema.args.get(index).and_then(super::default_value))
    }

    /// Appends the arguments that keywords give to the positional ones, in the schema's order.
    /// `value` is the value of a keyword, by its index in `keywords`. A missing argument before a
    /// keyword argument gets its default; trailing defaults are omitted.
    ///
    /// # Errors
    /// A keyword is not an argument of the schema, an argument is given twice or missing, or the
    /// error of `value`.
    pub fn append_keywords(
        &self,
        args: &mut Args,
        keywords: &[&str],
        value: impl FnMut(usize) -> Result<Value>,
    ) -> Result<()> {
        super::overloads::append_keywords(&self.state()?.schema, args, keywords, value)
    }

    pub(crate) fn state(&self) -> Result<StateGuard> {
        let state = self.0.state.load();
        if state.is_some() {
            return Ok(StateGuard(state));
        }
        self.first_state()
    }

    /// The state, for longer than one call.
    pub(crate) fn shared_state(&self) -> Result<Arc<OpState>> {
        let found = self.state()?;
        Ok(found.share())
    }

    /// Loads the state when it is missing. A builtin operator's schema is parsed at its first use.
    #[cold]
    fn first_state(&self) -> Result<StateGuard> {
        if self.0.builtin.is_some() {
            self.transact(|_| Ok(()), false)?;
        }
        let state = self.0.state.load();
        if state.is_some() {
            return Ok(StateGuard(state));
        }
        let (failed, registered) = {
            let registrations = self.lock_registrations();
            (registrations.failed.clone(), registrations.describe())
        };
        Err(failed.unwrap_or_else(|| super::registry::unknown(self.name(), registered)))
    }

    pub(super) fn lock_registrations(&self) -> MutexGuard<'_, Registrations> {
        self.0.registrations.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the operator has a definition now.
    pub(super) fn is_defined(&self) -> bool {
        self.0.builtin.is_some() || self.0.state.load().is_some()
    }

    /// The operator with this full name.
    ///
    /// # Errors
    /// The operator is not defined, or its static registration failed.
    pub fn find(name: &str) -> Result<Op> {
        super::registry::find(name)
    }

    /// `aten::lift_fresh_copy`, which copies a tensor made from host data. A traced program calls
    /// it so that every run starts from fresh data, even if the program mutates the copy.
    ///
    /// # Errors
    /// The builtin operators are not linked.
    pub fn lift_fresh_copy() -> Result<Op> {
        Op::find("aten::lift_fresh_copy")
    }

    /// The parsed name.
    pub fn op_name(&self) -> Result<OpName> {
        Ok(self.state()?.schema.name.clone())
    }
}
