//! Compiled programs on a device that runs kernels after their calls have returned.

use maquette_driver::compile;
use maquette_ir::Device;
use maquette_ops::{FakeCtx, Result, Tensor, custom_op};
use maquette_test_device::hold;
use std::sync::atomic::{AtomicUsize, Ordering};

const DEVICE: Device = Device::test(1);

fn there(values: [f32; 2]) -> Tensor {
    Tensor::from(values).to_device(DEVICE)
}

fn indices(values: [i64; 2]) -> Tensor {
    Tensor::from(values).to_device(DEVICE)
}

fn is_of_index(found: Result<impl Sized>) {
    let text = found.map(drop).unwrap_err().to_string();
    assert!(text.contains("index 5 is out of bounds for dimension 0 with size 2"), "{text}");
    assert!(text.contains("late_errors.rs"), "{text}");
}

/// A custom operator with a kernel for the device makes calls of its own, which may fail later.
#[test]
fn the_error_of_an_operator_in_a_program_reaches_what_the_program_computes_of_it() {
    let pick = |x: &Tensor, i: &Tensor| -> Result<Tensor> { x.index_select(0, i).ok().cloned() };
    let op = custom_op("late::pick").device_types(["test"]).kernel(pick).register().unwrap();
    op.register_fake(|_: &FakeCtx, x: &Tensor, i: &Tensor| -> Result<Tensor> {
        Ok(x.new_empty(i.sizes(), x.dtype()))
    })
    .unwrap();
    let f = compile(|(x, i): (Tensor, Tensor)| {
        let picked = maquette_ops::call("late::pick", maquette_ops::args![&x, &i]);
        picked.unwrap()[0].tensor().unwrap() + 1.0
    });
    let x = there([1.0, 2.0]);
    let good = f.call((x.clone(), indices([1, 0]))).unwrap();
    assert_eq!(good.to_vec::<f32>().unwrap(), [3.0, 2.0]);
    let bad = indices([1, 5]);
    let held = hold(DEVICE.index()).unwrap();
    let found = f.call((x.clone(), bad));
    drop(held);
    is_of_index(found.and_then(|y| y.to_vec::<f32>()));
    assert_eq!(x.to_vec::<f32>().unwrap(), [1.0, 2.0]);
}

/// On the CPU the program ends with the error, so nothing after it happens.
#[test]
fn an_operator_after_the_error_does_not_run() {
    static CALLS: AtomicUsize = AtomicUsize::new(0);
    let mark = |x: &mut Tensor| -> Result<()> {
        CALLS.fetch_add(1, Ordering::Relaxed);
        x.mul_(10.0).ok().map(drop)
    };
    custom_op("late::mark_").schema("(Tensor(a!) x) -> ()").kernel(mark).register().unwrap();
    let f = compile(|(x, y, i): (Tensor, Tensor, Tensor)| {
        let picked = x.index_select(0, &i);
        maquette_ops::call("late::mark_", maquette_ops::args![&y]).unwrap();
        picked.sum()
    });
    let (x, y) = (there([1.0, 2.0]), there([3.0, 4.0]));
    let sum = f.call((x.clone(), y.clone(), indices([1, 1]))).unwrap();
    assert_eq!(sum.item::<f32>().unwrap(), 4.0);
    assert_eq!((y.to_vec::<f32>().unwrap(), CALLS.load(Ordering::Relaxed)), (vec![30.0, 40.0], 1));
    is_of_index(f.call((x, y.clone(), indices([1, 5]))));
    assert_eq!((y.to_vec::<f32>().unwrap(), CALLS.load(Ordering::Relaxed)), (vec![30.0, 40.0], 1));
}

/// A kernel for every device that reads host memory runs on copies, as in an eager call.
#[test]
fn custom_operators_run_on_copies() {
    let scale = |x: &Tensor| -> Result<Tensor> {
        let scaled: Vec<f32> = x.to_vec::<f32>()?.iter().map(|x| x * 3.0).collect();
        Ok(Tensor::from_vec(scaled, [2]))
    };
    let op = custom_op("late::scale").kernel(scale).register().unwrap();
    op.register_fake(|_: &FakeCtx, x: &Tensor| -> Result<Tensor> {
        Ok(x.new_empty(x.sizes(), x.dtype()))
    })
    .unwrap();
    let f = compile(|x: Tensor| {
        let scaled = maquette_ops::call("late::scale", maquette_ops::args![&x.relu()]);
        scaled.unwrap()[0].tensor().unwrap().exp()
    });
    let expected = f.call(Tensor::from([-1.0f32, 0.5])).unwrap().to_vec::<f32>().unwrap();
    let found = f.call(there([-1.0, 0.5])).unwrap();
    assert_eq!((found.device(), found.to_vec::<f32>().unwrap()), (DEVICE, expected));
    let explanation = f.explain().to_string();
    assert!(explanation.contains("on the host: late::scale at"), "{explanation}");
}

/// Memory that the caller gives, and packed weights, on a device.
#[test]
fn weights_are_packed_there_and_packed_again_after_a_write() {
    let (m, k, n) = (70, 96, 80);
    let numbers = |count: i64, shift: i64| -> Vec<f32> {
        (0..count).map(|i| ((i * 7_919 + shift) % 1_009 - 504) as f32 / 37.0).collect()
    };
    let tensor =
        |sizes: [i64; 2], shift| Tensor::from_vec(numbers(sizes[0] * sizes[1], shift), sizes);
    let (weight, other) = (tensor([k, n], 1), tensor([k, n], 2));
    let program = |weight: Tensor| move |x: Tensor| x.matmul(&weight).relu();
    let run = |device: Device| {
        let own = weight.clone_tensor().to_device(device);
        let f = compile(program(own.clone()));
        let x = tensor([m, k], 3).to_device(device);
        let first = f.call(x.clone()).unwrap().to_vec::<f32>().unwrap();
        let again = f.call(x.clone()).unwrap().to_vec::<f32>().unwrap();
        own.copy_(&other.to_device(device));
        (first, again, f.call(x).unwrap().to_vec::<f32>().unwrap())
    };
    let (here, found) = (run(Device::Cpu), run(DEVICE));
    assert!(here == found);
    assert!(here.0 == here.1 && here.0 != here.2);
}
