//! Registrations and their lives: what overrides what, and what comes back.

#[path = "library/overrides.rs"]
mod overrides;

use maquette_aten as _;
use maquette_ir::DType;
use maquette_ops::library::{self, DispatchKey, Kind, Library, Tag, get_kernel};
use maquette_ops::{
    Args, CallError, Effect, ErrorKind, FakeCtx, Op, RegisterError, Result, Tensor, args, call,
    custom_op,
};
use std::sync::Arc;

fn one(x: f32) -> Tensor {
    Tensor::from([x])
}

/// A kernel `(Tensor x) -> Tensor` that says who it is.
fn is(n: f32) -> impl Fn(&Tensor) -> Result<Tensor> + Send + Sync + 'static {
    move |_: &Tensor| -> Result<Tensor> { Ok(one(n)) }
}

/// What a call of `(Tensor x) -> Tensor` gives.
fn result(name: &str) -> Result<f32> {
    call(name, args![one(4.0)])?[0].tensor()?.item()
}

fn register_error(e: &maquette_ops::Error) -> &RegisterError {
    match e.kind() {
        ErrorKind::Register(r) => r,
        other => panic!("not about a registration: {other}"),
    }
}

#[test]
fn a_library_defines_and_implements_while_it_lives() {
    let lib = Library::new("lib_a", Kind::Def).unwrap();
    let op = lib.define("f(Tensor x) -> Tensor", &[Tag::Pointwise]).unwrap();
    assert_eq!(op.schema().unwrap().to_string(), "lib_a::f(Tensor x) -> Tensor");
    assert!(matches!(
        result("lib_a::f").unwrap_err().kind(),
        ErrorKind::Call(CallError::NoKernel { .. })
    ));
    lib.impl_("f", DispatchKey::Cpu, is(1.0)).unwrap();
    assert_eq!(result("lib_a::f").unwrap(), 1.0);
    lib.impl_("lib_a::f", "default", is(2.0)).unwrap();
    assert_eq!(result("lib_a::f").unwrap(), 1.0, "a device's kernel beats the default one");
    drop(lib);
    assert!(matches!(
        result("lib_a::f").unwrap_err().kind(),
        ErrorKind::Call(CallError::Unknown { .. })
    ));
    assert!(op.call(args![one(0.0)]).is_err() && op.schema().is_err());
    let again = Library::new("lib_a", Kind::Def).unwrap();
    again.define("f(Tensor x, Tensor y) -> Tensor", &[]).unwrap();
    assert_eq!(op.schema().unwrap().args.len(), 2, "a handle stays with the name");
}

#[test]
fn one_library_defines_a_namespace() {
    let first = Library::new("lib_once", Kind::Def).unwrap();
    let e = Library::new("lib_once", Kind::Def).unwrap_err();
    assert!(
        matches!(register_error(&e), RegisterError::Namespace { .. })
            && e.to_string().matches("library.rs").count() == 2,
        "{e}"
    );
    let fragment = Library::new("lib_once", Kind::Fragment).unwrap();
    fragment.define("f(Tensor x) -> Tensor", &[]).unwrap();
    assert!(first.define("f(Tensor x) -> Tensor", &[]).is_err());
    drop(first);
    assert!(Op::find("lib_once::f").is_ok(), "what another library defined stays");
    Library::new("lib_once", Kind::Def).unwrap().leak();
    assert!(Library::new("lib_once", Kind::Def).is_err());
    for (namespace, kind) in [
        ("prim", Kind::Fragment),
        ("aten", Kind::Def),
        ("a b", Kind::Impl),
        ("a::b", Kind::Impl),
        ("", Kind::Impl),
    ] {
        assert!(Library::new(namespace, kind).is_err(), "{namespace}");
    }
    assert!(
        Library::new("aten", Kind::Fragment).is_ok()
            && custom_op("prim::f").schema("(Tensor x) -> Tensor").register().is_err()
    );
    let e = Library::new("lib_once", Kind::Impl)
        .unwrap()
        .define("g(Tensor x) -> Tensor", &[])
        .unwrap_err();
    assert!(matches!(register_error(&e), RegisterError::Library { .. }), "{e}");
    assert!(
        fragment.impl_("other::f", "cpu", is(0.0)).is_err()
            && fragment.define("other::g(Tensor x) -> Tensor", &[]).is_err()
    );
}

#[test]
fn the_newest_registration_is_active_and_any_of_them_may_go() {
    library::define("lib_stack::f", "(Tensor x) -> Tensor").unwrap();
    let libs: Vec<Library> =
        (1..=3).map(|_| Library::new("lib_stack", Kind::Impl).unwrap()).collect();
    for (n, lib) in libs.iter().enumerate() {
        lib.impl_("f", "CPU", is(n as f32)).unwrap();
        assert_eq!(result("lib_stack::f").unwrap(), n as f32);
    }
    let [bottom, middle, top] = <[Library; 3]>::try_from(libs).unwrap();
    let text = Op::find("lib_stack::f").unwrap().registrations().join("\n");
    assert_eq!(text.matches("overridden").count(), 2, "{text}");
    drop(middle);
    assert_eq!(result("lib_stack::f").unwrap(), 2.0);
    drop(top);
    assert_eq!(result("lib_stack::f").unwrap(), 0.0);
    let e = bottom.impl_("f", "cpu", is(9.0)).unwrap_err();
    assert!(
        matches!(register_error(&e), RegisterError::DuplicateKernel { .. }),
        "one library, one place, one kernel: {e}"
    );
    library::impl_("lib_stack::f", "cpu", is(7.0)).unwrap();
    assert_eq!(result("lib_stack::f").unwrap(), 7.0);
    assert!(library::impl_("lib_stack::f", "cpu", is(8.0)).is_err());
}

#[test]
fn fakes_and_effects_are_stacks_too() {
    fn sized(n: i64) -> impl Fn(&FakeCtx, &Tensor) -> Result<Tensor> + Send + Sync + 'static {
        move |_: &FakeCtx, x: &Tensor| -> Result<Tensor> { Ok(x.new_empty([n], DType::F32)) }
    }
    let op = library::define("lib_fake::f", "(Tensor x) -> Tensor").unwrap();
    library::register_fake("lib_fake::f", sized(1)).unwrap();
    let size = || {
        op.call(args![Tensor::fake([5], DType::F32)]).unwrap()[0]
            .tensor()
            .unwrap()
            .sizes_i64()
            .unwrap()[0]
    };
    assert_eq!(size(), 1);
    let lib = Library::new("lib_fake", Kind::Impl).unwrap();
    lib.register_fake("f", sized(2)).unwrap();
    lib.register_effect("f", Some(Effect::Ordered)).unwrap();
    assert_eq!((size(), op.effect()), (2, Some(Effect::Ordered)));
    let meta = Library::new("lib_fake", Kind::Impl).unwrap();
    meta.impl_("f", DispatchKey::Meta, |x: &Tensor| -> Result<Tensor> {
        Ok(x.new_empty([3], DType::F32))
    })
    .unwrap();
    meta.register_effect("f", None).unwrap();
    assert_eq!((size(), op.effect()), (3, None), "the key `meta` is the fake kernel");
    drop(meta);
    assert_eq!((size(), op.effect()), (2, Some(Effect::Ordered)));
    drop(lib);
    assert_eq!((size(), op.effect()), (1, None));
}

#[test]
fn a_failed_registration_leaves_nothing_behind() {
    let lib = Library::new("lib_fail", Kind::Def).unwrap();
    assert!(
        lib.define("f(Tensor x -> Tensor", &[]).is_err()
            && lib.define("f(Tensor x) -> ()", &[]).is_err()
    );
    assert!(lib.define("f(Tensor x) -> Tensor", &[Tag::Inplace]).is_err());
    let op = lib.define("f(Tensor x) -> Tensor", &[]).unwrap();
    let before = op.registrations();
    let two = |x: &Tensor, _y: &Tensor| -> Result<Tensor> { Ok(x.clone()) };
    let e = lib.impl_("f", "cpu", two).unwrap_err();
    assert!(matches!(register_error(&e), RegisterError::SchemaMismatch { .. }), "{e}");
    assert!(lib.register_fake("f", |_: &FakeCtx, n: i64| -> Result<i64> { Ok(n) }).is_err());
    assert!(matches!(
        register_error(&lib.impl_("f", "gpu", is(0.0)).unwrap_err()),
        RegisterError::Key { .. }
    ));
    assert_eq!(op.registrations(), before);
    assert!(lib.impl_("f", "cpu", is(0.0)).is_ok());
    assert!(lib.impl_("no_tensor", "cpu", |n: i64| -> Result<i64> { Ok(n) }).is_ok());
    let e = lib.define("no_tensor(int n) -> int", &[]).unwrap_err();
    assert!(matches!(register_error(&e), RegisterError::NoDispatchArgument { .. }), "{e}");
}

#[test]
fn kernels_may_come_before_the_definition() {
    let lib = Library::new("lib_early", Kind::Impl).unwrap();
    lib.impl_("f", "cpu", is(5.0)).unwrap();
    let e = result("lib_early::f").unwrap_err();
    assert!(
        e.to_string().contains("no definition: cpu kernel (")
            && e.to_string().contains("library.rs"),
        "{e}"
    );
    let unresolved: Vec<&str> = library::unresolved().iter().map(Op::name).collect();
    assert!(
        unresolved.contains(&"lib_early::f")
            && !library::all().iter().any(|o| o.name() == "lib_early::f")
    );
    let e = library::define("lib_early::f", "(Tensor x, int n) -> Tensor").unwrap_err();
    assert!(matches!(register_error(&e), RegisterError::SchemaMismatch { .. }), "{e}");
    let def = Library::new("lib_early", Kind::Def).unwrap();
    def.define("f(Tensor x) -> Tensor", &[]).unwrap();
    assert_eq!(result("lib_early::f").unwrap(), 5.0);
    drop(lib);
    assert!(result("lib_early::f").is_err());

    let effectful = Library::new("lib_early", Kind::Fragment).unwrap();
    assert!(matches!(
        register_error(&effectful.define("log(int n) -> ()", &[]).unwrap_err()),
        RegisterError::NoPurpose { .. }
    ));
    effectful.register_effect("log", Some(Effect::Ordered)).unwrap();
    effectful.define("log(int n) -> ()", &[]).unwrap();
    assert!(
        library::register_effect("lib_early::log", None).is_err(),
        "then it would have no purpose"
    );
}

#[test]
fn a_live_operator_is_replaced_only_on_demand_and_wholly() {
    let op =
        custom_op("lib_re::f").schema("(Tensor x) -> Tensor").kernel(is(1.0)).register().unwrap();
    op.register_kernel("cpu", is(2.0)).unwrap();
    let old = get_kernel("lib_re::f", "cpu").unwrap();
    let again = || custom_op("lib_re::f").schema("(Tensor x, int n=0) -> Tensor");
    let two = |_: &Tensor, n: i64| -> Result<Tensor> { Ok(one(n as f32)) };
    let e = again().kernel(two).register().unwrap_err();
    assert!(e.to_string().matches("library.rs").count() == 2, "both lines: {e}");
    again().kernel(two).replace().register().unwrap();
    assert_eq!((result("lib_re::f").unwrap(), op.schema().unwrap().args.len()), (0.0, 2));
    assert!(matches!(
        old.call(args![one(0.0)]).unwrap_err().kind(),
        ErrorKind::Call(CallError::Gone { .. })
    ));
    assert!(
        custom_op("aten::relu")
            .schema("(Tensor x) -> Tensor")
            .kernel(is(0.0))
            .replace()
            .register()
            .is_err()
    );
    assert!(
        custom_op("lib_re::new")
            .schema("(Tensor x) -> Tensor")
            .kernel(is(0.0))
            .replace()
            .register()
            .is_ok()
    );
}

#[test]
fn boxed_kernels_are_checked_by_each_call() {
    let lib = Library::new("lib_boxed", Kind::Def).unwrap();
    lib.define("f(Tensor x, *, int n=2) -> (Tensor, int)", &[]).unwrap();
    lib.impl_boxed(
        "f",
        "cpu",
        Arc::new(|a: &[maquette_ops::Value]| {
            Ok([one(1.0).into(), a[1].clone()].into_iter().collect())
        }),
    )
    .unwrap();
    let out = call("lib_boxed::f", args![one(0.0)]).unwrap();
    assert_eq!(out[1].int_i64().unwrap(), 2);
    let wrong = Library::new("lib_boxed", Kind::Impl).unwrap();
    wrong
        .impl_boxed(
            "f",
            "cpu",
            Arc::new(|_: &[maquette_ops::Value]| Ok(args![1].into_iter().collect())),
        )
        .unwrap();
    let e = call("lib_boxed::f", args![one(0.0)]).unwrap_err();
    assert!(
        matches!(e.kind(), ErrorKind::Call(CallError::ReturnCount { expected: 2, found: 1, .. })),
        "{e}"
    );
}

#[test]
fn a_kernel_may_own_the_library_that_registered_it() {
    let inner = Library::new("lib_owned", Kind::Def).unwrap();
    inner.define("f(Tensor x) -> Tensor", &[]).unwrap();
    inner.impl_("f", "cpu", is(1.0)).unwrap();
    let outer = Library::new("lib_owned", Kind::Impl).unwrap();
    outer
        .impl_("f", "cpu", move |_: &Tensor| -> Result<Tensor> {
            let _kept = &inner;
            Ok(one(2.0))
        })
        .unwrap();
    assert_eq!(result("lib_owned::f").unwrap(), 2.0);
    drop(outer);
    assert!(Op::find("lib_owned::f").is_err());
}

#[test]
#[allow(deprecated)]
fn old_names_still_work() {
    let op = library::define("lib_old::f", "(Tensor x) -> Tensor").unwrap();
    op.impl_abstract(|_: &FakeCtx, x: &Tensor| -> Result<Tensor> {
        Ok(x.new_empty([1], DType::F32))
    })
    .unwrap();
    assert!(
        library::impl_abstract("lib_old::f", |_: &FakeCtx, x: &Tensor| -> Result<Tensor> {
            Ok(x.clone())
        })
        .is_err()
    );
    assert!(op.call(Args::from_iter([Tensor::fake([2], DType::F32).into()])).is_ok());
}
