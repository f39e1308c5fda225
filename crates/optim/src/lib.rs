//! Optimizers: algorithms that update parameters by their gradients, as `torch.optim` defines them;
//! clipping of gradients, and schedules of the learning rate.
//!
//! An [`Algorithm`] holds numbers only. What it remembers from step to step is a [`State`], a tree
//! of tensors: the number of steps, the learning rate and the moments. An update is model code that
//! writes parameters and moments in place. So a whole training step traces and compiles, with the
//! state among its inputs, and another learning rate compiles nothing:
//!
//! ```
//! use maquette_driver::compile;
//! use maquette_ops::{Result, Tensor, func::value_and_grad};
//! use maquette_optim::{Algorithm, Sgd, State};
//!
//! let sgd = Sgd::new(0.5).momentum(0.9);
//! let step = |(w, state, x): (Tensor, State, Tensor)| -> Result<Tensor> {
//!     let loss = |w: Tensor| ((&w - &x) * (&w - &x)).sum();
//!     let (loss, gradient) = value_and_grad(loss)(w.clone())?;
//!     sgd.step(&w, &gradient, &state)?;
//!     Ok(loss)
//! };
//! let (w, x) = (Tensor::from([0.0]), Tensor::from([1.0]));
//! let state = sgd.init(&w)?;
//! let compiled = compile(&step);
//! compiled.call((w.clone(), state.clone(), x.clone()))?;
//! assert_eq!(w.to_vec::<f64>()?, [1.0]);
//!
//! state.set_lr(0.25)?;
//! compiled.call((w.clone(), state, x))?;
//! assert_eq!(w.to_vec::<f64>()?, [1.45]);
//! assert_eq!(compiled.compilations(), 1);
//! # Ok::<(), maquette_ops::Error>(())
//! ```
//!
//! [`Optimizer`] is for eager programs: it updates leaves by the gradients that `backward` has
//! added up.
//!
//! **Architecture invariant:** an update is made of calls of operators. It reads no data, and has
//! no state outside of its arguments.
#![deny(unsafe_code)]
#![warn(missing_docs)]

mod adagrad;
mod adam;
mod algorithm;
mod clip;
mod error;
mod optimizer;
mod parameters;
mod rmsprop;
mod schedule;
mod sgd;
mod state;

pub use adagrad::Adagrad;
pub use adam::{Adam, AdamW};
pub use algorithm::{Algorithm, MomentSpec, Scalars};
pub use clip::{clip_grad_norm, clip_grad_value, total_norm};
pub use error::OptimError;
pub use optimizer::Optimizer;
pub use parameters::Parameter;
pub use rmsprop::RmsProp;
pub use schedule::{Cosine, OneCycle, Schedule, Steps, Then, Warmup};
pub use sgd::Sgd;
pub use state::{Moment, State};
