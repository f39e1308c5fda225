//! Gradients of tensors.

use crate::autograd::BackwardOptions;
use crate::autograd::backward::collect;
use crate::autograd::history;
use crate::autograd::node::{Function, Hook, lock};
use crate::dispatch::failures::failed;
use crate::dispatch::mode::{self, Question};
use crate::dispatch::panics;
use crate::error::{AutogradError, Error, Result};
use crate::tensor::Tensor;
use maquette_ir::Loc;
use std::sync::Arc;

/// Checks that what a tensor keeps for sweeps is not that of a tensor from outside of a running
/// trace: the trace would read or change it once, and the runs of its graph would not.
///
/// # Errors
/// It is.
fn check_in_trace(t: &Tensor, what: &'static str, loc: Loc) -> Result<()> {
    if t.slot().is_none() && mode::is_tracing() {
        let tensor = t.meta().to_string();
        let e = Error::from(AutogradError::StateOutsideTrace { tensor, what });
        return Err(failed(e.at(loc)));
    }
    Ok(())
}

impl Tensor {
    /// Makes the tensor a leaf, whose gradient a sweep computes. Returns the tensor; poisoned if
    /// its dtype is not a float.
    ///
    /// PyTorch: `Tensor.requires_grad_`.
    #[track_caller]
    pub fn requires_grad_(&self) -> Tensor {
        let loc = Loc::caller();
        let made = check_in_trace(self, "make a leaf of", loc)
            .and_then(|()| history::make_leaf(self, loc));
        match made {
            Ok(()) => self.clone(),
            Err(e) => Tensor::poison(failed(e.at(loc))),
        }
    }

    /// Whether a gradient of the tensor is computed: it is a leaf, or depends on one. A traced
    /// function cannot ask this of a tensor from outside, and only a compiled one of an input.
    #[track_caller]
    pub fn requires_grad(&self) -> bool {
        let what = "whether an input, or a tensor from outside of the trace, requires a gradient";
        // A trace gets the error, which this cannot return.
        let _reported = mode::ask(Question::Gradient(self), what, Loc::caller());
        history::requires_grad(self)
    }

    /// Whether gradients end at the tensor: it is not a recorded result. A traced function can ask
    /// where [`Tensor::requires_grad`] can be asked.
    #[track_caller]
    pub fn is_leaf(&self) -> bool {
        let what = "whether an input, or a tensor from outside of the trace, is a leaf";
        // A trace gets the error, which this cannot return.
        let _reported = mode::ask(Question::Gradient(self), what, Loc::caller());
        !history::requires_grad(self) || history::leaf(self).is_some()
    }

    /// The gradient that sweeps have added up so far; `None` before the first, and for a tensor
    /// that is not a leaf. In a trace, that of a leaf from outside of it is poisoned, and the trace
    /// fails.
    #[track_caller]
    pub fn grad(&self) -> Option<Tensor> {
        if let Err(e) = check_in_trace(self, "read the gradient of", Loc::caller()) {
            return Some(Tensor::poison(e));
        }
        let node = history::leaf(self)?;
        match &node.function {
            Function::Accumulate(leaf) => lock(&leaf.sum).clone(),
            _ => None,
        }
    }

    /// Replaces the gradient that sweeps have added up; `None` clears it.
    ///
    /// # Errors
    /// The tensor is not a leaf that requires a gradient; or a trace runs, and the leaf is from
    /// outside of it.
    #[track_caller]
    pub fn set_grad(&self, grad: Option<Tensor>) -> Result<()> {
        let loc = Loc::caller();
        let missing = || AutogradError::InputWithoutGrad { tensor: self.meta().to_string() };
        let node = history::leaf(self).ok_or_else(|| failed(Error::from(missing()).at(loc)))?;
        check_in_trace(self, "set the gradient of", loc)?;
        if let Function::Accumulate(leaf) = &node.function {
            *lock(&leaf.sum) = grad;
        }
        Ok(())
    }

    /// Computes the gradients of the tensor, a scalar, with respect to each leaf, and adds them to
    /// [`Tensor::grad`] of the leaf. What the calls saved is freed.
    ///
    /// PyTorch: `Tensor.backward`.
    ///
    /// # Errors
    /// As [`backward`](crate::autograd::backward).
    #[track_caller]
    pub fn backward(&self) -> Result<()> {
        let loc = Loc::caller();
        collect(std::slice::from_ref(self), &[], BackwardOptions::default())
            .map_err(|e| failed(e.at(loc)))
    }

    /// As [`Tensor::backward`], for a tensor of any sizes: `grad` has the gradient of each element.
    ///
    /// # Errors
    /// As [`backward`](crate::autograd::backward).
    #[track_caller]
    pub fn backward_with(&self, grad: &Tensor, options: BackwardOptions) -> Result<()> {
        let loc = Loc::caller();
        collect(std::slice::from_ref(self), &[Some(grad.clone())], options)
            .map_err(|e| failed(e.at(loc)))
    }

    /// Calls `hook` with each gradient of the tensor that a sweep computes. It may return another
    /// gradient in its place. The one that it is given is read-only.
    ///
    /// PyTorch: `Tensor.register_hook`.
    ///
    /// # Errors
    /// The tensor requires no gradient; or a trace runs, and the tensor is from outside of it.
    #[track_caller]
    pub fn register_hook(
        &self,
        hook: impl Fn(&Tensor) -> Result<Option<Tensor>> + Send + Sync + 'static,
    ) -> Result<()> {
        let loc = Loc::caller();
        let missing = || AutogradError::InputWithoutGrad { tensor: self.meta().to_string() };
        let edge = history::edge(self).ok_or_else(|| failed(Error::from(missing()).at(loc)))?;
        check_in_trace(self, "add a hook to", loc)?;
        panics::install_hook();
        let hook: Hook = Arc::new(hook);
        edge.node.add_hook(edge.output, hook);
        Ok(())
    }
}
