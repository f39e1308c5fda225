//! Operators whose registrations change between two calls.

use super::*;
use maquette_ops::library::{Kind, Library};
use maquette_ops::{FakeCtx, Op, args, custom_op};
use std::sync::OnceLock;

#[test]
fn an_override_compiles_again() {
    // an operator of this test alone, since tests run at the same time
    let f = compile(|x: Tensor| x.erfc() + 1.0);
    let plain = f.call(arange(2)).unwrap().to_vec::<f32>().unwrap();
    f.call(arange(2)).unwrap();
    assert_eq!(f.compilations(), 1);
    let library = Library::new("aten", Kind::Impl).unwrap();
    let kernel = |x: &Tensor| -> Result<Tensor> { Ok(Tensor::zeros(x.sizes(), x.dtype())) };
    library.impl_("special_erfc", "cpu", kernel).unwrap();
    library.impl_("erfc", "cpu", kernel).unwrap();
    assert_eq!(f.call(arange(2)).unwrap().to_vec::<f32>().unwrap(), [1.0, 1.0]);
    assert_eq!(f.compilations(), 2);
    assert_eq!(f.explain().programs.len(), 1);
    drop(library);
    assert_eq!(f.call(arange(2)).unwrap().to_vec::<f32>().unwrap(), plain);
    assert_eq!((f.compilations(), f.explain().programs.len()), (3, 1));
}

#[test]
fn an_override_of_a_composite_that_was_decomposed() {
    let composite = Op::find("aten::absolute").unwrap();
    assert!(composite.is_composite());
    let f = compile(move |x: Tensor| -> Result<Tensor> {
        Ok(composite.call(args![&x])?[0].tensor()?.clone())
    });
    f.call(arange(2)).unwrap();
    let library = Library::new("aten", Kind::Impl).unwrap();
    let kernel = |x: &Tensor| -> Result<Tensor> { Ok(Tensor::zeros(x.sizes(), x.dtype())) };
    library.impl_("absolute", "cpu", kernel).unwrap();
    assert_eq!(f.call(arange(2)).unwrap().to_vec::<f32>().unwrap(), [0.0, 0.0]);
    assert_eq!(f.compilations(), 2);
}

#[test]
fn a_registration_of_another_operator_compiles_nothing() {
    let f = compile(|x: Tensor| x.relu());
    f.call(arange(2)).unwrap();
    custom_op("compiled::other")
        .kernel(|x: &Tensor| -> Result<Tensor> { Ok(x.clone_tensor()) })
        .register()
        .unwrap();
    f.call(arange(2)).unwrap();
    assert_eq!(f.compilations(), 1);
}

#[test]
fn overrides_do_not_count_towards_the_limit() {
    let op = custom_op("compiled::toggled")
        .kernel(|x: &Tensor| -> Result<Tensor> { Ok(Tensor::zeros(x.sizes(), x.dtype())) })
        .register()
        .unwrap();
    op.register_fake(|_: &FakeCtx, x: &Tensor| -> Result<Tensor> {
        Ok(x.new_empty(x.sizes(), x.dtype()))
    })
    .unwrap();
    let f = CompileOptions::new()
        .recompile_limit(2)
        .compile(move |x: Tensor| op.call(args![&x]).and_then(|out| Ok(out[0].tensor()?.clone())));
    for _ in 0..5 {
        assert_eq!(f.call(arange(1)).unwrap().to_vec::<f32>().unwrap(), [0.0]);
        let library = Library::new("compiled", Kind::Impl).unwrap();
        library
            .impl_("toggled", "cpu", |x: &Tensor| -> Result<Tensor> {
                Ok(Tensor::ones(x.sizes(), x.dtype()))
            })
            .unwrap();
        assert_eq!(f.call(arange(1)).unwrap().to_vec::<f32>().unwrap(), [1.0]);
    }
    assert_eq!((f.compilations(), f.explain().programs.len()), (10, 1));
}

type Step = Compiled<Tensor, Tensor, fn(Tensor) -> Tensor>;
static STATE: OnceLock<Tensor> = OnceLock::new();
static STEP: OnceLock<Step> = OnceLock::new();

/// Passes merge calls of an operator that declares no state.
#[test]
fn a_kernel_reaches_no_hidden_state_through_a_compiled_function() {
    fn step(x: Tensor) -> Tensor {
        STATE.get().map_or_else(|| x.clone(), |state| &x * state.add_(1.0))
    }
    STATE.get_or_init(|| Tensor::zeros([1], DType::F32));
    let f = STEP.get_or_init(|| compile(step as fn(Tensor) -> Tensor));
    let x = || Tensor::from([1.0f32]);
    f.call(x()).unwrap();
    let op = custom_op("compiled::hidden")
        .kernel(|x: &Tensor| -> Result<Tensor> {
            let step = STEP.get().expect("the test has set it");
            Ok(step.call(x.clone_tensor())?.clone_tensor())
        })
        .register()
        .unwrap();
    for stance in [Stance::Compile, Stance::ForceEager] {
        f.set_stance(stance);
        let e = op.call(args![&x()]).unwrap_err().to_string();
        assert!(e.contains("compiled::hidden"), "{stance:?}: {e}");
    }
    assert_eq!(STATE.get().unwrap().to_vec::<f32>().unwrap(), [1.0]);
}

#[test]
fn a_kernel_calls_a_compiled_function_of_its_arguments() {
    let f = compile(|x: Tensor| (x + 1.0).relu());
    let op = custom_op("compiled::of_arguments")
        .kernel(move |x: &Tensor| -> Result<Tensor> { Ok(f.call(x.clone())?.clone_tensor()) })
        .register()
        .unwrap();
    for _ in 0..3 {
        let out = op.call(args![&Tensor::from([-3.0f32, 3.0])]).unwrap();
        assert_eq!(out[0].tensor().unwrap().to_vec::<f32>().unwrap(), [0.0, 4.0]);
    }
}
