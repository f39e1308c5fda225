//! Functions to functions: `grad(f)` computes the gradient of what `f` computes. The results are
//! functions of trees, so that they trace and compile as `f` does. Source: JAX's transformations,
//! PyTorch's `torch.func`.
//!
//! Calls nest. Nodes are numbered in the order in which they are made. So those with smaller
//! numbers than the nodes of the inputs are of another, outer differentiation. Where the value
//! reaches one, by an input or by a tensor that the function captures, the results keep their
//! history.

use crate::autograd::backward::gradients_of;
use crate::autograd::engine::{reach_older, root_grad};
use crate::autograd::grad_mode::is_grad_enabled;
use crate::autograd::grad_mode::with_grad;
use crate::autograd::history::requires_grad;
use crate::autograd::history::{self, Tracking};
use crate::autograd::node::{Edge, Edges, Function, GradNode, LeafGradient, OutputInfo};
use crate::autograd::{BackwardOptions, no_grad};
use crate::dispatch::failures;
use crate::dispatch::value::Value;
use crate::error::{AutogradError, Result};
use crate::tensor::Tensor;
use crate::tree::{Tree, TreeSpec, flatten_values};
use maquette_ir::Loc;

pub use crate::functional_call::{buffers, functional_call, parameters};

/// The leaves of a tree, with those that are floats as inputs of a differentiation.
struct Inputs {
    values: Vec<Value>,
    /// The positions of the differentiable tensors among the values.
    places: Vec<usize>,
    /// Where the gradients of these tensors go.
    edges: Vec<Edge>,
}

/// The value of a function.
struct Output {
    value: Tensor,
    /// Where the value's gradient goes; `None` if it depends on no tensor that requires one.
    edge: Option<Edge>,
    /// Whether the value depends on a tensor of another differentiation.
    is_inner: bool,
}

/// A leaf of the same elements. A sweep of another differentiation may collect a gradient there,
/// which nobody asks for: in a trace, too.
fn leaf(of: &Tensor) -> Tensor {
    let gradient = LeafGradient { is_traced: true, ..LeafGradient::default() };
    let outputs = smallvec::smallvec![OutputInfo::of(of.meta())];
    let function = Function::Accumulate(gradient);
    let node = GradNode::new("leaf".into(), Loc::caller(), outputs, Edges::new(), function);
    let t = of.untracked();
    history::set(&t, Tracking::Leaf(node));
    t
}

fn edge(of: &Tensor) -> Result<Edge> {
    let missing = || AutogradError::InputWithoutGrad { tensor: of.meta().to_string() };
    Ok(history::edge(of).ok_or_else(missing)?)
}

impl Inputs {
    fn new(mut values: Vec<Value>) -> Result<Inputs> {
        let (mut places, mut edges) = (Vec::new(), Vec::new());
        for (i, value) in values.iter_mut().enumerate() {
            if let Value::Tensor(t) = value
                && t.dtype().is_float()
            {
                t.alive()?;
                let outer = is_grad_enabled() && requires_grad(t);
                // A tensor of another differentiation gets a node of its own there.
                *t = if outer { t.alias() } else { leaf(t) };
                edges.push(edge(t.alive()?)?);
                places.push(i);
            }
        }
        Ok(Inputs { values, places, edges })
    }

    /// The number of the first node that belongs to this differentiation. Without differentiable
    /// inputs, none does.
    fn first(&self) -> u64 {
        self.edges.first().map_or(u64::MAX, |e| e.node.id)
    }

    /// The value of a function of the inputs.
    ///
    /// # Errors
    /// The function fails, writes an input, or makes a write that fails.
    fn call<I: Tree>(&self, spec: &TreeSpec, f: impl FnOnce(I) -> Tensor) -> Result<Output> {
        let given = I::unflatten(spec, &mut self.values.iter().cloned())?;
        let (value, failed_write) = failures::watch_writes(|| with_grad(true, || f(given)));
        value.alive()?;
        if let Some(e) = failed_write {
            return Err(e);
        }
        for (&i, before) in self.places.iter().zip(&self.edges) {
            let t = self.values[i].tensor()?;
            let now = edge(t)?;
            // A write to a leaf is refused by itself. One to a result would replace the history.
            if (now.node.id, now.output) != (before.node.id, before.output) {
                return Err(AutogradError::WriteToInput { tensor: t.meta().to_string() }.into());
            }
        }
        let edge = history::edge(&value);
        let is_outer = || reach_older(std::slice::from_ref(&edge), self.first()).contains(&true);
        let is_inner = is_grad_enabled() && is_outer();
        Ok(Output { value, edge, is_inner })
    }

    /// The gradients of an output, with the structure of the inputs: zeros where it does not depend
    /// on an input, and for tensors that are no floats.
    fn gradients(&self, output: &Output, weight: Option<Tensor>) -> Result<Vec<Value>> {
        let is_enabled = is_grad_enabled();
        let is_weight_outer = is_enabled && weight.as_ref().is_some_and(requires_grad);
        let create_graph = is_enabled && output.is_inner || is_weight_outer;
        let value = output.value.alive()?;
        // A value that depends on no input has the same requirements.
        let root_grad = root_grad(value, weight.as_ref())?;
        let mut found = match &output.edge {
            Some(edge) => {
                let root = (edge.clone(), root_grad);
                // The other differentiation needs the value's graph, too.
                let options = BackwardOptions { retain_graph: output.is_inner, create_graph };
                gradients_of(vec![root], &self.edges, options)?
            }
            None => vec![None; self.edges.len()],
        };
        if create_graph && !is_weight_outer {
            self.cut(&mut found);
        }
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

    /// Removes the history of gradients that depend on the inputs alone.
    fn cut(&self, gradients: &mut [Option<Tensor>]) {
        let edge = |g: &Option<Tensor>| g.as_ref().and_then(history::edge);
        let edges: Vec<Option<Edge>> = gradients.iter().map(edge).collect();
        let is_outer = reach_older(&edges, self.first());
        for ((gradient, edge), is_outer) in gradients.iter_mut().zip(edges).zip(is_outer) {
            if edge.is_some() && !is_outer {
                *gradient = gradient.take().map(|g| g.untracked());
            }
        }
    }
}

impl Output {
    /// The value for the caller: without its history, if that is the graph of this call alone.
    fn value(&self) -> Tensor {
        if self.is_inner { self.value.clone() } else { self.value.untracked() }
    }
}

/// A function that returns the value of `f`, a tensor of one element, and its gradient with respect
/// to each tensor of the inputs. The gradients have the structure of the inputs; they are zeros for
/// tensors that are no floats, and numbers are returned as they are.
///
/// The results require a gradient if they depend on a tensor that did before the call, also if `f`
/// captures it.
///
/// ```
/// # use maquette_aten as _;
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
/// The returned function fails if `f` fails or writes an input, its value has several elements, or
/// an operator has no derivative.
#[track_caller]
pub fn value_and_grad<I: Tree>(f: impl Fn(I) -> Tensor) -> impl Fn(I) -> Result<(Tensor, I)> {
    differentiated(f, Loc::caller())
}

/// As [`value_and_grad`], for a caller at a line.
fn differentiated<I: Tree>(f: impl Fn(I) -> Tensor, loc: Loc) -> impl Fn(I) -> Result<(Tensor, I)> {
    move |inputs| {
        let (spec, values) = flatten_values(&inputs)?;
        let inputs = Inputs::new(values)?;
        let output = inputs.call(&spec, &f).map_err(|e| e.at(loc))?;
        let gradients = inputs.gradients(&output, None).map_err(|e| e.at(loc))?;
        Ok((output.value(), I::unflatten(&spec, &mut gradients.into_iter())?))
    }
}

/// A function that returns the gradient of `f` with respect to each tensor of the inputs, as
/// [`value_and_grad`].
///
/// ```
/// # use maquette_aten as _;
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
/// Its results require a gradient as those of [`value_and_grad`] do, and if the weight does.
///
/// PyTorch: `torch.func.vjp`.
///
/// # Errors
/// `f` fails or writes an input. The returned function fails if an operator has no derivative.
#[track_caller]
pub fn vjp<I: Tree>(
    f: impl Fn(I) -> Tensor,
    inputs: I,
) -> Result<(Tensor, impl FnOnce(Tensor) -> Result<I>)> {
    let loc = Loc::caller();
    let (spec, values) = flatten_values(&inputs).map_err(|e| e.at(loc))?;
    let inputs = Inputs::new(values).map_err(|e| e.at(loc))?;
    let output = inputs.call(&spec, f).map_err(|e| e.at(loc))?;
    let value = output.value();
    let pull = move |weight: Tensor| {
        let gradients = inputs.gradients(&output, Some(weight)).map_err(|e| e.at(loc))?;
        I::unflatten(&spec, &mut gradients.into_iter())
    };
    Ok((value, pull))
}
