//! The path of a call: arguments are fitted to the schema, then modes, then fake or real execution.
//!
//! Order: poison → modes (the tracer is one) → misplaced traced tensors → fake → device kernel. A real call snapshots read operands that
//! overlap mutated ones, borrows every region, lends the kernel handles with exactly those rights, and checks what comes back.

use crate::borrow::{Access, Holder};
use crate::error::{AccessError, CallError, Error, Result, TraceError};
use crate::fake;
use crate::library::{KernelFn, Op, OpState};
use crate::mode;
use crate::overlap::{may_overlap, may_self_overlap};
use crate::tensor::{Held, Tensor};
use crate::value::{Args, Outputs, Value};
use maquette_ir::schema::{Schema, Type};
use maquette_ir::{Device, Loc};
use smallvec::SmallVec;

/// Calls an operator by name.
///
/// # Errors
/// There is no such operator; otherwise as [`Op::call`].
#[track_caller]
pub fn call(name: &str, args: Args) -> Result<Outputs> {
    let loc = Loc::caller();
    dispatch(Op::find(name).map_err(|e| e.at(loc))?, args, loc)
}

/// Calls an operator for the line `loc`.
pub(crate) fn dispatch(op: Op, args: Args, loc: Loc) -> Result<Outputs> {
    let behalf = mode::user_loc();
    let loc = behalf.unwrap_or(loc);
    run(op, args, loc).map_err(|e| {
        // inside a builtin composite the user knows only the operator they called
        let e = if behalf.is_some() { e } else { e.in_call(op.shared_name(), loc) };
        if let Some(mode) = mode::current() {
            mode.failed(&e);
        }
        e
    })
}

fn run(op: Op, mut args: Args, loc: Loc) -> Result<Outputs> {
    let state = op.state()?;
    fit(&state, &mut args)?;
    let mut any_fake = false;
    let mut traced: Option<&Tensor> = None;
    for &i in &state.facts.tensor_args {
        for t in args[usize::from(i)].tensors() {
            if let Some(e) = t.poisoned() {
                return Err(e.clone());
            }
            any_fake |= t.is_fake();
            if t.slot().is_some() {
                traced = Some(t);
            }
        }
    }
    let mode = mode::current();
    if let Some(t) = traced {
        check_trace(t, mode.as_deref().and_then(mode::Mode::trace))?;
    }
    if let Some(mode) = mode {
        return mode.call(op, args, loc);
    }
    if any_fake || wants_meta(&state, &args) {
        let out = fake::call(op, &args, None, loc)?;
        mutated(&state, &args).for_each(Tensor::bump_version);
        return Ok(out);
    }
    match state.builtin {
        Some(def) => mode::on_behalf_of(loc, || def.run(op, &state, &args)),
        None => custom(op, &state, args),
    }
}

/// A factory asked for the `meta` device makes fake tensors.
fn wants_meta(state: &OpState, args: &Args) -> bool {
    state.facts.device_arg.is_some_and(|i| matches!(args[usize::from(i)], Value::Device(d) if d == Device::Meta))
}

/// A traced tensor may be used on its thread, while its trace runs, in its trace.
fn check_trace(t: &Tensor, current: Option<&std::sync::Arc<crate::tensor::TraceTag>>) -> Result<()> {
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
        // an untraced region of this trace's own thread: a kernel or a fake kernel that got hold of it
        None => Err(AccessError::Traced.into()),
    }
}

/// Fits the arguments to the schema: fills in defaults, checks types, turns one integer into a list of one where the schema takes lists.
fn fit(state: &OpState, args: &mut Args) -> Result<()> {
    let schema = &state.schema;
    if args.len() > schema.args.len() {
        return Err(CallError::TooMany { expected: schema.args.len(), found: args.len(), schema: schema.to_string() }.into());
    }
    for (index, decl) in schema.args.iter().enumerate().skip(args.len()) {
        match crate::library::default_value(decl) {
            Some(v) => args.push(v),
            None => {
                let (arg, expected) = (decl.name.clone(), decl.ty.to_string());
                return Err(CallError::Missing { arg, index, expected, schema: schema.to_string() }.into());
            }
        }
    }
    for (index, (v, decl)) in args.iter_mut().zip(&schema.args).enumerate() {
        if !coerce(&decl.ty, v, state.builtin.is_some()) {
            return Err(wrong_type(schema, index, v));
        }
    }
    Ok(())
}

#[cold]
fn wrong_type(schema: &Schema, index: usize, v: &Value) -> Error {
    let decl = &schema.args[index];
    CallError::Type {
        arg: decl.name.clone(),
        index,
        expected: decl.ty.to_string(),
        found: v.kind().to_string(),
        schema: schema.to_string(),
    }
    .into()
}

/// Whether the value fits the type, after the conversions PyTorch makes too. Builtin operators take a number for a tensor.
fn coerce(ty: &Type, v: &mut Value, builtin: bool) -> bool {
    match (ty, &mut *v) {
        (Type::Optional(_), Value::None) | (Type::Generator, Value::None) | (Type::Any, _) => true,
        (Type::Optional(inner), _) => coerce(inner, v, builtin),
        (Type::Tensor, Value::Tensor(_))
        | (Type::Int | Type::SymInt, Value::Int(_))
        | (Type::Float, Value::Float(_))
        | (Type::Bool, Value::Bool(_))
        | (Type::Scalar, Value::Int(_) | Value::Float(_) | Value::Bool(_))
        | (Type::Str, Value::Str(_))
        | (Type::ScalarType, Value::DType(_))
        | (Type::Device, Value::Device(_))
        | (Type::Layout, Value::Layout(_))
        | (Type::MemoryFormat, Value::MemoryFormat(_)) => true,
        (Type::Tensor, Value::Int(_) | Value::Float(_) | Value::Bool(_)) => builtin,
        (Type::Int | Type::SymInt, Value::Bool(b)) => {
            *v = Value::Int(i64::from(*b).into());
            true
        }
        (Type::Float, Value::Int(i)) => {
            if let Some(i) = i.as_i64() {
                *v = Value::Float(i as f64);
            }
            true
        }
        (Type::List(inner, _), Value::Ints(l)) => {
            is_int(inner) || {
                let mut l: Box<[Value]> = l.iter().map(|&i| Value::Int(i)).collect();
                let fits = l.iter_mut().all(|x| coerce(inner, x, builtin));
                *v = Value::List(l);
                fits
            }
        }
        (Type::List(inner, _), Value::List(l)) => {
            if l.is_empty() && is_int(inner) {
                *v = Value::Ints(Box::new([]));
                return true;
            }
            l.iter_mut().all(|x| coerce(inner, x, builtin))
        }
        (Type::List(inner, Some(_)), Value::Int(i)) if is_int(inner) => {
            *v = Value::Ints(Box::new([*i]));
            true
        }
        _ => false,
    }
}

fn is_int(ty: &Type) -> bool {
    matches!(ty, Type::Int | Type::SymInt)
}

fn mutated<'a>(state: &'a OpState, args: &'a [Value]) -> impl Iterator<Item = &'a Tensor> {
    state.facts.mutated.iter().flat_map(|&i| args[usize::from(i)].tensors())
}

/// The argument that return `index` is, where the schema says it is one.
pub(crate) fn returned_argument(state: &OpState, args: &[Value], index: usize) -> Option<Value> {
    let arg = (*state.facts.aliases.get(index)?)?;
    state.facts.mutated.contains(&arg).then(|| args.get(usize::from(arg)).cloned()).flatten()
}

/// Read operands that overlap mutated ones are read as they were before the call; mutated operands may not meet.
///
/// `same_place_is_safe`: an operand in exactly the place of a mutated one needs no copy, since each element is read before it is written.
pub(crate) fn separate(state: &OpState, args: &[Value], same_place_is_safe: bool) -> Result<Option<Args>> {
    let facts = &state.facts;
    if facts.mutated.is_empty() {
        return Ok(None);
    }
    let name = |i: u16| state.schema.args[usize::from(i)].name.clone();
    let layouts = |i: u16| args[usize::from(i)].tensors().filter_map(|t| Some((t, t.meta().concrete()?))).collect::<SmallVec<[_; 2]>>();
    let targets: SmallVec<[(u16, &Tensor, _); 2]> =
        facts.mutated.iter().flat_map(|&i| layouts(i).into_iter().map(move |(t, c)| (i, t, c))).collect();
    for (k, (i, t, c)) in targets.iter().enumerate() {
        if may_self_overlap(c) {
            let (sizes, strides) = (c.sizes.to_vec(), c.strides.to_vec());
            return Err(AccessError::SelfOverlap { arg: name(*i), sizes, strides }.into());
        }
        if let Some((j, ..)) = targets[..k].iter().find(|(_, u, d)| t.shares_storage(u) && may_overlap(c, d)) {
            return Err(AccessError::MutatedOverlap { first: name(*j), second: name(*i) }.into());
        }
    }
    let mut out: Option<Args> = None;
    for &i in facts.tensor_args.iter().filter(|i| !facts.mutated.contains(i)) {
        let meets = |t: &Tensor| {
            targets.iter().any(|(_, u, d)| {
                t.shares_storage(u)
                    && t.meta().concrete().is_none_or(|c| !(same_place_is_safe && c == *d && t.dtype() == u.dtype()) && may_overlap(&c, d))
            })
        };
        if args[usize::from(i)].tensors().any(meets) {
            let copies = out.get_or_insert_with(|| args.iter().cloned().collect());
            copies[usize::from(i)] =
                args[usize::from(i)].map_tensors(&mut |t| if meets(t) { crate::eager::snapshot(t) } else { Ok(t.clone()) })?;
        }
    }
    Ok(out)
}

/// Borrows for the time of a call.
pub(crate) type Loans = SmallVec<[Held; 4]>;

/// Borrows every tensor argument, and gives the arguments as handles with the rights of these loans.
pub(crate) fn lend(op: Op, state: &OpState, args: &[Value]) -> Result<(Loans, Args)> {
    let mut loans = Loans::new();
    let mut lent: Args = args.iter().cloned().collect();
    // writers first, so that a conflict names the mutated argument
    for access in [Access::Write, Access::Read] {
        for &i in &state.facts.tensor_args {
            if (access == Access::Write) != state.facts.mutated.contains(&i) {
                continue;
            }
            let index = usize::from(i);
            lent[index] = lent[index].map_tensors(&mut |t| -> Result<Tensor> {
                let held = t.borrow(access, Holder::Argument { op, index: i })?;
                let granted = t.granted(held.grant);
                loans.push(held);
                Ok(granted)
            })?;
        }
    }
    Ok((loans, lent))
}

/// A custom operator on real tensors.
fn custom(op: Op, state: &OpState, args: Args) -> Result<Outputs> {
    let device = device_of(state, &args)?;
    let Some(kernel) = state.kernel(device.kind()) else {
        return Err(CallError::NoKernel { device: device.kind(), available: state.available() }.into());
    };
    let separated = separate(state, &args, false)?;
    let operands: &[Value] = separated.as_deref().unwrap_or(&args);
    let (loans, mut lent) = lend(op, state, operands)?;
    let outputs = run_kernel(kernel, state, &mut lent, device).inspect_err(|e| mutated(state, &args).for_each(|t| t.poison_storage(e)))?;
    drop(loans);
    mutated(state, &args).for_each(Tensor::bump_version);
    finish(state, &args, &lent, outputs)
}

fn run_kernel(kernel: &KernelFn, state: &OpState, lent: &mut Args, device: Device) -> Result<Outputs> {
    let outputs = mode::without_modes(|| mode::in_user_code(|| kernel(lent)))?;
    check_returns(state, lent, &outputs)?;
    for (index, t) in outputs.iter().enumerate().flat_map(|(i, v)| v.tensors().map(move |t| (i, t))) {
        if t.device() != device {
            return Err(CallError::ReturnDevice { index, expected: device, found: t.device() }.into());
        }
        if t.is_fake() {
            return Err(AccessError::Fake.into());
        }
    }
    Ok(outputs)
}

/// Gives returns that are arguments as the caller's own handles, and the others without the rights of the loan.
fn finish(state: &OpState, args: &[Value], lent: &[Value], outputs: Outputs) -> Result<Outputs> {
    let mut out = Outputs::new();
    for (i, v) in outputs.into_iter().enumerate() {
        match returned_argument(state, args, i) {
            Some(arg) => {
                let same =
                    state.facts.aliases[i].is_some_and(|a| lent[usize::from(a)].tensors().zip(v.tensors()).all(|(x, y)| x.is_same(y)));
                if !same {
                    let arg = state.facts.aliases[i].map_or_else(String::new, |a| state.schema.args[usize::from(a)].name.clone());
                    return Err(CallError::NotTheArgument { output: i, arg }.into());
                }
                out.push(arg);
            }
            None => out.push(v.map_tensors(&mut |t| Ok::<_, Error>(t.ungranted()))?),
        }
    }
    Ok(out)
}

/// Checks number, type and aliasing of what a kernel returned.
pub(crate) fn check_returns(state: &OpState, args: &[Value], outputs: &[Value]) -> Result<()> {
    let declared = &state.schema.returns;
    if outputs.len() != declared.len() {
        let schema = state.schema.to_string();
        return Err(CallError::ReturnCount { expected: declared.len(), found: outputs.len(), schema }.into());
    }
    for (index, (v, r)) in outputs.iter().zip(declared).enumerate() {
        if !coerce(&r.ty, &mut v.clone(), false) {
            return Err(CallError::ReturnType { index, expected: r.ty.to_string(), found: v.kind() }.into());
        }
    }
    let mut seen: SmallVec<[(usize, &Tensor); 4]> = SmallVec::new();
    for (output, t) in outputs.iter().enumerate().flat_map(|(i, v)| v.tensors().map(move |t| (i, t))) {
        t.ok()?;
        if state.facts.aliases[output].is_none() {
            if let Some(i) = state.facts.tensor_args.iter().find(|i| args[usize::from(**i)].tensors().any(|a| a.shares_storage(t))) {
                let other = format!("argument `{}`", state.schema.args[usize::from(*i)].name);
                return Err(CallError::OutputAliases { output, other }.into());
            }
            if let Some((other, _)) = seen.iter().find(|(_, u)| u.shares_storage(t)) {
                return Err(CallError::OutputAliases { output, other: format!("output {other}") }.into());
            }
        }
        seen.push((output, t));
    }
    Ok(())
}

/// The device of a call: that of its tensors, which must agree, or its argument `device`, or the host.
pub(crate) fn device_of(state: &OpState, args: &[Value]) -> Result<Device> {
    let mut first: Option<(u16, Device)> = None;
    for &i in &state.facts.tensor_args {
        for t in args[usize::from(i)].tensors() {
            match first {
                None => first = Some((i, t.device())),
                Some((_, d)) if d == t.device() => {}
                Some((j, d)) => {
                    let name = |i: u16| state.schema.args[usize::from(i)].name.clone();
                    let (first_arg, second_arg) = (name(j), name(i));
                    return Err(CallError::MixedDevices { first_arg, first: d, second_arg, second: t.device() }.into());
                }
            }
        }
    }
    Ok(match (first, state.facts.device_arg) {
        (Some((_, d)), _) => d,
        (None, Some(i)) => args[usize::from(i)].opt(Value::device)?.unwrap_or(Device::Cpu),
        (None, None) => Device::Cpu,
    })
}
