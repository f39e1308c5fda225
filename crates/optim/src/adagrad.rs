//! Adagrad.

use crate::algorithm::{Algorithm, MomentSpec, Scalars, at_least_zero};
use crate::error::OptimError;
use crate::parameters::Parameter;
use crate::sgd::decayed;
use maquette_ops::Result;

/// Adagrad: a step along the gradient, divided by the root of the sum of all its squares.
///
/// PyTorch: `torch.optim.Adagrad`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Adagrad {
    lr: f64,
    lr_decay: f64,
    eps: f64,
    weight_decay: f64,
    initial: f64,
}

impl Adagrad {
    /// PyTorch's defaults. Its learning rate is 0.01 by default.
    pub const fn new(lr: f64) -> Adagrad {
        Adagrad { lr, lr_decay: 0.0, eps: 1e-10, weight_decay: 0.0, initial: 0.0 }
    }

    /// Divides the learning rate of step `n` by `1 + (n - 1) lr_decay`; 0 by default.
    pub const fn lr_decay(self, lr_decay: f64) -> Adagrad {
        Adagrad { lr_decay, ..self }
    }

    /// Added to the denominator; 1e-10 by default.
    pub const fn eps(self, eps: f64) -> Adagrad {
        Adagrad { eps, ..self }
    }

    /// Adds this multiple of the parameter to its gradient; 0 by default.
    pub const fn weight_decay(self, weight_decay: f64) -> Adagrad {
        Adagrad { weight_decay, ..self }
    }

    /// The sum of squares before the first step; 0 by default.
    pub const fn initial_accumulator_value(self, initial: f64) -> Adagrad {
        Adagrad { initial, ..self }
    }
}

impl Algorithm for Adagrad {
    const NAME: &'static str = "Adagrad";

    fn lr(&self) -> f64 {
        self.lr
    }

    fn moments(&self) -> Vec<MomentSpec> {
        vec![MomentSpec { name: "sum", initial: self.initial }]
    }

    fn check(&self) -> Result<(), OptimError> {
        at_least_zero(Self::NAME, "lr", self.lr)?;
        at_least_zero(Self::NAME, "lr_decay", self.lr_decay)?;
        at_least_zero(Self::NAME, "eps", self.eps)?;
        at_least_zero(Self::NAME, "weight_decay", self.weight_decay)?;
        at_least_zero(Self::NAME, "initial_accumulator_value", self.initial)
    }

    fn update(&self, parameters: &[Parameter], Scalars { step, lr }: Scalars<'_>) -> Result<()> {
        let lr = if self.lr_decay == 0.0 {
            lr.clone()
        } else {
            lr / ((step - 1.0) * self.lr_decay + 1.0)
        };
        for Parameter { value, gradient, moments } in parameters {
            let [sum] = moments.as_slice() else { continue };
            let gradient = decayed(gradient, value, self.weight_decay);
            let scale = sum.addcmul_(&gradient, &gradient, 1.0).sqrt() + self.eps;
            value.sub_(gradient * &lr / scale).ok()?;
        }
        Ok(())
    }
}
