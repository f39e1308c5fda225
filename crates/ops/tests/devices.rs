//! The device of a call: arguments are on one, but for what PyTorch lets stay on the host; a
//! factory's is named. There need be no GPU: operators are asked for metadata.

use maquette_aten as _;
use maquette_ir::{DType, Device, DeviceKind};
use maquette_ops::library::{Kind, Library};
use maquette_ops::{
    Args, CallError, ErrorKind, FakeCtx, IntoDims, Meta, Outputs, Result, Tensor, args, call,
    call_kw, kwargs,
};

fn on(device: Device, sizes: impl IntoDims) -> Tensor {
    Tensor::fake_of(Meta::contiguous(sizes, DType::F32).on(device))
}

fn cuda(sizes: impl IntoDims) -> Tensor {
    on(Device::cuda(0), sizes)
}

fn host(sizes: impl IntoDims) -> Tensor {
    Tensor::fake(sizes, DType::F32)
}

/// Calls are refused, and the error names the operator, both arguments and both devices.
fn refused(name: &str, out: Result<Outputs>, first: (&str, Device), second: (&str, Device)) {
    let e = out.unwrap_err();
    match e.kind() {
        ErrorKind::Call(CallError::MixedDevices { first_arg, first: d, second_arg, second: f }) => {
            assert_eq!(
                ((first_arg.as_str(), *d), (second_arg.as_str(), *f)),
                (first, second),
                "{name}"
            );
        }
        _ => panic!("{name}: {e}"),
    }
    assert_eq!(e.op(), Some(name), "{e}");
    assert!(e.to_string().contains("devices.rs"), "the caller's line: {e}");
}

/// The device of a call's result.
fn device(out: Result<Outputs>) -> Device {
    out.unwrap()[0].tensor().unwrap().device()
}

#[test]
fn arguments_of_a_custom_operator_are_on_one_device() {
    let lib = Library::new("mixed", Kind::Def).unwrap();
    lib.define("f(Tensor x, Tensor? y, Tensor[] zs) -> Tensor", &[]).unwrap();
    let kernel = |x: &Tensor, _: Option<&Tensor>, _: &[Tensor]| -> Result<Tensor> {
        Tensor::from(x.to_vec::<f32>()?).ok().cloned()
    };
    lib.impl_("f", "default", kernel).unwrap();
    let fake = |_: &FakeCtx, x: &Tensor, _: Option<&Tensor>, _: &[Tensor]| -> Result<Tensor> {
        Ok(x.new_empty(x.sizes(), x.dtype()))
    };
    lib.register_fake("f", fake).unwrap();
    let f = |a: Args| call("mixed::f", a);
    let none = Vec::<Tensor>::new;
    let (gpu, other, cpu) = (Device::cuda(0), Device::cuda(1), Device::Cpu);
    refused("mixed::f", f(args![cuda([2]), host([2]), none()]), ("x", gpu), ("y", cpu));
    refused(
        "mixed::f",
        f(args![host([2]), (), [host([2]), cuda([2])]]),
        ("x", cpu),
        ("zs[1]", gpu),
    );
    refused("mixed::f", f(args![cuda([2]), on(other, [2]), none()]), ("x", gpu), ("y", other));
    refused(
        "mixed::f",
        f(args![cuda([2]), Tensor::from([1.0f32]), none()]),
        ("x", gpu),
        ("y", cpu),
    );
    refused(
        "mixed::f",
        f(args![Tensor::from([1.0f32]), on(Device::Meta, [1]), none()]),
        ("x", cpu),
        ("y", Device::Meta),
    );
    // a kernel that knows of one device reads no numbers of another
    refused("mixed::f", f(args![cuda([2]), host([0i64; 0]), none()]), ("x", gpu), ("y", cpu));
    assert_eq!(device(f(args![cuda([2]), cuda([3]), [cuda([4])]])), gpu);
    assert_eq!(device(f(args![Tensor::from([1.0f32]), (), none()])), cpu);
}

#[test]
fn arguments_of_a_builtin_operator_are_on_one_device() {
    let (gpu, cpu) = (Device::cuda(0), Device::Cpu);
    refused(
        "aten::add.Tensor",
        call("aten::add.Tensor", args![cuda([3]), host([3])]),
        ("self", gpu),
        ("other", cpu),
    );
    refused(
        "aten::mm",
        call("aten::mm", args![host([3, 3]), cuda([3, 3])]),
        ("self", cpu),
        ("mat2", gpu),
    );
    refused(
        "aten::cat",
        call("aten::cat", args![[cuda([3]), cuda([3]), host([3])]]),
        ("tensors[0]", gpu),
        ("tensors[2]", cpu),
    );
    refused(
        "aten::gather",
        call("aten::gather", args![cuda([3]), 0, Tensor::fake([3], DType::I64)]),
        ("self", gpu),
        ("index", cpu),
    );
    refused(
        "aten::add_.Tensor",
        call("aten::add_.Tensor", args![cuda([3]), host([3])]),
        ("self", gpu),
        ("other", cpu),
    );
    // a composite says so of the part that met them, in the name of the whole
    let e = call("aten::linear", args![cuda([2, 3]), host([4, 3])]).unwrap_err();
    assert!(
        e.op() == Some("aten::linear")
            && matches!(e.kind(), ErrorKind::Call(CallError::MixedDevices { .. })),
        "{e}"
    );
}

#[test]
fn numbers_on_the_host_meet_pointwise_operators_of_any_device() {
    let number = || host([0i64; 0]);
    let gpu = Device::cuda(0);
    for a in
        [args![cuda([3]), number()], args![number(), cuda([3])], args![number(), cuda([0i64; 0])]]
    {
        assert_eq!(device(call("aten::add.Tensor", a)), gpu);
    }
    assert_eq!(
        device(call(
            "aten::where.self",
            args![Tensor::fake([3], DType::Bool).to_device(gpu), number(), cuda([3])]
        )),
        gpu
    );
    assert_eq!(device(call("aten::mul_.Tensor", args![cuda([3]), number()])), gpu);
    let written = call("aten::add_.Tensor", args![number(), cuda([0i64; 0])]);
    refused("aten::add_.Tensor", written, ("self", Device::Cpu), ("other", gpu));
    let product = call("aten::dot", args![cuda([3]), number()]);
    refused("aten::dot", product, ("self", gpu), ("tensor", Device::Cpu));
}

#[test]
fn copies_and_indices_come_from_the_host() {
    let gpu = Device::cuda(0);
    assert_eq!(device(call("aten::copy_", args![host([3]), cuda([3])])), Device::Cpu);
    assert_eq!(device(call("aten::copy_", args![cuda([3]), host([3])])), gpu);
    assert_eq!(device(call("aten::copy", args![host([3]), cuda([3])])), Device::Cpu);
    assert_eq!(host([3]).to_device(gpu).device(), gpu);
    assert_eq!(device(call("aten::type_as", args![host([3]), cuda([1])])), gpu);
    let index = || [Tensor::fake([2], DType::I64)];
    assert_eq!(device(call("aten::index.Tensor", args![cuda([3]), index()])), gpu);
    let elsewhere = call(
        "aten::index.Tensor",
        args![host([3]), [Tensor::fake([2], DType::I64).to_device(gpu)]],
    );
    assert!(matches!(
        elsewhere.unwrap_err().kind(),
        ErrorKind::Call(CallError::MixedDevices { .. })
    ));
}

#[test]
fn a_factory_is_on_the_device_it_is_asked_for() {
    let lib = Library::new("mixed_factory", Kind::Def).unwrap();
    lib.define("make(int n, *, Device? device=None) -> Tensor", &[]).unwrap();
    for (key, value) in [("cpu", 1.0f32), ("cuda", 2.0)] {
        lib.impl_("make", key, move |_: i64, _: Option<Device>| -> Result<Tensor> {
            Ok(Tensor::from([value]))
        })
        .unwrap();
    }
    let made = |kwargs| call_kw("mixed_factory::make", args![1], kwargs);
    let value = |out: Result<Outputs>| out.unwrap()[0].tensor().unwrap().item::<f32>().unwrap();
    assert_eq!((value(made(kwargs![])), value(made(kwargs![device = Device::Cpu]))), (1.0, 1.0));
    // the kernel for the device was chosen, and what it made is not there
    let e = made(kwargs![device = Device::cuda(1)]).unwrap_err();
    assert!(
        matches!(
            e.kind(),
            ErrorKind::Call(CallError::ReturnDevice { expected, .. })
                if *expected == Device::cuda(1)
        ),
        "{e}"
    );
    let e = made(kwargs![device = Device::new(DeviceKind::Xpu, 0)]).unwrap_err();
    assert!(
        matches!(e.kind(), ErrorKind::Call(CallError::NoKernel { device: DeviceKind::Xpu, .. })),
        "{e}"
    );
    assert_eq!(
        device(call_kw("aten::empty.memory_format", args![[2i64]], kwargs![device = Device::Meta])),
        Device::Meta
    );
}

#[test]
fn an_operator_with_neither_tensors_nor_a_device_runs_its_default_kernel() {
    let lib = Library::new("mixed_neither", Kind::Def).unwrap();
    lib.define("seven() -> int", &[]).unwrap();
    lib.impl_("seven", "default", || -> Result<i64> { Ok(7) }).unwrap();
    assert_eq!(call("mixed_neither::seven", args![]).unwrap()[0].int_i64().unwrap(), 7);
    assert!(
        lib.impl_("seven", "cuda", || -> Result<i64> { Ok(8) }).is_err(),
        "nothing would choose it"
    );
    // a list of tensors may be empty: then there is no device either, and the host's kernel runs
    lib.define("count(Tensor[] xs) -> int", &[]).unwrap();
    lib.impl_("count", "cpu", |xs: &[Tensor]| -> Result<i64> { Ok(xs.len() as i64) }).unwrap();
    assert_eq!(
        call("mixed_neither::count", args![Vec::<Tensor>::new()]).unwrap()[0].int_i64().unwrap(),
        0
    );
}
