//! Functions to functions: `grad(f)` computes the gradient of what `f` computes. The results are
//! functions of trees, so that they trace and compile as `f` does. Source: JAX's transformations,
//! PyTorch's `torch.func`.

use crate::autograd::backward::gradients;
use crate::autograd::{BackwardOptions, enable_grad, is_grad_enabled, no_grad};
use crate::dispatch::value::Value;
use crate::error::Result;
use crate::tensor::Tensor;
use crate::tree::{Tree, flatten_values};
use maquette_ir::Loc;

pub use crate::functional_call::{buffers, functional_call, in_functional_call, parameters};

/// The leaves of a tree, with those that are floats as inputs of a differentiation.
struct Inputs {
    values: Vec<Value>,
    /// The positions of the differentiable tensors among the values.
    places: Vec<usize>,
    /// Whether a tensor among them is part of another differentiation.
    is_inner: bool,
}

impl Inputs {
    fn new(mut values: Vec<Value>) -> Result<Inputs> {
        let (mut places, mut is_inner) = (Vec::new(), false);
        for (i, value) in values.iter_mut().enumerate() {
            if let Value::Tensor(t) = value
                && t.dtype().is_float()
            {
                t.ok()?;
                let outer = is_grad_enabled() && t.requires_grad();
                is_inner |= outer;
                // A tensor of another differentiation gets a node of its own there.
                *t = if outer { t.alias() } else { t.untracked().requires_grad_() };
                t.ok()?;
                places.push(i);
            }
        }
        Ok(Inputs { values, places, is_inner })
    }

    /// The gradients of an output, with the structure of the inputs: zeros where it does not depend
    /// on an input, and for tensors that are no floats.
    fn gradients(&self, output: &Tensor, weight: Option<Tensor>) -> Result<Vec<Value>> {
        let tensor = |&i: &usize| self.values[i].tensor().cloned();
        let inputs = self.places.iter().map(tensor).collect::<Result<Vec<Tensor>>>()?;
        let options = BackwardOptions { create_graph: self.is_inner, ..Default::default() };
        let found = if output.ok()?.requires_grad() {
            gradients(std::slice::from_ref(output), &inputs, &[weight], options)?
        } else {
            vec![None; inputs.len()]
        };
        let mut found = found.into_iter();
        let mut gradient = |(i, value): (usize, &Value)| match value {
            Value::Tensor(t) => {
                let grad = if self.places.contains(&i) { found.next().flatten() } else { None };
                let grad = grad.unwrap_or_else(|| no_grad(|| t.zeros_like()));
                grad.ok().cloned().map(Value::Tensor)
            }
            other => Ok(other.clone()),
        };
        self.values.iter().enumerate().map(&mut gradient).collect()
    }
}

/// A function that returns the value of `f`, a tensor of one element, and its gradient with respect
/// to each tensor of the inputs. The gradients have the structure of the inputs; they are zeros for
/// tensors that are no floats, and numbers are returned as they are.
///
/// ```
/// use maquette_ops::{Tensor, func::value_and_grad};
/// let f = value_and_grad(|(x, y): (Tensor, Tensor)| (&x * &y).sum());
/// let (value, (dx, dy)) = f((Tensor::from([1.0, 2.0]), Tensor::from([3.0, 4.0])))?;
/// assert_eq!(value.item::<f64>()?, 11.0);
/// assert_eq!(dx.to_vec::<f64>()?, [3.0, 4.0]);
/// assert_eq!(dy.to_vec::<f64>()?, [1.0, 2.0]);
/// # Ok::<(), maquette_ops::Error>(())
/// ```
///
/// PyTorch: `torch.func.grad_and_value`.
///
/// # Errors
/// The returned function fails if `f` fails, its value has several elements, or an operator has no
/// derivative.
#[track_caller]
pub fn value_and_grad<I: Tree>(f: impl Fn(I) -> Tensor) -> impl Fn(I) -> Result<(Tensor, I)> {
    differentiated(f, Loc::caller())
}

/// As [`value_and_grad`], for a caller at a line.
fn differentiated<I: Tree>(f: impl Fn(I) -> Tensor, loc: Loc) -> impl Fn(I) -> Result<(Tensor, I)> {
    move |inputs| {
        let (spec, values) = flatten_values(&inputs)?;
        let inputs = Inputs::new(values)?;
        let given = I::unflatten(&spec, &mut inputs.values.iter().cloned())?;
        let value = enable_grad(|| f(given));
        let gradients = inputs.gradients(&value, None).map_err(|e| e.at(loc))?;
        let value = if inputs.is_inner { value } else { value.untracked() };
        Ok((value.ok()?.clone(), I::unflatten(&spec, &mut gradients.into_iter())?))
    }
}

/// A function that returns the gradient of `f` with respect to each tensor of the inputs, as
/// [`value_and_grad`].
///
/// ```
/// use maquette_ops::{Tensor, func::grad};
/// let cubed = |x: Tensor| (&x * &x * &x).sum();
/// let second = grad(move |x: Tensor| grad(cubed)(x).map_or_else(Tensor::poison, |g| g.sum()));
/// assert_eq!(second(Tensor::from([2.0]))?.to_vec::<f64>()?, [12.0]);
/// # Ok::<(), maquette_ops::Error>(())
/// ```
///
/// PyTorch: `torch.func.grad`.
///
/// # Errors
/// As [`value_and_grad`].
#[track_caller]
pub fn grad<I: Tree>(f: impl Fn(I) -> Tensor) -> impl Fn(I) -> Result<I> {
    let f = differentiated(f, Loc::caller());
    move |inputs| f(inputs).map(|(_, gradients)| gradients)
}

/// The value of `f`, and a function from a weight for each of its elements to the weighted gradient
/// with respect to the inputs: the product of the weights with the Jacobian. It may be called once.
///
/// PyTorch: `torch.func.vjp`.
///
/// # Errors
/// `f` fails. The returned function fails if an operator has no derivative.
#[track_caller]
pub fn vjp<I: Tree>(
    f: impl Fn(I) -> Tensor,
    inputs: I,
) -> Result<(Tensor, impl FnOnce(Tensor) -> Result<I>)> {
    let loc = Loc::caller();
    let (spec, values) = flatten_values(&inputs).map_err(|e| e.at(loc))?;
    let inputs = Inputs::new(values).map_err(|e| e.at(loc))?;
    let given = I::unflatten(&spec, &mut inputs.values.iter().cloned())?;
    let value = enable_grad(|| f(given));
    let output = if inputs.is_inner { value.clone() } else { value.untracked() };
    let pull = move |weight: Tensor| {
        let gradients = inputs.gradients(&value, Some(weight)).map_err(|e| e.at(loc))?;
        I::unflatten(&spec, &mut gradients.into_iter())
    };
    Ok((output.ok()?.clone(), pull))
}
