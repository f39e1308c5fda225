//! The dispatcher: the path of one operator call from checked arguments to checked outputs.
//!
//! Stages, in order:
//!
//! - Poison: an operand that carries an error ends the call with that error.
//! - Coercion of the arguments to the schema ([`coerce_args`](mod@coerce_args)). In a functional
//!   call, operands are replaced then ([`functional_call`]).
//! - Autocast: a call whose operator computes in another precision gets its operands cast
//!   ([`autocast`]).
//! - Derivatives: a call whose operands require gradients is recorded
//!   ([`autograd`](crate::autograd)).
//! - Modes: the innermost active mode (the tracer is one) takes the call.
//! - Fake execution ([`fake`]), if an operand is fake or fake code is running.
//! - The kernel of the operands' device.
//!
//! A real call first copies read operands that overlap mutated ones, then borrows the region of
//! every operand ([`call_borrows`]), gives the kernel handles with exactly these rights, and checks
//! the outputs against the schema. Inside a kernel, only these handles and memory made in the call
//! are usable ([`kernel_scope`](crate::tensor::kernel_scope)); a panic is an error ([`panics`]).
//!
//! A call that is refused before its kernel starts changes nothing. A kernel that fails poisons the
//! storages that it may have written in part.

pub(crate) mod autocast;
pub(crate) mod call_borrows;
pub(crate) mod call_into;
pub(crate) mod coerce_args;
pub mod cpu_exec;
pub(crate) mod custom_kernel;
pub(crate) mod device;
pub(crate) mod failures;
pub mod fake;
pub mod mode;
mod operand_names;
pub(crate) mod panics;
pub(crate) mod prepared;
pub(crate) mod threads;
pub(crate) mod value;
pub(crate) mod value_list;
pub(crate) mod write_counts;

use crate::autograd;
use crate::operator::{Lowering, host_fallback};
pub(crate) use custom_kernel::check_returns;

use crate::dispatch::coerce_args::coerce_args;
use crate::dispatch::custom_kernel::custom;
use crate::dispatch::device::device_of;
use crate::dispatch::value::{Args, Outputs, Value};
use crate::error::{AccessError, CallError, Error, FakeError, Result, TraceError};
use crate::functional_call;
use crate::library::{self, KernelFn, Kwargs, Op, OpState, Tag};
use crate::scope::current_scope;
use crate::tensor::Tensor;
use maquette_ir::fault_injection::{Fault, fault_injected};
use maquette_ir::sym::SymError;
use maquette_ir::{Device, Loc};
use std::rc::Rc;
use std::sync::Arc;

/// Calls an operator by name. A name without an overload stands for whichever overload takes the
/// arguments.
///
/// # Errors
/// There is no such operator, or no overload of it takes the arguments; otherwise as [`Op::call`].
#[track_caller]
pub fn call(name: &str, args: Args) -> Result<Outputs> {
    call_named(name, args, Kwargs::new(), Loc::caller())
}

/// As [`call`], with arguments by keyword: `ops::call_kw("aten::add.Tensor", args![&x, &y],
/// kwargs![alpha = 2])`.
///
/// # Errors
/// As [`call`]; a keyword is unknown, or an argument is given twice.
#[track_caller]
pub fn call_kw(name: &str, args: Args, kwargs: Kwargs) -> Result<Outputs> {
    call_named(name, args, kwargs, Loc::caller())
}

fn call_named(name: &str, args: Args, kwargs: Kwargs, loc: Loc) -> Result<Outputs> {
    let (op, mut args) = library::resolve(name, args, kwargs, loc).map_err(failures::failed)?;
    dispatch(op, &mut args, loc)
}

/// Calls an operator on behalf of the source line `loc`. The call consumes the arguments; they are
/// passed by reference because [`Args`] is large to move.
pub(crate) fn dispatch(op: Op, args: &mut Args, loc: Loc) -> Result<Outputs> {
    // the first cause is reported unchanged, without the calls that the poison passed through
    if let Some(e) = args.iter().find_map(poison_in)
        && !replaces_poison(op, args)
    {
        let e = if value_list::is_depth_error(&e) { for_caller(e, op, loc) } else { e };
        return Err(report(e, op));
    }
    let loc = mode::user_loc().unwrap_or(loc);
    mode::calling(loc);
    run(op, args, loc).map_err(|e| failed_call(operand_names::added(e, op, args), op, args, loc))
}

/// The error of a call, with the operator and the line. The storages that the call has poisoned
/// report the same.
#[cold]
fn failed_call(e: Error, op: Op, args: &[Value], loc: Loc) -> Error {
    let e = for_caller(e, op, loc);
    let e = match current_scope() {
        Some(scope) => e.in_scope(Some(scope.path())),
        None => e,
    };
    for storage in args.iter().flat_map(Value::tensors).filter_map(|t| t.own_storage().ok()) {
        storage.name_poison(&e);
    }
    if op.is_mutable() && fault_injected(Fault::RefusedWritesPoison) {
        args.iter().take(1).flat_map(Value::tensors).for_each(|t| t.poison_storage(&e));
    }
    report(e, op)
}

/// Reports the error of a call, to whatever runs the program.
#[cold]
fn report(e: Error, op: Op) -> Error {
    if op.is_mutable() {
        failures::write_failed(&e);
    }
    failures::failed(e)
}

/// Whether the only poisoned argument is one that the call overwrites, over all of its storage.
/// Such a write makes the contents valid again.
#[cold]
fn replaces_poison(op: Op, args: &[Value]) -> bool {
    let (Ok(state), Some((Value::Tensor(target), others))) = (op.state(), args.split_first())
    else {
        return false;
    };
    state.plain_builtin().is_some_and(|def| def.overwrites_target(&state))
        && !mode::is_active()
        && !fake::is_running()
        && target.covers_storage()
        && others.iter().find_map(poison_in).is_none()
}

/// The error that a poisoned tensor or integer among the arguments carries.
fn poison_in(v: &Value) -> Option<Error> {
    let ints = match v {
        Value::Int(i) => std::slice::from_ref(i),
        Value::Ints(l) => l,
        other => return other.tensors().find_map(Tensor::poisoned),
    };
    ints.iter()
        .filter(|i| i.as_i64().is_none())
        .find_map(|i| i.poisoned())
        .map(|e| SymError::Poisoned(e).into())
}

/// Adds the operator and the caller's line to the error. Inside a builtin composite the error stays
/// unchanged, since the user knows only the operator they called.
fn for_caller(e: Error, op: Op, loc: Loc) -> Error {
    if mode::user_loc().is_some() { e } else { e.in_call(op.shared_name(), loc) }
}

fn run(op: Op, args: &mut Args, loc: Loc) -> Result<Outputs> {
    let state = op.state()?;
    coerce_args(&state, args)?;
    device::add_default_device(&state, args);
    if functional_call::in_functional_call() {
        functional_call::replace(args);
    }
    if state.facts.tags.contains(Tag::Out) {
        refuse_grad(&state, args)?;
    }
    let Operands { any_fake, traced, device, takes_part } = Operands::of(&state, args);
    let active = mode::active();
    let mode = active.mode();
    if let Some(t) = traced {
        check_trace(t, mode.as_deref().and_then(mode::Mode::trace))?;
    }
    if active.autocasts() {
        return autocast::call(op, &state, args, loc);
    }
    let rest = |args: &mut Args| without_grad(op, &state, args, mode, any_fake, device, loc);
    if takes_part && autograd::grad_mode::is_grad_enabled() {
        autograd::record::call(op, &state, args, loc, rest)
    } else {
        rest(args)
    }
}

/// The stages of a call after the recording of derivatives.
fn without_grad(
    op: Op,
    state: &OpState,
    args: &mut Args,
    mode: Option<Rc<dyn mode::Mode>>,
    any_fake: bool,
    device: Option<Device>,
    loc: Loc,
) -> Result<Outputs> {
    if let Some(mode) = mode {
        if let Some(Lowering::UnannotatedComposite { when, body }) =
            state.plain_builtin().map(|def| &def.lowering)
            && when(args)?
        {
            return mode::in_place_of(op, loc, || body(args));
        }
        let call = |args: &mut Args| mode.call(op, std::mem::take(args), loc);
        return autograd::checkpoint::traced(state, args, call);
    }
    // inside fake execution, factories make fake tensors too
    let faking = fake::is_running();
    let fake_factory = faking && state.facts.tensor_args.is_empty();
    if any_fake || fake_factory || wants_meta(state, args) {
        // builtin composites may mix fake operands with real constants of their own
        if any_fake && mode::user_loc().is_none() {
            device_of(state, args)?;
            all_fake(state, args)?;
        }
        let out = fake::call(op, args, None, loc)?;
        if !state.parts_count_writes() {
            mutated(state, args).for_each(Tensor::bump_version);
        }
        return Ok(out);
    }
    match state.builtin {
        Some(def) if !state.overridden => mode::on_behalf_of(loc, || def.run(op, state, args)),
        None if faking && mode::user_loc().is_none() => Err(FakeError::RealKernel.into()),
        _ => with_kernel(op, state, device, args, loc),
    }
}

/// Properties of the tensor operands, collected in one pass.
struct Operands<'a> {
    any_fake: bool,
    traced: Option<&'a Tensor>,
    /// The common device of the operands; `None` if there are no tensors or several devices.
    device: Option<Device>,
    /// Whether an operand takes part in differentiation.
    takes_part: bool,
}

impl<'a> Operands<'a> {
    fn of(state: &OpState, args: &'a [Value]) -> Operands<'a> {
        let mut tensors =
            state.facts.tensor_args.iter().flat_map(|&i| args[usize::from(i)].tensors()).peekable();
        let device = tensors.peek().map(|t| t.device());
        let mut found = Operands { any_fake: false, traced: None, device, takes_part: false };
        for t in tensors {
            found.any_fake |= t.is_fake();
            found.takes_part |= autograd::history::takes_part(t);
            if t.slot().is_some() {
                found.traced = Some(t);
            }
            found.device = found.device.filter(|d| *d == t.device());
        }
        found
    }
}

/// Requires every operand to be fake. Fake operands do not mix with real ones, since a result of
/// both would have no data although one operand has.
#[cold]
fn all_fake(state: &OpState, args: &Args) -> Result<()> {
    let real = |i: &&u16| args[usize::from(**i)].tensors().any(|t| !t.is_fake());
    match state.facts.tensor_args.iter().find(real) {
        Some(&i) => {
            Err(FakeError::RealOperand { arg: state.schema.args[usize::from(i)].name.clone() }
                .into())
        }
        None => Ok(()),
    }
}

/// Calls one kernel of an operator directly, without the dispatcher. `None` means the builtin
/// kernel.
pub(crate) fn call_kernel(
    op: Op,
    kernel: Option<&KernelFn>,
    mut args: Args,
    loc: Loc,
) -> Result<Outputs> {
    if let Some(e) = args.iter().find_map(poison_in) {
        return Err(e);
    }
    let mut call = || {
        let state = op.state()?;
        coerce_args(&state, &mut args)?;
        for t in args.iter().flat_map(Value::tensors) {
            let what = "what a kernel returns that is called directly";
            mode::ask(mode::Question::State(t), what, loc)?;
            if t.slot().is_some() {
                return Err(AccessError::Traced.into());
            }
            if t.is_fake() {
                return Err(AccessError::Fake.into());
            }
        }
        match (kernel, state.builtin) {
            (Some(kernel), _) => {
                custom(op, &state, kernel, device_of(&state, &args)?, &mut args, loc)
            }
            (None, Some(def)) => {
                mode::without_modes(|| mode::on_behalf_of(loc, || def.run(op, &state, &mut args)))
            }
            (None, None) => Err(CallError::NoKernel {
                device: device_of(&state, &args)?.kind(),
                available: state.available(),
            }
            .into()),
        }
    };
    call().map_err(|e| e.in_call(op.shared_name(), loc))
}

/// Whether the call is to a factory with the device `meta`, which makes fake tensors.
fn wants_meta(state: &OpState, args: &Args) -> bool {
    state
        .facts
        .device_arg
        .is_some_and(|i| matches!(args[usize::from(i)], Value::Device(d) if d == Device::Meta))
}

/// Checks that a traced tensor is used on the thread of its trace, while that trace is the active
/// one.
fn check_trace(t: &Tensor, current: Option<&Arc<crate::tensor::TraceTag>>) -> Result<()> {
    let Some(slot) = t.slot() else { return Ok(()) };
    let tag = &slot.trace;
    let trace = || tag.name.clone();
    if tag.has_ended() {
        return Err(TraceError::Ended { trace: trace() }.into());
    }
    if !tag.is_of_this_thread() {
        return Err(TraceError::OtherThread { trace: tag.clone() }.into());
    }
    match current {
        Some(c) if Arc::ptr_eq(c, tag) => Ok(()),
        Some(c) => Err(TraceError::OtherTrace { trace: trace(), current: c.name.clone() }.into()),
        // a kernel or a fake kernel runs without modes, and obtained a traced tensor by other means
        None => Err(AccessError::Traced.into()),
    }
}

fn mutated<'a>(state: &'a OpState, args: &'a [Value]) -> impl Iterator<Item = &'a Tensor> {
    state.facts.mutated.iter().flat_map(|&i| args[usize::from(i)].tensors())
}

/// The argument that return `index` aliases, if the schema declares that return to be a mutated
/// argument.
pub(crate) fn returned_argument(state: &OpState, args: &[Value], index: usize) -> Option<Value> {
    let arg = (*state.facts.aliases.get(index)?)?;
    state.facts.mutated.contains(&arg).then(|| args.get(usize::from(arg)).cloned()).flatten()
}

/// Calls the registered kernel for the device, or the builtin one. `device` is the common device of
/// the operands, if there is one.
fn with_kernel(
    op: Op,
    state: &OpState,
    device: Option<Device>,
    args: &mut Args,
    loc: Loc,
) -> Result<Outputs> {
    let device = device.map_or_else(|| device_of(state, args), Ok)?;
    let (kernel, on_host) = match host_fallback::kernel_of_host(state, device) {
        Some(of_host) => (of_host, true),
        None => (state.kernel(device.kind()), false),
    };
    match (kernel, state.builtin) {
        (Some(_), Some(def))
            if (device == Device::Cpu || on_host) && mode::uses_builtin_kernels() =>
        {
            mode::on_behalf_of(loc, || def.run(op, state, args))
        }
        (Some(kernel), _) if on_host => {
            let on_host = host_fallback::of_kernel(op, kernel, device, loc);
            custom(op, state, &on_host, device, args, loc)
        }
        (Some(kernel), _) => custom(op, state, kernel, device, args, loc),
        (None, Some(def)) => mode::on_behalf_of(loc, || def.run(op, state, args)),
        (None, None) => {
            Err(CallError::NoKernel { device: device.kind(), available: state.available() }.into())
        }
    }
}

/// `out=` operators have no derivative.
fn refuse_grad(state: &OpState, args: &[Value]) -> Result<()> {
    let wants = |i: &&u16| args[usize::from(**i)].tensors().any(autograd::history::requires_grad);
    match state.facts.tensor_args.iter().find(wants) {
        Some(&i) => {
            Err(CallError::OutRequiresGrad { arg: state.schema.args[usize::from(i)].name.clone() }
                .into())
        }
        None => Ok(()),
    }
}
