//! Closures with a derivative of their own.

use super::context::AutogradCtx;
use super::{AutogradRule, attach};
use crate::autograd::grad_mode::with_grad;
use crate::autograd::history;
use crate::autograd::is_grad_enabled;
use crate::autograd::node::{Edges, lock};
use crate::dispatch::value::Value;
use crate::error::Result;
use crate::tensor::Tensor;
use maquette_ir::Loc;
use std::sync::{Arc, Mutex};

/// Calls `forward` on tensors, with `backward` as its derivative. `forward` keeps what `backward`
/// reads in its context; the operators that it calls are not differentiated. Source: JAX's
/// `custom_vjp`, PyTorch's `torch.autograd.Function`.
///
/// ```
/// use maquette_ops::{Tensor, autograd::custom_vjp};
/// let x = Tensor::from([3.0f64]).requires_grad_();
/// let y = custom_vjp(
///     &[x.clone()],
///     |ctx, x| {
///         ctx.save(&x[0]);
///         Ok(vec![&x[0] * &x[0]])
///     },
///     |ctx, grads| Ok(vec![Some(&grads[0] * &(ctx.saved(0)? * 2.0))]),
/// )?;
/// y[0].sum().backward()?;
/// assert_eq!(x.grad().map(|g| g.to_vec::<f64>()).transpose()?, Some(vec![6.0]));
/// # Ok::<(), maquette_ops::Error>(())
/// ```
///
/// # Errors
/// The error of `forward`.
#[track_caller]
pub fn custom_vjp(
    inputs: &[Tensor],
    forward: impl FnOnce(&mut AutogradCtx, &[Tensor]) -> Result<Vec<Tensor>>,
    backward: impl Fn(&AutogradCtx, &[Tensor]) -> Result<Vec<Option<Tensor>>> + Send + Sync + 'static,
) -> Result<Vec<Tensor>> {
    let (name, loc): (Arc<str>, Loc) = ("custom_vjp".into(), Loc::caller());
    let enabled = is_grad_enabled();
    let edge = |t: &Tensor| {
        if enabled && t.dtype().is_float() { history::edge(t) } else { None }
    };
    let next: Edges = inputs.iter().map(edge).collect();
    let needs = next.iter().map(|e| smallvec::smallvec![e.is_some()]).collect();
    let mut ctx = AutogradCtx::new(name.clone(), loc).of_call(inputs.to_vec(), Vec::new(), needs);
    let outputs = with_grad(false, || forward(&mut ctx, inputs))?;
    // An input that is returned must not get another history.
    let outputs: Vec<Tensor> = outputs
        .into_iter()
        .map(|t| if inputs.iter().any(|i| i.is_same(&t)) { t.untracked() } else { t })
        .collect();
    if next.iter().all(Option::is_none) {
        return Ok(outputs);
    }
    let values = |l: &[Tensor]| l.iter().map(Value::from).collect::<Vec<Value>>();
    let saved = Mutex::new(ctx);
    let rule = AutogradRule::new(backward).setup_context(move |ctx, _, _| {
        ctx.take_saved(&mut lock(&saved));
        Ok(())
    });
    attach((&name, loc), None, &rule, &values(inputs), &values(&outputs), next)
        .map_err(|e| e.in_call(&name, loc))?;
    Ok(outputs)
}
