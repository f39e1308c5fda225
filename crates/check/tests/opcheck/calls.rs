//! Calls that differ from run to run, and calls that cannot be checked.

use super::{floats, like, matrix, report, shown, sin, snapshot};
use maquette_check::opcheck::{Check, OpcheckOptions, opcheck, opcheck_with};
use maquette_ir::DType;
use maquette_ops::{Effect, FakeCtx, Result, Tensor, args, custom_op};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

#[test]
fn random_results_without_saying_so() {
    let kernel = |x: &Tensor| -> Result<Tensor> {
        static STATE: AtomicU32 = AtomicU32::new(1);
        let noise = STATE.fetch_add(1, Relaxed).wrapping_mul(2_654_435_761) as f32;
        Ok(Tensor::from(x.read::<f32>()?.mapv(|v| v * noise)))
    };
    let op = custom_op("bad::random").arg_names(["x"]).kernel(kernel).register().unwrap();
    op.register_fake(like).unwrap();
    let failed = report(&op, args![floats(3)]).failed();
    assert_eq!(failed, [Check::Determinism, Check::StaticTrace, Check::DynamicTrace]);
    opcheck_with(&op, args![floats(3)], OpcheckOptions::new().nondeterministic(true)).unwrap();
}

#[test]
fn a_kernel_that_keeps_state() {
    static CALLS: AtomicU32 = AtomicU32::new(0);
    let kernel = |x: &Tensor| -> Result<Tensor> {
        let n = CALLS.fetch_add(1, Relaxed) as f32;
        Ok(Tensor::from(x.read::<f32>()?.mapv(|v| v + n)))
    };
    let op = custom_op("bad::stateful").arg_names(["x"]).kernel(kernel).register().unwrap();
    op.register_fake(like).unwrap();
    let only = OpcheckOptions::new().only([Check::Determinism]).derive(0).raise(false);
    snapshot("keeps_state", &opcheck_with(&op, args![floats(3)], only).unwrap());
    // an effect says so
    let op = custom_op("good::counter")
        .arg_names(["x"])
        .effect(Effect::Ordered)
        .kernel(kernel)
        .register()
        .unwrap();
    op.register_fake(like).unwrap();
    opcheck(&op, args![floats(3)]).unwrap();
}

#[test]
fn a_sample_that_the_operator_refuses() {
    let op = custom_op("bad::panics").arg_names(["x"]).kernel(|x: &Tensor| -> Result<Tensor> {
        let x = x.read::<f32>()?;
        Ok(Tensor::from([x[[3]]]))
    });
    let op = op.register().unwrap();
    op.register_fake(|_: &FakeCtx, x: &Tensor| -> Result<Tensor> {
        Ok(x.new_empty([1i64], x.dtype()))
    })
    .unwrap();
    let report = report(&op, args![floats(3)]);
    assert_eq!(report.failed(), [Check::Schema]);
    assert!(report.to_string().contains("its kernel panicked"), "{report}");
    let e = opcheck(&op, args![]).unwrap_err();
    assert!(e.to_string().contains("argument 0 `x` (Tensor) is missing"), "{e}");
    let e = opcheck(&op, args![Tensor::fake([3i64], DType::F32)]).unwrap_err();
    assert!(e.to_string().contains("argument `x` of the sample: cannot read"), "{e}");
}

#[test]
fn sizes_that_cannot_vary_are_named() {
    let kernel = |x: &Tensor| -> Result<Tensor> {
        maquette_ops::ensure!(
            x.size(1).as_i64() == Some(4),
            "rows must have 4 elements, found {}",
            x.size(1)
        );
        sin(x)
    };
    let op = custom_op("good::rows_of_4").arg_names(["x"]).kernel(kernel).register().unwrap();
    op.register_fake(like).unwrap();
    assert!(shown("sizes_that_cannot_vary", &op, args![matrix(2, 4)]).is_empty());
}

#[test]
fn the_error_is_the_report() {
    let op = custom_op("bad::error").arg_names(["x"]).kernel(sin).register().unwrap();
    op.register_fake(|_: &FakeCtx, x: &Tensor| -> Result<Tensor> {
        Ok(x.new_empty([3i64], x.dtype()))
    })
    .unwrap();
    let e = opcheck(&op, args![floats(3)]).unwrap_err();
    assert!(e.to_string().starts_with("opcheck of bad::error(Tensor x) -> Tensor\n"), "{e}");
    assert!(e.to_string().contains("tests/opcheck/calls.rs"), "{e}");
    let report = report(&op, args![floats(3)]);
    assert!(
        report.check(Check::Fake).unwrap().failures[0]
            .contains("promises 3, but the kernel returned 4"),
        "{report}"
    );
}
