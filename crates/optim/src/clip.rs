//! Clipping of gradients.

use crate::error::OptimError;
use crate::parameters::only_tensors;
use maquette_ir::Loc;
use maquette_ops::autograd::no_grad;
use maquette_ops::tree::flatten_values;
use maquette_ops::{Error, Result, Tensor, Tree, Value};

/// Added to the norm by which gradients are divided.
const EPS: f64 = 1e-6;

/// The 2-norm of all gradients together, a scalar.
///
/// PyTorch: `torch.nn.utils.get_total_norm`.
///
/// # Errors
/// There is no gradient, or one is not a float.
#[track_caller]
pub fn total_norm(grads: &impl Tree) -> Result<Tensor> {
    let loc = Loc::caller();
    let norm = || no_grad(|| norm_of(&floats(flatten_values(grads)?.1)));
    norm().map_err(|e: Error| e.at(loc))
}

/// Scales all gradients by `min(1, max_norm / (norm + 1e-6))`, where `norm` is their
/// [`total_norm`]. Returns the scaled gradients, and the norm before. The given gradients keep
/// their values.
///
/// PyTorch: `torch.nn.utils.clip_grad_norm_`.
///
/// # Errors
/// As [`total_norm`]; or `max_norm` is not a number of at least 0.
#[track_caller]
pub fn clip_grad_norm<G: Tree>(grads: &G, max_norm: f64) -> Result<(G, Tensor)> {
    let loc = Loc::caller();
    let clip = || {
        check("clip_grad_norm", "max_norm", max_norm)?;
        let (spec, mut values) = flatten_values(grads)?;
        no_grad(|| {
            let norm = norm_of(&floats(values.clone()))?;
            scale(&mut values, &factor(&norm, max_norm))?;
            Ok((G::unflatten(&spec, &mut values.into_iter())?, norm))
        })
    };
    clip().map_err(|e: Error| e.at(loc))
}

/// Brings every element of the gradients into `[-max, max]`. The given gradients keep their values.
///
/// PyTorch: `torch.nn.utils.clip_grad_value_`.
///
/// # Errors
/// `max` is not a number of at least 0.
#[track_caller]
pub fn clip_grad_value<G: Tree>(grads: &G, max: f64) -> Result<G> {
    let loc = Loc::caller();
    let clip = || {
        check("clip_grad_value", "max", max)?;
        let (spec, mut values) = flatten_values(grads)?;
        no_grad(|| each(&mut values, |t| t.clamp(-max, max)))?;
        G::unflatten(&spec, &mut values.into_iter())
    };
    clip().map_err(|e: Error| e.at(loc))
}

fn check(function: &'static str, option: &'static str, value: f64) -> Result<(), OptimError> {
    if value >= 0.0 {
        return Ok(());
    }
    Err(OptimError::OutOfRange {
        algorithm: function,
        option,
        range: "a number of at least 0",
        value,
    })
}

/// The gradients of floats. Other tensors have zeros in their places.
fn floats(values: Vec<Value>) -> Vec<Tensor> {
    only_tensors(values).into_iter().filter(|t| t.dtype().is_float()).collect()
}

/// The norm of the norms of the tensors.
fn norm_of(tensors: &[Tensor]) -> Result<Tensor> {
    let norms: Vec<Tensor> = tensors.iter().map(norm).collect();
    match norms.as_slice() {
        [] => Err(OptimError::NoParameters.into()),
        all => norm(&Tensor::stack(all, 0)).ok().cloned(),
    }
}

fn norm(t: &Tensor) -> Tensor {
    let dims: Vec<i64> = (0..t.dim() as i64).collect();
    t.linalg_vector_norm(2.0, dims, false)
}

/// The factor that brings a norm to at most `max`.
fn factor(norm: &Tensor, max: f64) -> Tensor {
    (max / (norm + EPS)).clamp_max(1.0)
}

fn scale(values: &mut [Value], factor: &Tensor) -> Result<()> {
    each(values, |t| t * factor)
}

fn each(values: &mut [Value], f: impl Fn(&Tensor) -> Tensor) -> Result<()> {
    for value in values {
        if let Value::Tensor(t) = value
            && t.dtype().is_float()
        {
            *t = f(t).ok()?.clone();
        }
    }
    Ok(())
}
