//! Compile-time check that all kernels of an operator take the same arguments.
//!
//! The registration of a closure compares its signature with the schema at run time
//! ([`Op::register_fake`]). `#[register_kernel]` and `#[register_fake]` name the function of
//! `#[custom_op]`, so the compiler knows both signatures. [`SameArguments`] relates the markers
//! that [`IntoKernel`] and [`IntoFake`] infer, with one implementation per number of arguments.

use super::key::IntoKey;
use super::op::Op;
use super::typed::{IntoFake, IntoKernel, KernelArg};
use crate::autograd::{AutogradCtx, ResultGrad};
use crate::dispatch::value::Value;
use crate::error::Result;
use crate::tensor::Tensor;

/// A signature with the same number and types of arguments as `Operator`.
#[diagnostic::on_unimplemented(
    message = "the kernel does not take as many arguments as the operator",
    label = "not the operator's arguments",
    note = "a kernel takes the arguments of the function with `#[custom_op]`; a fake kernel takes \
        `cx: &FakeCtx` before them"
)]
pub trait SameArguments<Operator> {}

/// A kernel's argument type that has the same schema type as the operator's, `Operator`.
#[diagnostic::on_unimplemented(
    message = "the kernel takes `{Self}` where the operator takes `{Operator}`",
    label = "not the operator's arguments",
    note = "a kernel takes the arguments of the function with `#[custom_op]`; a fake kernel takes \
        `cx: &FakeCtx` before them"
)]
pub trait SameKind<Operator: ?Sized> {}

impl<T: ?Sized> SameKind<T> for T {}

/// Registers a kernel for a device type. Its arguments must be those of `_kernel`, the operator's
/// first kernel.
///
/// # Errors
/// As [`Op::register_kernel`].
#[track_caller]
pub fn register_kernel<M, K, N, F>(op: Op, _kernel: K, device: impl IntoKey, f: F) -> Result<()>
where
    K: IntoKernel<M>,
    F: IntoKernel<N>,
    N: SameArguments<M>,
{
    op.register_kernel(device, f)
}

/// Registers a fake kernel. Its arguments must be those of `_kernel`, the operator's first kernel.
///
/// # Errors
/// As [`Op::register_fake`].
#[track_caller]
pub fn register_fake<M, K, N, F>(op: Op, _kernel: K, f: F) -> Result<()>
where
    K: IntoKernel<M>,
    F: IntoFake<N>,
    N: SameArguments<M>,
{
    op.register_fake(f)
}

/// Registers a derivative, and the function that keeps what it reads.
///
/// # Errors
/// As [`Op::register_autograd`].
#[track_caller]
pub fn register_autograd<G: ResultGrad>(
    op: Op,
    backward: impl Fn(&AutogradCtx, &[G]) -> Result<Vec<Option<Tensor>>> + Send + Sync + 'static,
    setup_context: impl Fn(&mut AutogradCtx, &[Value], &[Value]) -> Result<()> + Send + Sync + 'static,
) -> Result<()> {
    op.register_autograd_rule(G::rule(backward).setup_context(setup_context))
}

/// The function that keeps nothing.
pub fn keep_nothing(_: &mut AutogradCtx, _: &[Value], _: &[Value]) -> Result<()> {
    Ok(())
}

macro_rules! same_arguments {
    ($($a:ident $b:ident),*) => {
        impl<Operator, Kernel, $($a, $b,)*> SameArguments<fn($($a,)*) -> Operator>
            for fn($($b,)*) -> Kernel
        where
            $($a: KernelArg, $b: KernelArg, $b::Kind: SameKind<$a::Kind>,)*
        {
        }
    };
}
same_arguments!();
same_arguments!(A A2);
same_arguments!(A A2, B B2);
same_arguments!(A A2, B B2, C C2);
same_arguments!(A A2, B B2, C C2, D D2);
same_arguments!(A A2, B B2, C C2, D D2, E E2);
same_arguments!(A A2, B B2, C C2, D D2, E E2, F F2);
same_arguments!(A A2, B B2, C C2, D D2, E E2, F F2, G G2);
same_arguments!(A A2, B B2, C C2, D D2, E E2, F F2, G G2, H H2);
same_arguments!(A A2, B B2, C C2, D D2, E E2, F F2, G G2, H H2, I I2);
same_arguments!(A A2, B B2, C C2, D D2, E E2, F F2, G G2, H H2, I I2, J J2);
same_arguments!(A A2, B B2, C C2, D D2, E E2, F F2, G G2, H H2, I I2, J J2, K K2);
same_arguments!(A A2, B B2, C C2, D D2, E E2, F F2, G G2, H H2, I I2, J J2, K K2, L L2);
same_arguments!(A A2, B B2, C C2, D D2, E E2, F F2, G G2, H H2, I I2, J J2, K K2, L L2, M M2);
same_arguments!(
    A A2, B B2, C C2, D D2, E E2, F F2, G G2, H H2, I I2, J J2, K K2, L L2, M M2, N N2
);
