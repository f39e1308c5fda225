//! Tensors on a device whose memory the host cannot read.

use maquette_aten as _;
use maquette_ir::{DType, Device};
use maquette_ops::library::{Kind, Library};
use maquette_ops::operator::{
    HostFallback, host_fallback_counts, set_host_fallback, with_host_fallback,
};
use maquette_ops::{
    AccessError, CallError, ErrorKind, Result, Tensor, args, call, custom_op, random,
};
use maquette_test_device as _;

const DEVICE: Device = Device::test(0);

fn matrix() -> Tensor {
    Tensor::from([[1.0f32, 2.0, 3.0], [4.0, 5.0, 6.0]])
}

/// The elements of two tensors, which must be on the device and on the host.
fn same(found: &Tensor, expected: &Tensor) {
    assert_eq!((found.device(), expected.device()), (DEVICE, Device::Cpu));
    assert_eq!(found.to_vec::<f32>().unwrap(), expected.to_vec::<f32>().unwrap());
    assert_eq!(format!("{:?}", found.strides()), format!("{:?}", expected.strides()));
}

#[test]
fn a_tensor_goes_there_and_back() {
    let x = matrix();
    let there = x.to_device(DEVICE);
    assert!(!there.shares_storage(&x));
    same(&there, &x);
    let columns = x.t();
    same(&columns.to_device(DEVICE), &columns);
    let back = there.to_device(Device::Cpu);
    assert_eq!(back.read::<f32>().unwrap().as_slice(), Some(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0][..]));
    let number = there.select(0, 0).select(0, 1);
    assert_eq!(number.to_device(Device::Cpu).item::<f32>().unwrap(), 2.0);
    assert_eq!(number.to_device(Device::test(1)).item::<f32>().unwrap(), 2.0);
    let other = there.to_device(Device::test(1));
    assert_eq!(other.device(), Device::test(1));
    assert_eq!(other.to_vec::<f32>().unwrap(), x.to_vec::<f32>().unwrap());
    for dtype in [DType::F64, DType::I32, DType::BF16] {
        let (found, expected) = (there.to_dtype(dtype), x.to_dtype(dtype));
        assert_eq!(
            found.to_string(),
            expected.to_string().replace("dtype=", "device='test:0', dtype=",)
        );
    }
}

#[test]
fn text_and_numbers_are_those_of_the_elements() {
    let x = matrix().to_device(DEVICE);
    assert_eq!(x.to_string(), "tensor([[1., 2., 3.],\n        [4., 5., 6.]], device='test:0')");
    assert_eq!(x.select(0, 1).select(0, 2).item::<f32>().unwrap(), 6.0);
    assert!(format!("{x:?}").contains("[1.0, 2.0"), "{x:?}");
    assert_eq!(x.t().to_array::<f32>().unwrap().shape(), [3, 2]);
    let e = x.read::<f32>().unwrap_err();
    assert!(matches!(e.kind(), ErrorKind::Access(AccessError::Device(DEVICE))), "{e}");
    assert!(e.to_string().contains("second_device.rs"), "{e}");
}

#[test]
fn operators_run_and_are_counted() {
    let (x, there) = (matrix(), matrix().to_device(DEVICE));
    let program = |x: &Tensor| {
        let y = (x * 2.0 + x.t().matmul(x).sum()).relu();
        y.softmax(1) - y.narrow(1, 1, 1)
    };
    same(&program(&there), &program(&x));
    same(&there.select(0, 0).combinations(2, false), &x.select(0, 0).combinations(2, false));
    // Operators that are data run on the device.
    with_host_fallback(HostFallback::Refuse, || {
        same(&program(&there), &program(&x));
        same(&there.cumsum(0), &x.cumsum(0));
        same(&there.clone_tensor().add_(there.select(0, 1)), &(&x + x.select(0, 1)));
    });
    let (square, square_there) = (x.narrow(1, 0, 2), there.narrow(1, 0, 2));
    let refused =
        with_host_fallback(HostFallback::Refuse, || square_there.linalg_inv().ok().cloned());
    let e = refused.unwrap_err();
    assert!(matches!(e.kind(), ErrorKind::Call(CallError::HostFallback { .. })), "{e}");
    assert!(e.to_string().contains("aten::linalg_inv"), "{e}");
    set_host_fallback(HostFallback::Allow);
    same(&square_there.linalg_inv(), &square.linalg_inv());
    let counts = host_fallback_counts();
    assert!(counts.keys().any(|name| name.starts_with("aten::linalg_inv")), "{counts:?}");
}

/// A position that is out of range is found by the thread of the device.
#[test]
fn a_late_error_is_that_of_the_result_and_of_what_depends_on_it() {
    let there = Tensor::from([1.0f32, 2.0]).to_device(DEVICE);
    let index = Tensor::from([0i64, 2]).to_device(DEVICE);
    let picked = there.index_select(0, &index);
    let sum = picked.sum() + 1.0;
    let written = there.clone_tensor();
    // The call is refused if the device has found the error by now.
    let added = written.add_(&picked);
    for t in [&picked, &sum, &added, &picked] {
        let e = t.to_vec::<f32>().unwrap_err();
        assert!(matches!(e.kind(), ErrorKind::Kernel(_)), "{e:?}");
        let text = e.to_string();
        assert!(text.contains("aten::index_select") && text.contains("second_device.rs"), "{e}");
        assert!(text.contains("index 2 is out of bounds for dimension 0 with size 2"), "{e}");
    }
    assert_eq!(there.to_vec::<f32>().unwrap(), [1.0, 2.0]);
    // What covers the memory ends the error.
    written.copy_(&there);
    assert_eq!(written.to_vec::<f32>().unwrap(), [1.0, 2.0]);
    let fine = there.index_select(0, &Tensor::from([1i64]).to_device(DEVICE));
    assert_eq!(fine.to_vec::<f32>().unwrap(), [2.0]);
}

#[test]
fn writes_reach_the_memory_of_the_device_alone() {
    let x = matrix();
    let there = x.to_device(DEVICE);
    let write = |x: &Tensor| {
        x.add_(1.0);
        x.select(1, 0).mul_(10.0);
        x.t().slice(0, 1..2).copy_(&x.slice(0, 0..1).t().slice(0, 2..3));
        x.narrow(1, 2, 1).zero_();
        x.copy_(&x.clone_tensor().flip([1i64]));
    };
    let before = there.clone_tensor();
    let (versions, own) = (there.storage().unwrap().version(), x.storage().unwrap().version());
    write(&x);
    write(&there);
    same(&there, &x);
    same(&before, &matrix());
    let counted = |t: &Tensor, before| t.storage().unwrap().version() - before;
    assert_eq!(counted(&there, versions), counted(&x, own));
    // between the devices
    let host = Tensor::zeros([2, 3], DType::F64);
    host.copy_(&there);
    assert_eq!(host.to_vec::<f64>().unwrap(), x.to_dtype(DType::F64).to_vec::<f64>().unwrap());
    there.copy_(&Tensor::from([7.0f64, 8.0, 9.0]));
    assert_eq!(there.to_vec::<f32>().unwrap(), [7.0, 8.0, 9.0, 7.0, 8.0, 9.0]);
    let e = there.add_(matrix()).ok().unwrap_err();
    assert!(matches!(e.kind(), ErrorKind::Call(CallError::MixedDevices { .. })), "{e}");
    there.ok().unwrap();
}

#[test]
fn views_share_memory_and_overlaps_are_seen() {
    let x = Tensor::from([1.0f32, 2.0, 3.0, 4.0]);
    let there = x.to_device(DEVICE);
    for x in [&x, &there] {
        // the operand overlaps the target
        x.slice(0, 1..4).copy_(&x.slice(0, 0..3));
        assert!(x.slice(0, 1..2).shares_storage(x));
    }
    same(&there, &x);
    let wide = there.slice(0, 0..1).expand([3i64]);
    let e = wide.add_(1.0).ok().unwrap_err();
    let here = x.slice(0, 0..1).expand([3i64]).add_(1.0).ok().unwrap_err();
    assert_eq!(e.kind().to_string(), here.kind().to_string());
}

#[test]
fn random_numbers_are_those_of_the_host() {
    let draw = |device: Device| {
        random::manual_seed(5);
        let x = Tensor::zeros([4], DType::F32).to_device(device);
        let first = x.uniform_(0.0, 1.0).to_vec::<f32>().unwrap();
        // The sequence of the host is another one.
        let of_host = Tensor::zeros([4], DType::F32).uniform_(0.0, 1.0).to_vec::<f32>().unwrap();
        assert_eq!(of_host == first, device != Device::Cpu);
        (first, x.uniform_(0.0, 1.0).to_vec::<f32>().unwrap())
    };
    let (on_host, there) = (draw(Device::Cpu), draw(DEVICE));
    assert_eq!(on_host.0, there.0);
    assert_ne!(there.0, there.1);
}

#[test]
fn custom_operators_have_the_kernel_and_the_rights_of_the_host() {
    let scale = |x: &Tensor, out: &mut Tensor| -> Result<()> {
        let x = x.to_vec::<f32>()?;
        out.write::<f32>()?.iter_mut().zip(x).for_each(|(out, x)| *out = x * 3.0);
        Ok(())
    };
    let op = custom_op("second::scale").schema("(Tensor x, Tensor(a!) out) -> ()");
    op.kernel(scale).register().unwrap();
    let greedy = |x: &Tensor| -> Result<Tensor> {
        let mut x = x.clone();
        x.write::<f32>()?.fill(0.0);
        Ok(x.clone_tensor())
    };
    custom_op("second::greedy").schema("(Tensor x) -> Tensor").kernel(greedy).register().unwrap();
    let lib = Library::new("second_views", Kind::Def).unwrap();
    lib.define("tail(Tensor(a) x) -> Tensor(a)", &[]).unwrap();
    let tail = |x: &Tensor| -> Result<Tensor> { x.slice(0, 1..).ok().cloned() };
    lib.impl_("tail", "cpu", tail).unwrap();
    let x = matrix().to_device(DEVICE);
    let out = Tensor::zeros([3, 2], DType::F32).to_device(DEVICE).t();
    call("second::scale", args![&x, &out]).unwrap();
    assert_eq!(out.to_vec::<f32>().unwrap(), [3.0, 6.0, 9.0, 12.0, 15.0, 18.0]);
    let tail = call("second_views::tail", args![&x.t()]).unwrap();
    let tail = tail[0].tensor().unwrap();
    assert!(tail.shares_storage(&x));
    tail.mul_(2.0);
    assert_eq!(x.to_vec::<f32>().unwrap(), [1.0, 4.0, 6.0, 4.0, 10.0, 12.0]);
    let e = call("second::greedy", args![&x]).unwrap_err();
    let here = call("second::greedy", args![&matrix()]).unwrap_err();
    assert_eq!(e.kind().to_string(), here.kind().to_string());
    x.ok().unwrap();
}

#[test]
fn a_device_that_is_not_there_is_named() {
    let e = matrix().to_device(Device::test(7)).ok().unwrap_err();
    assert!(e.to_string().contains("there is no device test:7: 2 found"), "{e}");
    let e = matrix().to_device(Device::cuda(0)).ok().unwrap_err();
    assert!(matches!(e.kind(), ErrorKind::Access(AccessError::NoAllocator(_))), "{e}");
}
