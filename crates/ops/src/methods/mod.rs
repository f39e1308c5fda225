//! `Tensor`'s methods. Each calls the ATen operator after which it is named.
//!
//! A method returns a plain `Tensor`, so that model code reads like mathematics. If the call fails,
//! the tensor is poisoned and carries the error; so does the result of a method that writes in
//! place. Every call records the caller's source line.

mod arithmetic;
mod arranging;
mod autograd;
pub(crate) mod calls;
mod convolution;
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
mod pooling;
mod reductions;
mod softmax;
mod spatial;
mod special;
mod structure;
mod views;

pub use layers::Recurrence;

use crate::dispatch::dispatch;
use crate::dispatch::value::{Args, Outputs, Value};
use crate::error::{Error, Result};
use crate::library::Op;
use crate::library::wrapper::LazyOp;
use crate::tensor::Tensor;
use maquette_ir::sym::SymInt;
use maquette_ir::{Loc, Scalar};

/// A lazily resolved builtin operator.
pub struct Builtin(LazyOp);

impl Builtin {
    /// An operator that is looked up at the first call.
    pub const fn new(name: &'static str) -> Builtin {
        Builtin(LazyOp::new(name))
    }

    /// Calls the operator.
    ///
    /// # Errors
    /// The call failed.
    pub fn call(&self, mut args: Args, loc: Loc) -> Result<Outputs> {
        dispatch(self.0.get(), &mut args, loc)
    }

    /// Calls an operator with one result, which is poisoned if the call fails.
    pub fn tensor(&self, args: Args, loc: Loc) -> Tensor {
        call_for_tensor(self.0.get(), args, loc)
    }
}

fn call_for_tensor(op: Op, mut args: Args, loc: Loc) -> Tensor {
    dispatch(op, &mut args, loc).and_then(one_tensor).unwrap_or_else(Tensor::poison)
}

fn one_tensor(mut out: Outputs) -> Result<Tensor> {
    match (out.len(), out.pop()) {
        (1, Some(Value::Tensor(t))) => Ok(t),
        (n, _) => Err(Error::value(format!("expected one tensor as the result, found {n} values"))),
    }
}

/// Calls a builtin operator from a method: `aten!("relu", loc; self)`. The call site caches the
/// look-up.
#[macro_export]
#[doc(hidden)]
macro_rules! aten {
    ($name:literal, $loc:expr; $($arg:expr),* $(,)?) => {{
        static OP: $crate::operator::Builtin =
            $crate::operator::Builtin::new(concat!("aten::", $name));
        OP.tensor($crate::args![$($arg),*], $loc)
    }};
}
pub(crate) use crate::aten;

/// Declares methods that pass their arguments to an operator unchanged:
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

/// The second operand of a binary method: a tensor or a number.
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
