//! `Tensor`'s methods, named after the ATen operators they call: model code reads like mathematics.
//!
//! A method returns a tensor, poisoned where the call failed, and records the caller's line.

mod arithmetic;
mod arranging;
pub(crate) mod calls;
mod copies;
mod creation;
pub(crate) mod index;
mod indexing;
mod layers;
mod linalg;
mod loss;
mod nn;
mod order;
mod pointwise;
mod reductions;
mod softmax;
mod spatial;
mod special;
mod structure;
mod views;

pub use layers::Recurrence;

use crate::dispatch::value::{Args, Outputs, Value};
use crate::dispatch::{dispatch, poison_in};
use crate::error::{Error, Result};
use crate::library::Op;
use crate::tensor::Tensor;
use maquette_ir::sym::SymInt;
use maquette_ir::{Loc, Scalar};
use std::sync::OnceLock;

/// A builtin operator by name, looked up once.
pub(crate) struct Builtin {
    name: &'static str,
    op: OnceLock<Op>,
}

impl Builtin {
    pub(crate) const fn new(name: &'static str) -> Builtin {
        Builtin { name, op: OnceLock::new() }
    }

    fn op(&self) -> Result<Op> {
        match self.op.get() {
            Some(op) => Ok(*op),
            None => Ok(*self.op.get_or_init(|| crate::library::registry::entry(self.name))),
        }
    }

    pub(crate) fn call(&self, mut args: Args, loc: Loc) -> Result<Outputs> {
        dispatch(self.op()?, &mut args, loc)
    }

    /// The call's only tensor; poisoned where the call fails.
    pub(crate) fn tensor(&self, args: Args, loc: Loc) -> Tensor {
        call_for_tensor(self.op(), args, loc)
    }
}

fn call_for_tensor(op: Result<Op>, mut args: Args, loc: Loc) -> Tensor {
    op.and_then(|op| {
        if op.is_mutable() {
            spread_poison(op, &args);
        }
        dispatch(op, &mut args, loc).and_then(one_tensor)
    })
    .unwrap_or_else(Tensor::poison)
}

/// Poisons what a call would write if an operand is poisoned: whatever is computed from a poisoned
/// tensor carries its error. Any other error of a call that does not reach its kernel leaves the
/// tensors as they are, since nothing was written; a kernel that fails poisons them itself.
pub(crate) fn spread_poison(op: Op, args: &[Value]) {
    if let Some(e) = args.iter().find_map(poison_in) {
        let written = args.iter().enumerate().filter(|(i, _)| op.mutates(*i));
        written.flat_map(|(_, v)| v.tensors()).for_each(|t| t.poison_storage(&e));
    }
}

fn one_tensor(mut out: Outputs) -> Result<Tensor> {
    match (out.len(), out.pop()) {
        (1, Some(Value::Tensor(t))) => Ok(t),
        (n, _) => Err(Error::value(format!("expected one tensor as the result, found {n} values"))),
    }
}

/// Calls a builtin operator from a method: `aten!("relu", loc; self)`. The look-up is cached at the
/// call site.
macro_rules! aten {
    ($name:literal, $loc:expr; $($arg:expr),* $(,)?) => {{
        static OP: $crate::methods::Builtin =
            $crate::methods::Builtin::new(concat!("aten::", $name));
        OP.tensor($crate::args![$($arg),*], $loc)
    }};
}
pub(crate) use aten;

/// Declares methods that call one operator with their arguments in order:
/// `/// doc  fn relu() = "relu";  fn pow(exponent: impl Into<Operand>) = "pow.Tensor_Scalar";`
macro_rules! methods {
    ($($(#[$doc:meta])* fn $name:ident($($arg:ident : $ty:ty),* $(,)?) = $op:literal;)*) => {
        impl $crate::Tensor {
            $(
                $(#[$doc])*
                #[doc = concat!("\n\nPyTorch: `aten::", $op, "`.")]
                #[track_caller]
                pub fn $name(&self $(, $arg: $ty)*) -> $crate::Tensor {
                    $crate::methods::aten!($op, ::maquette_ir::Loc::caller(); self $(, $arg)*)
                }
            )*
        }
    };
}
pub(crate) use methods;

/// The other operand of arithmetic: a tensor or a number.
#[derive(Clone, Debug)]
pub struct Operand(pub(crate) Value);

impl From<Operand> for Value {
    fn from(o: Operand) -> Value {
        o.0
    }
}

macro_rules! operand {
    ($($t:ty),*) => { $(
        impl From<$t> for Operand {
            fn from(x: $t) -> Operand {
                Operand(Value::from(x))
            }
        }
    )* };
}
operand!(Tensor, &Tensor, SymInt, i64, i32, f64, f32, bool, Scalar);
