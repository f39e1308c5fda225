//! Closures with a derivative of their own.

use super::context::AutogradCtx;
use super::{AutogradRule, attach};
use crate::autograd::grad_mode::is_grad_enabled;
use crate::autograd::grad_mode::with_grad;
use crate::autograd::history;
use crate::autograd::node::{Edges, lock};
use crate::dispatch::panics;
use crate::dispatch::value::Value;
use crate::error::Result;
use crate::functional_call;
use crate::tensor::Tensor;
use maquette_ir::Loc;
use std::sync::{Arc, Mutex};

/// Calls `forward` on tensors, with `backward` as its derivative. `forward` keeps what `backward`
/// reads in its context; the operators that it calls are not differentiated. Source: JAX's
/// `custom_vjp`, PyTorch's `torch.autograd.Function`.
///
/// ```
/// # use maquette_aten as _;
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
/// `forward` may keep intermediates, too. Then the derivative can be differentiated no further, see
/// [`AutogradCtx::save`].
///
/// An output that is an input, or a view of a tensor, must not be written, and nor must what it
/// shares memory with: `backward` would not be its derivative any more.
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
    let given: Vec<Tensor> = inputs.iter().map(functional_call::current).collect();
    let next: Edges = given.iter().map(edge).collect();
    let needs = next.iter().map(|e| smallvec::smallvec![e.is_some()]).collect();
    let ctx = AutogradCtx::new(name.clone(), loc);
    let mut ctx = ctx.of_call(given.clone(), Vec::new(), needs).with_names(inputs);
    panics::install_hook();
    let run = || panics::catch("closure", || forward(&mut ctx, &given));
    let returned = with_grad(false, run).map_err(|e| e.in_call(&name, loc))?;
    ctx.place(&returned);
    // An input that is returned must not get another history, nor a captured tensor that has one.
    let mut outputs: Vec<Tensor> = Vec::with_capacity(returned.len());
    for t in returned.iter().map(functional_call::current) {
        let has_other = given.iter().chain(&outputs).any(|other| other.is_same_handle(&t));
        outputs.push(if has_other || history::requires_grad(&t) {
            with_grad(false, || history::view_of_all(&t))
        } else {
            t
        });
    }
    if next.iter().all(Option::is_none) {
        return Ok(outputs);
    }
    let values = |l: &[Tensor]| l.iter().map(Value::from).collect::<Vec<Value>>();
    let saved = Mutex::new(ctx);
    let rule = AutogradRule::new(backward).made_at(loc).setup_context(move |ctx, _, _| {
        ctx.take_saved(&mut lock(&saved));
        Ok(())
    });
    attach((&name, loc), None, &rule, &values(&given), &values(&outputs), next)
        .map_err(|e| e.in_call(&name, loc))?;
    Ok(outputs)
}
