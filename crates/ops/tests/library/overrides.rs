//! Kernels that override others, and that are disabled.

use super::{is, one, register_error, result};
use maquette_ir::DType;
use maquette_ops::library::{self, DispatchKey, Kind, Library, get_kernel};
use maquette_ops::{CallError, ErrorKind, RegisterError, Result, Tensor, args, call, custom_op};

#[test]
fn builtin_operators_are_overridden_for_calls_and_methods() {
    let x = Tensor::from([0.5f32, -0.5]);
    let plain = x.expm1().to_vec::<f32>().unwrap();
    let lib = Library::new("aten", Kind::Impl).unwrap();
    lib.impl_("expm1", DispatchKey::Cpu, |x: &Tensor| -> Result<Tensor> {
        Ok(Tensor::from(x.read::<f32>()?.mapv(|v| v + 100.0)))
    })
    .unwrap();
    assert_eq!(x.expm1().to_vec::<f32>().unwrap(), [100.5, 99.5]);
    assert_eq!(
        call("aten::expm1", args![&x]).unwrap()[0].tensor().unwrap().to_vec::<f32>().unwrap(),
        [100.5, 99.5]
    );
    assert_eq!(
        Tensor::fake([3], DType::F32).expm1().sizes_i64().unwrap(),
        [3],
        "the fake rule is still the builtin one"
    );
    let e = lib
        .impl_("expm1", "default", |x: &Tensor, _n: i64| -> Result<Tensor> { Ok(x.clone()) })
        .unwrap_err();
    assert!(matches!(register_error(&e), RegisterError::SchemaMismatch { .. }), "{e}");
    drop(lib);
    assert_eq!(x.expm1().to_vec::<f32>().unwrap(), plain);
    // a number stands for a tensor in a builtin operator's call; a kernel is given a tensor without
    // dimensions
    let lib = Library::new("aten", Kind::Impl).unwrap();
    lib.impl_("atan2", "cpu", |_: &Tensor, y: &Tensor| -> Result<Tensor> {
        Ok(one(y.dim() as f32))
    })
    .unwrap();
    assert_eq!(
        call("aten::atan2", args![&x, 2.0]).unwrap()[0].tensor().unwrap().item::<f32>().unwrap(),
        0.0
    );
}

#[test]
fn a_composite_calls_overriding_kernels_of_its_parts() {
    let (x, w) = (Tensor::from([-1.0f32, 2.0]), one(0.5));
    let prelu = || {
        call("aten::prelu", args![&x, &w]).unwrap()[0].tensor().unwrap().to_vec::<f32>().unwrap()
    };
    assert_eq!(prelu(), [-0.5, 2.0]);
    let lib = Library::new("aten", Kind::Impl).unwrap();
    lib.impl_("_prelu_kernel", "cpu", |_: &Tensor, _: &Tensor| -> Result<Tensor> {
        Ok(Tensor::from([8.0f32, 9.0]))
    })
    .unwrap();
    assert_eq!(prelu(), [8.0, 9.0]);
    drop(lib);
    assert_eq!(prelu(), [-0.5, 2.0]);
}

#[test]
fn an_overriding_kernel_calls_the_former_one() {
    let former = get_kernel("aten::sinh", "cpu").unwrap();
    let expected = one(1.0).sinh().item::<f32>().unwrap();
    let lib = Library::new("aten", Kind::Impl).unwrap();
    let kernel = former.clone();
    lib.impl_("sinh", "cpu", move |x: &Tensor| -> Result<Tensor> {
        if x.item::<f32>()? < 0.0 {
            Ok(one(-42.0))
        } else {
            kernel.call(args![x])?[0].tensor().cloned()
        }
    })
    .unwrap();
    assert_eq!((result_of("aten::sinh", -1.0), result_of("aten::sinh", 1.0)), (-42.0, expected));
    let newest = get_kernel("aten::sinh", DispatchKey::Cpu).unwrap();
    assert_eq!(
        newest.call(args![one(-1.0)]).unwrap()[0].tensor().unwrap().item::<f32>().unwrap(),
        -42.0
    );
    assert!(
        newest.call(args![Tensor::fake([1], DType::F32)]).is_err() && newest.call(args![]).is_err()
    );
    drop(lib);
    let e = newest.call(args![one(-1.0)]).unwrap_err();
    assert!(
        matches!(e.kind(), ErrorKind::Call(CallError::Gone { .. }))
            && e.to_string().contains("overrides.rs"),
        "{e}"
    );
    assert!(former.call(args![one(1.0)]).is_ok());
    for (op, key) in [("aten::sinh", "cuda"), ("aten::sinh", "default"), ("lib_none::f", "cpu")] {
        assert!(get_kernel(op, key).is_err(), "{op} {key}");
    }
}

fn result_of(name: &str, x: f32) -> f32 {
    call(name, args![one(x)]).unwrap()[0].tensor().unwrap().item().unwrap()
}

#[test]
fn a_kernel_that_mutates_is_called_under_the_contract_and_counted_once() {
    let op = custom_op("lib_kernel::inc")
        .arg_names(["x"])
        .kernel(|x: &mut Tensor| -> Result<()> {
            x.write::<f32>()?.mapv_inplace(|v| v + 1.0);
            Ok(())
        })
        .register()
        .unwrap();
    let former = get_kernel("lib_kernel::inc", "cpu").unwrap();
    let lib = Library::new("lib_kernel", Kind::Impl).unwrap();
    lib.impl_("inc", "cpu", move |x: &mut Tensor| -> Result<()> {
        former.call(args![&*x])?;
        former.call(args![&*x]).map(drop)
    })
    .unwrap();
    let x = one(0.0);
    let before = x.version();
    op.call(args![&x]).unwrap();
    assert_eq!((x.item::<f32>().unwrap(), x.version()), (2.0, before + 1));
}

#[test]
fn fallthrough_goes_on_to_the_next_candidate() {
    library::define("lib_fall::f", "(Tensor x) -> Tensor").unwrap();
    let default = Library::new("lib_fall", Kind::Impl).unwrap();
    default.impl_("f", "default", is(1.0)).unwrap();
    let device = Library::new("lib_fall", Kind::Impl).unwrap();
    device.impl_("f", "cpu", is(2.0)).unwrap();
    assert_eq!(result("lib_fall::f").unwrap(), 2.0);
    let through = Library::new("lib_fall", Kind::Impl).unwrap();
    through.impl_fallthrough("f", "cpu").unwrap();
    assert_eq!(result("lib_fall::f").unwrap(), 1.0);
    through.impl_fallthrough("f", "default").unwrap();
    assert!(result("lib_fall::f").is_err());
    assert!(through.impl_fallthrough("f", "meta").is_err());
    drop(through);
    assert_eq!(result("lib_fall::f").unwrap(), 2.0);

    let plain = result_of("aten::cosh", 0.0);
    let (over, through) =
        (Library::new("aten", Kind::Impl).unwrap(), Library::new("aten", Kind::Impl).unwrap());
    over.impl_("cosh", "cpu", is(9.0)).unwrap();
    through.impl_fallthrough("cosh", "cpu").unwrap();
    assert_eq!(result_of("aten::cosh", 0.0), plain);
    drop(through);
    assert_eq!(result_of("aten::cosh", 0.0), 9.0);
}

#[test]
fn kernels_are_disabled_for_a_while() {
    let op = custom_op("lib_switch::f")
        .schema("(Tensor x) -> Tensor")
        .kernel(is(1.0))
        .register()
        .unwrap();
    assert!(op.set_kernel_enabled("cpu", false).is_err(), "it has no cpu kernel");
    op.register_kernel("cpu", is(2.0)).unwrap();
    let now = || result("lib_switch::f").unwrap();
    assert_eq!(now(), 2.0);
    {
        let _off = op.set_kernel_enabled("cpu", false).unwrap();
        assert_eq!(now(), 1.0);
        {
            let _on = op.set_kernel_enabled(DispatchKey::Cpu, true).unwrap();
            assert_eq!(now(), 2.0);
            let _off = op.set_kernel_enabled("cpu", false).unwrap();
            assert_eq!(now(), 1.0);
        }
        assert_eq!(now(), 1.0);
        let lib = Library::new("lib_switch", Kind::Impl).unwrap();
        lib.impl_("f", "cpu", is(3.0)).unwrap();
        assert_eq!(now(), 1.0, "what is registered meanwhile is disabled too");
        assert!(
            op.registrations().iter().any(|r| r.contains("disabled")),
            "{:?}",
            op.registrations()
        );
    }
    assert_eq!(now(), 2.0);

    let only = custom_op("lib_switch::g")
        .schema("(Tensor x) -> Tensor")
        .device_types(["cpu"])
        .kernel(is(1.0))
        .register()
        .unwrap();
    let lib = Library::new("lib_switch", Kind::Impl).unwrap();
    lib.impl_("g", "cpu", is(2.0)).unwrap();
    let _off = only.set_kernel_enabled("cpu", false).unwrap();
    assert_eq!(result("lib_switch::g").unwrap(), 1.0, "the kernel that came with the definition");
    assert!(
        only.set_kernel_enabled("default", false).is_err()
            && only.set_kernel_enabled("gpu", false).is_err()
    );
}

#[test]
fn a_change_of_registrations_begins_a_generation() {
    let op = custom_op("overrides::generations")
        .kernel(|x: &Tensor| -> Result<Tensor> { Ok(x.clone_tensor()) })
        .register()
        .unwrap();
    let other = maquette_ops::Op::find("aten::i0").unwrap();
    let (before, defined) = (library::generation(), op.changed_at());
    assert!(0 < defined && defined <= before);
    let lib = Library::new("overrides", Kind::Impl).unwrap();
    lib.impl_("generations", "cpu", |x: &Tensor| -> Result<Tensor> { Ok(x.clone_tensor()) })
        .unwrap();
    let overridden = op.changed_at();
    assert!(before < overridden && overridden <= library::generation());
    drop(lib);
    assert!(overridden < op.changed_at());
    // the first use of a builtin operator is no change
    assert_eq!(other.changed_at(), 0);
}
