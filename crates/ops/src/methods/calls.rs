//! How methods with arguments of many kinds, or several results, call their operators.

use crate::dispatch::value::{Outputs, Value};
use crate::error::{Error, Result};
use crate::tensor::Tensor;

/// Declares methods by the boxed arguments they pass: `/// doc  fn view(size: impl IntoDims) =
/// "view", Value::from_dims(size);`
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

/// Calls a builtin operator with several results.
macro_rules! aten_outputs {
    ($name:literal, $loc:expr; $($arg:expr),* $(,)?) => {{
        static OP: $crate::methods::Builtin =
            $crate::methods::Builtin::new(concat!("aten::", $name));
        OP.call($crate::args![$($arg),*], $loc)
    }};
}
pub(crate) use aten_outputs;

/// Every tensor of the results, lists included.
pub(crate) fn tensors(out: Result<Outputs>) -> Result<Vec<Tensor>> {
    Ok(out?.iter().flat_map(|v| v.tensors().cloned()).collect())
}

/// As many results as the operator has, each poisoned where the call fails.
pub(crate) fn results<const N: usize>(out: Result<Outputs>) -> [Tensor; N] {
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

/// A list of tensors as one argument.
pub(crate) fn list<'a>(tensors: impl IntoIterator<Item = &'a Tensor>) -> Value {
    Value::List(tensors.into_iter().map(Value::from).collect())
}
