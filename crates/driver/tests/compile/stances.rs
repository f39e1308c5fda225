//! Stances, and the recompile limit.

use super::*;
use maquette_ir::sym::SymInt;
use maquette_ops::{autocast, fake};
use std::cell::Cell;

/// A function that counts its calls, which are eager calls and traces.
fn counting<'a>(calls: &'a Cell<usize>) -> impl Fn(Tensor) -> Tensor + use<'a> {
    move |x: Tensor| {
        calls.set(calls.get() + 1);
        x.relu()
    }
}

#[test]
fn force_eager_compiles_nothing() {
    let calls = Cell::new(0);
    let f = CompileOptions::new().stance(Stance::ForceEager).compile(counting(&calls));
    assert_eq!(counts(&f, [4, 5, 4], arange), [0, 0, 0]);
    assert_eq!(calls.get(), 3);
    f.set_stance(Stance::Compile);
    assert_eq!(counts(&f, [4, 4], arange), [1, 1]);
    assert_eq!(calls.get(), 4);
}

#[test]
fn eager_on_recompile_uses_what_there_is() {
    let calls = Cell::new(0);
    let f = compile(counting(&calls));
    f.call(arange(4)).unwrap();
    f.set_stance(Stance::EagerOnRecompile);
    assert_eq!(counts(&f, [4, 4, 5, 5], arange), [1, 1, 1, 1]);
    assert_eq!(calls.get(), 3);
}

/// A program serves neither inputs that require gradients nor calls inside of autocast.
#[test]
fn eager_on_recompile_calls_what_cannot_be_compiled() {
    for stance in [Stance::EagerOnRecompile, Stance::EagerThenCompile] {
        let f = CompileOptions::new().stance(stance).compile(|x: Tensor| x * 2.0);
        let x = Tensor::from([1.0f32, 2.0]).requires_grad_();
        assert!(f.call(x.clone()).unwrap().requires_grad());
        let again = f.call(x);
        assert_eq!(again.is_ok(), stance == Stance::EagerOnRecompile);
        let f = CompileOptions::new().stance(stance).compile(|x: Tensor| x.mm(&x));
        let cast = autocast(DType::BF16, || f.call(Tensor::zeros([2, 2], DType::F32)).unwrap());
        assert_eq!((cast.dtype(), f.compilations()), (DType::BF16, 0));
    }
}

#[test]
fn fail_on_recompile_names_the_guard() {
    let f = CompileOptions::new()
        .stance(Stance::FailOnRecompile)
        .names(["x"])
        .name("model")
        .compile(|x: Tensor| x.relu());
    assert_eq!(counts(&f, [4, 4], arange), [1, 1]);
    insta::assert_snapshot!(text(&err(f.call(arange(5)))), @r"
    `model` would be compiled again, which its stance `FailOnRecompile` forbids:
      - program 0 requires: size 0 of `x` is 4; found 5
      at stances.rs:LINE
    ");
    let branch = |x: Tensor| -> Result<Tensor> {
        Ok(if x.size(0).gt(4).guard()? { x.relu() } else { x + 1.0 })
    };
    let f = CompileOptions::symbolic().names(["x"]).compile(branch);
    f.call(arange(7)).unwrap();
    f.set_stance(Stance::FailOnRecompile);
    insta::assert_snapshot!(text(&err(f.call(arange(2)))), @r"
    `graph` would be compiled again, which its stance `FailOnRecompile` forbids:
      - program 0 requires: `s0 > 4`; found s0 = 2 (required at stances.rs:LINE)
      at stances.rs:LINE
    ");
}

#[test]
fn eager_then_compile_sees_which_sizes_change() {
    let calls = Cell::new(0);
    let f = CompileOptions::new().stance(Stance::EagerThenCompile).compile(counting(&calls));
    assert_eq!(counts(&f, [4, 5, 6, 1], arange), [0, 1, 1, 1]);
    assert_eq!(calls.get(), 2);
}

#[test]
fn the_limit_names_the_guards() {
    let f = CompileOptions::new()
        .static_(0, 0)
        .recompile_limit(3)
        .names(["x"])
        .compile(|x: Tensor| x.relu());
    assert_eq!(counts(&f, [4, 5, 6, 4], arange), [1, 2, 3, 3]);
    insta::assert_snapshot!(text(&err(f.call(arange(7)))), @r"
    `graph` is compiled 3 times already, which is its recompile limit, and none of the programs fits this call:
      - program 0 requires: size 0 of `x` is 4; found 7
      - program 1 requires: size 0 of `x` is 5; found 7
      - program 2 requires: size 0 of `x` is 6; found 7
    make the sizes that vary dynamic from the first call (`CompileOptions::dynamic`), raise the limit (`CompileOptions::recompile_limit`), or call the function eagerly (`Stance::EagerOnRecompile`)
      at stances.rs:LINE
    ");
    assert_eq!(counts(&f, [4, 5, 6], arange), [3, 3, 3]);
    f.set_stance(Stance::EagerOnRecompile);
    for n in 0..1000 {
        f.call(arange(n)).unwrap();
    }
    assert_eq!(f.explain().programs.len(), 3);
}

#[test]
fn an_input_that_is_refused_matches_no_program() {
    let f = compile(|x: Tensor| x.relu());
    f.call(arange(2)).unwrap();
    assert!(f.matches(&arange(2)).unwrap());
    let x = arange(2).requires_grad_().clone();
    assert!(f.call(x.clone()).is_err());
    assert!(!f.matches(&x).unwrap());
    autocast(DType::BF16, || assert!(!f.matches(&arange(2)).unwrap()));
}

#[test]
fn calls_without_data_are_eager() {
    let f = compile(|n: SymInt| Tensor::ones([n], DType::F32));
    assert!(!f.call(3.into()).unwrap().is_fake());
    assert!(fake::without_data(|| f.call(3.into())).unwrap().is_fake());
}
