//! Calls, and what kernels may return.

use super::*;
use maquette::library::{Kind, Library, Tag, define};
use maquette::ops::Meta;

thread_local! {
    /// What a kernel keeps beyond its call.
    static KEPT: std::cell::RefCell<Option<Tensor>> = const { std::cell::RefCell::new(None) };
}

fn replaces(x: &mut Tensor) -> Result<()> {
    *x = self::x();
    Ok(())
}

#[custom_op("err::double", device_types("cpu"))]
fn double(x: &Tensor) -> Result<Tensor> {
    Ok(Tensor::from(x.read::<f32>()?.mapv(|v| 2.0 * v)))
}

#[register_fake(double)]
fn double_fake(cx: &FakeCtx, x: &Tensor) -> Result<Tensor> {
    copy_fake(cx, x)
}

#[custom_op("err::ramp", device_types("cpu"))]
fn ramp(n: i64, device: Device) -> Result<Tensor> {
    let _ = device;
    Ok(Tensor::from((0..n).collect::<Vec<_>>()))
}

#[custom_op("err::pair")]
fn pair(x: &Tensor, y: &Tensor) -> Result<Tensor> {
    Ok(Tensor::from([x.item::<f32>()?, y.item::<f32>()?]))
}

#[register_fake(pair)]
fn pair_fake(_cx: &FakeCtx, x: &Tensor, _y: &Tensor) -> Result<Tensor> {
    Ok(x.new_empty([2], x.dtype()))
}

#[custom_op("err::inc")]
fn inc(x: &mut Tensor) -> Result<()> {
    x.write::<f32>()?.mapv_inplace(|v| v + 1.0);
    Ok(())
}

#[custom_op("err::two")]
fn two(x: &mut Tensor, y: &mut Tensor) -> Result<()> {
    inc(x)?;
    inc(y)
}

/// On a GPU that need not exist: operators are asked for metadata only.
fn cuda(sizes: impl IntoDims) -> Tensor {
    Tensor::fake_of(Meta::contiguous(sizes, DType::F32).on(Device::cuda(0)))
}

pub fn rows() -> Vec<Row> {
    vec![
        fails!("an operator that does not exist", ops::call("err::duoble", args![&x()])),
        fails!(
            "an operator of a crate that is not linked",
            ops::call("elsewhere::op", args![&x()])
        ),
        fails!(
            "an operator of PyTorch's that is not here",
            ops::call("aten::resize_", args![&x()])
        ),
        fails!("no kernel for the device", {
            define("err::only_cuda", "(Tensor x) -> Tensor")?.register_kernel("cuda", copy)?;
            ops::call("err::only_cuda", args![&x()])
        }),
        fails!("a factory without a kernel for the device", ramp(3, Device::cuda(0))),
        fails!("an argument of another type", double::op().call(args![3])),
        fails!("too many arguments", double::op().call(args![&x(), 3])),
        fails!("a missing argument", double::op().call(args![])),
        fails!(
            "an unknown keyword",
            ops::call_kw("err::double", args![&x()], kwargs![scale = 2.0])
        ),
        fails!(
            "an argument by position and by keyword",
            ops::call_kw("err::double", args![&x()], kwargs![x = x()])
        ),
        fails!("no overload that fits", ops::call("aten::add", args![&x(), "two"])),
        fails!("arguments on two devices", pair(&cuda([1]), &Tensor::fake([1], DType::F32))),
        fails!(
            "arguments of a builtin operator on two devices",
            cuda([3]).mm(&Tensor::fake([3, 3], DType::F32))
        ),
        fails!("an output that is an argument", {
            let op = ops::custom_op("err::same")
                .arg_names(["x"])
                .kernel(|x: &Tensor| Ok(x.clone()))
                .register()?;
            op.call(args![&x()])
        }),
        fails!("an output that is a view of an argument", {
            let op = ops::custom_op("err::view")
                .arg_names(["x"])
                .kernel(|x: &Tensor| Ok(x.view([-1])))
                .register()?;
            op.call(args![&x()])
        }),
        fails!("two outputs that are one", {
            let kernel = |x: &Tensor| copy(x).map(|y| (y.clone(), y));
            ops::custom_op("err::both")
                .arg_names(["x"])
                .kernel(kernel)
                .register()?
                .call(args![&x()])
        }),
        fails!("inplace whose kernel returns another tensor", {
            let kernel = |x: &mut Tensor| copy(x);
            ops::custom_op("err::copy_")
                .arg_names(["x"])
                .tags([Tag::Inplace])
                .kernel(kernel)
                .register()?
                .call(args![&x()])
        }),
        fails!("out whose kernel returns another tensor", {
            let kernel = |out: &mut Tensor| copy(out);
            ops::custom_op("err::copy_out")
                .arg_names(["out"])
                .tags([Tag::Out])
                .kernel(kernel)
                .register()?
                .call_kw(args![], kwargs![out = x()])
        }),
        fails!("another number of outputs", {
            let lib = Library::new("err_count", Kind::Def)?;
            lib.define("f(Tensor x) -> (Tensor, Tensor)", &[])?;
            lib.impl_boxed(
                "f",
                "cpu",
                std::sync::Arc::new(|_: &[Value]| Ok(args![x()].into_iter().collect())),
            )?;
            ops::call("err_count::f", args![&x()])
        }),
        fails!("out with an argument that requires grad", {
            let op = ops::custom_op("err::grad")
                .arg_names(["out"])
                .tags([Tag::Out])
                .kernel(inc::kernel)
                .register()?;
            op.call_kw(args![], kwargs![out = Tensor::fake_of(x().meta().clone()).requires_grad_()])
        }),
        without(
            "a view operator with symbolic integers",
            "allowed: a schema may return `Tensor(a)` whatever else it takes",
        ),
        fails!("a write that the schema does not declare", {
            let kernel = |x: &Tensor| inc(&mut x.clone()).and_then(|()| copy(x));
            ops::custom_op("err::sneaky")
                .arg_names(["x"])
                .kernel(kernel)
                .register()?
                .call(args![&x()])
        }),
        fails!("a mutated argument replaced by another tensor", {
            let op =
                ops::custom_op("err::replaces").arg_names(["x"]).kernel(replaces).register()?;
            op.call(args![&x()])
        }),
        fails!("two mutated arguments in one place", {
            let mut t = x();
            two(&mut t.clone(), &mut t)
        }),
        fails!(
            "a mutated argument that overlaps itself",
            inc(&mut Tensor::from([1.0f32]).expand([3]))
        ),
        fails!("a writer while somebody reads", {
            let mut t = x();
            let reader = t.clone();
            let _reading = reader.read::<f32>()?;
            inc(&mut t)
        }),
        fails!("another element type than the kernel reads", double(&Tensor::from([1.0f64]))),
        fails!("an output that the kernel keeps", {
            let kernel = |x: &Tensor| copy(x).inspect(|y| KEPT.set(Some(y.clone())));
            ops::custom_op("err::keeps")
                .arg_names(["x"])
                .kernel(kernel)
                .register()?
                .call(args![&x()])
        }),
        fails!("a tensor that the kernel was not given", {
            let held = x();
            let kernel = move |x: &Tensor| (x + &held).ok().cloned();
            ops::custom_op("err::peeks")
                .arg_names(["x"])
                .kernel(kernel)
                .register()?
                .call(args![&x()])
        }),
        fails!("a kernel that panics", {
            let kernel =
                |x: &Tensor| -> Result<Tensor> { Ok(Tensor::from([x.to_vec::<f32>()?[3]])) };
            ops::custom_op("err::panics")
                .arg_names(["x"])
                .kernel(kernel)
                .register()?
                .call(args![&x()])
        }),
        fails!("a fake kernel that panics", {
            let op = define("err::fake_panics", "(Tensor x) -> Tensor")?;
            op.register_fake(|_: &FakeCtx, x: &Tensor| Ok(x.new_empty([x.sizes()[1]], x.dtype())))?;
            op.call(args![&Tensor::fake([3], DType::F32)])
        }),
        fails!("a list nested too deeply", {
            let deep = (0..9).fold(Value::None, |inner, _| Value::List([inner].into()));
            double::op().call(args![deep])
        }),
    ]
}
