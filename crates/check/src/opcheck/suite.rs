//! Test suites: many operators on many samples.

use super::{Check, OpcheckOptions, opcheck_with};
use maquette_ops::{Args, Error, Op, Result};

/// Defines a `#[test]` for each operator, which checks it on each of its samples.
///
/// A line is `name: operator, [samples];`. Checks that are known to fail are listed as `xfail`; a
/// test fails if such a check passes on every sample, so that the list stays true.
///
/// ```
/// # use maquette_check::opcheck_suite;
/// # use maquette_ops::{Op, Result, Tensor, args, custom_op};
/// # fn find(name: &str) -> Op { Op::find(name).unwrap() }
/// opcheck_suite! {
///     add: find("aten::add.Tensor"), [
///         args![Tensor::from([1.0f32]), 2.0],
///         args![Tensor::from([1i64]), Tensor::from([2.0f32])],
///     ];
///     no_fake: find("mylib::no_fake"), [args![Tensor::from([1.0f32])]], xfail [Fake];
/// }
/// ```
#[macro_export]
macro_rules! opcheck_suite {
    ($(
        $(#[$attr:meta])*
        $name:ident : $op:expr, [$($sample:expr),* $(,)?] $(, xfail [$($check:ident),* $(,)?])?
    );* $(;)?) => { $(
        $(#[$attr])*
        #[test]
        fn $name() -> $crate::maquette_ops::Result<()> {
            let op = $op;
            let known: &[$crate::opcheck::Check] = &[$($($crate::opcheck::Check::$check),*)?];
            let op = ::std::borrow::Borrow::borrow(&op);
            $crate::opcheck::suite(op, ::std::vec![$($sample),*], known)
        }
    )* };
}

/// The body of a test of [`opcheck_suite!`](crate::opcheck_suite).
///
/// # Errors
/// A check fails that is not listed as `xfail`, or a listed one passes on every sample.
#[doc(hidden)]
#[track_caller]
pub fn suite(op: &Op, samples: Vec<Args>, known: &[Check]) -> Result<()> {
    let mut failed = Vec::new();
    for args in samples {
        let report = opcheck_with(op, args, OpcheckOptions::new().raise(false))?;
        if report.failed().iter().any(|c| !known.contains(c)) {
            return Err(Error::other(super::OpcheckError(report)));
        }
        failed.extend(report.failed());
    }
    match known.iter().find(|c| !failed.contains(c)) {
        None => Ok(()),
        Some(check) => Err(Error::value(format!(
            "the check `{check}` of {} is listed as xfail, but passes on every sample",
            op.name()
        ))),
    }
}
