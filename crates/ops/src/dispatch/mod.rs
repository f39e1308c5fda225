//! The dispatcher: the path of one operator call from checked arguments to checked outputs.
//!
//! Stages, in order:
//!
//! - Poison: an operand that carries an error ends the call with that error.
//! - Coercion of the arguments to the schema ([`coerce_args`](mod@coerce_args)).
//! - Modes: the innermost active mode (the tracer is one) takes the call.
//! - Fake execution ([`fake`]), if an operand is fake or fake code is running.
//! - The kernel of the operands' device.
//!
//! A real call first copies read operands that overlap mutated ones, then borrows the region of
//! every operand ([`call_borrows`]), gives the kernel handles with exactly these rights, and checks
//! the outputs against the schema. Inside a kernel, only these handles and memory made in the call
//! are usable ([`kernel_scope`](crate::tensor::kernel_scope)); a panic is an error ([`panics`]).
//!
//! An error before the kernel starts poisons nothing, since nothing was written.

pub(crate) mod call_borrows;
pub(crate) mod call_into;
pub(crate) mod coerce_args;
pub(crate) mod cpu_exec;
pub(crate) mod device;
pub mod fake;
pub mod mode;
pub(crate) mod panics;
pub(crate) mod value;
pub(crate) mod value_list;
pub(crate) mod write_counts;

use crate::aten::Lowering;
use crate::dispatch::call_borrows::{borrow_args, mutated_args, resolve_overlap, viewed_args};
use crate::dispatch::coerce_args::{coerce_args, has_type};
use crate::dispatch::device::device_of;
use crate::dispatch::value::{Args, Outputs, Value};
use crate::error::{AccessError, CallError, Error, FakeError, Result, TraceError};
use crate::library::{self, KernelFn, Kwargs, Op, OpState, Tag};
use crate::tensor::Tensor;
use crate::tensor::borrow::{self, Grant};
use crate::tensor::kernel_scope::KernelScope;
use maquette_ir::sym::SymError;
use maquette_ir::{Device, Loc};

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
    let (op, mut args) = library::resolve(name, args, kwargs, loc)?;
    dispatch(op, &mut args, loc)
}

/// Calls an operator on behalf of the source line `loc`. The call consumes the arguments; they are
/// passed by reference because [`Args`] is large to move.
pub(crate) fn dispatch(op: Op, args: &mut Args, loc: Loc) -> Result<Outputs> {
    // the first cause is reported unchanged, without the calls that the poison passed through
    if let Some(e) = args.iter().find_map(poison_in) {
        return Err(if value_list::is_depth_error(&e) { for_caller(e, op, loc) } else { e });
    }
    let loc = mode::user_loc().unwrap_or(loc);
    run(op, args, loc).map_err(|e| {
        let e = for_caller(e, op, loc);
        if let Some(mode) = mode::current() {
            mode.failed(&e);
        }
        e
    })
}

/// The error that a poisoned tensor or integer among the arguments carries.
pub(crate) fn poison_in(v: &Value) -> Option<Error> {
    let ints = match v {
        Value::Int(i) => std::slice::from_ref(i),
        Value::Ints(l) => l,
        other => return other.tensors().find_map(Tensor::poisoned).cloned(),
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
    if state.facts.tags.contains(Tag::Out) {
        refuse_grad(&state, args)?;
    }
    let Operands { any_fake, traced, device } = Operands::of(&state, args);
    let mode = mode::current();
    if let Some(t) = traced {
        check_trace(t, mode.as_deref().and_then(mode::Mode::trace))?;
    }
    if let Some(mode) = mode {
        if let Some(Lowering::HiddenMutation { when, body }) =
            state.builtin.map(|def| &def.lowering)
            && when(args)?
        {
            return mode::on_behalf_of(loc, || body(args));
        }
        return mode.call(op, std::mem::take(args), loc);
    }
    // inside fake execution, factories make fake tensors too
    let faking = fake::is_running();
    let fake_factory = faking && state.facts.tensor_args.is_empty();
    if any_fake || fake_factory || wants_meta(&state, args) {
        // builtin composites may mix fake operands with real constants of their own
        if any_fake && mode::user_loc().is_none() {
            device_of(&state, args)?;
            all_fake(&state, args)?;
        }
        let out = fake::call(op, args, None, loc)?;
        mutated(&state, args).for_each(Tensor::bump_version);
        return Ok(out);
    }
    match state.builtin {
        Some(def) if !state.overridden => mode::on_behalf_of(loc, || def.run(op, &state, args)),
        None if faking && mode::user_loc().is_none() => Err(FakeError::RealKernel.into()),
        _ => with_kernel(op, &state, device, args, loc),
    }
}

/// Properties of the tensor operands, collected in one pass.
struct Operands<'a> {
    any_fake: bool,
    traced: Option<&'a Tensor>,
    /// The common device of the operands; `None` if there are no tensors or several devices.
    device: Option<Device>,
}

impl<'a> Operands<'a> {
    fn of(state: &OpState, args: &'a [Value]) -> Operands<'a> {
        let mut tensors =
            state.facts.tensor_args.iter().flat_map(|&i| args[usize::from(i)].tensors()).peekable();
        let mut found =
            Operands { any_fake: false, traced: None, device: tensors.peek().map(|t| t.device()) };
        for t in tensors {
            found.any_fake |= t.is_fake();
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
fn check_trace(
    t: &Tensor,
    current: Option<&std::sync::Arc<crate::tensor::TraceTag>>,
) -> Result<()> {
    let Some(slot) = t.slot() else { return Ok(()) };
    let tag = &slot.trace;
    let trace = tag.name.clone();
    if tag.has_ended() {
        return Err(TraceError::Ended { trace }.into());
    }
    if tag.thread != std::thread::current().id() {
        return Err(TraceError::OtherThread { trace }.into());
    }
    match current {
        Some(c) if std::sync::Arc::ptr_eq(c, tag) => Ok(()),
        Some(c) => Err(TraceError::OtherTrace { trace, current: c.name.clone() }.into()),
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
    match (state.kernel(device.kind()), state.builtin) {
        (Some(kernel), _) => custom(op, state, kernel, device, args, loc),
        (None, Some(def)) => mode::on_behalf_of(loc, || def.run(op, state, args)),
        (None, None) => {
            Err(CallError::NoKernel { device: device.kind(), available: state.available() }.into())
        }
    }
}

/// Replaces numbers by 0-d tensors. Builtin operators take a number where the schema wants a
/// tensor; a kernel registered for a builtin operator expects tensors only.
fn numbers_as_tensors(state: &OpState, args: &mut Args) -> Result<()> {
    for &i in &state.facts.tensor_args {
        let v = &mut args[usize::from(i)];
        let t = match v {
            Value::Int(n) => Tensor::adopt(vec![n.guard_int()?], [0i64; 0])?,
            Value::Float(x) => Tensor::adopt(vec![*x], [0i64; 0])?,
            Value::Bool(b) => Tensor::adopt(vec![*b], [0i64; 0])?,
            _ => continue,
        };
        *v = Value::Tensor(t);
    }
    Ok(())
}

/// Runs a registered kernel on real tensors of one `device`, and enforces the contract of the
/// schema: borrowed operands, poisoned outputs on failure, bumped versions and checked returns.
fn custom(
    op: Op,
    state: &OpState,
    kernel: &KernelFn,
    device: Device,
    args: &mut Args,
    loc: Loc,
) -> Result<Outputs> {
    if state.builtin.is_some() {
        numbers_as_tensors(state, args)?;
    }
    let written = mutated_args(state, args);
    resolve_overlap(state, args, false)?;
    let viewed = viewed_args(state, args);
    let borrowed = borrow_args(op, state, args)?;
    let poison_on_failure = PoisonOnFailure { written: &written, op, loc };
    let before = borrow::undeclared_writes();
    let scope = KernelScope::enter();
    let outputs = run_kernel(kernel, state, borrowed.args(), device);
    // a kernel may discard the error of an undeclared access; the call must fail nevertheless
    let undeclared = scope.refused_access().or_else(|| {
        if borrow::undeclared_writes() == before { None } else { borrowed.undeclared_write() }
    });
    drop(scope);
    let outputs = match undeclared {
        Some(e) if outputs.is_ok() => Err(e.into()),
        _ => outputs,
    };
    let outputs = outputs.inspect_err(|e| poison_on_failure.poison(e))?;
    drop((poison_on_failure, borrowed));
    written.iter().flat_map(Value::tensors).for_each(Tensor::bump_version);
    finish(state, args, &written, &viewed, outputs)
}

/// `out=` operators have no derivative.
fn refuse_grad(state: &OpState, args: &[Value]) -> Result<()> {
    let wants = |i: &&u16| args[usize::from(**i)].tensors().any(|t| t.meta().requires_grad);
    match state.facts.tensor_args.iter().find(wants) {
        Some(&i) => {
            Err(CallError::OutRequiresGrad { arg: state.schema.args[usize::from(i)].name.clone() }
                .into())
        }
        None => Ok(()),
    }
}

/// Poisons the mutated arguments if the kernel returns an error or panics, since they may be partly
/// written.
struct PoisonOnFailure<'a> {
    written: &'a [Value],
    op: Op,
    loc: Loc,
}

impl PoisonOnFailure<'_> {
    fn poison(&self, e: &Error) {
        let e = for_caller(e.clone(), self.op, self.loc);
        self.written.iter().flat_map(Value::tensors).for_each(|t| t.poison_storage(&e));
    }
}

fn run_kernel(
    kernel: &KernelFn,
    state: &OpState,
    borrowed: &[Value],
    device: Device,
) -> Result<Outputs> {
    let run = || panics::catch("kernel", || kernel(borrowed));
    let mut outputs = mode::without_modes(|| mode::in_user_code(run))?;
    if outputs.is_empty() && state.facts.tags.returns_arguments() {
        outputs = state
            .facts
            .aliases
            .iter()
            .filter_map(|a| borrowed.get(usize::from((*a)?)).cloned())
            .collect();
    }
    check_returns(state, borrowed, &outputs)?;
    for (index, v) in outputs.iter().enumerate() {
        for t in v.tensors() {
            if t.device() != device {
                return Err(
                    CallError::ReturnDevice { index, expected: device, found: t.device() }.into()
                );
            }
            if t.is_fake() {
                return Err(AccessError::Fake.into());
            }
            // merged, moved and repeated calls are equal only if each makes its own memory
            if state.facts.aliases[index].is_none() && !t.is_only_handle() {
                return Err(CallError::KeptOutput { output: index }.into());
            }
        }
    }
    Ok(outputs)
}

/// Replaces each returned argument by the caller's own handle, and gives returned views of an
/// argument the rights of the caller's handle instead of the borrow's.
fn finish(
    state: &OpState,
    borrowed: &[Value],
    written: &[Value],
    viewed: &[Tensor],
    mut outputs: Outputs,
) -> Result<Outputs> {
    for (output, v) in outputs.iter_mut().enumerate() {
        let alias = state.facts.aliases.get(output).copied().flatten();
        match alias.and_then(|a| Some((a, state.facts.mutated.iter().position(|&m| m == a)?))) {
            Some((a, place)) => {
                if !borrowed[usize::from(a)].tensors().zip(v.tensors()).all(|(x, y)| x.is_same(y)) {
                    return Err(CallError::NotTheArgument {
                        output,
                        arg: state.schema.args[usize::from(a)].name.clone(),
                    }
                    .into());
                }
                *v = written[place].clone();
            }
            None => v.tensors_mut().for_each(|t| {
                let base = viewed.iter().find(|base| base.shares_storage(t));
                t.grant = base.map_or(Grant::NONE, |base| base.grant);
            }),
        }
    }
    Ok(outputs)
}

/// Checks the number, types and aliasing of a kernel's returns against the schema.
pub(crate) fn check_returns(state: &OpState, args: &[Value], outputs: &[Value]) -> Result<()> {
    let declared = &state.schema.returns;
    if outputs.len() != declared.len() {
        let schema = state.schema.to_string();
        return Err(CallError::ReturnCount {
            expected: declared.len(),
            found: outputs.len(),
            schema,
        }
        .into());
    }
    for (index, (v, r)) in outputs.iter().zip(declared).enumerate() {
        if !has_type(&r.ty, v) {
            return Err(CallError::ReturnType {
                index,
                expected: r.ty.to_string(),
                found: v.kind(),
            }
            .into());
        }
    }
    let shares = |v: &Value, t: &Tensor| v.tensors().any(|u| u.shares_storage(t));
    for (output, v) in outputs.iter().enumerate() {
        for (k, t) in v.tensors().enumerate() {
            t.ok()?;
            if let Some(arg) = state.facts.aliases[output] {
                if !shares(&args[usize::from(arg)], t) {
                    return Err(CallError::NotTheArgument {
                        output,
                        arg: state.schema.args[usize::from(arg)].name.clone(),
                    }
                    .into());
                }
                continue;
            }
            if let Some(i) =
                state.facts.tensor_args.iter().find(|i| shares(&args[usize::from(**i)], t))
            {
                let other = format!("argument `{}`", state.schema.args[usize::from(*i)].name);
                return Err(CallError::OutputAliases { output, other }.into());
            }
            let earlier = outputs[..output].iter().position(|w| shares(w, t));
            let in_list = v.tensors().take(k).any(|u| u.shares_storage(t)).then_some(output);
            if let Some(other) = earlier.or(in_list) {
                return Err(
                    CallError::OutputAliases { output, other: format!("output {other}") }.into()
                );
            }
        }
    }
    Ok(())
}
