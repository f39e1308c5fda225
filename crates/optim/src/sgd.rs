//! Stochastic gradient descent.

use crate::algorithm::{Algorithm, MomentSpec, Scalars, at_least_zero};
use crate::error::OptimError;
use crate::parameters::Parameter;
use maquette_ops::{Result, Tensor};

/// Stochastic gradient descent, with momentum if asked for: `w -= lr b`, where `b` is the gradient,
/// or its running sum `b = momentum b + (1 - dampening) gradient`, which begins with the first
/// gradient.
///
/// PyTorch: `torch.optim.SGD`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sgd {
    lr: f64,
    momentum: f64,
    dampening: f64,
    weight_decay: f64,
    nesterov: bool,
}

impl Sgd {
    /// Without momentum and weight decay.
    pub const fn new(lr: f64) -> Sgd {
        Sgd { lr, momentum: 0.0, dampening: 0.0, weight_decay: 0.0, nesterov: false }
    }

    /// The part of the running sum that a step keeps; 0 by default, which needs no sum.
    pub const fn momentum(self, momentum: f64) -> Sgd {
        Sgd { momentum, ..self }
    }

    /// The part of a gradient that the running sum leaves out; 0 by default.
    pub const fn dampening(self, dampening: f64) -> Sgd {
        Sgd { dampening, ..self }
    }

    /// Adds this multiple of the parameter to its gradient; 0 by default.
    pub const fn weight_decay(self, weight_decay: f64) -> Sgd {
        Sgd { weight_decay, ..self }
    }

    /// Nesterov's momentum: the step is `gradient + momentum b`. Off by default.
    pub const fn nesterov(self, nesterov: bool) -> Sgd {
        Sgd { nesterov, ..self }
    }

    /// The running sum with a gradient added. The first gradient is added as it is.
    fn accumulate(&self, sum: &Tensor, gradient: &Tensor, part: Option<&Tensor>) -> Result<()> {
        let sum = sum.mul_(self.momentum);
        match part {
            Some(part) => sum.addcmul_(gradient, part, 1.0),
            None => sum.add_(gradient),
        }
        .ok()
        .map(drop)
    }
}

impl Algorithm for Sgd {
    const NAME: &'static str = "Sgd";

    fn lr(&self) -> f64 {
        self.lr
    }

    fn moments(&self) -> Vec<MomentSpec> {
        if self.momentum == 0.0 { Vec::new() } else { vec![MomentSpec::zero("momentum_buffer")] }
    }

    fn check(&self) -> Result<(), OptimError> {
        at_least_zero(Self::NAME, "lr", self.lr)?;
        at_least_zero(Self::NAME, "momentum", self.momentum)?;
        at_least_zero(Self::NAME, "weight_decay", self.weight_decay)?;
        if !self.dampening.is_finite() {
            let range = "a finite number";
            let (algorithm, value) = (Self::NAME, self.dampening);
            return Err(OptimError::OutOfRange { algorithm, option: "dampening", range, value });
        }
        if self.nesterov && (self.momentum == 0.0 || self.dampening != 0.0) {
            let problem = "`nesterov` needs a momentum, and a dampening of 0";
            return Err(OptimError::Options { algorithm: Self::NAME, problem });
        }
        Ok(())
    }

    fn update(&self, parameters: &[Parameter], Scalars { step, lr }: Scalars<'_>) -> Result<()> {
        let part = (self.dampening != 0.0).then(|| {
            step.eq(1.0).where_(step.full_like(1.0), step.full_like(1.0 - self.dampening))
        });
        for Parameter { value, gradient, moments } in parameters {
            let mut direction = decayed(gradient, value, self.weight_decay);
            if let [sum] = moments.as_slice() {
                self.accumulate(sum, &direction, part.as_ref())?;
                direction = if self.nesterov {
                    direction.add_alpha(sum, self.momentum)
                } else {
                    sum.clone()
                };
            }
            value.addcmul_(&direction, lr, -1.0).ok()?;
        }
        Ok(())
    }
}

/// The gradient of a parameter with an L2 penalty: `gradient + weight_decay value`.
pub(crate) fn decayed(gradient: &Tensor, value: &Tensor, weight_decay: f64) -> Tensor {
    if weight_decay == 0.0 { gradient.clone() } else { gradient.add_alpha(value, weight_decay) }
}
