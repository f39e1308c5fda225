//! Compiled functions and exported programs on a device whose memory the host cannot read.

use maquette_driver::{CompileOptions, compile};
use maquette_ir::{DType, Device};
use maquette_ops::func::value_and_grad;
use maquette_ops::operator::HostFallback;
use maquette_ops::{CallError, ErrorKind, Result, Tensor, with_default_device};
use maquette_test_device::hold;

const DEVICE: Device = Device::test(0);

fn sample() -> (Tensor, Tensor) {
    (Tensor::from([[1.0f32, -2.0], [3.0, 0.5]]), Tensor::from([0.25f32, -1.0]))
}

fn on(device: Device, (x, w): (Tensor, Tensor)) -> (Tensor, Tensor) {
    (x.to_device(device), w.to_device(device))
}

fn model((x, w): (Tensor, Tensor)) -> (Tensor, Tensor) {
    x.select(0, 0).add_(1.0);
    let y = (x.matmul(&w.softmax(0)) + Tensor::ones([2], DType::F32)).relu();
    (y.sum(), x.t())
}

#[test]
fn a_compiled_function_does_what_the_eager_one_does_on_the_cpu() {
    let f = compile(model);
    let (x, w) = sample();
    let (sum, view) = model((x.clone(), w.clone()));
    let (x_there, w_there) = on(DEVICE, sample());
    let (found, found_view) =
        with_default_device(DEVICE, || f.call((x_there.clone(), w_there))).unwrap();
    assert_eq!(found.device(), DEVICE);
    assert_eq!(found.item::<f32>().unwrap(), sum.item::<f32>().unwrap());
    assert_eq!(found_view.to_vec::<f32>().unwrap(), view.to_vec::<f32>().unwrap());
    assert_eq!(x_there.to_vec::<f32>().unwrap(), x.to_vec::<f32>().unwrap());
    assert!(found_view.shares_storage(&x_there));
}

#[test]
fn the_default_device_is_a_guard() {
    let f = CompileOptions::new().compile(|n: Tensor| n + Tensor::zeros([1], DType::F32));
    let x = Tensor::from([1.0f32]);
    f.call(x.clone()).unwrap();
    f.call(x.clone()).unwrap();
    assert_eq!(f.compilations(), 1);
    let there = with_default_device(DEVICE, || f.call(x.to_device(DEVICE))).unwrap();
    assert_eq!((there.device(), f.compilations()), (DEVICE, 2));
    let made = compile(|(): ()| Tensor::ones([2], DType::F32));
    assert_eq!(made.call(()).unwrap().device(), Device::Cpu);
    let there = with_default_device(DEVICE, || made.call(())).unwrap();
    assert_eq!((there.device(), there.to_vec::<f32>().unwrap()), (DEVICE, vec![1.0, 1.0]));
    assert_eq!(made.call(()).unwrap().device(), Device::Cpu);
    let strict = CompileOptions::new().recompile_limit(1);
    let strict = strict.compile(|(): ()| Tensor::ones([2], DType::F32));
    strict.call(()).unwrap();
    let e = with_default_device(DEVICE, || strict.call(())).unwrap_err();
    assert!(e.to_string().contains("the default device cpu"), "{e}");
}

#[test]
fn a_graph_runs_where_it_was_traced() {
    let made = |x: Tensor| x + Tensor::ones([2], DType::F32);
    let x = Tensor::from([1.0f32, 2.0]);
    let traced = maquette_trace::trace(made, x.clone()).unwrap();
    let run = with_default_device(DEVICE, || traced.run(x.clone())).unwrap();
    assert_eq!((run.device(), run.to_vec::<f32>().unwrap()), (Device::Cpu, vec![2.0, 3.0]));
    let there = with_default_device(DEVICE, || maquette_trace::trace(made, x.to_device(DEVICE)));
    let run = there.unwrap().run(x.to_device(DEVICE)).unwrap();
    assert_eq!((run.device(), run.to_vec::<f32>().unwrap()), (DEVICE, vec![2.0, 3.0]));
}

#[test]
fn gradients_are_those_of_the_cpu() {
    let loss = |(x, w): (Tensor, Tensor)| (x.matmul(&w)).tanh().sum();
    let (value, (dx, dw)) = value_and_grad(loss)(sample()).unwrap();
    let (there, (dx_there, dw_there)) =
        compile(value_and_grad(loss)).call(on(DEVICE, sample())).unwrap();
    for (found, expected) in [(there, value), (dx_there, dx), (dw_there, dw)] {
        assert_eq!(found.device(), DEVICE);
        assert_eq!(found.to_vec::<f32>().unwrap(), expected.to_vec::<f32>().unwrap());
    }
}

#[test]
fn the_fall_back_to_the_host_can_be_refused_for_a_function() {
    let refused = |f: &dyn Fn(Tensor) -> Result<Tensor>| {
        let e = f(Tensor::from([1.0f32]).to_device(DEVICE)).unwrap_err();
        assert!(matches!(e.kind(), ErrorKind::Call(CallError::HostFallback { .. })), "{e}");
        assert!(e.to_string().contains("second_device.rs"), "{e}");
    };
    let options = || CompileOptions::new().host_fallback(HostFallback::Refuse);
    let inverse = |x: Tensor| x.unsqueeze(0).linalg_inv().exp() + 1.0;
    let compiled = options().compile(inverse);
    refused(&|x| compiled.call(x));
    let expected = compiled.call(Tensor::from([1.0f32])).unwrap().to_vec::<f32>().unwrap();
    let there = compile(inverse).call(Tensor::from([1.0f32]).to_device(DEVICE)).unwrap();
    assert_eq!(there.to_vec::<f32>().unwrap(), expected);
    // Operators that are data run on the device.
    let f = options().compile(model);
    let (x, w) = on(DEVICE, sample());
    let (sum, _) = with_default_device(DEVICE, || f.call((x, w))).unwrap();
    assert_eq!(sum.item::<f32>().unwrap(), model(sample()).0.item::<f32>().unwrap());
}

/// The launches of a compiled program are done later. The first that fails stops the others.
#[test]
fn a_late_error_of_a_compiled_program_names_the_line_and_stops_later_writes() {
    let picks = |(x, index): (Tensor, Tensor)| {
        let first = x.relu();
        let picked = x.index_select(0, &index).exp();
        x.mul_(2.0);
        (first, picked.sum())
    };
    let f = compile(picks);
    let call =
        |x: &Tensor, index: [i64; 2]| f.call((x.clone(), Tensor::from(index).to_device(DEVICE)));
    let x = Tensor::from([1.0f32, -2.0]).to_device(DEVICE);
    let bad = Tensor::from([1i64, 2]).to_device(DEVICE);
    let (first, sum) = call(&x, [0, 0]).unwrap();
    assert_eq!(first.to_vec::<f32>().unwrap(), [1.0, 0.0]);
    let own = Tensor::from([1.0f32, -2.0]);
    let (_, expected) = picks((own.clone(), Tensor::from([0i64, 0])));
    assert_eq!(sum.item::<f32>().unwrap(), expected.item::<f32>().unwrap());
    assert_eq!(x.to_vec::<f32>().unwrap(), own.to_vec::<f32>().unwrap());
    let held = hold(DEVICE.index()).unwrap();
    let (first, sum) = f.call((x.clone(), bad)).unwrap();
    drop(held);
    let e = sum.item::<f32>().unwrap_err();
    let text = e.to_string();
    assert!(text.contains("index 2 is out of bounds for dimension 0 with size 2"), "{e}");
    assert!(text.contains("aten::index_select") && text.contains("second_device.rs"), "{e}");
    assert_eq!(first.to_vec::<f32>().unwrap(), [2.0, 0.0], "computed before the error");
    // The memory that later launches would write is as before. It is refused until it is covered.
    assert!(x.to_vec::<f32>().unwrap_err().to_string().contains("index 2"));
    x.copy_(&Tensor::from([3.0f32, 4.0]));
    let (first, sum) = call(&x, [0, 0]).unwrap();
    assert_eq!(first.to_vec::<f32>().unwrap(), [3.0, 4.0]);
    sum.item::<f32>().unwrap();
}

#[test]
fn sizes_of_data_are_read_back() {
    let f = compile(|x: Tensor| {
        let kept = x.masked_select(&x.gt(0.0));
        (&kept * 2.0).softmax(0)
    });
    for values in [vec![1.0f32, -1.0, 3.0], vec![2.0, 4.0, 8.0]] {
        let x = Tensor::from(values);
        let (expected, found) = (f.call(x.clone()), f.call(x.to_device(DEVICE)));
        let [expected, found] = [expected, found].map(|y| y.unwrap().to_vec::<f32>().unwrap());
        assert_eq!(found, expected);
    }
}
