//! Typed kernels: Rust functions and closures whose signature is the operator's schema.
//!
//! A kernel borrows its arguments (`&Tensor`, `&[i64]`, …) for any lifetime, so a type parameter
//! cannot name their types. The bound `for<'a> &'a F: Fn(A, B) -> R + Fn(A::Item<'_>, B::Item<'_>)
//! -> R` solves this: the compiler infers `A` and `B` from the first part, and the second part lets
//! the kernel be called with arguments of any lifetime.

use super::op::KernelFn;
use crate::dispatch::value::{Outputs, Value};
use crate::error::{Error, ErrorKind, RegisterError, Result};
use crate::fake::{FakeCtx, FakeFn};
use crate::tensor::Tensor;
use maquette_ir::schema::Type;
use maquette_ir::sym::SymInt;
use maquette_ir::{DType, Device, Layout, MemoryFormat, Scalar};
use smallvec::{SmallVec, smallvec};
use std::sync::Arc;

/// A kernel's signature as schema types.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Signature {
    /// The type of each argument, and whether the kernel mutates it.
    pub args: Vec<(Type, bool)>,
    /// The type of each return.
    pub returns: Vec<Type>,
}

/// A Rust type that a kernel can take.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not an argument type of operators",
    note = "an operator takes `&Tensor`, `&mut Tensor`, slices of tensors, `&[Option<Tensor>]`, \
        `i64`, `SymInt`, `f64`, `bool`, `Scalar` and \
            slices of these, `DType`, `Device`, `Layout`, `MemoryFormat`, `&str`, `Option` of one \
            of these, and `Const<T>`"
)]
pub trait KernelArg {
    /// The storage from which the kernel borrows its argument during a call. It may itself borrow
    /// from the boxed value.
    type State<'v>;
    /// The argument as the kernel takes it.
    type Item<'a>;
    /// A stand-in by which compile-time checks compare signatures. Argument types with equal schema
    /// types have the same kind.
    type Kind: 'static;
    /// Whether the kernel may write to the argument.
    const MUTATED: bool = false;
    /// The type in a schema.
    fn ty() -> Type;
    /// Unboxes the argument.
    fn load(v: &Value) -> Result<Self::State<'_>>;
    /// Borrows the argument for the kernel.
    fn item<'a>(state: &'a mut Self::State<'_>) -> Self::Item<'a>;
    /// Whether a mutated argument is still the same handle after the call. A kernel must write
    /// through a `&mut Tensor`, not replace it.
    fn kept(_state: &Self::State<'_>, _v: &Value) -> bool {
        true
    }
}

/// A Rust type that a kernel can return inside a [`Result`].
#[diagnostic::on_unimplemented(
    message = "an operator cannot return `{Self}`",
    note = "an operator returns `Tensor`, `Vec<Tensor>`, `i64`, `SymInt`, `f64`, `bool`, \
        `Scalar`, a tuple of these, or `()`"
)]
pub trait KernelOutput: Sized {
    /// The types in a schema; none for `()`.
    fn types() -> Vec<Type>;
    /// Boxes the outputs.
    fn outputs(self) -> Outputs;
    /// Unboxes the outputs: takes one value for each type.
    ///
    /// # Errors
    /// There are too few values, or a value has another type.
    fn take(values: &mut dyn Iterator<Item = Value>) -> Result<Self>;
}

macro_rules! owned_arg {
    ($($t:ty, $kind:ty, $ty:expr, $get:expr;)*) => { $(
        impl KernelArg for $t {
            type State<'v> = $t;
            type Item<'a> = $t;
            type Kind = $kind;
            fn ty() -> Type { $ty }
            fn load(v: &Value) -> Result<$t> { $get(v) }
            fn item<'a>(s: &'a mut Self::State<'_>) -> Self::Item<'a> { *s }
        }
        impl KernelArg for Option<$t> {
            type State<'v> = Option<$t>;
            type Item<'a> = Option<$t>;
            type Kind = Option<$kind>;
            fn ty() -> Type { optional($ty) }
            fn load(v: &Value) -> Result<Option<$t>> { v.opt($get) }
            fn item<'a>(s: &'a mut Self::State<'_>) -> Self::Item<'a> { *s }
        }
    )* };
}

fn layout_of(v: &Value) -> Result<Layout> {
    match v {
        Value::Layout(l) => Ok(*l),
        other => Err(unexpected("a layout", other)),
    }
}

fn memory_format_of(v: &Value) -> Result<MemoryFormat> {
    match v {
        Value::MemoryFormat(m) => Ok(*m),
        other => Err(unexpected("a memory format", other)),
    }
}

owned_arg!(
    i64, SymInt, Type::SymInt, Value::int_i64;
    SymInt, SymInt, Type::SymInt, Value::int;
    f64, f64, Type::Float, Value::float;
    bool, bool, Type::Bool, Value::bool;
    Scalar, Scalar, Type::Scalar, Value::scalar;
    DType, DType, Type::ScalarType, Value::dtype;
    Device, Device, Type::Device, Value::device;
    Layout, Layout, Type::Layout, layout_of;
    MemoryFormat, MemoryFormat, Type::MemoryFormat, memory_format_of;
);

macro_rules! borrowed_arg {
    ($($t:ty, $kind:ty, $state:ty, $ty:expr, $load:expr;)*) => { $(
        impl KernelArg for &$t {
            type State<'v> = $state;
            type Item<'a> = &'a $t;
            type Kind = &'static $kind;
            fn ty() -> Type { $ty }
            fn load(v: &Value) -> Result<Self::State<'_>> { $load(v) }
            fn item<'a>(s: &'a mut Self::State<'_>) -> Self::Item<'a> { s }
        }
        impl KernelArg for Option<&$t> {
            type State<'v> = Option<$state>;
            type Item<'a> = Option<&'a $t>;
            type Kind = Option<&'static $kind>;
            fn ty() -> Type { optional($ty) }
            fn load(v: &Value) -> Result<Self::State<'_>> { v.opt($load) }
            fn item<'a>(s: &'a mut Self::State<'_>) -> Self::Item<'a> {
                s.as_ref().map(|x| -> &$t { x })
            }
        }
    )* };
}

borrowed_arg!(
    Tensor, Tensor, &'v Tensor, Type::Tensor, Value::tensor;
    str, str, &'v str, Type::Str, Value::str;
    [i64], [SymInt], SmallVec<[i64; 6]>, many(Type::SymInt), Value::ints_i64;
    [SymInt], [SymInt], &'v [SymInt], many(Type::SymInt), Value::ints;
    [f64], [f64], Vec<f64>, many(Type::Float), |v: &Value| each(v, Value::float);
    [bool], [bool], Vec<bool>, many(Type::Bool), |v: &Value| each(v, Value::bool);
    [Scalar], [Scalar], Vec<Scalar>, many(Type::Scalar), |v: &Value| each(v, Value::scalar);
    [Tensor], [Tensor], Vec<Tensor>, many(Type::Tensor),
        |v: &Value| each(v, |x| x.tensor().cloned());
    [Option<Tensor>], [Option<Tensor>], Vec<Option<Tensor>>, many(optional(Type::Tensor)),
        |v: &Value| each(v, |x| x.opt_tensor().map(Option::<&Tensor>::cloned));
);

macro_rules! mutable_arg {
    ($t:ty, $with:ty, $kind:ty, $ty:expr, $load:expr, |$s:ident| $item:expr) => {
        impl KernelArg for $t {
            type State<'v> = SmallVec<[Tensor; 1]>;
            type Item<'a> = $with;
            type Kind = $kind;
            const MUTATED: bool = true;
            fn ty() -> Type {
                $ty
            }
            fn load(v: &Value) -> Result<Self::State<'_>> {
                $load(v)
            }
            fn item<'a>($s: &'a mut Self::State<'_>) -> Self::Item<'a> {
                $item
            }
            fn kept(s: &Self::State<'_>, v: &Value) -> bool {
                v.tensors().zip(s).all(|(a, b)| a.is_same_handle(b))
            }
        }
    };
}

mutable_arg!(
    &mut Tensor,
    &'a mut Tensor,
    &'static mut Tensor,
    Type::Tensor,
    |v: &Value| v.tensor().map(|t| smallvec![t.clone()]),
    |s| &mut s[0]
);
mutable_arg!(
    &mut [Tensor],
    &'a mut [Tensor],
    &'static mut [Tensor],
    many(Type::Tensor),
    |v: &Value| each(v, |x| x.tensor().cloned()).map(SmallVec::from_vec),
    |s| s
);
mutable_arg!(
    Option<&mut Tensor>,
    Option<&'a mut Tensor>,
    Option<&'static mut Tensor>,
    optional(Type::Tensor),
    |v: &Value| v.opt_tensor().map(|t| t.cloned().into_iter().collect()),
    |s| s.first_mut()
);

impl KernelArg for &mut [Option<Tensor>] {
    type State<'v> = Vec<Option<Tensor>>;
    type Item<'a> = &'a mut [Option<Tensor>];
    type Kind = &'static mut [Option<Tensor>];
    const MUTATED: bool = true;
    fn ty() -> Type {
        many(optional(Type::Tensor))
    }
    fn load(v: &Value) -> Result<Self::State<'_>> {
        each(v, |x| x.opt_tensor().map(Option::<&Tensor>::cloned))
    }
    fn item<'a>(s: &'a mut Self::State<'_>) -> Self::Item<'a> {
        s
    }
    fn kept(s: &Self::State<'_>, v: &Value) -> bool {
        let same = |(v, s): (&Value, &Option<Tensor>)| match (v, s) {
            (Value::Tensor(a), Some(b)) => a.is_same_handle(b),
            (Value::None, None) => true,
            _ => false,
        };
        v.list().is_ok_and(|l| l.len() == s.len() && l.iter().zip(s).all(same))
    }
}

fn unexpected(expected: &str, found: &Value) -> Error {
    Error::value(format!("expected {expected}, found {}", found.kind()))
}

fn optional(t: Type) -> Type {
    Type::Optional(Box::new(t))
}

fn many(t: Type) -> Type {
    Type::List(Box::new(t), None)
}

fn each<'a, T>(v: &'a Value, f: impl Fn(&'a Value) -> Result<T>) -> Result<Vec<T>> {
    v.list()?.iter().map(f).collect()
}

fn next(values: &mut dyn Iterator<Item = Value>) -> Result<Value> {
    values.next().ok_or_else(|| Error::value("the operator returned fewer values than expected"))
}

macro_rules! output {
    ($($t:ty, $ty:expr, $get:expr;)*) => { $(
        impl KernelOutput for $t {
            fn types() -> Vec<Type> { vec![$ty] }
            fn outputs(self) -> Outputs { smallvec::smallvec![Value::from(self)] }
            fn take(values: &mut dyn Iterator<Item = Value>) -> Result<$t> { $get(next(values)?) }
        }
    )* };
}
output!(
    Tensor, Type::Tensor, Value::into_tensor;
    Vec<Tensor>, many(Type::Tensor), |v: Value| each(&v, |x| x.tensor().cloned());
    i64, Type::SymInt, |v: Value| v.int_i64();
    SymInt, Type::SymInt, |v: Value| v.int();
    f64, Type::Float, |v: Value| v.float();
    bool, Type::Bool, |v: Value| v.bool();
    Scalar, Type::Scalar, |v: Value| v.scalar();
);

impl KernelOutput for () {
    fn types() -> Vec<Type> {
        Vec::new()
    }
    fn outputs(self) -> Outputs {
        Outputs::new()
    }
    fn take(_values: &mut dyn Iterator<Item = Value>) -> Result<()> {
        Ok(())
    }
}

macro_rules! tuple_output {
    ($($t:ident),*) => {
        impl<$($t: KernelOutput),*> KernelOutput for ($($t,)*) {
            fn types() -> Vec<Type> { [$($t::types()),*].concat() }
            #[allow(non_snake_case)]
            fn outputs(self) -> Outputs {
                let ($($t,)*) = self;
                let mut out = Outputs::new();
                $(out.extend($t.outputs());)*
                out
            }
            fn take(values: &mut dyn Iterator<Item = Value>) -> Result<Self> {
                Ok(($($t::take(values)?,)*))
            }
        }
    };
}
tuple_output!(A);
tuple_output!(A, B);
tuple_output!(A, B, C);
tuple_output!(A, B, C, D);
tuple_output!(A, B, C, D, E);
tuple_output!(A, B, C, D, E, F);

/// A function or closure that can be a kernel. `Marker` represents its argument types.
#[diagnostic::on_unimplemented(
    message = "this function cannot be a kernel",
    label = "not of the types of a kernel",
    note = "a kernel takes `&Tensor`, `&mut Tensor`, numbers, lists and options of these, and \
        returns `maquette::Result` of tensors, numbers, a tuple of these, or `()`"
)]
pub trait IntoKernel<Marker>: Send + Sync + 'static {
    /// The kernel's signature.
    fn signature() -> Signature;
    /// The kernel over boxed arguments.
    fn into_kernel(self) -> KernelFn;
}

/// A function or closure that can be a fake kernel. It takes a [`FakeCtx`] before the operator's
/// arguments.
#[diagnostic::on_unimplemented(
    message = "this function cannot be a fake kernel",
    label = "not of the types of a fake kernel",
    note = "a fake kernel takes `&FakeCtx` and the operator's arguments, and returns \
        `maquette::Result` of tensors, numbers, a tuple of these, or `()`"
)]
pub trait IntoFake<Marker>: Send + Sync + 'static {
    /// The fake kernel's signature, without the context.
    fn signature() -> Signature;
    /// The fake kernel over boxed arguments.
    fn into_fake(self) -> FakeFn;
}

macro_rules! kernels {
    ($($t:ident $i:tt),*) => {
        impl<Func, Out, $($t,)*> IntoKernel<fn($($t,)*) -> Out> for Func
        where
            Func: Send + Sync + 'static,
            Out: KernelOutput,
            $($t: KernelArg,)*
            for<'a> &'a Func: Fn($($t),*) -> Result<Out> + Fn($($t::Item<'_>),*) -> Result<Out>,
        {
            fn signature() -> Signature {
                Signature { args: vec![$(($t::ty(), $t::MUTATED)),*], returns: Out::types() }
            }

            fn into_kernel(self) -> KernelFn {
                const COUNT: usize = <[&str]>::len(&[$(stringify!($t)),*]);
                fn call<Out, $($t: KernelArg),*>(
                    f: impl Fn($($t::Item<'_>),*) -> Result<Out>,
                    $($t: $t::Item<'_>),*
                ) -> Result<Out> {
                    f($($t),*)
                }
                Arc::new(move |args: &[Value]| {
                    let found = args.len();
                    let [$($t),*] = args else { return Err(arity(COUNT, found)) };
                    let mut state = ($($t::load($t)?,)*);
                    let out = call::<Out, $($t),*>(&self, $($t::item(&mut state.$i)),*)?;
                    $(if !$t::kept(&state.$i, $t) {
                        let name = None;
                        let replaced =
                            crate::error::CallError::ReplacedArgument { index: $i, name };
                        return Err(ErrorKind::from(replaced).into());
                    })*
                    let _ = state;
                    Ok(out.outputs())
                })
            }
        }

        impl<Func, Out, $($t,)*> IntoFake<fn($($t,)*) -> Out> for Func
        where
            Func: Send + Sync + 'static,
            Out: KernelOutput,
            $($t: KernelArg,)*
            for<'a> &'a Func: Fn(&FakeCtx, $($t),*) -> Result<Out>
                + Fn(&FakeCtx, $($t::Item<'_>),*) -> Result<Out>,
        {
            fn signature() -> Signature {
                Signature { args: vec![$(($t::ty(), $t::MUTATED)),*], returns: Out::types() }
            }

            fn into_fake(self) -> FakeFn {
                const COUNT: usize = <[&str]>::len(&[$(stringify!($t)),*]);
                fn call<Out, $($t: KernelArg),*>(
                    f: impl Fn(&FakeCtx, $($t::Item<'_>),*) -> Result<Out>,
                    cx: &FakeCtx,
                    $($t: $t::Item<'_>),*
                ) -> Result<Out> {
                    f(cx, $($t),*)
                }
                Arc::new(move |cx: &FakeCtx, args: &[Value]| {
                    let [$($t),*] = args else { return Err(arity(COUNT, args.len())) };
                    let mut state = cx.load(|| Ok(($($t::load($t)?,)*)))?;
                    let out = call::<Out, $($t),*>(&self, cx, $($t::item(&mut state.$i)),*)?;
                    let _ = state;
                    Ok(out.outputs())
                })
            }
        }
    };
}

fn arity(expected: usize, found: usize) -> Error {
    RegisterError::Invalid {
        op: "the kernel".into(),
        detail: format!("it takes {expected} arguments, the schema has {found}"),
    }
    .into()
}

#[allow(non_snake_case, unused_mut, clippy::unused_unit, clippy::too_many_arguments)]
mod arities {
    use super::*;
    kernels!();
    kernels!(A 0);
    kernels!(A 0, B 1);
    kernels!(A 0, B 1, C 2);
    kernels!(A 0, B 1, C 2, D 3);
    kernels!(A 0, B 1, C 2, D 3, E 4);
    kernels!(A 0, B 1, C 2, D 3, E 4, F 5);
    kernels!(A 0, B 1, C 2, D 3, E 4, F 5, G 6);
    kernels!(A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7);
    kernels!(A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7, I 8);
    kernels!(A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7, I 8, J 9);
    kernels!(A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7, I 8, J 9, K 10);
    kernels!(A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7, I 8, J 9, K 10, L 11);
    kernels!(A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7, I 8, J 9, K 10, L 11, M 12);
    kernels!(A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7, I 8, J 9, K 10, L 11, M 12, N 13);
}
