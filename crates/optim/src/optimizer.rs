//! Optimizers of eager programs, over the gradients that `backward` adds up.

use crate::algorithm::{Algorithm, step_on};
use crate::error::OptimError;
use crate::parameters::{self, check_sizes};
use crate::state::State;
use maquette_ir::Loc;
use maquette_ops::internals::TensorInternals;
use maquette_ops::module::Slot;
use maquette_ops::{Error, Module, Result, Tensor, Tree};

/// An algorithm with the leaves that it updates, by the gradients that `backward` has added up.
///
/// ```
/// use maquette_ops::Tensor;
/// use maquette_optim::{Adam, Optimizer};
///
/// let w = Tensor::from([1.0, -2.0]).requires_grad_();
/// let optimizer = Optimizer::new(Adam::new(0.1), &w)?;
/// for _ in 0..100 {
///     optimizer.zero_grad()?;
///     (&w * &w).sum().backward()?;
///     optimizer.step()?;
/// }
/// assert!(w.to_vec::<f64>()?.iter().all(|x| x.abs() < 0.1));
/// # Ok::<(), maquette_ops::Error>(())
/// ```
///
/// PyTorch: `torch.optim.Optimizer`. For parameters with options of their own, as PyTorch's
/// parameter groups, make an optimizer of each group.
#[derive(Clone, Debug)]
pub struct Optimizer<A> {
    algorithm: A,
    names: Vec<String>,
    params: Vec<Tensor>,
    state: State,
}

impl<A: Algorithm> Optimizer<A> {
    /// An optimizer of the tensors of a tree.
    ///
    /// # Errors
    /// As [`Algorithm::init`]; a tensor is not a leaf that requires a gradient.
    #[track_caller]
    pub fn new(algorithm: A, params: &impl Tree) -> Result<Optimizer<A>> {
        let loc = Loc::caller();
        let new = || {
            let tensors = parameters::tensors(params)?;
            Optimizer::of_named(algorithm, parameters::names(params)?, tensors)
        };
        new().map_err(|e: Error| e.at(loc))
    }

    /// An optimizer of the parameters of a module. A parameter that has several names is one.
    ///
    /// # Errors
    /// As [`Optimizer::new`].
    #[track_caller]
    pub fn of_module<M: Module + ?Sized>(algorithm: A, module: &M) -> Result<Optimizer<A>> {
        let loc = Loc::caller();
        let (mut names, mut params) = (Vec::new(), Vec::<Tensor>::new());
        module.visit(&mut |name, slot, t| {
            if slot == Slot::Parameter && !params.iter().any(|p| p.is_same_handle(t)) {
                names.push(name.to_owned());
                params.push(t.clone());
            }
        });
        Optimizer::of_named(algorithm, names, params).map_err(|e| e.at(loc))
    }

    fn of_named(algorithm: A, names: Vec<String>, params: Vec<Tensor>) -> Result<Optimizer<A>> {
        let not_leaf = |t: &Tensor| !t.tracks_gradient() || t.is_recorded();
        if let Some(i) = params.iter().position(not_leaf) {
            return Err(OptimError::NotLeaf { name: names[i].clone() }.into());
        }
        let state = algorithm.init(&params)?;
        Ok(Optimizer { algorithm, names, params, state })
    }

    /// Updates the leaves by their gradients.
    ///
    /// # Errors
    /// A leaf has no gradient, or someone else has borrowed it.
    #[track_caller]
    pub fn step(&self) -> Result<()> {
        let loc = Loc::caller();
        let step = || {
            let grads = self.grads()?;
            let pairs: Vec<_> = self.params.iter().cloned().zip(grads).collect();
            check_sizes(&pairs, &|i| Ok(self.names[i].clone()))?;
            step_on(&self.algorithm, pairs, &self.state)
        };
        step().map_err(|e: Error| e.at(loc))
    }

    /// Removes the gradients of the leaves, so that the next `backward` begins anew.
    ///
    /// # Errors
    /// None, as long as the leaves require gradients.
    #[track_caller]
    pub fn zero_grad(&self) -> Result<()> {
        self.params.iter().try_for_each(|p| p.set_grad(None))
    }

    /// Scales the gradients of the leaves so that their total norm is at most `max_norm`, as
    /// [`clip_grad_norm`](crate::clip_grad_norm). Returns the norm before.
    ///
    /// # Errors
    /// A leaf has no gradient; otherwise as [`clip_grad_norm`](crate::clip_grad_norm).
    #[track_caller]
    pub fn clip_grad_norm(&self, max_norm: f64) -> Result<Tensor> {
        let loc = Loc::caller();
        let clip = || {
            let (grads, norm) = crate::clip_grad_norm(&self.grads()?, max_norm)?;
            for (p, grad) in self.params.iter().zip(grads) {
                p.set_grad(Some(grad))?;
            }
            Ok(norm)
        };
        clip().map_err(|e: Error| e.at(loc))
    }

    fn grads(&self) -> Result<Vec<Tensor>> {
        let missing = |name: &String| OptimError::MissingGradient { name: name.clone() };
        let grad = |(p, name): (&Tensor, &String)| Ok(p.grad().ok_or_else(|| missing(name))?);
        self.params.iter().zip(&self.names).map(grad).collect()
    }

    /// The algorithm.
    pub fn algorithm(&self) -> &A {
        &self.algorithm
    }

    /// What it remembers. Its tensors change with each step.
    pub fn state(&self) -> &State {
        &self.state
    }

    /// The names of the parameters: paths in the tree, or the module's names.
    pub fn names(&self) -> &[String] {
        &self.names
    }
}
