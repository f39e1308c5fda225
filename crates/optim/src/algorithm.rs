//! What all algorithms have in common: checks, the first state, and the course of a step.

use crate::error::OptimError;
use crate::parameters::{self, Parameter};
use crate::state::{Moment, State};
use maquette_ir::Loc;
use maquette_ir::sym::SymInt;
use maquette_ops::autograd::no_grad;
use maquette_ops::{Error, Result, Tensor, Tree};

/// A moment of an algorithm: its name in PyTorch, and its value before the first step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MomentSpec {
    /// The name.
    pub name: &'static str,
    /// The value of every element.
    pub initial: f64,
}

impl MomentSpec {
    /// A moment that is zero before the first step.
    pub(crate) const fn zero(name: &'static str) -> MomentSpec {
        MomentSpec { name, initial: 0.0 }
    }
}

/// The numbers of a step, as scalars of dtype `f64` that a compiled step reads at each call.
#[derive(Clone, Copy, Debug)]
pub struct Scalars<'a> {
    /// The number of the step, from 1.
    pub step: &'a Tensor,
    /// The learning rate.
    pub lr: &'a Tensor,
}

/// An algorithm that updates parameters by their gradients. It holds numbers only; what it
/// remembers is in a [`State`].
pub trait Algorithm {
    /// The name, for messages.
    const NAME: &'static str;

    /// The learning rate of the first step.
    fn lr(&self) -> f64;

    /// What it keeps of each parameter.
    fn moments(&self) -> Vec<MomentSpec>;

    /// Checks the options.
    ///
    /// # Errors
    /// An option is outside of its range.
    fn check(&self) -> Result<(), OptimError>;

    /// Writes parameters and moments, by calls of operators.
    ///
    /// # Errors
    /// An operator fails.
    fn update(&self, parameters: &[Parameter], scalars: Scalars<'_>) -> Result<()>;

    /// The state before the first step, for the tensors of a tree. Numbers in the tree are no
    /// parameters.
    ///
    /// # Errors
    /// An option is outside of its range; a parameter is not a float, or there twice; there is
    /// none.
    #[track_caller]
    fn init<P: Tree>(&self, params: &P) -> Result<State> {
        let loc = Loc::caller();
        let init = || {
            self.check()?;
            let tensors = parameters::tensors(params)?;
            let name = |i: usize| {
                parameters::names(params).map_or_else(|_| i.to_string(), |mut n| n.swap_remove(i))
            };
            parameters::check_distinct(&tensors, &name)?;
            let moment = |MomentSpec { name, initial }| {
                let full = |t: &Tensor| t.full_like(initial).ok().cloned();
                Ok(Moment { name, tensors: tensors.iter().map(full).collect::<Result<_>>()? })
            };
            let moments = no_grad(|| self.moments().into_iter().map(moment).collect::<Result<_>>());
            Ok(State::new(self.lr(), moments?))
        };
        init().map_err(|e: Error| e.at(loc))
    }

    /// Updates the parameters by their gradients, and the state, all in place.
    ///
    /// # Errors
    /// An option is outside of its range; the trees differ in structure or sizes; a parameter is no
    /// float; the state is of other parameters or of another algorithm.
    #[track_caller]
    fn step<P: Tree, G: Tree>(&self, params: &P, grads: &G, state: &State) -> Result<()> {
        let loc = Loc::caller();
        let step = || step_on(self, parameters::pairs(params, grads)?, state);
        step().map_err(|e: Error| e.at(loc))
    }
}

/// A step on pairs of parameters and gradients.
pub(crate) fn step_on<A: Algorithm + ?Sized>(
    algorithm: &A,
    pairs: Vec<(Tensor, Tensor)>,
    state: &State,
) -> Result<()> {
    algorithm.check()?;
    check_state(algorithm, &pairs, state)?;
    let parameter = |(i, (value, gradient)): (usize, (Tensor, Tensor))| Parameter {
        value,
        gradient,
        moments: state.moments.iter().map(|m| m.tensors[i].clone()).collect(),
    };
    let parameters: Vec<Parameter> = pairs.into_iter().enumerate().map(parameter).collect();
    no_grad(|| {
        state.step.add_(1.0).ok()?;
        algorithm.update(&parameters, Scalars { step: &state.step, lr: &state.lr })
    })
}

/// Checks that a state is of an algorithm and of these parameters. Sizes that are symbols are not
/// compared, so that a trace of a step has no guards of it.
fn check_state<A: Algorithm + ?Sized>(
    rule: &A,
    pairs: &[(Tensor, Tensor)],
    state: &State,
) -> Result<()> {
    let algorithm = A::NAME;
    let expected: Vec<&str> = rule.moments().iter().map(|m| m.name).collect();
    let found: Vec<&str> = state.moments.iter().map(|m| m.name).collect();
    if expected != found {
        let list = |names: &[&str]| match names {
            [] => "none".to_owned(),
            names => names.join(", "),
        };
        let problem = format!("expected the moments {}; found {}", list(&expected), list(&found));
        return Err(OptimError::State { algorithm, problem }.into());
    }
    let parameters = pairs.len();
    if let Some(m) = state.moments.iter().find(|m| m.tensors.len() != parameters) {
        let problem = format!("expected {parameters} parameters; found {}", m.tensors.len());
        return Err(OptimError::State { algorithm, problem }.into());
    }
    for m in &state.moments {
        for (i, ((parameter, _), moment)) in pairs.iter().zip(&m.tensors).enumerate() {
            if differ(parameter.sizes(), moment.sizes()) {
                let (name, found, expected) = (m.name, moment.meta(), parameter.meta());
                let problem = format!("`{name}` of parameter {i} is {found}, and it is {expected}");
                return Err(OptimError::State { algorithm, problem }.into());
            }
        }
    }
    Ok(())
}

/// Whether sizes are known to differ.
fn differ(a: &[SymInt], b: &[SymInt]) -> bool {
    let known = |n: &SymInt| n.as_i64();
    a.len() != b.len()
        || a.iter().zip(b).any(|(a, b)| known(a).zip(known(b)).is_some_and(|(a, b)| a != b))
}

/// Checks that an option is finite and at least 0.
pub(crate) fn at_least_zero(
    algorithm: &'static str,
    option: &'static str,
    value: f64,
) -> Result<(), OptimError> {
    if value.is_finite() && value >= 0.0 {
        return Ok(());
    }
    Err(OptimError::OutOfRange { algorithm, option, range: "a finite number of at least 0", value })
}

/// Checks that an option is at least 0 and below 1.
pub(crate) fn fraction(
    algorithm: &'static str,
    option: &'static str,
    value: f64,
) -> Result<(), OptimError> {
    if (0.0..1.0).contains(&value) {
        return Ok(());
    }
    Err(OptimError::OutOfRange { algorithm, option, range: "at least 0 and below 1", value })
}
