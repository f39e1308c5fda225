//! RMSprop.

use crate::algorithm::{Algorithm, MomentSpec, Scalars, at_least_zero};
use crate::error::OptimError;
use crate::parameters::Parameter;
use crate::sgd::decayed;
use maquette_ops::Result;

/// RMSprop: a step along the gradient, divided by the root of the running mean of its square.
///
/// PyTorch: `torch.optim.RMSprop`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RmsProp {
    lr: f64,
    alpha: f64,
    eps: f64,
    weight_decay: f64,
    momentum: f64,
    centered: bool,
}

impl RmsProp {
    /// PyTorch's defaults. Its learning rate is 0.01 by default.
    pub const fn new(lr: f64) -> RmsProp {
        RmsProp { lr, alpha: 0.99, eps: 1e-8, weight_decay: 0.0, momentum: 0.0, centered: false }
    }

    /// The decay rate of the running means; 0.99 by default.
    pub const fn alpha(self, alpha: f64) -> RmsProp {
        RmsProp { alpha, ..self }
    }

    /// Added to the denominator; 1e-8 by default.
    pub const fn eps(self, eps: f64) -> RmsProp {
        RmsProp { eps, ..self }
    }

    /// Adds this multiple of the parameter to its gradient; 0 by default.
    pub const fn weight_decay(self, weight_decay: f64) -> RmsProp {
        RmsProp { weight_decay, ..self }
    }

    /// The part of the running sum of steps that a step keeps; 0 by default, which needs no sum.
    pub const fn momentum(self, momentum: f64) -> RmsProp {
        RmsProp { momentum, ..self }
    }

    /// Divides by the running standard deviation in place of the root of the mean of squares. Off
    /// by default.
    pub const fn centered(self, centered: bool) -> RmsProp {
        RmsProp { centered, ..self }
    }
}

impl Algorithm for RmsProp {
    const NAME: &'static str = "RmsProp";

    fn lr(&self) -> f64 {
        self.lr
    }

    fn moments(&self) -> Vec<MomentSpec> {
        let mut all = vec![MomentSpec::zero("square_avg")];
        if self.centered {
            all.push(MomentSpec::zero("grad_avg"));
        }
        if self.momentum > 0.0 {
            all.push(MomentSpec::zero("momentum_buffer"));
        }
        all
    }

    fn check(&self) -> Result<(), OptimError> {
        at_least_zero(Self::NAME, "lr", self.lr)?;
        at_least_zero(Self::NAME, "alpha", self.alpha)?;
        at_least_zero(Self::NAME, "eps", self.eps)?;
        at_least_zero(Self::NAME, "weight_decay", self.weight_decay)?;
        at_least_zero(Self::NAME, "momentum", self.momentum)
    }

    fn update(&self, parameters: &[Parameter], Scalars { lr, .. }: Scalars<'_>) -> Result<()> {
        for Parameter { value, gradient, moments } in parameters {
            let mut moments = moments.iter();
            let mut next = |used: bool| if used { moments.next() } else { None };
            let (squares, mean) = (next(true), next(self.centered));
            let (Some(squares), sum) = (squares, next(self.momentum > 0.0)) else { continue };
            let gradient = decayed(gradient, value, self.weight_decay);
            squares.mul_(self.alpha).addcmul_(&gradient, &gradient, 1.0 - self.alpha).ok()?;
            let variance = match mean {
                Some(mean) => {
                    mean.lerp_(&gradient, 1.0 - self.alpha).ok()?;
                    squares.addcmul(mean, mean, -1.0)
                }
                None => squares.clone(),
            };
            let scale = variance.sqrt() + self.eps;
            match sum {
                Some(sum) => {
                    sum.mul_(self.momentum).addcdiv_(&gradient, &scale, 1.0).ok()?;
                    value.addcmul_(sum, lr, -1.0).ok()?;
                }
                None => drop(value.sub_(gradient * lr / scale).ok()?),
            }
        }
        Ok(())
    }
}
