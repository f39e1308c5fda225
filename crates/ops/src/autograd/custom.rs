//! Derivatives of custom operators and of closures: a function that keeps what the derivative
//! reads, and a function that computes it.

use super::grad_mode::with_grad;
use super::history::{self, Tracking};
use super::node::{Edge, Edges, Function, GradNode, Grads, OutputInfo, lock};
use super::saved::SavedTensor;
use crate::dispatch::value::Value;
use crate::error::{AutogradError, Error, Result};
use crate::tensor::Tensor;
use crate::tensor::meta::Meta;
use maquette_ir::Loc;
use maquette_ir::fault_injection::{Fault, fault_injected};
use smallvec::SmallVec;
use std::sync::{Arc, Mutex};

/// Computes the gradients of the arguments: one for each argument of the call, where a list has one
/// for each of its tensors. `None` for an argument without a gradient. There is one gradient for
/// each tensor among the results, in order; zeros if nothing depends on it.
pub type BackwardFn =
    Arc<dyn Fn(&AutogradCtx, &[Tensor]) -> Result<Vec<Option<Tensor>>> + Send + Sync>;

/// Keeps what the derivative reads, after a call with these inputs and outputs.
pub type SetupFn = Arc<dyn Fn(&mut AutogradCtx, &[Value], &[Value]) -> Result<()> + Send + Sync>;

/// The derivative of a custom operator.
#[derive(Clone)]
pub(crate) struct CustomRule {
    pub(crate) setup: Option<SetupFn>,
    pub(crate) backward: BackwardFn,
}

/// What a derivative knows of the call: the tensors and values that were saved, and which arguments
/// need gradients.
#[derive(Default)]
pub struct AutogradCtx {
    /// For each argument, whether each of its tensors needs a gradient.
    needs: Vec<SmallVec<[bool; 1]>>,
    saved: Vec<(SavedTensor, Origin)>,
    values: Vec<Value>,
    /// The tensors of the call, while what it saves is chosen.
    operands: Vec<Tensor>,
    results: Vec<Tensor>,
    /// While the derivative runs: where the gradients of saved tensors go.
    edges: Mutex<Option<(Edges, Edge)>>,
    name: String,
    loc: Option<Loc>,
}

/// Where a saved tensor is from, which decides its history.
#[derive(Clone, Copy)]
enum Origin {
    Operand(usize),
    Result(usize),
    /// Computed for the derivative. It has no history.
    Other,
}

impl AutogradCtx {
    /// Keeps a tensor for the derivative: an input, an output, or any other. An input or output has
    /// its gradient in derivatives of higher order.
    pub fn save(&mut self, t: &Tensor) {
        let place = |of: &[Tensor]| of.iter().position(|u| u.is_same(t));
        let origin = match (place(&self.operands), place(&self.results)) {
            (Some(i), _) => Origin::Operand(i),
            (None, Some(i)) => Origin::Result(i),
            (None, None) => Origin::Other,
        };
        self.saved.push((SavedTensor::new(t), origin));
    }

    /// Keeps a number, a list of sizes or another value.
    pub fn save_value(&mut self, value: impl Into<Value>) {
        self.values.push(value.into());
    }

    /// The saved tensor with this index, in the order of [`AutogradCtx::save`].
    ///
    /// # Errors
    /// There is none, or its memory was written since.
    pub fn saved(&self, index: usize) -> Result<Tensor> {
        let missing =
            || Error::value(format!("{} tensors are saved, not {index}", self.saved.len()));
        let (saved, origin) = self.saved.get(index).ok_or_else(missing)?;
        let edges = lock(&self.edges);
        let edge = match (&*edges, origin) {
            (Some((next, _)), Origin::Operand(i)) => next.get(*i).cloned().flatten(),
            (Some((_, node)), Origin::Result(i)) => {
                Some(Edge { node: node.node.clone(), output: *i as u32 })
            }
            _ => None,
        };
        drop(edges);
        saved.unpack(edge.as_ref(), &self.name, self.loc.unwrap_or(Loc::caller()))
    }

    /// The saved value with this index, in the order of [`AutogradCtx::save_value`].
    ///
    /// # Errors
    /// There is none.
    pub fn value(&self, index: usize) -> Result<&Value> {
        let missing =
            || Error::value(format!("{} values are saved, not {index}", self.values.len()));
        self.values.get(index).ok_or_else(missing)
    }

    /// Whether an argument needs a gradient; for a list, whether any of its tensors does.
    pub fn needs_input_grad(&self, argument: usize) -> bool {
        self.needs.get(argument).is_some_and(|a| a.contains(&true))
    }

    /// Whether each tensor of a list needs a gradient.
    pub fn needs_input_grads(&self, argument: usize) -> &[bool] {
        self.needs.get(argument).map_or(&[], |a| &**a)
    }
}

/// A call with a custom derivative.
pub(crate) struct CustomCall {
    ctx: AutogradCtx,
    backward: BackwardFn,
    /// The metadata of each tensor operand.
    metas: Vec<Meta>,
    /// For each argument, the number of its tensors.
    counts: SmallVec<[u32; 6]>,
}

impl CustomCall {
    /// The gradients of the operands. `node` is the call's own.
    pub(crate) fn apply(&self, node: &Arc<GradNode>, grads: &[Option<Tensor>]) -> Result<Grads> {
        let results = node.outputs.iter().zip(grads);
        let grads: Vec<Tensor> =
            results.map(|(info, g)| g.clone().unwrap_or_else(|| info.zeros())).collect();
        let edge = Edge { node: node.clone(), output: 0 };
        *lock(&self.ctx.edges) = Some((node.next.clone(), edge));
        let given = crate::mode::in_user_code(|| (self.backward)(&self.ctx, &grads));
        // The edge to the node itself would keep it alive.
        *lock(&self.ctx.edges) = None;
        let given = given.map_err(|e| e.in_call(&node.name, node.loc))?;
        self.checked(node, given)
    }

    /// The gradients by operand, after a check of their number and sizes.
    fn checked(&self, node: &GradNode, given: Vec<Option<Tensor>>) -> Result<Grads> {
        let slots: usize = self.counts.iter().map(|&n| n.max(1) as usize).sum();
        if given.len() > slots || given.len() < self.metas.len() {
            return Err(AutogradError::Count {
                op: node.name.to_string(),
                expected: slots,
                found: given.len(),
            }
            .into());
        }
        let mut given = given.into_iter();
        let (mut out, mut operand) = (Grads::new(), 0);
        for (argument, &n) in self.counts.iter().enumerate() {
            if n == 0 {
                if given.next().flatten().is_some() {
                    return Err(AutogradError::GradOfNoTensor {
                        op: node.name.to_string(),
                        argument,
                    }
                    .into());
                }
                continue;
            }
            for _ in 0..n {
                let grad = given.next().flatten();
                out.push(match grad {
                    Some(g) if node.next[operand].is_some() => {
                        g.ok()?;
                        Some(self.fitted(node, argument, operand, g)?)
                    }
                    _ => None,
                });
                operand += 1;
            }
        }
        if fault_injected(Fault::CustomGradientsReversed) {
            out.reverse();
        }
        Ok(out)
    }

    /// A gradient, after a check of its sizes.
    fn fitted(
        &self,
        node: &GradNode,
        argument: usize,
        operand: usize,
        grad: Tensor,
    ) -> Result<Tensor> {
        let meta = &self.metas[operand];
        let differs = grad.dim() != meta.rank()
            || grad
                .sizes()
                .iter()
                .zip(&meta.sizes)
                .any(|(a, b)| a.eq(*b).statically_known() == Some(false));
        if differs || grad.dtype() != meta.dtype {
            return Err(AutogradError::GradOfArgument {
                op: node.name.to_string(),
                argument,
                found: grad.meta().to_string(),
                expected: meta.to_string(),
            }
            .into());
        }
        Ok(grad)
    }
}

/// Makes the results of a call the results of a node with a custom derivative.
pub(crate) fn attach(
    name: &Arc<str>,
    loc: Loc,
    rule: &CustomRule,
    inputs: &[Value],
    outputs: &[Value],
    next: Edges,
) -> Result<()> {
    let operands: Vec<Tensor> = inputs.iter().flat_map(Value::tensors).cloned().collect();
    let results: Vec<Tensor> = outputs.iter().flat_map(Value::tensors).cloned().collect();
    let mut edges = next.iter();
    let needs = inputs
        .iter()
        .map(|v| v.tensors().map(|_| edges.next().is_some_and(Option::is_some)).collect());
    let mut ctx = AutogradCtx {
        needs: needs.collect(),
        operands,
        results,
        name: name.to_string(),
        loc: Some(loc),
        ..AutogradCtx::default()
    };
    if let Some(setup) = &rule.setup {
        crate::mode::in_user_code(|| with_grad(false, || setup(&mut ctx, inputs, outputs)))?;
    }
    let metas = std::mem::take(&mut ctx.operands).iter().map(|t| t.meta().clone()).collect();
    let results = std::mem::take(&mut ctx.results);
    let counts = inputs.iter().map(|v| v.tensors().count() as u32).collect();
    let call = CustomCall { ctx, backward: rule.backward.clone(), metas, counts };
    let infos = results.iter().map(|t| OutputInfo::of(t.meta())).collect();
    let function = Function::Custom(Mutex::new(Some(Arc::new(call))));
    let node = GradNode::new(name.clone(), loc, infos, next, function);
    for (i, t) in results.iter().enumerate().filter(|(_, t)| t.dtype().is_float()) {
        let edge = Edge { node: node.clone(), output: i as u32 };
        match t.base() {
            Some(base) => history::set(t, Tracking::View { edge, writes: history::writes(&base) }),
            None => history::set(t, Tracking::Result { edge, writes: 0 }),
        }
    }
    Ok(())
}

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
    let loc = Loc::caller();
    let next: Edges = if super::is_grad_enabled() {
        inputs.iter().map(history::edge).collect()
    } else {
        inputs.iter().map(|_| None).collect()
    };
    let mut ctx = AutogradCtx { operands: inputs.to_vec(), ..AutogradCtx::default() };
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
    let (saved, kept) = (std::mem::take(&mut ctx.saved), std::mem::take(&mut ctx.values));
    let parts = Mutex::new(Some((saved, kept)));
    let setup: SetupFn = Arc::new(move |ctx, _, _| {
        (ctx.saved, ctx.values) = lock(&parts).take().unwrap_or_default();
        Ok(())
    });
    let rule = CustomRule { setup: Some(setup), backward: Arc::new(backward) };
    attach(&"custom_vjp".into(), loc, &rule, &values(inputs), &values(&outputs), next)?;
    Ok(outputs)
}
