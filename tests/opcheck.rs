//! Checking operators as a user does: macros define them, the facade checks them.

use maquette::check::opcheck::Check;
use maquette::library::{OpcheckError, OpcheckOptions, opcheck, opcheck_with};
use maquette::prelude::*;
use maquette::{ErrorKind, opcheck_suite};

#[custom_op("tests::sin")]
fn sin(x: &Tensor) -> Result<Tensor> {
    Ok(Tensor::from(x.read::<f32>()?.mapv(f32::sin)))
}

#[register_fake(sin)]
fn sin_fake(_cx: &FakeCtx, x: &Tensor) -> Result<Tensor> {
    Ok(x.new_empty(x.sizes(), x.dtype()))
}

/// Sums the rows; the fake kernel says it sums the columns.
#[custom_op("tests::rows")]
fn rows(x: &Tensor) -> Result<Tensor> {
    Ok(Tensor::from(x.read::<f32>()?.rows().into_iter().map(|r| r.sum()).collect::<Vec<f32>>()))
}

#[register_fake(rows)]
fn rows_fake(_cx: &FakeCtx, x: &Tensor) -> Result<Tensor> {
    Ok(x.new_empty([x.size(1)], x.dtype()))
}

opcheck_suite! {
    sine: sin::op(), [
        args![Tensor::from([1.0f32, 2.0])],
        args![Tensor::from([[1.0f32, 2.0], [3.0, 4.0]]).t()],
    ];
    sums_of_rows: rows::op(), [args![Tensor::from([[1.0f32, 2.0], [3.0, 4.0]])]], xfail [Fake];
}

#[test]
fn a_failed_check_is_an_error_that_holds_the_report() -> Result<()> {
    let square = || args![Tensor::from([[1.0f32, 2.0], [3.0, 4.0]])];
    let e = opcheck(&rows::op(), square()).unwrap_err();
    let ErrorKind::Other(inner) = e.kind() else { panic!("{e}") };
    let OpcheckError(report) = inner.downcast_ref().unwrap();
    assert_eq!(report.failed(), [Check::Fake]);
    let report =
        opcheck_with(&rows::op(), square(), OpcheckOptions::new().skip(Check::Fake).derive(0))?;
    assert!(report.passed() && report.check(Check::Fake).is_none(), "{report}");
    Ok(())
}
