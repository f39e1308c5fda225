//! The functions that code written by `#[custom_op]` and `#[register_fake]` calls.

pub use super::same_args::{SameArguments, register_fake, register_kernel};

use super::op::Op;
use super::registry;
use super::typed::{KernelArg, KernelOutput};
use crate::dispatch::value::{Args, Value};
use crate::error::{Error, Result};
use crate::methods::spread_poison;
use crate::tensor::Tensor;
use maquette_ir::sym::SymInt;
use std::sync::OnceLock;

/// An operator by name, looked up once. It may not be registered, or its registration may have
/// failed: then a call says so.
pub struct LazyOp {
    name: &'static str,
    op: OnceLock<Op>,
}

impl LazyOp {
    /// The operator of this full name.
    pub const fn new(name: &'static str) -> LazyOp {
        LazyOp { name, op: OnceLock::new() }
    }

    /// The handle.
    #[inline]
    pub fn get(&self) -> Op {
        match self.op.get() {
            Some(op) => *op,
            None => self.first(),
        }
    }

    #[cold]
    fn first(&self) -> Op {
        // not inside `get_or_init`: the first look-up runs the static registrations, and those of
        // this operator come here again
        let op = registry::entry(self.name);
        *self.op.get_or_init(|| op)
    }
}

/// An argument that a wrapper's operator mutates.
pub trait Written {
    /// The boxed argument.
    fn boxed(&self) -> Value;
}

impl Written for &mut Tensor {
    fn boxed(&self) -> Value {
        Value::Tensor(Tensor::clone(self))
    }
}

impl Written for &mut [Tensor] {
    fn boxed(&self) -> Value {
        Value::from(&**self)
    }
}

impl Written for &mut [Option<Tensor>] {
    fn boxed(&self) -> Value {
        Value::from(&**self)
    }
}

impl Written for Option<&mut Tensor> {
    fn boxed(&self) -> Value {
        Value::from(self.as_deref())
    }
}

/// Boxes an integer, known or symbolic.
pub fn integer(n: impl Into<SymInt>) -> Value {
    Value::Int(n.into())
}

/// Boxes an argument that is only read.
pub fn boxed<T: KernelArg + Into<Value>>(arg: T) -> Value {
    arg.into()
}

/// Tensors, and tuples of tensors: what carries a failure in itself.
pub trait Poisonable: KernelOutput {
    /// Each tensor dead of `e`.
    fn poisoned(e: &Error) -> Self;
}

impl Poisonable for Tensor {
    fn poisoned(e: &Error) -> Tensor {
        Tensor::poison(e.clone())
    }
}

macro_rules! tuple {
    ($($t:ident),*) => {
        impl<$($t: Poisonable),*> Poisonable for ($($t,)*) {
            fn poisoned(e: &Error) -> Self {
                ($($t::poisoned(e),)*)
            }
        }
    };
}
tuple!(A);
tuple!(A, B);
tuple!(A, B, C);
tuple!(A, B, C, D);
tuple!(A, B, C, D, E);
tuple!(A, B, C, D, E, F);

/// The call of a wrapper that returns tensors: after a failure they are poisoned. If the operator
/// mutates arguments, the error of a poisoned operand reaches these, too.
#[inline]
#[track_caller]
pub fn tensors<T: Poisonable>(op: Op, args: Args, mutates: bool) -> T {
    if mutates {
        spread_poison(op, &args);
    }
    let unboxed = op.call(args).and_then(|outputs| T::take(&mut outputs.into_iter()));
    unboxed.unwrap_or_else(|e| T::poisoned(&e))
}

/// The call of a wrapper that returns anything else.
///
/// # Errors
/// The call failed.
#[inline]
#[track_caller]
pub fn values<T: KernelOutput>(op: Op, args: Args) -> Result<T> {
    T::take(&mut op.call(args)?.into_iter())
}
