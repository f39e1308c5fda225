//! Support functions for the code that `#[custom_op]`, `#[register_fake]` and the like generate.

pub use super::same_args::{
    __maquette_operator, CustomOperator, SameArguments, SameKinds, keep_nothing, register_autograd,
    register_fake, register_kernel,
};

use super::op::Op;
use super::registry;
use super::typed::{KernelArg, KernelOutput};
use crate::dispatch::value::{Args, Value};
use crate::error::{Error, Result};
use crate::tensor::Tensor;
use crate::tensor::meta::IntoDims;
use maquette_ir::schema::Type;
use maquette_ir::sym::SymInt;
use std::sync::OnceLock;

/// A lazily resolved operator. It may be unregistered, or its registration may have failed; a call
/// then returns the error.
pub struct LazyOp {
    name: &'static str,
    op: OnceLock<Op>,
}

impl LazyOp {
    /// The operator with this full name.
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
        let op = registry::entry(self.name);
        // A static registration may get here while others are still to run. If it kept the handle,
        // other threads would call the operator before its registrations are complete.
        if registry::statics_have_run() { *self.op.get_or_init(|| op) } else { op }
    }
}

/// A mutated argument of a wrapper.
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

/// Boxes an integer or symbolic integer.
pub fn integer(n: impl Into<SymInt>) -> Value {
    Value::Int(n.into())
}

/// Boxes the argument number `index`, a list of integers, or one integer for such a list. The call
/// repeats the integer if the schema's list has a fixed length. Any other list gets it alone.
pub fn integers(op: Op, index: usize, dims: impl IntoDims) -> Value {
    let is_fixed = || {
        op.schema().is_ok_and(|schema| {
            let ty = schema.args.get(index).map(|a| a.ty.required());
            matches!(ty, Some(Type::List(_, Some(_))))
        })
    };
    let repeats = dims.is_integer() && is_fixed();
    match dims.into_dims().as_slice() {
        [one] if repeats => Value::Int(*one),
        list => Value::Ints(list.into()),
    }
}

/// Boxes an argument that is only read.
pub fn boxed<T: KernelArg + Into<Value>>(arg: T) -> Value {
    arg.into()
}

/// An output type that can represent a failed call: a tensor, or a tuple of tensors.
pub trait Poisonable: KernelOutput {
    /// Tensors poisoned by `e`.
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

/// The call of a wrapper that returns tensors. A failed call returns poisoned tensors.
#[inline]
#[track_caller]
pub fn tensors<T: Poisonable>(op: Op, args: Args) -> T {
    let unboxed = op.call(args).and_then(|outputs| T::take(&mut outputs.into_iter()));
    unboxed.unwrap_or_else(|e| T::poisoned(&e))
}

/// The call of a wrapper that returns other values.
///
/// # Errors
/// The call failed.
#[inline]
#[track_caller]
pub fn values<T: KernelOutput>(op: Op, args: Args) -> Result<T> {
    T::take(&mut op.call(args)?.into_iter())
}

#[cfg(test)]
mod tests {
    use super::super::registry::{Stage, StaticRegistration};
    use super::LazyOp;

    static USED_BY_A_REGISTRATION: LazyOp = LazyOp::new("aten::relu");

    inventory::submit!(StaticRegistration {
        stage: Stage::Define,
        op: "wrapper_tests::none",
        file: file!(),
        line: line!(),
        run: |_| USED_BY_A_REGISTRATION.get().state().map(drop),
    });

    /// A handle that is kept lets calls pass by the wait for the static registrations.
    #[test]
    fn static_registrations_keep_no_handle() {
        let relu = LazyOp::new("aten::relu").get();
        assert!(USED_BY_A_REGISTRATION.op.get().is_none());
        assert_eq!(USED_BY_A_REGISTRATION.get(), relu);
        assert!(USED_BY_A_REGISTRATION.op.get().is_some());
    }
}
