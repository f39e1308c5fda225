//! The operator library: definitions of operators, their kernels and fake kernels, and their
//! registry. It corresponds to PyTorch's `torch.library`.
//!
//! [`custom_op`] and [`Library`] define operators and register kernels. `registrations` keeps a
//! stack of registrations for each purpose, and computes an `OpState` from it after every change.
//! Calls read the state without a lock. [`Facts`] answers the questions of passes.

mod builder;
mod constant;
mod effect;
mod facts;
mod infer;
mod kernel;
mod key;
mod namespace;
mod op;
mod overloads;
pub(crate) mod registrations;
pub(crate) mod registry;
mod rules;
mod same_args;
mod state;
mod tags;
mod transaction;
mod typed;
mod variants;
mod views;
#[doc(hidden)]
pub mod wrapper;

pub use crate::fake::{FakeProfile, FakeProfiles};
pub(crate) use builder::default_value;
pub use builder::{OpBuilder, custom_op};
pub use constant::{Const, ConstArg};
pub use facts::Facts;
pub use infer::infer_schema;
pub use kernel::{Kernel, KernelSwitch, get_kernel};
pub use key::{DispatchKey, IntoKey};
pub use maquette_ir::{Effect, Resource};
#[allow(deprecated)]
pub use namespace::impl_abstract;
pub use namespace::{
    Kind, Library, define, impl_, register_autograd, register_effect, register_fake,
};
pub(crate) use op::ask_registrations;
pub use op::{KernelFn, Op, builtins_changed, generation};
pub use overloads::Kwargs;
pub(crate) use overloads::{complete, resolve};
pub use registry::{Stage, StaticRegistration, all, check_registrations, unresolved};
pub(crate) use state::OpState;
pub use tags::{ParseTagError, Tag, TagSet};
pub use typed::{IntoFake, IntoKernel, KernelArg, KernelOutput, Signature};
pub use variants::{register_out_variant, to_out_variant};
