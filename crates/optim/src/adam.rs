//! Adam, and Adam with decoupled weight decay.

use crate::algorithm::{Algorithm, MomentSpec, Scalars, at_least_zero, fraction};
use crate::error::OptimError;
use crate::parameters::Parameter;
use crate::sgd::decayed;
use maquette_ops::{Result, Tensor};

/// The options that both algorithms have.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Options {
    lr: f64,
    betas: (f64, f64),
    eps: f64,
    weight_decay: f64,
    amsgrad: bool,
}

impl Options {
    const fn new(lr: f64, weight_decay: f64) -> Options {
        Options { lr, betas: (0.9, 0.999), eps: 1e-8, weight_decay, amsgrad: false }
    }

    fn check(&self, algorithm: &'static str) -> Result<(), OptimError> {
        at_least_zero(algorithm, "lr", self.lr)?;
        at_least_zero(algorithm, "eps", self.eps)?;
        at_least_zero(algorithm, "weight_decay", self.weight_decay)?;
        fraction(algorithm, "betas.0", self.betas.0)?;
        fraction(algorithm, "betas.1", self.betas.1)
    }

    fn moments(&self) -> Vec<MomentSpec> {
        let mut all = vec![MomentSpec::zero("exp_avg"), MomentSpec::zero("exp_avg_sq")];
        if self.amsgrad {
            all.push(MomentSpec::zero("max_exp_avg_sq"));
        }
        all
    }

    /// Updates all parameters. `decay` changes a parameter and its gradient for the weight decay.
    fn update(
        &self,
        parameters: &[Parameter],
        Scalars { step, lr }: Scalars<'_>,
        decay: impl Fn(&Tensor, &Tensor) -> Result<Tensor>,
    ) -> Result<()> {
        let (beta1, beta2) = self.betas;
        // What the zeros with which the means begin leave out: `1 - beta^step`.
        let correction = |beta: f64| 1.0 - step.full_like(beta).pow(step);
        let step_size = lr / correction(beta1);
        let root_correction = correction(beta2).sqrt();
        for Parameter { value, gradient, moments } in parameters {
            let [mean, mean_of_squares, rest @ ..] = moments.as_slice() else { continue };
            let gradient = decay(value, gradient)?;
            mean.lerp_(&gradient, 1.0 - beta1).ok()?;
            mean_of_squares.mul_(beta2).addcmul_(&gradient, &gradient, 1.0 - beta2).ok()?;
            let squares = match rest {
                [largest] => largest.copy_(&largest.maximum(mean_of_squares)),
                _ => mean_of_squares.clone(),
            };
            let scale = squares.sqrt() / &root_correction + self.eps;
            value.sub_(mean * &step_size / scale).ok()?;
        }
        Ok(())
    }
}

/// Adds the decay to the gradient.
fn coupled(
    options: &Options,
    _: Scalars<'_>,
) -> impl Fn(&Tensor, &Tensor) -> Result<Tensor> + use<> {
    let weight_decay = options.weight_decay;
    move |value, gradient| Ok(decayed(gradient, value, weight_decay))
}

/// Scales the parameter.
fn decoupled(
    options: &Options,
    scalars: Scalars<'_>,
) -> impl Fn(&Tensor, &Tensor) -> Result<Tensor> + use<> {
    let kept = (options.weight_decay != 0.0).then(|| 1.0 - scalars.lr * options.weight_decay);
    move |value, gradient| {
        if let Some(kept) = &kept {
            value.mul_(kept).ok()?;
        }
        Ok(gradient.clone())
    }
}

macro_rules! algorithm {
    ($name:ident, $decay:ident) => {
        impl $name {
            /// The decay rates of the running means of the gradient and of its square; 0.9 and
            /// 0.999 by default.
            pub const fn betas(self, beta1: f64, beta2: f64) -> $name {
                $name(Options { betas: (beta1, beta2), ..self.0 })
            }

            /// Added to the denominator; 1e-8 by default.
            pub const fn eps(self, eps: f64) -> $name {
                $name(Options { eps, ..self.0 })
            }

            /// Divides by the largest mean of squares so far. Off by default.
            pub const fn amsgrad(self, amsgrad: bool) -> $name {
                $name(Options { amsgrad, ..self.0 })
            }
        }

        impl Algorithm for $name {
            const NAME: &'static str = stringify!($name);

            fn lr(&self) -> f64 {
                self.0.lr
            }

            fn moments(&self) -> Vec<MomentSpec> {
                self.0.moments()
            }

            fn check(&self) -> Result<(), OptimError> {
                self.0.check(Self::NAME)
            }

            fn update(&self, parameters: &[Parameter], scalars: Scalars<'_>) -> Result<()> {
                self.0.update(parameters, scalars, $decay(&self.0, scalars))
            }
        }
    };
}
algorithm!(Adam, coupled);
algorithm!(AdamW, decoupled);

/// Adam: a step along the running mean of the gradient, divided by the root of the running mean of
/// its square.
///
/// PyTorch: `torch.optim.Adam`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Adam(Options);

impl Adam {
    /// PyTorch's defaults, without weight decay. Its learning rate is 0.001 by default.
    pub const fn new(lr: f64) -> Adam {
        Adam(Options::new(lr, 0.0))
    }

    /// Adds this multiple of the parameter to its gradient; 0 by default.
    pub const fn weight_decay(self, weight_decay: f64) -> Adam {
        Adam(Options { weight_decay, ..self.0 })
    }
}

/// Adam with decoupled weight decay: a step also scales the parameter by `1 - lr weight_decay`.
///
/// PyTorch: `torch.optim.AdamW`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AdamW(Options);

impl AdamW {
    /// PyTorch's defaults, with a weight decay of 0.01. Its learning rate is 0.001 by default.
    pub const fn new(lr: f64) -> AdamW {
        AdamW(Options::new(lr, 0.01))
    }

    /// The part of the parameter that a step takes away, times the learning rate; 0.01 by default.
    pub const fn weight_decay(self, weight_decay: f64) -> AdamW {
        AdamW(Options { weight_decay, ..self.0 })
    }
}
