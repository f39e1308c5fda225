//! The call of a registered kernel on real tensors, under the contract of its schema.

use crate::dispatch::call_borrows::{BorrowedArgs, resolve_overlap, viewed_args};
use crate::dispatch::coerce_args::has_type;
use crate::dispatch::value::{Args, Outputs, Value};
use crate::dispatch::{for_caller, mode, panics};
use crate::error::{AccessError, CallError, Error, ErrorKind, Result};
use crate::library::{KernelFn, Op, OpState};
use crate::tensor::Tensor;
use crate::tensor::borrow::{self, Grant};
use crate::tensor::kernel_scope::KernelScope;
use maquette_ir::{Device, Loc};

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
pub(crate) fn custom(
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
    let viewed = viewed_args(state, args);
    resolve_overlap(state, args, false)?;
    let mut outputs = Outputs::new();
    without_overlap(op, state, (kernel, device), args, &viewed, &mut outputs, loc)?;
    Ok(outputs)
}

/// As [`custom`], on arguments of which no mutated one overlaps itself or another. `viewed` are the
/// [`viewed_args`]. The handles in `args` are the caller's afterwards, as before. The outputs are
/// written to `outputs`, because to return them costs a copy for each function on the way.
pub(super) fn without_overlap(
    op: Op,
    state: &OpState,
    (kernel, device): (&KernelFn, Device),
    args: &mut [Value],
    viewed: &[Tensor],
    outputs: &mut Outputs,
    loc: Loc,
) -> Result<()> {
    let mut borrowed = BorrowedArgs::new(state, args);
    borrowed.borrow(op)?;
    let before = borrow::undeclared_writes();
    let scope = KernelScope::enter();
    let done = run_kernel(kernel, state, borrowed.args(), device, outputs);
    // A kernel may discard the error of an undeclared access. The call must fail nevertheless.
    let undeclared = scope.refused_access().or_else(|| {
        if borrow::undeclared_writes() == before { None } else { borrowed.undeclared_write() }
    });
    drop(scope);
    if let Some(e) = done.err().or_else(|| undeclared.map(Error::from)) {
        return Err(poison_written(&borrowed, with_name(e, state), op, loc));
    }
    // Whoever borrows the memory next sees the new version.
    borrowed.bump_versions();
    drop(borrowed);
    finish(state, args, viewed, outputs)
}

/// Adds the name of an argument that the kernel of this very call replaced.
#[cold]
fn with_name(error: Error, state: &OpState) -> Error {
    match error.kind() {
        ErrorKind::Call(CallError::ReplacedArgument { index, name: None })
            if error.op().is_none() =>
        {
            let name = state.schema.args.get(*index).map(|arg| arg.name.to_string());
            CallError::ReplacedArgument { index: *index, name }.into()
        }
        _ => error,
    }
}

/// Poisons the mutated arguments with the error of the call, because they may be partly written.
/// Returns the error.
#[cold]
fn poison_written(borrowed: &BorrowedArgs<'_>, error: Error, op: Op, loc: Loc) -> Error {
    borrowed.poison(&for_caller(error.clone(), op, loc));
    error
}

fn run_kernel(
    kernel: &KernelFn,
    state: &OpState,
    borrowed: &[Value],
    device: Device,
    outputs: &mut Outputs,
) -> Result<()> {
    let run = || {
        *outputs = kernel(borrowed)?;
        Ok(())
    };
    mode::without_modes(|| mode::in_user_code(|| panics::catch("kernel", run)))?;
    if outputs.is_empty() && state.facts.tags.returns_arguments() {
        *outputs = state
            .facts
            .aliases
            .iter()
            .filter_map(|a| borrowed.get(usize::from((*a)?)).cloned())
            .collect();
    }
    check_returns(state, borrowed, outputs)?;
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
            // Merged, moved and repeated calls are equal only if each makes memory of its own.
            if state.facts.aliases[index].is_none() && !t.is_only_handle() {
                return Err(CallError::KeptOutput { output: index }.into());
            }
        }
    }
    Ok(())
}

/// Replaces each returned argument by the caller's own handle. A return that views an argument gets
/// the access rights of the caller's handle of the argument. All other returns lose the rights of
/// the call's borrow.
fn finish(state: &OpState, args: &[Value], viewed: &[Tensor], outputs: &mut Outputs) -> Result<()> {
    for (output, v) in outputs.iter_mut().enumerate() {
        let alias = state.facts.aliases.get(output).copied().flatten();
        match alias.filter(|a| state.facts.mutated.contains(a)) {
            Some(a) => {
                let arg = &args[usize::from(a)];
                if !arg.tensors().zip(v.tensors()).all(|(x, y)| x.is_same_handle(y)) {
                    return Err(CallError::NotTheArgument {
                        output,
                        arg: state.schema.args[usize::from(a)].name.clone(),
                    }
                    .into());
                }
                *v = arg.clone();
            }
            None => v.tensors_mut().for_each(|t| {
                let base = viewed.iter().find(|base| base.has_storage_of(t));
                t.grant = base.map_or(Grant::NONE, |base| base.grant);
                if alias.is_none() {
                    t.forget_writes();
                }
            }),
        }
    }
    Ok(())
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
    let shares = |v: &Value, t: &Tensor| v.tensors().any(|u| u.has_storage_of(t));
    for (output, v) in outputs.iter().enumerate() {
        for (k, t) in v.tensors().enumerate() {
            t.alive()?;
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
            let in_list = v.tensors().take(k).any(|u| u.has_storage_of(t)).then_some(output);
            if let Some(other) = earlier.or(in_list) {
                return Err(
                    CallError::OutputAliases { output, other: format!("output {other}") }.into()
                );
            }
        }
    }
    Ok(())
}
