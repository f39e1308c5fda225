//! Macros that declare methods with converted arguments or several results.

use crate::dispatch::value::{Outputs, Value};
use crate::error::{Error, Result};
use crate::tensor::Tensor;

/// Declares methods that convert their arguments before the call:
/// `/// doc  fn view(size: impl IntoDims) = "view", Value::from_dims(size);`
macro_rules! calls {
    ($(
        $(#[$doc:meta])*
        fn $name:ident($($arg:ident : $ty:ty),* $(,)?) = $op:literal $(, $value:expr)*;
    )*) => {
        impl $crate::Tensor {
            $(
                $(#[$doc])*
                #[doc = concat!("\n\nPyTorch: `aten::", $op, "`.")]
                #[track_caller]
                #[allow(clippy::too_many_arguments, reason = "they are the operator's")]
                pub fn $name(&self $(, $arg: $ty)*) -> $crate::Tensor {
                    $crate::methods::aten!($op, ::maquette_ir::Loc::caller(); self $(, $value)*)
                }
            )*
        }
    };
}
pub(crate) use calls;

/// Declares methods with several results, which are all poisoned if the call fails:
/// `/// doc  fn sort(dim: i64, descending: bool) -> (Tensor, Tensor) = "sort", dim, descending;`
macro_rules! tuple_calls {
    ($(
        $(#[$doc:meta])*
        fn $name:ident($($arg:ident : $ty:ty),* $(,)?) -> ($($tensor:ident),+) =
            $op:literal $(, $value:expr)*;
    )*) => {
        impl $crate::Tensor {
            $(
                $(#[$doc])*
                #[doc = concat!("\n\nPyTorch: `aten::", $op, "`.")]
                #[track_caller]
                pub fn $name(&self $(, $arg: $ty)*) -> ($($tensor),+) {
                    const COUNT: usize = [$(stringify!($tensor)),+].len();
                    let outputs = $crate::methods::calls::aten_outputs!(
                        $op, ::maquette_ir::Loc::caller(); self $(, $value)*
                    );
                    $crate::methods::calls::results::<COUNT>(outputs).into()
                }
            )*
        }
    };
}
pub(crate) use tuple_calls;

/// Calls a builtin operator and returns its boxed outputs.
#[macro_export]
#[doc(hidden)]
macro_rules! aten_outputs {
    ($name:literal, $loc:expr; $($arg:expr),* $(,)?) => {{
        static OP: $crate::operator::Builtin =
            $crate::operator::Builtin::new(concat!("aten::", $name));
        OP.call($crate::args![$($arg),*], $loc)
    }};
}
pub(crate) use crate::aten_outputs;

/// All tensors of the outputs, those in lists included.
pub(crate) fn tensors(out: Result<Outputs>) -> Result<Vec<Tensor>> {
    Ok(out?.iter().flat_map(|v| v.tensors().cloned()).collect())
}

/// The `N` tensors that a call returns; poisoned tensors if it fails.
pub fn results<const N: usize>(out: Result<Outputs>) -> [Tensor; N] {
    let poisoned = |e: Error| std::array::from_fn(|_| Tensor::poison(e.clone()));
    match tensors(out) {
        Ok(list) => {
            let found = list.len();
            list.try_into().unwrap_or_else(|_| {
                poisoned(Error::value(format!(
                    "expected {N} tensors as the results, found {found}"
                )))
            })
        }
        Err(e) => poisoned(e),
    }
}

/// Boxes a list of tensors.
pub(crate) fn list<'a>(tensors: impl IntoIterator<Item = &'a Tensor>) -> Value {
    Value::List(tensors.into_iter().map(Value::from).collect())
}
