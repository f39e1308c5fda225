//! What gradients refuse eagerly is refused while tracing, with the same words.

use maquette_driver::compile;
use maquette_ops::autograd::{AutogradCtx, custom_vjp, no_grad};
use maquette_ops::func::{grad, value_and_grad};
use maquette_ops::{Result, Tensor};

/// The error of a function, eagerly and compiled.
#[track_caller]
fn both(f: impl Fn(Tensor) -> Result<Tensor> + Clone, parts: &[&str]) {
    let x = || Tensor::from([1.0f64, 2.0]);
    let eager = f(x()).map(drop).unwrap_err().to_string();
    let compiled = compile(f).call(x()).map(drop).unwrap_err().to_string();
    for part in parts {
        assert!(eager.contains(part), "eagerly: {eager}");
        assert!(compiled.contains(part), "compiled: {compiled}");
    }
}

type Backward = fn(&AutogradCtx, &[Tensor]) -> Result<Vec<Option<Tensor>>>;

/// `3 x` with this derivative, plus `x`: both get the same gradient.
fn shared(backward: Backward) -> impl Fn(Tensor) -> Result<Tensor> + Clone {
    move |x: Tensor| {
        value_and_grad(move |x: Tensor| {
            let y = custom_vjp(std::slice::from_ref(&x), |_, x| Ok(vec![&x[0] * 3.0]), backward);
            (y.map_or_else(Tensor::poison, |y| y[0].clone()) + x).exp().sum()
        })(x)
        .map(|(_, gradient)| gradient)
    }
}

#[test]
fn given_gradients_are_read_only() {
    let parts = ["the derivative of custom_vjp", "a gradient"];
    both(shared(|_, g| Ok(vec![Some(g[0].mul_(100.0))])), &parts);
    both(
        shared(|_, g| {
            g[0].slice(0, 1..).fill_(0.0).ok()?;
            Ok(vec![Some(g[0].clone())])
        }),
        &parts,
    );
    // an error of the write may be discarded
    let compiled = compile(shared(|_, g| {
        let copy = g[0].clone_tensor().mul_(3.0);
        Ok(vec![Some(copy)])
    }));
    assert!(compiled.call(Tensor::from([0.0f64])).is_ok());
}

#[test]
fn panics_of_derivatives_are_errors() {
    both(shared(|_, _| panic!("unlucky")), &["derivative panicked", "unlucky"]);
}

#[test]
fn intermediates_have_no_second_derivative() {
    let f = |x: Tensor| {
        let y = custom_vjp(
            &[x],
            |ctx, x| {
                let y = x[0].exp();
                ctx.save(&(&y * 1.0));
                Ok(vec![y])
            },
            |ctx, g| Ok(vec![Some(&g[0] * &ctx.saved(0)?)]),
        );
        y.map_or_else(Tensor::poison, |y| y[0].sum())
    };
    let first = compile(grad(f)).call(Tensor::from([0.0f64])).unwrap();
    assert_eq!(first.to_vec::<f64>().unwrap(), [1.0]);
    let second = move |x: Tensor| {
        grad(move |x: Tensor| grad(f)(x).map_or_else(Tensor::poison, |g| g.sum()))(x)
    };
    both(second, &["custom_vjp can be differentiated once"]);
}

#[test]
fn views_that_were_made_in_no_grad_are_not_written() {
    let gradient = |f: fn(&Tensor) -> Tensor| {
        move |x: Tensor| {
            grad(move |x: Tensor| {
                let y = &x * 2.0;
                let written = f(&y);
                if written.ok().is_err() { written } else { y.sum() }
            })(x)
        }
    };
    let parts = ["made in `no_grad`"];
    both(gradient(|y| no_grad(|| y.slice(0, 1..)).mul_(3.0)), &parts);
    both(gradient(|y| no_grad(|| y.slice(0, 1..)).unsqueeze(0).mul_(y)), &parts);
    both(gradient(|y| no_grad(|| y.slice(0, 1..).unsqueeze(0)).fill_(3.0)), &parts);
    let buffer = |y: &Tensor| {
        let buffer = y.detach().clone_tensor();
        let view = no_grad(|| buffer.slice(0, 1..));
        view.copy_(&y.slice(0, 1..))
    };
    both(gradient(buffer), &parts);
    let input = |x: Tensor| -> Result<Tensor> {
        let view = no_grad(|| x.slice(0, 1..));
        let w = Tensor::from([1.0f64]);
        let g = grad(move |w: Tensor| view.copy_(&w).sum())(w)?;
        Ok(g)
    };
    both(input, &parts);
}
