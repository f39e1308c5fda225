//! Checkpoints: the gradients, random numbers and errors of the program without them, with what it
//! saves computed again.

use maquette_aten as _;
use maquette_ir::DType;
use maquette_ops::autograd::{BackwardOptions, checkpoint, grad, no_grad};
use maquette_ops::{Op, Result, Tensor, args, autocast, custom_op, random};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

fn values(t: &Tensor) -> Vec<f64> {
    t.to_vec::<f64>().unwrap()
}

fn leaf<const N: usize>(x: [f64; N]) -> Tensor {
    Tensor::from(x).requires_grad_()
}

fn gradient(t: &Tensor) -> Vec<u64> {
    values(&t.grad().expect("a gradient")).into_iter().map(f64::to_bits).collect()
}

/// An operator that counts its calls.
fn counted(name: &str) -> (Op, Arc<AtomicUsize>) {
    let calls = Arc::new(AtomicUsize::new(0));
    let count = calls.clone();
    let kernel = move |x: &Tensor| -> Result<Tensor> {
        count.fetch_add(1, Ordering::Relaxed);
        Ok(Tensor::from(x.read::<f64>()?.mapv(f64::exp)))
    };
    let op = custom_op(name).kernel(kernel).register().unwrap();
    op.register_autograd_with(
        |ctx, _, outputs| {
            ctx.save(outputs[0].tensor()?);
            Ok(())
        },
        |ctx, grads| Ok(vec![Some(&grads[0] * &ctx.saved(0)?)]),
    )
    .unwrap();
    (op, calls)
}

fn call(op: Op, x: &Tensor) -> Tensor {
    match op.call(args![x]) {
        Ok(out) => out[0].tensor().cloned().unwrap_or_else(Tensor::poison),
        Err(e) => Tensor::poison(e),
    }
}

#[test]
fn the_sweep_runs_the_function_again() {
    let (op, calls) = counted("checkpoint_test::exp");
    let f = move |x: Tensor| (call(op, &(&x * 0.5)).sin() * &x).sum();
    let (x, expected) = (leaf([0.5, 1.5]), leaf([0.5, 1.5]));
    f(expected.clone()).backward().unwrap();
    assert_eq!(calls.swap(0, Ordering::Relaxed), 1);
    let y = checkpoint(f)(x.clone()).unwrap();
    assert_eq!(calls.load(Ordering::Relaxed), 1);
    y.backward().unwrap();
    assert_eq!(calls.load(Ordering::Relaxed), 2);
    assert_eq!(gradient(&x), gradient(&expected));
    let e = y.backward().unwrap_err().to_string();
    assert!(e.contains("retain_graph"), "{e}");
    // without gradients there is nothing to keep, and nothing to compute again
    calls.store(0, Ordering::Relaxed);
    no_grad(|| checkpoint(f)(x.clone())).unwrap();
    checkpoint(f)(Tensor::from([1.0f64])).unwrap();
    assert_eq!(calls.load(Ordering::Relaxed), 2);
}

#[test]
fn what_is_saved_is_not_kept() {
    // the results of the first run are freed: their memory is there for the second
    let seen = Arc::new(std::sync::Mutex::new(Vec::new()));
    let stored = seen.clone();
    let f = move |x: Tensor| {
        let y = x.exp();
        stored.lock().unwrap().push(Arc::downgrade(y.storage().unwrap()));
        y.sin().sum()
    };
    let alive = |i: usize| seen.lock().unwrap()[i].strong_count() > 0;
    let x = leaf([1.0]);
    let y = f(x.clone());
    assert!(alive(0));
    drop(y);
    let y = checkpoint(f)(x).unwrap();
    assert!(!alive(1));
    y.backward().unwrap();
    assert!(!alive(2));
}

#[test]
fn random_numbers_are_those_of_the_first_run() {
    let f = |x: Tensor| (x.dropout(0.5, true).exp() * Tensor::rand([64], DType::F64)).sum();
    let input = || Tensor::ones([64], DType::F64).requires_grad_();
    let run = |f: &dyn Fn(Tensor) -> Tensor| {
        random::manual_seed(3);
        let x = input();
        let y = f(x.clone());
        let between = values(&Tensor::rand([4], DType::F64));
        y.backward().unwrap();
        (gradient(&x), between, values(&Tensor::rand([4], DType::F64)))
    };
    let checkpointed = checkpoint(f);
    assert_eq!(run(&|x| checkpointed(x).unwrap()), run(&f));
}

#[test]
fn captured_tensors_have_their_gradients() {
    let (w, expected) = (leaf([3.0, 4.0]), leaf([3.0, 4.0]));
    let of = |w: Tensor| move |x: Tensor| ((&x * &w).exp() * &w).sum();
    let x = Tensor::from([0.1f64, 0.2]);
    of(expected.clone())(x.clone()).backward().unwrap();
    checkpoint(of(w.clone()))(x).unwrap().backward().unwrap();
    assert_eq!(gradient(&w), gradient(&expected));
}

#[test]
fn writes_inside_and_views() {
    let f = |x: Tensor| {
        let y = x.exp() * 1.0;
        y.select(0, 1).mul_(3.0);
        (y.sin() * x).sum()
    };
    let (x, expected) = (leaf([0.5, 1.5]), leaf([0.5, 1.5]));
    f(expected.clone()).backward().unwrap();
    checkpoint(f)(x.clone()).unwrap().backward().unwrap();
    assert_eq!(gradient(&x), gradient(&expected));
}

#[test]
fn checkpoints_nest() {
    let inner = || checkpoint(|x: Tensor| x.exp().sin());
    let (a, b) = (inner(), inner());
    let nested = checkpoint(move |x: Tensor| {
        let y = a(x).unwrap_or_else(Tensor::poison);
        b(y.cos()).unwrap_or_else(Tensor::poison).sum()
    });
    let plain = |x: Tensor| x.exp().sin().cos().exp().sin().sum();
    let (x, expected) = (leaf([0.5, 1.5]), leaf([0.5, 1.5]));
    plain(expected.clone()).backward().unwrap();
    nested(x.clone()).unwrap().backward().unwrap();
    assert_eq!(gradient(&x), gradient(&expected));
}

#[test]
fn derivatives_of_higher_order_and_several_sweeps() {
    let f = |x: Tensor| (x.exp() * x.sin()).sum();
    let third = |f: &dyn Fn(Tensor) -> Tensor| {
        let x = leaf([0.7]);
        let options = BackwardOptions { create_graph: true, ..Default::default() };
        let mut y = f(x.clone());
        let mut all = Vec::new();
        for _ in 0..3 {
            y = grad(&[y], std::slice::from_ref(&x), &[], options).unwrap().remove(0).unwrap();
            all.extend(values(&y));
            y = y.sum();
        }
        all
    };
    let checkpointed = checkpoint(f);
    assert_eq!(third(&|x| checkpointed(x).unwrap()), third(&f));
    // a sweep inside of the function
    let inner = |x: Tensor| {
        let options = BackwardOptions { create_graph: true, ..Default::default() };
        let y = x.exp().sum();
        let g = grad(&[y], std::slice::from_ref(&x), &[], options).map(|mut g| g.remove(0));
        g.ok().flatten().map_or_else(|| x.sum(), |g| (g * &x).sum())
    };
    let (x, expected) = (leaf([0.5]), leaf([0.5]));
    inner(expected.clone()).backward().unwrap();
    checkpoint(inner)(x.clone()).unwrap().backward().unwrap();
    assert_eq!(gradient(&x), gradient(&expected));
}

#[test]
fn autocast_is_that_of_the_first_run() {
    let w = Tensor::ones([2, 2], DType::F32);
    let f = move |x: Tensor| x.mm(&w).exp().to_dtype(DType::F32).sum();
    let input = || (Tensor::ones([2, 2], DType::F32) * 0.3).detach().requires_grad_();
    let (x, expected) = (input(), input());
    autocast(DType::BF16, || f(expected.clone())).backward().unwrap();
    let checkpointed = checkpoint(f);
    autocast(DType::BF16, || checkpointed(x.clone())).unwrap().backward().unwrap();
    let of = |t: &Tensor| t.grad().unwrap().to_vec::<f32>().unwrap();
    assert_eq!(of(&x), of(&expected));
}

#[test]
fn what_cannot_be_computed_again_is_refused() {
    let x = Tensor::from([1.0f64]);
    let writes = checkpoint(|x: Tensor| x.mul_(2.0).exp());
    let e = writes(x.clone()).unwrap_err().to_string();
    assert!(e.contains("writes an input") && e.contains("checkpoint.rs:"), "{e}");
    // an input that is written before the sweep
    let x = leaf([1.0, 2.0]);
    let y = &x * 1.0;
    let z = checkpoint(|y: Tensor| y.exp().sum())(y.clone()).unwrap();
    y.mul_(2.0);
    let e = z.backward().unwrap_err().to_string();
    assert!(e.contains("checkpointed function") && e.contains("written"), "{e}");
    // another computation the second time
    let runs = AtomicUsize::new(0);
    let differs = checkpoint(move |x: Tensor| match runs.fetch_add(1, Ordering::Relaxed) {
        0 => x.exp().sum(),
        _ => x.unsqueeze(0).exp().sum(),
    });
    let e = differs(x.clone()).unwrap().backward().unwrap_err().to_string();
    assert!(e.contains("does not compute the same again") && e.contains("f64[1, 2]"), "{e}");
    let runs = AtomicUsize::new(0);
    let less = checkpoint(move |x: Tensor| match runs.fetch_add(1, Ordering::Relaxed) {
        0 => x.exp().sum(),
        _ => x.sum(),
    });
    let e = less(x).unwrap().backward().unwrap_err().to_string();
    assert!(e.contains("the second nothing"), "{e}");
}

/// Positions alone do not tell which call saved a tensor.
#[test]
fn a_second_run_that_saves_more_is_refused() {
    let (x, w) = (leaf([0.5]), Tensor::from([3.0f64]));
    let captured = w.clone();
    let y = checkpoint(move |x: Tensor| (&x * &captured).exp())(x.clone()).unwrap();
    w.requires_grad_().ok().unwrap();
    for _ in 0..2 {
        let e = y.sum().backward().unwrap_err().to_string();
        assert!(e.contains("does not compute the same again") && e.contains("tensors, the"), "{e}");
    }
    assert!(x.grad().is_none() && w.grad().is_none());
}
