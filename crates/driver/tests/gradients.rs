//! Gradients under trace: forward, backward and the update of parameters as one compiled graph,
//! with the bits of the eager program.

use maquette_driver::{Stance, compile};
use maquette_ir::DType;
use maquette_ops::autograd::{self, BackwardOptions, checkpoint, no_grad};
use maquette_ops::func::{grad, value_and_grad, vjp};
use maquette_ops::random::{Philox, apart};
use maquette_ops::{Error, Result, Tensor, Tree};
use maquette_runtime::profile::ProfileOptions;

type Params = (Tensor, Tensor, Tensor);

fn params() -> Params {
    let normal = |sizes: [i64; 2]| Tensor::randn(sizes, DType::F32);
    apart(&mut Philox { seed: 7, offset: 0 }, || (normal([5, 8]), normal([1, 8]), normal([8, 3])))
}

fn copy((w1, b1, w2): &Params) -> Params {
    (w1.clone_tensor(), b1.clone_tensor(), w2.clone_tensor())
}

/// The mean of squares of a network of two layers.
fn loss((w1, b1, w2): &Params, x: &Tensor, y: &Tensor) -> Tensor {
    let h = (x.mm(w1) + b1).relu();
    let difference = h.mm(w2) - y;
    (&difference * &difference).sum() * (1.0 / 12.0)
}

fn bits(t: &Tensor) -> Vec<u32> {
    t.to_vec::<f32>().expect("real").into_iter().map(f32::to_bits).collect()
}

/// A step of gradient descent: writes the parameters.
fn step((params, x, y): (Params, Tensor, Tensor)) -> Result<Tensor> {
    let of = |p: Params| loss(&p, &x, &y);
    let (value, (g1, g2, g3)) = value_and_grad(of)(params.clone())?;
    no_grad(|| {
        for (p, g) in [(&params.0, &g1), (&params.1, &g2), (&params.2, &g3)] {
            p.sub_(&(g * 0.1)).ok()?;
        }
        Ok(value)
    })
}

#[test]
fn a_training_step_compiles_with_the_bits_of_the_eager_one() {
    let eager = params();
    let compiled = copy(&eager);
    let run = compile(step);
    for batch in [4i64, 4, 6, 1] {
        let normal = |size| Tensor::randn([batch, size], DType::F32);
        let mut random = Philox { seed: batch as u64, offset: 0 };
        let (x, y) = apart(&mut random, || (normal(5), normal(3)));
        let expected = step((eager.clone(), x.clone(), y.clone())).unwrap();
        let found = run.call((compiled.clone(), x, y)).unwrap();
        assert_eq!(bits(&found), bits(&expected));
        for (a, b) in [(&eager.0, &compiled.0), (&eager.1, &compiled.1), (&eager.2, &compiled.2)] {
            assert_eq!(bits(a), bits(b));
        }
    }
}

#[test]
fn gradients_have_the_structure_of_the_inputs() {
    let f = |(x, w): (Tensor, Vec<Tensor>)| (&x * &w[0]).sum() + w[1].sum();
    let x = Tensor::from([2.0f64, 3.0]);
    let index = Tensor::from([1i64]);
    let w = vec![Tensor::from([5.0f64, 7.0]), Tensor::from([1.0f64]), index];
    let (dx, dw) = grad(f)((x.clone(), w)).unwrap();
    assert_eq!(dx.to_vec::<f64>().unwrap(), [5.0, 7.0]);
    assert_eq!(dw[0].to_vec::<f64>().unwrap(), [2.0, 3.0]);
    assert_eq!(dw[1].to_vec::<f64>().unwrap(), [1.0]);
    assert_eq!(dw[2].to_vec::<i64>().unwrap(), [0]);
    assert!(!x.requires_grad() && x.grad().is_none());
}

#[test]
fn a_weighted_gradient() {
    let x = Tensor::from([1.0f64, 2.0]);
    let (value, pull) = vjp(|x: Tensor| &x * &x, x).unwrap();
    assert_eq!(value.to_vec::<f64>().unwrap(), [1.0, 4.0]);
    assert_eq!(pull(Tensor::from([1.0f64, 10.0])).unwrap().to_vec::<f64>().unwrap(), [2.0, 40.0]);
}

#[test]
fn second_derivatives_compile() {
    let f = |x: Tensor| x.sin().sum();
    let inner = move |x: Tensor| grad(f)(x).map_or_else(Tensor::poison, |g| g.sum());
    let x = Tensor::from([0.5f64, 2.0]);
    let eager = grad(inner)(x.clone()).unwrap();
    let compiled = compile(grad(inner)).call(x.clone()).unwrap();
    assert_eq!(eager.to_vec::<f64>().unwrap(), compiled.to_vec::<f64>().unwrap());
    for (g, x) in eager.to_vec::<f64>().unwrap().into_iter().zip([0.5f64, 2.0]) {
        assert!((g + x.sin()).abs() < 1e-15);
    }
}

/// A step of gradient descent with momentum: writes the parameters and the moments.
fn momentum_step((params, moments, x, y): (Params, Params, Tensor, Tensor)) -> Result<Tensor> {
    let of = |p: Params| loss(&p, &x, &y);
    let (value, (g1, g2, g3)) = value_and_grad(of)(params.clone())?;
    no_grad(|| {
        let updates = [(&moments.0, &g1), (&moments.1, &g2), (&moments.2, &g3)];
        for (p, (m, g)) in [&params.0, &params.1, &params.2].into_iter().zip(updates) {
            m.mul_(0.9).add_(g).ok()?;
            p.add_alpha_(m, -0.1).ok()?;
        }
        Ok(value)
    })
}

#[test]
fn the_step_of_an_optimizer_is_one_kernel_for_each_parameter() {
    let zeros = |p: &Params| (p.0.zeros_like(), p.1.zeros_like(), p.2.zeros_like());
    let eager = params();
    let compiled = copy(&eager);
    let (eager_moments, moments) = (zeros(&eager), zeros(&compiled));
    let run = compile(momentum_step);
    let (x, y) = (Tensor::randn([4, 5], DType::F32), Tensor::randn([4, 3], DType::F32));
    for _ in 0..3 {
        let state = (eager.clone(), eager_moments.clone(), x.clone(), y.clone());
        let expected = momentum_step(state).unwrap();
        let state = (compiled.clone(), moments.clone(), x.clone(), y.clone());
        assert_eq!(bits(&run.call(state).unwrap()), bits(&expected));
    }
    for ((a, b), (c, d)) in [
        ((&eager.0, &compiled.0), (&eager_moments.0, &moments.0)),
        ((&eager.1, &compiled.1), (&eager_moments.1, &moments.1)),
        ((&eager.2, &compiled.2), (&eager_moments.2, &moments.2)),
    ] {
        assert_eq!(bits(a), bits(b));
        assert_eq!(bits(c), bits(d));
    }
    let options = ProfileOptions::new().warm_up(0).repeat(1);
    let profile = run.profile((compiled, moments, x, y), &options).unwrap();
    let labels: Vec<String> = profile.kernels.iter().map(|k| k.label()).collect();
    assert_eq!(labels.iter().filter(|l| l.ends_with("mul + add + add")).count(), 3, "{labels:?}");
    // the gradients of the matrices, too, are of these kernels
    assert_eq!(labels.iter().filter(|l| *l == "mm + mul + add + add").count(), 2, "{labels:?}");
    assert!(labels.iter().all(|l| !l.contains("copy")), "{labels:?}");
}

/// The error of an eager call, and that of a compiled one, without operators and lines.
fn errors<I: Tree, O: Tree>(f: impl Fn(I) -> O, inputs: impl Fn() -> I) -> (String, String) {
    let text = |e: Error| e.kind().to_string();
    let run = compile(&f);
    run.set_stance(Stance::ForceEager);
    let eager = run.call(inputs()).map(drop).unwrap_err();
    run.set_stance(Stance::Compile);
    (text(eager), text(run.call(inputs()).map(drop).unwrap_err()))
}

#[test]
fn a_captured_tensor_that_is_written_after_a_derivative_reads_it() {
    let w = || Tensor::from([5.0f64]);
    let b = Tensor::from([2.0f64]);
    let after = value_and_grad(|w: Tensor| {
        let y = (&w * &b).sum();
        b.add_(1.0);
        y
    });
    let (eager, compiled) = errors(after, w);
    assert!(eager.contains("which was written at"), "{eager}");
    assert_eq!(compiled, eager);
    let (b, other) = (Tensor::from([2.0f64]), Tensor::from([2.0f64]));
    let before = |b: &Tensor, w: Tensor| {
        b.add_(1.0);
        (&w * b).sum()
    };
    let run = compile(value_and_grad(|w: Tensor| before(&b, w)));
    for _ in 0..2 {
        let (value, gradient) = value_and_grad(|w: Tensor| before(&other, w))(w()).unwrap();
        let found = run.call(w()).unwrap();
        assert_eq!(found.0.to_vec::<f64>().unwrap(), value.to_vec::<f64>().unwrap());
        assert_eq!(found.1.to_vec::<f64>().unwrap(), gradient.to_vec::<f64>().unwrap());
    }
}

#[test]
fn a_checkpoint_that_writes_a_captured_tensor() {
    let b = Tensor::from([2.0f64]);
    let f = value_and_grad(|w: Tensor| {
        let region = checkpoint(|(w, b): (Tensor, Tensor)| {
            b.add_(1.0);
            (&w * &b).sum()
        });
        region((w, b.clone())).unwrap_or_else(Tensor::poison)
    });
    let (eager, compiled) = errors(f, || Tensor::from([5.0f64]));
    assert_eq!(compiled, eager);
}

#[test]
fn an_input_that_is_written_through_another_after_a_derivative_reads_it() {
    let f = |(a, i, j): (Tensor, Tensor, Tensor)| {
        let of = |a: Tensor| {
            let y = a.gather(0, &i).sum();
            j.zero_();
            y
        };
        value_and_grad(of)(a)
    };
    let a = || Tensor::from([1.0f64, 2.0, 3.0]);
    let index = || Tensor::from([0i64, 2, 2]);
    let same = || {
        let i = index();
        (a(), i.clone(), i)
    };
    let (eager, compiled) = errors(f, same);
    assert!(eager.contains("which was written at"), "{eager}");
    assert_eq!(compiled, eager);
    let parts = || {
        let all = Tensor::from([0i64, 1, 2, 0]);
        (a(), all.slice(0, 0..3), all.slice(0, 1..4))
    };
    assert_eq!(errors(f, parts).0, eager);
    assert_eq!(errors(f, parts).1, eager);
    let run = compile(f);
    for _ in 0..2 {
        let (value, gradient) = run.call((a(), index(), index())).unwrap();
        assert_eq!(value.item::<f64>().unwrap(), 7.0);
        assert_eq!(gradient.to_vec::<f64>().unwrap(), [1.0, 0.0, 2.0]);
        assert!(run.call(same()).is_err());
    }
    assert_eq!(run.compilations(), 1);
}

#[test]
fn a_captured_tensor_that_is_written_through_an_input() {
    let i = Tensor::from([0i64, 2, 2]);
    let f = |(a, j): (Tensor, Tensor)| {
        let of = |a: Tensor| {
            let y = a.gather(0, &i).sum();
            j.zero_();
            y
        };
        value_and_grad(of)(a)
    };
    let a = || Tensor::from([1.0f64, 2.0, 3.0]);
    let run = compile(f);
    assert!(run.call((a(), Tensor::from([1i64]))).is_ok());
    assert!(run.call((a(), i.slice(0, 0..1))).is_err());
    assert_eq!(i.to_vec::<i64>().unwrap(), [0, 2, 2]);
    assert!(f((a(), i.slice(0, 0..1))).is_err());
}

/// The derivative of `addcmul_` reads `b`, which the call writes if it shares memory with `a`.
fn written_with_gradients((a, b, c): (Tensor, Tensor, Tensor)) -> Result<(Tensor, Tensor)> {
    let s = Tensor::from([2.0f64]).requires_grad_();
    let kept = &c * 1.0;
    a.addcmul_(&b, &s, 1.0).ok()?;
    let found = autograd::grad(&[a.sum()], &[s], &[None], BackwardOptions::default())?;
    let gradient = found.into_iter().next().flatten();
    Ok((gradient.unwrap_or_else(|| Tensor::from([0.0f64])), kept))
}

#[test]
fn an_operand_in_the_memory_that_a_call_writes() {
    let new = |x: f64| Tensor::from([x, 2.0, 3.0]);
    let with_b = || {
        let x = new(1.0);
        (x.clone(), x, new(4.0))
    };
    let with_c = || {
        let x = new(1.0);
        (x.clone(), new(4.0), x)
    };
    let in_part = || {
        let all = Tensor::from([1.0f64, 2.0, 3.0, 4.0]);
        (all.slice(0, 0..3), all.slice(0, 1..4), new(4.0))
    };
    let apart = || (new(1.0), new(4.0), new(5.0));
    let run = compile(written_with_gradients);
    let calls: [&dyn Fn() -> (Tensor, Tensor, Tensor); 4] = [&apart, &with_c, &with_b, &in_part];
    for inputs in calls.into_iter().chain(calls) {
        let (given, eager_given) = (inputs(), inputs());
        let (gradient, kept) = run.call(given.clone()).unwrap();
        let expected = written_with_gradients(eager_given.clone()).unwrap();
        let numbers = |t: &Tensor| t.to_vec::<f64>().unwrap();
        assert_eq!(numbers(&gradient), numbers(&expected.0));
        assert_eq!(numbers(&kept), numbers(&expected.1));
        assert_eq!(numbers(&given.0), numbers(&eager_given.0.detach()));
        assert_eq!(numbers(&given.1), numbers(&eager_given.1.detach()));
    }
    assert_eq!(run.compilations(), 3);
}

/// Run eagerly, both inputs would be one tensor, and have one history.
#[test]
fn an_input_that_was_written_with_gradients_through_another() {
    let f = |(a, b): (Tensor, Tensor)| -> Result<Tensor> {
        let s = Tensor::from([2.0f64]).requires_grad_();
        a.mul_(&s).ok()?;
        let y = (&a + &b).sum();
        let found = autograd::grad(&[y], &[s], &[None], BackwardOptions::default())?;
        Ok(found.into_iter().next().flatten().unwrap_or_else(|| Tensor::from([0.0f64])))
    };
    let new = || Tensor::from([1.0f64, 2.0]);
    let run = compile(f);
    assert_eq!(run.call((new(), new())).unwrap().to_vec::<f64>().unwrap(), [3.0]);
    let x = new();
    let e = run.call((x.clone(), x.clone())).unwrap_err();
    assert!(e.to_string().contains("f64[2] shares memory with another input"), "{e}");
    assert!(e.loc().is_some_and(|loc| loc.file.ends_with("gradients.rs")), "{e}");
    assert_eq!(f((x.clone(), x)).unwrap().to_vec::<f64>().unwrap(), [6.0]);
    let values = |(a, b): (Tensor, Tensor)| -> Result<Tensor> {
        let s = Tensor::from([2.0f64]).requires_grad_();
        a.mul_(&s).ok()?;
        no_grad(|| b.sum()).ok().cloned()
    };
    let x = new();
    let found = compile(values).call((x.clone(), x)).unwrap();
    assert_eq!(found.to_vec::<f64>().unwrap(), [6.0]);
}
