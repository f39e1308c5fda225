//! States, eager optimizers over leaves, and what is refused.

use maquette_driver::compile;
use maquette_ir::DType;
use maquette_ops::func::value_and_grad;
use maquette_ops::random::{Philox, apart};
use maquette_ops::{Error, Result, Tensor};
use maquette_optim::{Adam, AdamW, Algorithm, Optimizer, RmsProp, Sgd, State, clip_grad_norm};
use std::collections::BTreeMap;

type Params = Vec<Tensor>;

/// A regression with one hidden layer.
fn loss(p: &[Tensor], x: &Tensor, y: &Tensor) -> Tensor {
    let h = (x.mm(&p[0]) + &p[1]).tanh();
    let difference = h.mm(&p[2]) - y;
    (&difference * &difference).mean()
}

fn data() -> (Params, Tensor, Tensor) {
    let normal = |sizes: [i64; 2]| Tensor::randn(sizes, DType::F32);
    apart(&mut Philox { seed: 3, offset: 0 }, || {
        (vec![normal([3, 8]), normal([1, 8]), normal([8, 2])], normal([4, 3]), normal([4, 2]))
    })
}

fn bits(t: &Tensor) -> Vec<u32> {
    t.to_vec::<f32>().expect("real").into_iter().map(f32::to_bits).collect()
}

#[test]
fn a_training_step_is_one_compiled_graph() -> Result<()> {
    let adam = AdamW::new(0.05).weight_decay(0.1).amsgrad(true);
    let step = |(p, s, x, y): (Params, State, Tensor, Tensor)| -> Result<(Tensor, Tensor)> {
        let (loss, grads) = value_and_grad(|p: Params| loss(&p, &x, &y))(p.clone())?;
        let (grads, norm) = clip_grad_norm(&grads, 0.5)?;
        adam.step(&p, &grads, &s)?;
        Ok((loss, norm))
    };
    let (eager, x, y) = data();
    let compiled: Params = eager.iter().map(Tensor::clone_tensor).collect();
    let (state, other) = (adam.init(&eager)?, adam.init(&compiled)?);
    let run = compile(step);
    let mut losses = Vec::new();
    for k in 0..10u32 {
        for s in [&state, &other] {
            s.set_lr(0.05 / f64::from(k + 1))?;
        }
        let (a, norm) = step((eager.clone(), state.clone(), x.clone(), y.clone()))?;
        let (b, same) = run.call((compiled.clone(), other.clone(), x.clone(), y.clone()))?;
        assert_eq!((bits(&a), bits(&norm)), (bits(&b), bits(&same)));
        losses.push(a.item::<f32>()?);
        for (a, b) in eager.iter().zip(&compiled) {
            assert_eq!(bits(a), bits(b));
        }
        for (a, b) in state.moments.iter().zip(&other.moments) {
            assert!(a.tensors.iter().zip(&b.tensors).all(|(a, b)| bits(a) == bits(b)));
        }
    }
    assert!(losses[9] < losses[0], "{losses:?}");
    assert_eq!(run.compilations(), 1, "{}", run.explain());
    Ok(())
}

#[test]
fn leaves_are_updated_by_their_gradients() -> Result<()> {
    let (params, x, y) = data();
    let functional: Params = params.iter().map(Tensor::clone_tensor).collect();
    let sgd = Sgd::new(0.1).momentum(0.9);
    let leaves: Params = params.iter().map(Tensor::requires_grad_).collect();
    let optimizer = Optimizer::new(sgd, &leaves)?;
    let state = sgd.init(&functional)?;
    for _ in 0..3 {
        optimizer.zero_grad()?;
        loss(&leaves, &x, &y).backward()?;
        let norm = optimizer.clip_grad_norm(0.25)?;
        optimizer.step()?;

        let (_, grads) = value_and_grad(|p: Params| loss(&p, &x, &y))(functional.clone())?;
        let (grads, expected) = clip_grad_norm(&grads, 0.25)?;
        sgd.step(&functional, &grads, &state)?;
        assert_eq!(bits(&norm), bits(&expected));
        for (a, b) in leaves.iter().zip(&functional) {
            assert_eq!(bits(a), bits(b));
            assert!(a.requires_grad() && a.is_leaf());
        }
    }
    Ok(())
}

#[test]
fn a_state_is_saved_and_loaded() -> Result<()> {
    let (params, _, _) = data();
    let names = ["fc1.weight", "fc1.bias", "fc2.weight"];
    let adam = Adam::new(0.1);
    let state = adam.init(&params)?;
    let grads: Params = params.iter().map(Tensor::ones_like).collect();
    adam.step(&params, &grads, &state)?;
    let saved: BTreeMap<String, Tensor> = state.named(&names)?.into_iter().collect();
    assert!(saved.contains_key("exp_avg_sq.fc1.bias") && saved.contains_key("step"));

    let other = adam.init(&params)?;
    let get = |name: &str| saved.get(name).cloned().ok_or_else(|| Error::msg(format!("no {name}")));
    other.load(&names, get)?;
    assert_eq!(other.step.item::<f64>()?, 1.0);
    assert_eq!(bits(&other.moments[1].tensors[2]), bits(&state.moments[1].tensors[2]));

    refused(other.named(&names[..2]), "the state is of 3 parameters; found 2 names");
    let wrong = |name: &str| Ok(if name == "lr" { Tensor::from([1.0f32]) } else { get(name)? });
    refused(other.load(&names, wrong), "the saved `lr` is f32[1]; expected f64[]");
    refused(other.load(&["a", "b", "c"], get), "no exp_avg.a");
    Ok(())
}

#[track_caller]
fn refused<T>(found: Result<T>, message: &str) {
    let error = found.map(drop).expect_err("an error").to_string();
    assert!(error.starts_with(message), "{error}\nexpected: {message}");
}

#[test]
fn what_is_refused() -> Result<()> {
    let (params, _, _) = data();
    let sgd = Sgd::new(0.1);
    let state = sgd.init(&params)?;
    refused(
        Sgd::new(-0.1).init(&params),
        "Sgd: `lr` must be a finite number of at least 0; found -0.1",
    );
    refused(
        Sgd::new(f64::NAN).init(&params),
        "Sgd: `lr` must be a finite number of at least 0; found NaN",
    );
    refused(
        Sgd::new(0.1).nesterov(true).init(&params),
        "Sgd: `nesterov` needs a momentum, and a dampening of 0",
    );
    refused(
        Adam::new(0.1).betas(1.0, 0.9).init(&params),
        "Adam: `betas.0` must be at least 0 and below 1; found 1",
    );
    refused(
        RmsProp::new(0.1).alpha(-1.0).step(&params, &params, &state),
        "RmsProp: `alpha` must be",
    );
    refused(sgd.init(&Vec::<Tensor>::new()), "there are no parameters: the tree holds no tensor");
    let integer = (params[0].clone(), vec![Tensor::from([1i64])]);
    refused(sgd.init(&integer), "the parameter `1.0` is i64[1]: only floats are optimized");
    let twice = (params[0].clone(), params[0].clone());
    refused(sgd.init(&twice), "the parameters `0` and `1` are one tensor");

    let fewer: Params = params[..2].to_vec();
    refused(
        sgd.step(&params, &fewer, &state),
        "the gradients do not have the structure of the parameters: expected a list of 3, found a ",
    );
    let map = |name: &str| BTreeMap::from([(name.to_owned(), params[0].clone())]);
    refused(
        sgd.step(&map("a"), &map("b"), &state),
        "the gradients do not have the structure of the parameters: expected a map with the names \
            a, found a map with the names b",
    );
    let mut other = params.clone();
    other[1] = Tensor::zeros([3, 3], DType::F32);
    refused(
        sgd.step(&params, &other, &state),
        "the gradient of the parameter `1` is f32[3, 3], and the parameter is f32[1, 8]",
    );
    refused(
        Adam::new(0.1).step(&params, &params, &state),
        "Adam: the state is not of this algorithm and these parameters: expected the moments exp_a",
    );
    let momentum = sgd.momentum(0.9);
    refused(
        momentum.step(&params, &params, &momentum.init(&fewer)?),
        "Sgd: the state is not of this algorithm and these parameters: expected 3 parameters; foun",
    );
    refused(
        clip_grad_norm(&params, -1.0),
        "clip_grad_norm: `max_norm` must be a number of at least 0; found -1",
    );

    refused(Optimizer::new(sgd, &params), "the parameter `0` is no leaf that requires a gradient");
    let w = Tensor::from([1.0f32]).requires_grad_();
    refused(Optimizer::new(sgd, &w)?.step(), "the parameter has no gradient; call `backward`");
    Ok(())
}
