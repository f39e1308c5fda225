//! Traces that look at real data: branches, missing fake kernels, fake kernels checked while
//! tracing.

mod common;

use common::{COUNT, INC, NONZERO, call, matrix, vector};
use insta::assert_snapshot;
use maquette_aten as _;
use maquette_ir::{DType, Device};
use maquette_ops::{
    ErrorKind, FakeCtx, FakeError, Op, Result, RunError, Tensor, args, custom_op, random,
};
use maquette_trace::{TraceOptions, trace};

/// An error without line numbers.
fn text(e: &maquette_ops::Error) -> String {
    let text = e.to_string();
    let mut parts = text.split(".rs:");
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |text, rest| {
        text + ".rs:N" + rest.trim_start_matches(|c: char| c.is_ascii_digit())
    })
}

fn real() -> TraceOptions {
    TraceOptions::symbolic().names(["x"]).propagate_real(true)
}

/// Doubles the positive elements where there are several, else all; the kernel has no fake one
/// where `fake` is not given.
fn plain(name: &str, fake: Option<fn(&FakeCtx, &Tensor) -> Result<Tensor>>) -> Op {
    let kernel = |x: &Tensor| -> Result<Tensor> {
        Ok(Tensor::from_vec(x.to_vec::<f32>()?.iter().map(|v| v * 2.0).collect(), x.sizes()))
    };
    let op = custom_op(name).schema("(Tensor x) -> Tensor").kernel(kernel).register().unwrap();
    if let Some(fake) = fake {
        op.register_fake(move |cx: &FakeCtx, x: &Tensor| -> Result<Tensor> { fake(cx, x) })
            .unwrap();
    }
    op
}

#[test]
fn a_branch_on_data_is_decided_by_the_sample_and_asserted() {
    let model = |x: Tensor| -> Result<Tensor> {
        let n = COUNT.call(args![&x])?[0].int()?;
        Ok(if n.gt(2).guard()? { &x * 2.0 } else { x })
    };
    let e = TraceOptions::symbolic().trace(model, vector(6)).unwrap_err();
    assert!(e.to_string().contains("cannot branch on `u0 > 2`"), "{e}");
    let t = real().trace(model, vector(6)).unwrap();
    assert_snapshot!("a_branch_on_data", t);
    assert_eq!(
        t.run(vector(7)).unwrap().to_vec::<f32>().unwrap(),
        model(vector(7)).unwrap().to_vec::<f32>().unwrap()
    );
    assert_snapshot!("another_branch", text(&t.run(vector(3)).unwrap_err()));
}

#[test]
fn a_number_taken_from_data_is_asserted() {
    let model = |x: Tensor| -> Result<Tensor> {
        let rows = call(&NONZERO, args![&x])?;
        (0..rows.size(0).guard_int()?).try_fold(x, |x, _| Ok(x + 1.0))
    };
    let x = || Tensor::from([0.0f32, 3.0, 4.0]);
    let t = real().trace(model, x()).unwrap();
    assert!(t.to_string().contains("assert u0 == 2 "), "{t}");
    assert_eq!(t.run(x()).unwrap().to_vec::<f32>().unwrap(), [2.0, 5.0, 6.0]);
    assert!(matches!(
        t.run(Tensor::from([1.0f32, 1.0, 1.0])).unwrap_err().kind(),
        ErrorKind::Run(RunError::Assertion { .. })
    ));
}

#[test]
fn an_assertion_that_the_sample_breaks_is_an_error_while_tracing() {
    let model = |x: Tensor| -> Result<Tensor> {
        COUNT.call(args![&x])?[0].int()?.le(1).check("at most one")?;
        Ok(x)
    };
    let e = real().trace(model, vector(6)).unwrap_err();
    assert!(e.to_string().contains("at most one"), "{e}");
    assert!(
        TraceOptions::symbolic().trace(model, vector(6)).is_ok(),
        "without data it is left to the runs"
    );
}

#[test]
fn a_missing_fake_kernel_is_inferred() {
    let op = plain("r::no_fake", None);
    let model = move |x: Tensor| -> Result<Tensor> { Ok(call(&op, args![&x])? + 1.0) };
    let e = TraceOptions::symbolic().trace(model, matrix(2, 3)).unwrap_err();
    assert!(matches!(e.kind(), ErrorKind::Fake(FakeError::Missing { .. })), "{e}");
    let t = real().trace(model, matrix(2, 3)).unwrap();
    assert_snapshot!("a_missing_fake_kernel", t);
    for x in [matrix(2, 3), matrix(4, 1)] {
        assert_eq!(
            t.run(x.clone()).unwrap().to_vec::<f32>().unwrap(),
            model(x).unwrap().to_vec::<f32>().unwrap()
        );
    }
    let several = custom_op("r::several_")
        .schema("(Tensor(a!) x) -> (Tensor(a!), Tensor[], int)")
        .kernel(|x: &mut Tensor| -> Result<(Tensor, Vec<Tensor>, i64)> {
            x.write::<f32>()?.mapv_inplace(|v| v + 1.0);
            let column = Tensor::from_vec(vec![1i64, 2, 3, 4], [2, 2]).t();
            Ok((x.clone(), vec![column], -3))
        })
        .register()
        .unwrap();
    let t = real().trace(
        move |x: Tensor| {
            several.call(args![&x]).map(|out| {
                (out[0].tensor().cloned(), out[1].tensors().cloned().collect::<Vec<_>>())
            })
        },
        vector(2),
    );
    assert_snapshot!("a_missing_fake_kernel_of_several_results", t.unwrap());
    let view = custom_op("r::view")
        .schema("(Tensor(a) x) -> Tensor(a)")
        .kernel(|x: &Tensor| -> Result<Tensor> { Ok(x.view([-1])) });
    let view = view.register().unwrap();
    let e = real().trace(move |x: Tensor| call(&view, args![&x]), vector(2)).unwrap_err();
    assert!(matches!(e.kind(), ErrorKind::Fake(FakeError::Missing { .. })), "{e}");
}

#[test]
fn a_wrong_fake_kernel_is_found_while_tracing() {
    let wrong = [
        plain("r::size", Some(|_, x| Ok(x.new_empty([x.size(0), x.size(1) + 1], x.dtype())))),
        plain("r::rank", Some(|_, x| Ok(x.new_empty([x.numel()], x.dtype())))),
        plain("r::dtype", Some(|_, x| Ok(x.new_empty(x.sizes(), DType::I64)))),
        plain(
            "r::range",
            Some(|cx, x| Ok(x.new_empty([cx.new_dynamic_size_in(3, 9)?, x.size(1)], x.dtype()))),
        ),
        plain(
            "r::shared",
            Some(|cx, x| cx.new_dynamic_size().map(|n| x.new_empty([n, n], x.dtype()))),
        ),
    ];
    let errors: Vec<String> = wrong
        .into_iter()
        .map(|op| {
            text(&real().trace(move |x: Tensor| call(&op, args![&x]), matrix(2, 3)).unwrap_err())
        })
        .collect();
    assert_snapshot!("a_wrong_fake_kernel", errors.join("\n\n"));
}

#[test]
fn nothing_outside_the_trace_changes() {
    let base = vector(6);
    let (x, captured) = (base.slice(0, 2..5), Tensor::from([10.0f32, 20.0, 30.0]));
    let before = (
        base.to_vec::<f32>().unwrap(),
        base.version(),
        captured.version(),
        random::state(Device::Cpu),
    );
    let kept = captured.clone();
    let model = move |x: Tensor| -> Result<Tensor> {
        let view = x.slice(0, 1..3);
        INC.call(args![&view])?;
        captured.add_(&x);
        let noise = x.rand_like();
        // 2.5 of the written elements, through the captured tensor and back: the branch needs them
        // all
        let n = COUNT.call(args![&captured, 11.6])?[0].int()?;
        Ok(if n.eq(2).guard()? { &x + noise } else { x })
    };
    let t = real().trace(model.clone(), x.clone()).unwrap();
    let after =
        (base.to_vec::<f32>().unwrap(), base.version(), kept.version(), random::state(Device::Cpu));
    assert_eq!(before.0, after.0);
    assert_eq!((before.1, before.2), (after.1, after.2));
    assert_eq!((before.3.seed, before.3.offset), (after.3.seed, after.3.offset));
    assert_eq!(kept.to_vec::<f32>().unwrap(), [10.0, 20.0, 30.0]);
    assert!(t.to_string().contains("assert u0 == 2 "), "{t}");
}

#[test]
fn samples_need_data_and_a_failing_kernel_fails_the_trace() {
    let e = real().trace(|x: Tensor| x + 1.0, Tensor::fake([2], DType::F32)).unwrap_err();
    assert_snapshot!(e.kind(), @"input 0 is a fake tensor f32[2]; `propagate_real` runs kernels, \
        so every sample needs data");
    let failing = custom_op("r::fails")
        .schema("(Tensor x) -> Tensor")
        .kernel(|_x: &Tensor| -> Result<Tensor> { Err(maquette_ops::Error::msg("no such thing")) })
        .register()
        .unwrap();
    failing
        .register_fake(|_cx: &FakeCtx, x: &Tensor| -> Result<Tensor> {
            Ok(x.new_empty(x.sizes(), x.dtype()))
        })
        .unwrap();
    assert!(trace(move |x: Tensor| call(&failing, args![&x]), vector(2)).is_ok());
    let e = real().trace(move |x: Tensor| call(&failing, args![&x]), vector(2)).unwrap_err();
    assert_snapshot!("a_failing_kernel", text(&e));
}

#[test]
fn broadcasting_by_data_is_decided_by_the_sample() {
    let model = |x: Tensor| -> Result<Tensor> {
        Ok(call(&NONZERO, args![&x])? + Tensor::zeros([3, 1], DType::I64))
    };
    let three = || Tensor::from([1.0f32, 2.0, 0.0, 3.0]);
    let t = real().trace(model, three()).unwrap();
    assert_eq!(
        t.run(three()).unwrap().to_vec::<i64>().unwrap(),
        model(three()).unwrap().to_vec::<i64>().unwrap()
    );
    // one row would broadcast in the eager program
    assert!(t.run(Tensor::from([1.0f32, 0.0])).is_err());
}

#[test]
fn an_integer_read_from_a_tensor_decides() {
    let model = |(x, n): (Tensor, Tensor)| -> Result<Tensor> {
        Ok(if n.item_int().ge(2).guard()? { x * 2.0 } else { x })
    };
    assert!(trace(model, (vector(2), Tensor::scalar(3i64))).is_err());
    let t = TraceOptions::new()
        .propagate_real(true)
        .trace(model, (vector(2), Tensor::scalar(3i64)))
        .unwrap();
    assert_eq!(
        t.run((vector(2), Tensor::scalar(2i64))).unwrap().to_vec::<f32>().unwrap(),
        [-3.0, -1.0]
    );
    let e = t.run((vector(2), Tensor::scalar(1i64))).unwrap_err();
    assert!(matches!(e.kind(), ErrorKind::Run(RunError::Assertion { .. })), "{e}");
}
