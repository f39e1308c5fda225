//! The stage of the dispatcher that records derivatives.

use super::grad_mode::with_grad;
use super::history::{self, Tracking};
use super::node::{Edge, Edges, Function, GradNode, OutputInfo};
use super::rule::{Derivative, Rule, ZEROS};
use super::saved::SavedCall;
use crate::dispatch::mode;
use crate::dispatch::value::{Args, Outputs, Value};
use crate::error::{AutogradError, Result};
use crate::library::{Op, OpState};
use crate::operator::lowering::CompositeFn;
use crate::operator::{Lowering, Role};
use crate::tensor::Tensor;
use maquette_ir::Loc;
use smallvec::SmallVec;
use std::sync::{Arc, Mutex};

/// How a call with operands that require gradients goes on.
enum Stage {
    /// As if no operand required a gradient: there is no derivative to record here.
    Pass,
    /// As [`Stage::Pass`]. The result is a view, which does not share the history of its base.
    PassView,
    /// By the operators that the function calls, each of which records its own derivative.
    Parts(CompositeFn),
    /// With this rule.
    Record(Rule),
}

/// What is recorded of a call.
fn stage(state: &OpState) -> Result<Stage> {
    if let Some(rule) = &state.autograd {
        return Ok(Stage::Record(rule.f.clone()));
    }
    let Some(def) = state.builtin else { return Ok(Stage::Record(Rule::Missing(None))) };
    let (def, in_place) = match def.lowering {
        // with a rule of its own if its arguments are in another order
        Lowering::InPlace(_) if matches!(def.derivative, Derivative::Rule(_)) => (def, true),
        Lowering::InPlace(_) => (state.functional_variant()?.1, true),
        _ => (def, def.writes_its_result()),
    };
    Ok(match &def.derivative {
        // The result does not depend on the operands, and is in their place.
        Derivative::None(_) if in_place => Stage::Record(Rule::Table(&ZEROS)),
        Derivative::Rule(rule) => Stage::Record(Rule::Table(rule)),
        Derivative::Expression => Stage::Record(Rule::Expression(def)),
        // A registered kernel computes something else than the parts.
        Derivative::Parts | Derivative::Calls(_) if state.overridden => {
            Stage::Record(Rule::Missing(Some("its kernel is overridden")))
        }
        Derivative::Calls(body) => Stage::Parts(*body),
        Derivative::Parts => match state.builtin.and_then(|d| d.lowering.composite_body()) {
            Some(body) => Stage::Parts(body),
            // in place of a composite
            None => Stage::Record(Rule::Missing(None)),
        },
        // The view would share the history of its base.
        Derivative::None(_)
            if matches!(def.lowering, Lowering::View(_)) && def.role != Role::Detaches =>
        {
            Stage::PassView
        }
        Derivative::None(_) => Stage::Pass,
        Derivative::Refused(why) => Stage::Record(Rule::Missing(Some(why))),
    })
}

/// Runs a call with `below` and records its derivative.
///
/// # Errors
/// The call's error; or a tensor that the call writes must not be written here.
pub(crate) fn call(
    op: Op,
    state: &OpState,
    args: &mut Args,
    loc: Loc,
    below: impl FnOnce(&mut Args) -> Result<Outputs>,
) -> Result<Outputs> {
    // Otherwise a view without a gradient, of a tensor with one, has brought the call here.
    if !args.iter().flat_map(Value::tensors).any(history::requires_grad) {
        written(state, args).try_for_each(history::check_view)?;
        return below(args);
    }
    match stage(state)? {
        Stage::Pass => below(args),
        Stage::PassView => with_grad(false, || below(args)),
        Stage::Parts(body) => mode::in_place_of(op, loc, || body(args)),
        Stage::Record(rule) => record(op, state, rule, args, loc, below),
    }
}

/// The tensors that a call writes.
fn written<'a>(state: &'a OpState, args: &'a [Value]) -> impl Iterator<Item = &'a Tensor> {
    state.facts.mutated.iter().flat_map(|&i| args[usize::from(i)].tensors())
}

fn record(
    op: Op,
    state: &OpState,
    rule: Rule,
    args: &mut Args,
    loc: Loc,
    below: impl FnOnce(&mut Args) -> Result<Outputs>,
) -> Result<Outputs> {
    let in_place = !state.facts.mutated.is_empty()
        && state
            .builtin
            .is_some_and(|d| matches!(d.lowering, Lowering::InPlace(_)) || d.writes_its_result());
    let written: SmallVec<[Tensor; 1]> = written(state, args).cloned().collect();
    let table = matches!(rule, Rule::Table(_)) && !written.iter().any(history::requires_grad);
    if !written.is_empty() && !in_place && !table {
        return Err(AutogradError::MutatingOperator { op: op.name().to_owned() }.into());
    }
    let mode = mode::active().mode();
    if let Some(mode) = &mode {
        mode.differentiates();
        args.iter().flat_map(Value::tensors).try_for_each(|t| mode.check_history(t))?;
    }
    for t in &written {
        history::check_writable(t)?;
        let base = t.base();
        let base = base.as_ref().unwrap_or(t);
        if mode::is_outside_trace(base) || mode.as_ref().is_some_and(|mode| mode.views_outside(t)) {
            let tensor = base.meta().to_string();
            return Err(AutogradError::WriteOutsideTrace { tensor }.into());
        }
    }
    let next: Edges = args
        .iter()
        .flat_map(Value::tensors)
        .map(|t| if t.dtype().is_float() { history::edge(t) } else { None })
        .collect();
    if let Rule::Custom(rule) = &rule {
        let inputs = args.clone();
        let outputs = with_grad(false, || below(args))?;
        if outputs.iter().flat_map(Value::tensors).any(|t| t.dtype().is_float()) {
            let call = (op.shared_name(), loc);
            super::custom::attach(call, Some(&state.schema), rule, &inputs, &outputs, next)?;
        }
        return Ok(outputs);
    }
    let ranges = operand_ranges(args);
    let needs = |argument: usize| {
        let (first, n) = ranges.get(argument).copied().unwrap_or_default();
        next[first..first + n].iter().any(Option::is_some)
    };
    // An operand that the call writes is kept as it was.
    let is_written = |t: &Tensor| {
        let in_memory = |w: &Tensor| mode.as_ref().is_some_and(|mode| mode.share_memory(w, t));
        written.iter().any(|w| w.has_storage_of(t) || in_memory(w))
    };
    let keep = |t: &Tensor| {
        if is_written(t) {
            with_grad(false, || t.clone_tensor()).ok().cloned()
        } else {
            Ok(t.clone())
        }
    };
    let saved = SavedCall::new(op, loc, rule, args, &needs, &keep)?;
    let of_view_without_grad = args.iter().flat_map(Value::tensors).any(history::is_without_grad);
    let outputs = with_grad(false, || below(args))?;
    let results: SmallVec<[Tensor; 2]> = outputs.iter().flat_map(Value::tensors).cloned().collect();
    if !results.iter().any(|t| t.dtype().is_float()) {
        return Ok(outputs);
    }
    saved.save_outputs(&results);
    let infos = results.iter().map(|t| OutputInfo::of(t.meta())).collect();
    let function = Function::Call(Mutex::new(Some(Arc::new(saved))));
    let node = GradNode::new(op.shared_name().clone(), loc, infos, next, function);
    for (i, t) in results.iter().enumerate().filter(|(_, t)| t.dtype().is_float()) {
        let edge = Edge { node: node.clone(), output: i as u32 };
        if in_place {
            // the caller's handle, whatever the call returned
            let t = written.first().unwrap_or(t);
            history::rebase(t, node.clone(), i as u32, 0);
        } else if let Some(base) = t.base() {
            history::set_view(t, &base, edge, of_view_without_grad);
        } else {
            history::set(t, Tracking::Result { edge, writes: 0 });
        }
    }
    Ok(outputs)
}

/// For each argument, its first tensor operand and the number of these.
fn operand_ranges(args: &[Value]) -> SmallVec<[(usize, usize); 6]> {
    let mut first = 0;
    args.iter()
        .map(|a| {
            let n = a.tensors().count();
            first += n;
            (first - n, n)
        })
        .collect()
}
