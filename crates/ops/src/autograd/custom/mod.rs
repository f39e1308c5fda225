//! Derivatives of custom operators and of closures: a function that keeps what the derivative
//! reads, and a function that computes it.
//!
//! Gradients are given by *slots*: one for a plain argument, and one for each element of a list of
//! tensors. Slots of numbers and absent tensors hold `None`.

mod context;
mod vjp;

pub use context::AutogradCtx;
pub use vjp::custom_vjp;

use super::given::{Role, with_read_only};
use super::grad_mode::{is_grad_enabled, with_grad};
use super::history::{self, Tracking};
use super::node::{Edge, Edges, Function, GradNode, Grads, OutputInfo};
use crate::dispatch::panics;
use crate::dispatch::value::Value;
use crate::error::{AutogradError, Result};
use crate::functional_call::Kept;
use crate::library::Op;
use crate::tensor::Tensor;
use crate::tensor::meta::Meta;
use maquette_ir::Loc;
use maquette_ir::fault_injection::{Fault, fault_injected};
use maquette_ir::schema::{Schema, Type};
use maquette_ir::sym::check_sizes_equal;
use smallvec::SmallVec;
use std::sync::{Arc, Mutex};

/// Computes the gradients of the arguments from those of the results.
type BackwardFn<G> = Arc<dyn Fn(&AutogradCtx, &[G]) -> Result<Vec<Option<Tensor>>> + Send + Sync>;

/// Keeps what the derivative reads, after a call with these inputs and outputs.
type SetupFn = Arc<dyn Fn(&mut AutogradCtx, &[Value], &[Value]) -> Result<()> + Send + Sync>;

/// The derivative of a custom operator: a function that computes the gradients of the arguments,
/// and one that keeps what the first reads. Both consist of calls of operators, so that they can be
/// traced.
///
/// The first function is given a gradient for each tensor among the results, in order. It returns
/// one for each argument, and `None` where there is none; a list of tensors has one for each of its
/// elements. Trailing arguments that are no tensors may be left out. Each gradient has the sizes,
/// dtype and device of its argument.
///
/// Source: `torch.library.register_autograd`.
#[derive(Clone)]
pub struct AutogradRule {
    setup: Option<SetupFn>,
    backward: Backward,
    /// The line that made the rule.
    made: Loc,
}

#[derive(Clone)]
enum Backward {
    /// A result that nothing depends on has a gradient of zeros.
    Zeros(BackwardFn<Tensor>),
    /// A result that nothing depends on has none.
    Undefined(BackwardFn<Option<Tensor>>),
}

/// A gradient of a result, as a derivative takes it.
#[diagnostic::on_unimplemented(
    message = "a derivative does not take gradients as `{Self}`",
    label = "the gradients of the results are `&[Tensor]` or `&[Option<Tensor>]`"
)]
pub trait ResultGrad: Sized {
    /// The rule of this derivative.
    fn rule(
        backward: impl Fn(&AutogradCtx, &[Self]) -> Result<Vec<Option<Tensor>>> + Send + Sync + 'static,
    ) -> AutogradRule;
}

impl ResultGrad for Tensor {
    #[track_caller]
    fn rule(
        backward: impl Fn(&AutogradCtx, &[Tensor]) -> Result<Vec<Option<Tensor>>>
        + Send
        + Sync
        + 'static,
    ) -> AutogradRule {
        AutogradRule {
            setup: None,
            backward: Backward::Zeros(Arc::new(backward)),
            made: Loc::caller(),
        }
    }
}

impl ResultGrad for Option<Tensor> {
    #[track_caller]
    fn rule(
        backward: impl Fn(&AutogradCtx, &[Option<Tensor>]) -> Result<Vec<Option<Tensor>>>
        + Send
        + Sync
        + 'static,
    ) -> AutogradRule {
        AutogradRule {
            setup: None,
            backward: Backward::Undefined(Arc::new(backward)),
            made: Loc::caller(),
        }
    }
}

impl AutogradRule {
    /// A rule that is given zeros for the gradient of a result that nothing depends on.
    #[track_caller]
    pub fn new(
        backward: impl Fn(&AutogradCtx, &[Tensor]) -> Result<Vec<Option<Tensor>>>
        + Send
        + Sync
        + 'static,
    ) -> AutogradRule {
        Tensor::rule(backward)
    }

    /// A rule that is given `None` for the gradient of a result that nothing depends on.
    ///
    /// PyTorch: `ctx.set_materialize_grads(False)`.
    #[track_caller]
    pub fn with_undefined(
        backward: impl Fn(&AutogradCtx, &[Option<Tensor>]) -> Result<Vec<Option<Tensor>>>
        + Send
        + Sync
        + 'static,
    ) -> AutogradRule {
        Option::<Tensor>::rule(backward)
    }

    /// The same rule, made at another line.
    pub(super) fn made_at(mut self, loc: Loc) -> AutogradRule {
        self.made = loc;
        self
    }

    /// Sets the function that keeps what the derivative reads. It runs after each call with
    /// gradients, and is given the arguments and results in the schema's order.
    pub fn setup_context(
        mut self,
        setup: impl Fn(&mut AutogradCtx, &[Value], &[Value]) -> Result<()> + Send + Sync + 'static,
    ) -> AutogradRule {
        self.setup = Some(Arc::new(setup));
        self
    }
}

/// A call with a custom derivative.
pub(crate) struct CustomCall {
    ctx: AutogradCtx,
    backward: Backward,
    /// The line that made the rule.
    made: Loc,
    /// The metadata of each tensor operand.
    metas: Vec<Meta>,
    /// For each argument, whether each of its slots is a tensor.
    slots: Vec<SmallVec<[bool; 1]>>,
    /// The functional calls of a closure, which may use tensors of a module that it captures. A
    /// registered rule is a function of what it is given, and has none. The node has the histories
    /// of the given tensors after those of the operands: `next` keeps nodes without recursion.
    calls: Option<Kept>,
}

impl CustomCall {
    /// The gradients of the operands. `node` is the call's own.
    pub(crate) fn apply(&self, node: &Arc<GradNode>, grads: &[Option<Tensor>]) -> Result<Grads> {
        let run = || match &self.backward {
            Backward::Zeros(f) => {
                let results = node.outputs.iter().zip(grads);
                let grads: Vec<Tensor> =
                    results.map(|(info, g)| g.clone().unwrap_or_else(|| info.zeros())).collect();
                let run = || f(&self.ctx, &grads);
                with_read_only(Role::Derivative, node, grads.iter(), run)
            }
            Backward::Undefined(f) => {
                let run = || f(&self.ctx, grads);
                with_read_only(Role::Derivative, node, grads.iter().flatten(), run)
            }
        };
        let tracked = |t: &Tensor, i: usize| {
            if let Some(Some(edge)) = node.next.get(self.metas.len() + i)
                && is_grad_enabled()
            {
                history::set(t, Tracking::Result { edge: edge.clone(), writes: 0 });
            }
        };
        let run = || match &self.calls {
            Some(calls) => calls.run(tracked, run),
            None => run(),
        };
        crate::mode::in_user_code(run)
            .and_then(|given| self.checked(node, given))
            .map_err(|e| e.in_call(&node.name, node.loc))
    }

    /// The gradients by operand, after a check of their number and metadata.
    fn checked(&self, node: &GradNode, given: Vec<Option<Tensor>>) -> Result<Grads> {
        let slots = || {
            let numbered = self.slots.iter().enumerate();
            numbered.flat_map(|(i, s)| s.iter().map(move |&is_tensor| (i, is_tensor)))
        };
        let expected = slots().count();
        let required = slots().collect::<Vec<_>>().iter().rposition(|s| s.1).map_or(0, |i| i + 1);
        if given.len() > expected || given.len() < required {
            let (op, found) = (node.name.to_string(), given.len());
            return Err(AutogradError::Count { op, made: self.made, expected, found }.into());
        }
        let mut given = given.into_iter();
        let mut out = Grads::new();
        for (argument, is_tensor) in slots() {
            match given.next().flatten() {
                Some(_) if !is_tensor => {
                    let op = node.name.to_string();
                    let (made, argument) = (self.made, argument_name(&op, argument));
                    return Err(AutogradError::GradOfNoTensor { op, made, argument }.into());
                }
                Some(grad) => out.push(self.fitted(node, argument, out.len(), grad)?),
                None if is_tensor => out.push(None),
                None => {}
            }
        }
        if fault_injected(Fault::CustomGradientsReversed) {
            out.reverse();
        }
        Ok(out)
    }

    /// A gradient after a check of its metadata; `None` if nothing needs it.
    fn fitted(
        &self,
        node: &GradNode,
        argument: usize,
        operand: usize,
        grad: Tensor,
    ) -> Result<Option<Tensor>> {
        grad.alive()?;
        let meta = &self.metas[operand];
        let claim = format!("the gradient of argument {argument} of {} has its sizes", node.name);
        let fits = grad.dtype() == meta.dtype
            && grad.device() == meta.device
            && check_sizes_equal(&meta.sizes, grad.sizes(), &claim)?;
        if !fits {
            return Err(AutogradError::GradOfArgument {
                op: node.name.to_string(),
                made: self.made,
                argument: argument_name(&node.name, argument),
                found: grad.meta().to_string(),
                expected: meta.to_string(),
            }
            .into());
        }
        Ok(node.next[operand].is_some().then_some(grad))
    }
}

/// An argument of an operator by its name in the schema; of a closure, by its position.
fn argument_name(op: &str, argument: usize) -> String {
    let schema = Op::find(op).and_then(|op| op.schema());
    match schema.as_ref().ok().and_then(|schema| schema.args.get(argument)) {
        Some(arg) => format!("argument `{}`", arg.name),
        None => format!("argument {argument}"),
    }
}

/// For each argument, whether each of its slots is a tensor. Without a schema, no argument is a
/// list.
fn slots(inputs: &[Value], schema: Option<&Schema>) -> Vec<SmallVec<[bool; 1]>> {
    let is_tensor = |v: &Value| matches!(v, Value::Tensor(_));
    let is_list = |i: usize| {
        schema.and_then(|s| s.args.get(i)).is_some_and(|a| match a.ty.required() {
            Type::List(of, _) => matches!(of.required(), Type::Tensor),
            _ => false,
        })
    };
    let of = |(i, v): (usize, &Value)| match v {
        Value::List(l) if is_list(i) => l.iter().map(is_tensor).collect(),
        other => smallvec::smallvec![is_tensor(other)],
    };
    inputs.iter().enumerate().map(of).collect()
}

/// Makes the results of a call the results of a node with a custom derivative.
pub(super) fn attach(
    (name, loc): (&Arc<str>, Loc),
    schema: Option<&Schema>,
    rule: &AutogradRule,
    inputs: &[Value],
    outputs: &[Value],
    mut next: Edges,
) -> Result<()> {
    let of_view_without_grad = inputs.iter().flat_map(Value::tensors).any(history::is_without_grad);
    let operands: Vec<Tensor> = inputs.iter().flat_map(Value::tensors).cloned().collect();
    let results: Vec<Tensor> = outputs.iter().flat_map(Value::tensors).cloned().collect();
    let metas = operands.iter().map(|t| t.meta().clone()).collect();
    let slots = slots(inputs, schema);
    let mut edges = next.iter();
    let mut needed = |is_tensor: &bool| *is_tensor && edges.next().is_some_and(Option::is_some);
    let needs = slots.iter().map(|s| s.iter().map(&mut needed).collect()).collect();
    let mut ctx = AutogradCtx::new(name.clone(), loc).of_call(operands, results.clone(), needs);
    if let Some(setup) = &rule.setup {
        let run = || setup(&mut ctx, inputs, outputs);
        let run = || with_grad(false, || panics::catch("setup of the derivative", run));
        crate::mode::in_user_code(run)?;
    }
    ctx.close()?;
    let infos = results.iter().map(|t| OutputInfo::of(t.meta())).collect();
    let is_closure = schema.is_none();
    let calls = is_closure.then(|| {
        let (calls, given) = Kept::now();
        next.extend(given);
        calls
    });
    let (backward, made) = (rule.backward.clone(), rule.made);
    let call = Arc::new(CustomCall { ctx, backward, made, metas, slots, calls });
    let function = Function::Custom(Mutex::new(Some(call.clone())));
    let node = GradNode::new(name.clone(), loc, infos, next, function);
    call.ctx.set_node(&node);
    let differentiable =
        |&(i, t): &(usize, &Tensor)| t.dtype().is_float() && call.ctx.differentiates(i);
    for (i, t) in results.iter().enumerate().filter(differentiable) {
        let edge = Edge { node: node.clone(), output: i as u32 };
        match t.base() {
            Some(base) => {
                history::set_view(t, &base, edge, of_view_without_grad);
                // A registered operator declares its views.
                if is_closure {
                    history::set_custom_view(t);
                }
            }
            None => history::set(t, Tracking::Result { edge, writes: 0 }),
        }
    }
    Ok(())
}

/// The edge of an output that is a view of a tensor which was written since: a sweep that reaches
/// it fails. `edge` is that of the output before.
pub(super) fn written_since(edge: &Edge, output: &Meta) -> Edge {
    let next = smallvec::smallvec![Some(edge.clone())];
    refused(&edge.node, output, next, || AutogradError::CustomViewWritten)
}

/// The edge of a tensor that the derivative of the call of `node` reads, and that the call computed
/// from its operands: a sweep of a second differentiation that reaches it fails.
fn differentiated_twice(node: &Arc<GradNode>, saved: &Meta) -> Edge {
    let (op, tensor) = (node.name.to_string(), saved.to_string());
    let error =
        move || AutogradError::OnceDifferentiable { op: op.clone(), tensor: tensor.clone() };
    refused(node, saved, node.next.clone(), error)
}

/// The edge of a tensor of the call of `node`: a sweep that reaches it on the way to `next` fails.
fn refused(
    node: &GradNode,
    of: &Meta,
    next: Edges,
    error: impl Fn() -> AutogradError + Send + Sync + 'static,
) -> Edge {
    let (name, loc) = (node.name.clone(), node.loc);
    let refused = move |_: &AutogradCtx, _: &[Option<Tensor>]| Err(error().into());
    let call = CustomCall {
        ctx: AutogradCtx::new(name.clone(), loc),
        backward: Backward::Undefined(Arc::new(refused)),
        made: loc,
        metas: vec![of.clone()],
        slots: vec![smallvec::smallvec![true]],
        calls: None,
    };
    let function = Function::Custom(Mutex::new(Some(Arc::new(call))));
    let infos = smallvec::smallvec![OutputInfo::of(of)];
    Edge { node: GradNode::new(name, loc, infos, next, function), output: 0 }
}
