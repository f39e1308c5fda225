//! Errors of kernels that a device runs after their calls have returned. The device is held back, so
//! that host code meets launches that are on their way.

use maquette_aten as _;
use maquette_ir::{DType, Device};
use maquette_ops::operator::{HostFallback, with_host_fallback};
use maquette_ops::{ErrorKind, Result, Tensor};
use maquette_test_device::{Held, hold};
use std::thread;
use std::time::Duration;

/// The device of these tests. A test that holds it back delays the others.
const DEVICE: Device = Device::test(1);

fn there<const N: usize>(values: [f32; N]) -> Tensor {
    Tensor::from(values).to_device(DEVICE)
}

fn indices(values: [i64; 2]) -> Tensor {
    Tensor::from(values).to_device(DEVICE)
}

/// Releases the device while `f` waits for it.
fn released_later<R>(held: Held, f: impl FnOnce() -> R) -> R {
    thread::scope(|s| {
        s.spawn(move || {
            thread::sleep(Duration::from_millis(20));
            drop(held);
        });
        f()
    })
}

fn held() -> Held {
    // The device is open.
    there([0.0]).ok().unwrap();
    hold(DEVICE.index()).unwrap()
}

/// Checks an error of `index_select` in this file.
fn is_of_index(found: Result<impl Sized>) {
    let e = found.map(drop).unwrap_err();
    let text = e.to_string();
    assert!(matches!(e.kind(), ErrorKind::Kernel(_)), "{e:?}");
    assert!(text.contains("index 5 is out of bounds for dimension 0 with size 2"), "{e}");
    assert!(text.contains("aten::index_select") && text.contains("late_errors.rs"), "{e}");
}

#[test]
fn a_read_finds_the_error_for_which_it_has_waited() {
    let x = there([1.0, 2.0]);
    let reads: [fn(&Tensor) -> Result<()>; 4] = [
        |t| t.to_vec::<f32>().map(drop),
        |t| t.select(0, 0).item::<f32>().map(drop),
        |t| t.to_device(Device::Cpu).ok().map(drop),
        |t| t.narrow(0, 0, 1).unsqueeze(0).linalg_inv().ok().map(drop),
    ];
    for read in reads {
        let held = held();
        let picked = x.index_select(0, &indices([0, 5]));
        let sum = &picked + 1.0;
        is_of_index(released_later(held, || read(&sum)));
        is_of_index(read(&picked));
    }
    assert_eq!(x.to_vec::<f32>().unwrap(), [1.0, 2.0]);
}

#[test]
fn a_copy_between_devices_keeps_the_error_and_its_target() {
    let x = there([1.0, 2.0]);
    let other = Tensor::from([3.0f32, 4.0]).to_device(Device::test(0));
    let held = held();
    let picked = x.index_select(0, &indices([0, 5]));
    is_of_index(released_later(held, || other.copy_(&picked).ok().cloned()));
    assert_eq!(other.to_vec::<f32>().unwrap(), [3.0, 4.0]);
}

#[test]
fn a_write_that_covers_the_memory_ends_a_pending_error() {
    let (x, good) = (there([1.0, 2.0]), there([7.0, 8.0]));
    let held = held();
    let target = x.clone_tensor();
    target.add_(x.index_select(0, &indices([0, 5])));
    let partly = target.clone_tensor();
    target.copy_(&good);
    partly.select(0, 0).copy_(&good.select(0, 0));
    drop(held);
    assert_eq!(target.to_vec::<f32>().unwrap(), [7.0, 8.0]);
    is_of_index(partly.to_vec::<f32>());
}

#[test]
fn a_write_that_reads_the_memory_keeps_a_pending_error() {
    let x = there([1.0, 2.0]);
    let held = held();
    let square = there([1.0, 2.0, 3.0, 4.0]).reshape([2i64, 2]);
    square.select(0, 0).copy_(&x.index_select(0, &indices([0, 5])));
    square.copy_(&square.t());
    drop(held);
    is_of_index(square.to_vec::<f32>());
}

#[test]
fn the_first_of_two_errors_is_that_of_the_result() {
    let zero = Tensor::from([0i64, 0]).to_device(DEVICE);
    let held = held();
    let first = indices([3, 4]).floor_divide(&zero);
    let line = line!() - 1;
    let second = indices([5, 6]).floor_divide(first.mul(&zero));
    drop(held);
    for t in [&first, &second] {
        let e = t.to_vec::<i64>().unwrap_err();
        assert!(e.to_string().contains("integer division by zero"), "{e}");
        assert!(e.to_string().contains(&format!("late_errors.rs:{line}")), "{e}");
    }
}

#[test]
fn what_does_not_depend_on_the_error_can_be_used() {
    let x = there([1.0, 2.0]);
    let held = held();
    let picked = x.index_select(0, &indices([0, 5]));
    let product = &x * 3.0;
    drop(held);
    assert_eq!(product.to_vec::<f32>().unwrap(), [3.0, 6.0]);
    is_of_index(picked.to_vec::<f32>());
    let text = format!("{picked}");
    assert!(text.contains("index 5 is out of bounds"), "{text}");
}

#[test]
fn two_threads_have_their_own_errors() {
    let work = |bad: i64| {
        let x = there([1.0, 2.0]);
        let results = (0..50).map(|_| {
            let picked = x.index_select(0, &indices([1, bad]));
            (&picked * 2.0).to_vec::<f32>()
        });
        results.collect::<Vec<_>>()
    };
    let (good, bad) = thread::scope(|s| {
        let (good, bad) = (s.spawn(|| work(0)), s.spawn(|| work(5)));
        (good.join().unwrap(), bad.join().unwrap())
    });
    good.into_iter().for_each(|found| assert_eq!(found.unwrap(), [4.0, 2.0]));
    bad.into_iter().for_each(is_of_index);
}

/// An operand that is also the target, no elements, and the error of a call that does not fit, run
/// on the device.
#[test]
fn calls_in_place_need_no_host() {
    with_host_fallback(HostFallback::Refuse, || {
        let x = there([1.0, 2.0]);
        x.mul_(&x);
        assert_eq!(x.to_vec::<f32>().unwrap(), [1.0, 4.0]);
        assert_eq!(x.to_dtype(DType::F64).to_vec::<f64>().unwrap(), [1.0, 4.0]);
        assert_eq!(x.to_device(Device::test(0)).to_vec::<f32>().unwrap(), [1.0, 4.0]);
        let empty = Tensor::zeros([0], DType::F32).to_device(DEVICE);
        empty.add_(1.0).ok().unwrap();
        let integers = indices([1, 2]);
        let e = integers.add_(1.5).ok().cloned().unwrap_err();
        let here = Tensor::from([1i64, 2]).add_(1.5).ok().cloned().unwrap_err();
        assert_eq!(e.kind().to_string(), here.kind().to_string());
    });
}
