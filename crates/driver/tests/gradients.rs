//! Gradients under trace: forward, backward and the update of parameters as one compiled graph, with
//! the bits of the eager program.

use maquette_driver::compile;
use maquette_ir::DType;
use maquette_ops::autograd::no_grad;
use maquette_ops::func::{grad, value_and_grad, vjp};
use maquette_ops::{Result, Tensor, random};
use maquette_runtime::profile::ProfileOptions;

type Params = (Tensor, Tensor, Tensor);

fn params() -> Params {
    random::manual_seed(7);
    let normal = |sizes: [i64; 2]| Tensor::randn(sizes, DType::F32);
    (normal([5, 8]), normal([1, 8]), normal([8, 3]))
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
        random::manual_seed(batch as u64);
        let (x, y) = (Tensor::randn([batch, 5], DType::F32), Tensor::randn([batch, 3], DType::F32));
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
