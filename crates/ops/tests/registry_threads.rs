//! Registrations come and go on many threads while others call.

use maquette_aten as _;
use maquette_ops::library::{Kind, Library, get_kernel};
use maquette_ops::{CallError, ErrorKind, Op, Result, Tensor, args, call};
use std::sync::Barrier;
use std::sync::atomic::{AtomicUsize, Ordering};

const THREADS: usize = 8;
const ROUNDS: usize = 40;

/// The base kernel gives 1000, that of thread `t` gives `t`.
const BASE: f32 = 1000.0;

fn is(n: f32) -> impl Fn(&Tensor) -> Result<Tensor> + Send + Sync + 'static {
    move |_: &Tensor| -> Result<Tensor> { Ok(Tensor::from([n])) }
}

fn value(out: Result<maquette_ops::Outputs>) -> Result<f32> {
    out?[0].tensor()?.item()
}

#[test]
fn registrations_on_many_threads_are_neither_lost_nor_left_behind() {
    let base = Library::new("stress", Kind::Def).unwrap();
    let shared = base.define("shared(Tensor x) -> Tensor", &[]).unwrap();
    let switched = base.define("switched(Tensor x) -> Tensor", &[]).unwrap();
    for op in [shared, switched] {
        base.impl_(op.name(), "default", is(BASE)).unwrap();
    }
    let (start, calls) = (Barrier::new(THREADS), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        for t in 0..THREADS {
            let (start, calls) = (&start, &calls);
            scope.spawn(move || {
                start.wait();
                for round in 0..ROUNDS {
                    one_round(t, shared, calls);
                    one_switch(t, round, switched);
                }
            });
        }
    });
    assert!(calls.load(Ordering::Relaxed) >= THREADS * ROUNDS);
    for op in [shared, switched] {
        assert_eq!(
            value(op.call(args![Tensor::from([0f32])])).unwrap(),
            BASE,
            "all that came have gone"
        );
        assert_eq!(op.registrations().len(), 2, "{:?}", op.registrations());
    }
    for t in 0..THREADS {
        assert!(Op::find(&format!("stress::own{t}")).is_err());
    }
}

fn one_round(t: usize, shared: Op, calls: &AtomicUsize) {
    let x = Tensor::from([0f32]);
    let lib = Library::new("stress", Kind::Fragment).unwrap();
    // an operator of this thread, which others call too
    let own = lib.define(&format!("own{t}(Tensor x) -> Tensor"), &[]).unwrap();
    lib.impl_(own.name(), "cpu", is(t as f32)).unwrap();
    assert_eq!(value(call(own.name(), args![&x])).unwrap(), t as f32);
    match value(call(&format!("stress::own{}", (t + 1) % THREADS), args![&x])) {
        Ok(v) => assert_eq!(v, ((t + 1) % THREADS) as f32),
        Err(e) => assert!(
            matches!(
                e.kind(),
                ErrorKind::Call(CallError::Unknown { .. } | CallError::NoKernel { .. })
            ),
            "{e}"
        ),
    }
    // an operator that all override: the result is that of a live registration
    lib.impl_("shared", "cpu", is(t as f32)).unwrap();
    let kernel = get_kernel("stress::shared", "cpu").unwrap();
    for _ in 0..4 {
        let v = value(shared.call(args![&x])).unwrap();
        assert!(
            (0..THREADS).any(|t| v == t as f32),
            "this thread's own registration hides the default kernel, found {v}"
        );
        calls.fetch_add(1, Ordering::Relaxed);
    }
    match value(kernel.call(args![&x])) {
        Ok(v) => assert!((0..THREADS).any(|t| v == t as f32), "{v}"),
        Err(e) => assert!(matches!(e.kind(), ErrorKind::Call(CallError::Gone { .. })), "{e}"),
    }
    assert!(lib.impl_("shared", "cpu", is(-1.0)).is_err(), "one library, one place");
    drop(lib);
    assert!(own.call(args![&x]).is_err());
}

/// Kernels of others may be disabled at any time, so the default kernel's result is right too.
fn one_switch(t: usize, round: usize, switched: Op) {
    let lib = Library::new("stress", Kind::Impl).unwrap();
    lib.impl_("switched", "cpu", is(t as f32)).unwrap();
    let off = (round % THREADS == t).then(|| switched.set_kernel_enabled("cpu", false).unwrap());
    let v = value(switched.call(args![Tensor::from([0f32])])).unwrap();
    assert!(v == BASE || (0..THREADS).any(|t| v == t as f32), "{v}");
    drop((lib, off));
}
