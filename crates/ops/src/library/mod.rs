//! The operator library: definitions, kernels, fake kernels.

mod builder;
mod effect;
mod op;
pub(crate) mod registry;
mod typed;
#[doc(hidden)]
pub mod wrapper;

pub(crate) use builder::default_value;
pub use crate::fake::{FakeProfile, FakeProfiles};
pub use builder::{OpBuilder, custom_op};
pub use effect::Facts;
pub(crate) use op::OpState;
pub use op::{Effect, KernelFn, Op};
pub use registry::{Stage, StaticRegistration, all};
pub use typed::{IntoFake, IntoKernel, KernelArg, KernelOutput, Signature};
