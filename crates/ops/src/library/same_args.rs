//! The arguments of an operator's kernels, compared when they are compiled.
//!
//! A registration of a closure compares signature and schema when it runs
//! ([`Op::register_fake`]). `#[register_kernel]` and `#[register_fake]` name a function with
//! `#[custom_op]`, so the compiler knows both signatures: [`SameArguments`] relates the markers
//! that [`IntoKernel`] and [`IntoFake`] infer, one implementation for each number of arguments.

use super::key::IntoKey;
use super::op::Op;
use super::typed::{IntoFake, IntoKernel, KernelArg};
use crate::error::Result;

/// A signature whose arguments are those of `Operator`, in number and types.
#[diagnostic::on_unimplemented(
    message = "the kernel does not take as many arguments as the operator",
    label = "not the operator's arguments",
    note = "a kernel takes the arguments of the function with `#[custom_op]`; a fake kernel takes \
        `cx: &FakeCtx` before them"
)]
pub trait SameArguments<Operator> {}

/// An argument type of a kernel that stands for the operator's argument type `Operator`.
#[diagnostic::on_unimplemented(
    message = "the kernel takes `{Self}` where the operator takes `{Operator}`",
    label = "not the operator's arguments",
    note = "a kernel takes the arguments of the function with `#[custom_op]`; a fake kernel takes \
        `cx: &FakeCtx` before them"
)]
pub trait SameKind<Operator: ?Sized> {}

impl<T: ?Sized> SameKind<T> for T {}

/// Adds an operator's kernel for a device type, whose arguments are those of `_kernel`.
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

/// Adds an operator's fake kernel, whose arguments are those of `_kernel`.
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
