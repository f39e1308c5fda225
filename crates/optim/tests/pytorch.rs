//! Updates, clipping and schedules, against the numbers that PyTorch 2.15 gives for the same.

use maquette_driver::compile;
use maquette_ops::{Result, Tensor};
use maquette_optim::{
    Adagrad, Adam, AdamW, Algorithm, Cosine, OneCycle, RmsProp, Schedule, Sgd, State, Steps,
    Warmup, clip_grad_norm, clip_grad_value, total_norm,
};

type Params = (Tensor, Vec<Tensor>);

fn params() -> Params {
    (Tensor::from([[1.0, -2.0], [0.5, 3.0]]), vec![Tensor::from([0.25, -1.5])])
}

/// The gradients of step `k`.
fn grads(k: f64) -> Params {
    (Tensor::from([[0.5 * k, -0.25], [1.0, 0.125 * k]]), vec![Tensor::from([-0.75, 0.5 * k])])
}

fn numbers((a, b): &Params) -> Vec<f64> {
    let flat = |t: &Tensor| t.to_vec::<f64>().expect("real");
    flat(a).into_iter().chain(b.iter().flat_map(flat)).collect()
}

fn close(found: &[f64], expected: &[f64]) {
    assert_eq!(found.len(), expected.len());
    for (f, e) in found.iter().zip(expected) {
        assert!((f - e).abs() <= 1e-12 * e.abs().max(1.0), "{found:?}, expected {expected:?}");
    }
}

/// The parameters after three steps, eager and compiled, which have the same bits.
fn after_three(algorithm: impl Algorithm) -> Vec<f64> {
    let (eager, compiled) = (params(), params());
    let state = algorithm.init(&eager).unwrap();
    let other = algorithm.init(&compiled).unwrap();
    let step = |(p, g, s): (Params, Params, State)| algorithm.step(&p, &g, &s);
    let run = compile(step);
    for k in [1.0, 2.0, 3.0] {
        algorithm.step(&eager, &grads(k), &state).unwrap();
        run.call((compiled.clone(), grads(k), other.clone())).unwrap();
        assert_eq!(numbers(&eager), numbers(&compiled));
    }
    assert_eq!(run.compilations(), 1);
    for (a, b) in state.moments.iter().zip(&other.moments) {
        for (a, b) in a.tensors.iter().zip(&b.tensors) {
            assert_eq!(a.to_vec::<f64>().unwrap(), b.to_vec::<f64>().unwrap());
        }
    }
    assert_eq!(other.step.item::<f64>().unwrap(), 3.0);
    numbers(&eager)
}

macro_rules! updates {
    ($($name:ident: $algorithm:expr => $expected:expr;)*) => { $(
        #[test]
        fn $name() {
            close(&after_three($algorithm), &$expected);
        }
    )* };
}

updates! {
    sgd: Sgd::new(0.1) => [0.7, -1.925, 0.2, 2.925, 0.475, -1.8];
    sgd_with_dampening: Sgd::new(0.1).momentum(0.9).dampening(0.5).weight_decay(0.01) => [
        0.6904621372499999, -1.8877380432500002, 0.08213604987499998, 2.911181446125,
        0.5607993061875001, -1.799143237125,
    ];
    sgd_with_nesterov: Sgd::new(0.1).momentum(0.9).nesterov(true) => [
        0.27205, -1.798775, -0.30490000000000006, 2.8180125, 0.8536750000000001, -2.22795,
    ];
    adam: Adam::new(0.1) => [
        0.7076816791153657, -1.700000012, 0.2000000030000007, 2.7076816914374735,
        0.5499999959999993, -1.792318320884634,
    ];
    adam_with_everything:
        Adam::new(0.1).betas(0.8, 0.95).eps(1e-4).weight_decay(0.1).amsgrad(true) => [
        0.7027999661441411, -1.7004444670540653, 0.20018281033148155, 2.698845710370681,
        0.549731547759849, -1.7922738751588516,
    ];
    adamw: AdamW::new(0.1).weight_decay(0.1) => [
        0.6809358610891806, -1.6435880118804, 0.18813950297010068, 2.6215338732552675,
        0.5395847460398661, -1.744811638910819,
    ];
    adamw_with_amsgrad: AdamW::new(0.1).amsgrad(true) => [
        0.7049810963127292, -1.694305909988004, 0.1988014024970018, 2.698987106619181,
        0.548950845753998, -1.7875264011872705,
    ];
    rmsprop: RmsProp::new(0.1) => [
        -1.6988271328732787, 0.289129554092732, -1.7891301058529683, 0.30117383673083553,
        2.5391300445462615, -4.198827132873278,
    ];
    rmsprop_with_everything: RmsProp::new(0.1).momentum(0.9).centered(true).weight_decay(0.01) => [
        -4.242780294763694, 2.6148478634299357, -4.1580069783137095, -2.1726121079196514,
        4.902693690272332, -6.755050696601927,
    ];
    adagrad: Adagrad::new(0.1) => [
        0.7303789083585668, -1.771554295035716, 0.27155429498071604, 2.730378908455424,
        0.47844570501317296, -1.7696210916414332,
    ];
    adagrad_with_everything:
        Adagrad::new(0.1).lr_decay(0.1).weight_decay(0.01).initial_accumulator_value(0.5) => [
        0.810269370896483, -1.9073347847585291, 0.31614851073764166, 2.9073013046785934,
        0.418226383016152, -1.6876778888936959,
    ];
}

#[test]
fn gradients_are_clipped() -> Result<()> {
    let given = grads(2.0);
    let (clipped, norm) = clip_grad_norm(&given, 0.5)?;
    close(&[norm.item::<f64>()?, total_norm(&given)?.item::<f64>()?], &[1.920286436967152; 2]);
    close(
        &numbers(&clipped),
        &[
            0.260377686368498,
            -0.0650944215921245,
            0.260377686368498,
            0.0650944215921245,
            -0.1952832647763735,
            0.260377686368498,
        ],
    );
    assert_eq!(numbers(&given), numbers(&grads(2.0)));
    // A norm below the bound changes nothing.
    assert_eq!(numbers(&clip_grad_norm(&given, 2.0)?.0), numbers(&given));
    assert_eq!(numbers(&clip_grad_value(&given, 0.5)?), [0.5, -0.25, 0.5, 0.25, -0.5, 0.5]);

    let clip = compile(|g: Params| clip_grad_norm(&g, 0.5));
    let (compiled, same) = clip.call(given)?;
    assert_eq!(numbers(&compiled), numbers(&clipped));
    assert_eq!(same.item::<f64>()?, norm.item::<f64>()?);
    Ok(())
}

#[test]
fn schedules() {
    fn check(schedule: impl Schedule, expected: &[(u64, f64)]) {
        for (step, lr) in expected {
            let found = schedule.lr(*step).unwrap();
            assert!((found - lr).abs() < 1e-12, "step {step}: {found}, expected {lr}");
        }
    }
    check(Steps::new(0.5, 3, 0.1), &[(0, 0.5), (2, 0.5), (3, 0.05), (8, 0.005)]);
    let cosine =
        [(0, 0.5), (1, 0.48800884649231263), (5, 0.255), (9, 0.021991153507687385), (10, 0.01)];
    check(Cosine::new(0.5, 10).least(0.01), &cosine);
    check(Warmup::new(0.5, 0.1, 4), &[(0, 0.05), (1, 0.1625), (3, 0.3875), (4, 0.5), (6, 0.5)]);
    let cycle = [
        (0, 0.02),
        (1, 0.06583592135001265),
        (5, 0.5),
        (6, 0.49373200311754367),
        (12, 0.250001),
        (19, 2e-06),
    ];
    check(OneCycle::new(0.5, 20), &cycle);
    let cycle =
        [(0, 0.05), (3, 0.22493278985982929), (7, 0.5), (8, 0.4914899751156948), (19, 0.0005)];
    check(OneCycle::new(0.5, 20).rise(0.4).divisors(10.0, 100.0), &cycle);
    check(Warmup::new(0.5, 0.1, 4).then(4, Steps::new(0.5, 3, 0.1)), &[(3, 0.3875), (7, 0.05)]);
    check(Warmup::new(0.5, 0.1, 0), &[(0, 0.5)]);
    assert!(OneCycle::new(0.5, 1).lr(0).unwrap().is_finite());
}

#[test]
fn schedules_check_their_numbers() {
    fn check(schedule: impl Schedule, message: &str) {
        let found = schedule.lr(0).expect_err(message).to_string();
        assert!(found.starts_with(message) && found.contains("pytorch.rs"), "{found}");
    }
    let range = "must be a finite number of at least 0; found";
    check(Steps::new(-0.5, 3, 0.1), &format!("Steps: `base` {range} -0.5"));
    check(Steps::new(0.5, 3, f64::NAN), &format!("Steps: `gamma` {range} NaN"));
    check(Steps::new(0.5, 0, 0.1), "Steps: `size` must be at least 1; found 0");
    check(Cosine::new(0.5, 0), "Cosine: `steps` must be at least 1; found 0");
    check(Cosine::new(0.5, 9).least(-1.0), &format!("Cosine: `least` {range} -1"));
    let range = "must be greater than 0 and at most 1; found";
    check(Warmup::new(0.5, 0.0, 4), &format!("Warmup: `start` {range} 0"));
    check(Warmup::new(0.5, 1.5, 4), &format!("Warmup: `start` {range} 1.5"));
    check(OneCycle::new(0.5, 0), "OneCycle: `steps` must be at least 1; found 0");
    let rise = "OneCycle: `rise` must be at least 0 and at most 1; found 1.5";
    check(OneCycle::new(0.5, 9).rise(1.5), rise);
    let range = "must be a finite number greater than 0; found";
    check(OneCycle::new(0.5, 9).divisors(0.0, 1.0), &format!("OneCycle: `divisors.0` {range} 0"));
    check(OneCycle::new(0.5, 9).divisors(2.0, -1.0), &format!("OneCycle: `divisors.1` {range} -1"));
    // those of a sequence are checked too, wherever they are
    check(Warmup::new(0.5, 0.1, 4).then(4, Cosine::new(0.5, 0)), "Cosine: `steps` must be");
    let cut = Warmup::new(0.5, 0.1, 9).then(5, Cosine::new(0.5, 95));
    check(cut, "`then` ends the first schedule after 5 steps, but its warm-up takes 9");
    check(cut.then(9, Cosine::new(0.5, 1)), "`then` ends the first schedule after 5 steps");
}
