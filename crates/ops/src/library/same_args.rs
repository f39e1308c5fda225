//! Compile-time check that all kernels of an operator take the same arguments.
//!
//! The registration of a closure compares its signature with the schema at run time
//! ([`Op::register_fake`]). `#[register_kernel]` and `#[register_fake]` name the function of
//! `#[custom_op]`, so the compiler knows both signatures. [`SameArguments`] relates the markers
//! that [`IntoKernel`] and [`IntoFake`] infer, with one implementation per number of arguments.

use super::key::IntoKey;
use super::op::KernelFn;
use super::op::Op;
use super::typed::{IntoFake, IntoKernel, KernelArg, Signature};
use crate::autograd::{AutogradCtx, ResultGrad};
use crate::dispatch::value::Value;
use crate::error::{Error, Result};
use crate::tensor::Tensor;
use std::sync::Arc;

/// The type in the place of an operator, if a registration names what has no type: a function
/// without
/// `#[custom_op]`, for instance. The macros import the named operator over this type.
#[allow(non_camel_case_types, reason = "no name of a program is to be hidden")]
pub enum __maquette_operator {}

impl __maquette_operator {
    /// Fits every registration, so that the missing [`CustomOperator`] is the one error.
    #[allow(non_upper_case_globals, reason = "it is in the place of a function")]
    pub const kernel: AnyKernel = AnyKernel;
}

/// A kernel of no operator.
pub struct AnyKernel;

#[diagnostic::do_not_recommend]
impl IntoKernel<AnyKernel> for AnyKernel {
    fn signature() -> Signature {
        Signature { args: Vec::new(), returns: Vec::new() }
    }

    fn into_kernel(self) -> KernelFn {
        Arc::new(|_| Err(Error::value("this is not the kernel of an operator")))
    }
}

#[diagnostic::do_not_recommend]
impl<Kernel> SameArguments<AnyKernel> for Kernel {
    type Pairs = ();
}

/// The type that `#[custom_op]` makes beside a function.
#[diagnostic::on_unimplemented(
    message = "this is not an operator",
    label = "expected the path of a function with `#[custom_op]`",
    note = "`#[register_fake]`, `#[register_kernel]` and `#[register_autograd]` add to the operator \
        that `#[custom_op]` makes of a function; to extend an operator that has only a name, use \
        `Op::find(name)?`"
)]
pub trait CustomOperator {
    /// The operator's full name.
    const NAME: &'static str;
    /// The operator.
    fn op() -> Op;
}

/// A signature with the same number and types of arguments as `Operator`.
#[diagnostic::on_unimplemented(
    message = "the kernel does not take as many arguments as the operator",
    label = "not the operator's arguments",
    note = "a kernel takes the arguments of the function with `#[custom_op]`; a fake kernel takes \
        `cx: &FakeCtx` before them"
)]
pub trait SameArguments<Operator> {
    /// The kinds of both signatures' arguments, in pairs.
    type Pairs;
}

/// A list of pairs of equal kinds: `()`, or a pair and a list.
pub trait SameKinds {}

impl SameKinds for () {}

impl<A, B: SameKind<A>, Rest: SameKinds> SameKinds for ((A, B), Rest) {}

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
    N::Pairs: SameKinds,
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
    N::Pairs: SameKinds,
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
    (@pairs) => { () };
    (@pairs $a:ident $b:ident $(, $rest:ident $other:ident)*) => {
        (($a::Kind, $b::Kind), same_arguments!(@pairs $($rest $other),*))
    };
    ($($a:ident $b:ident),*) => {
        // an error lists no other numbers of arguments
        #[diagnostic::do_not_recommend]
        impl<Operator, Kernel, $($a, $b,)*> SameArguments<fn($($a,)*) -> Operator>
            for fn($($b,)*) -> Kernel
        where
            $($a: KernelArg, $b: KernelArg,)*
        {
            type Pairs = same_arguments!(@pairs $($a $b),*);
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
