//! Operators checked on a device whose memory the host cannot read, and whose commands are done
//! later.

use maquette_check::opcheck::{Check, OpcheckOptions, Report, opcheck_with};
use maquette_ir::Device;
use maquette_ops::{Args, FakeCtx, Op, Result, Tensor, args, custom_op};
use maquette_test_device as _;

const DEVICE: Device = Device::test(0);

fn check(op: &Op, args: Args) -> Result<Report> {
    opcheck_with(op, args, OpcheckOptions::new().raise(false).device(DEVICE))
}

fn floats(n: i64) -> Tensor {
    Tensor::from((0..n).map(|i| 0.5 + i as f32).collect::<Vec<f32>>())
}

fn matrix(rows: i64, columns: i64) -> Tensor {
    floats(rows * columns).reshape([rows, columns])
}

#[test]
fn builtin_operators_keep_their_contract() -> Result<()> {
    let places = Tensor::from([2i64, 0]);
    let calls: Vec<(&str, Args)> = vec![
        ("aten::add.Tensor", args![matrix(2, 3), floats(3)]),
        ("aten::sum.dim_IntList", args![matrix(2, 3), [1], true]),
        ("aten::addmm", args![floats(4), matrix(2, 3), matrix(3, 4)]),
        ("aten::transpose.int", args![matrix(2, 3), 0, 1]),
        ("aten::mul_.Tensor", args![matrix(2, 3).t(), 2.0]),
        ("aten::split.Tensor", args![matrix(4, 3), 2]),
        ("aten::cat", args![[matrix(2, 3), matrix(1, 3)], 0]),
        ("aten::sort", args![matrix(2, 3), 1, true]),
        ("aten::nonzero", args![Tensor::from([0.0f32, 1.0, 2.0])]),
        ("aten::index_select", args![matrix(3, 4), 0, places]),
        ("aten::softmax.int", args![matrix(2, 3), 1]),
    ];
    for (name, args) in calls {
        let report = check(&Op::find(name)?, args)?;
        assert!(report.passed() && report.to_string().contains("test:0"), "{report}");
    }
    Ok(())
}

#[test]
fn custom_operators_of_the_host_keep_their_contract_on_copies() -> Result<()> {
    let scale_ = custom_op("on_device::scale_")
        .arg_names(["x", "s"])
        .kernel(|x: &mut Tensor, s: f64| -> Result<()> {
            x.write::<f32>()?.mapv_inplace(|v| v * s as f32);
            Ok(())
        })
        .register()?;
    let report = check(&scale_, args![floats(8).narrow(0, 2, 3), 2.0])?;
    assert!(report.passed(), "{report}");

    let sum = custom_op("on_device::sum_of")
        .kernel(|x: &Tensor, y: &Tensor| -> Result<Tensor> { Ok(x + y) })
        .register()?;
    sum.register_fake(|_: &FakeCtx, x: &Tensor, _: &Tensor| -> Result<Tensor> {
        Ok(x.new_empty(x.sizes(), x.dtype()))
    })?;
    let x = floats(5);
    let report = check(&sum, args![x.narrow(0, 0, 4), x.narrow(0, 1, 4)])?;
    assert!(report.passed(), "{report}");
    Ok(())
}

#[test]
fn operators_that_break_their_contract_are_found() -> Result<()> {
    let first = custom_op("on_device::first")
        .kernel(|x: &Tensor| -> Result<Tensor> { Ok(x.narrow(0, 0, 1) * 1.0) })
        .register()?;
    first.register_fake(|_: &FakeCtx, x: &Tensor| -> Result<Tensor> {
        Ok(x.new_empty([2], x.dtype()))
    })?;
    let report = check(&first, args![floats(4)])?;
    assert_eq!(report.failed(), [Check::Fake], "{report}");

    let counter = std::sync::atomic::AtomicU32::new(0);
    let counted = custom_op("on_device::counted")
        .kernel(move |x: &Tensor| -> Result<Tensor> {
            let n = counter.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            Ok(x + f64::from(n))
        })
        .register()?;
    counted.register_fake(|_: &FakeCtx, x: &Tensor| -> Result<Tensor> {
        Ok(x.new_empty(x.sizes(), x.dtype()))
    })?;
    let report = check(&counted, args![floats(4)])?;
    assert!(report.failed().contains(&Check::Determinism), "{report}");
    Ok(())
}
