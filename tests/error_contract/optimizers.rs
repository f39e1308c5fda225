//! Optimizers and schedules: numbers outside of their ranges, and trees that do not fit.

use super::*;
use maquette::optim::{
    Adagrad, Adam, AdamW, Algorithm, Cosine, OneCycle, Optimizer, RmsProp, Schedule, Sgd, Steps,
    Warmup, clip_grad_norm, clip_grad_value,
};

fn y() -> Tensor {
    Tensor::from([4.0f32, 5.0])
}

pub fn rows() -> Vec<Row> {
    vec![
        fails!("a negative learning rate", Sgd::new(-0.1).init(&x())),
        fails!("a learning rate that is no number", Adam::new(f64::NAN).init(&x())),
        fails!("a negative momentum", Sgd::new(0.1).momentum(-0.9).init(&x())),
        fails!("Nesterov's momentum without momentum", Sgd::new(0.1).nesterov(true).init(&x())),
        fails!("a beta of 1", Adam::new(0.1).betas(1.0, 0.999).init(&x())),
        fails!("a negative beta", AdamW::new(0.1).betas(0.9, -0.1).init(&x())),
        fails!("a negative epsilon", Adam::new(0.1).eps(-1e-8).init(&x())),
        fails!("a negative weight decay", AdamW::new(0.1).weight_decay(-0.1).init(&x())),
        fails!("a negative decay rate", RmsProp::new(0.1).alpha(-1.0).init(&x())),
        fails!(
            "a negative decay of the learning rate",
            Adagrad::new(0.1).lr_decay(-1.0).init(&x())
        ),
        fails!("a negative learning rate, set later", Sgd::new(0.1).init(&x())?.set_lr(-1.0)),
        fails!("a negative norm to clip to", clip_grad_norm(&x(), -1.0)),
        fails!("a negative value to clip to", clip_grad_value(&x(), -1.0)),
        fails!("no parameters", Sgd::new(0.1).init(&Vec::<Tensor>::new())),
        fails!("a parameter that is an integer", Sgd::new(0.1).init(&Tensor::from([1i64]))),
        fails!("a parameter that is given twice", {
            let w = x();
            Sgd::new(0.1).init(&(w.clone(), w))
        }),
        fails!("a gradient of other sizes", {
            let sgd = Sgd::new(0.1);
            sgd.step(&x(), &y(), &sgd.init(&x())?)
        }),
        fails!("the state of other parameters", {
            let adam = Adam::new(0.1);
            adam.step(&x(), &x(), &adam.init(&y())?)
        }),
        fails!("the state of more parameters", {
            let adam = Adam::new(0.1);
            adam.step(&x(), &x(), &adam.init(&(x(), y()))?)
        }),
        fails!("the state of another algorithm", {
            Adam::new(0.1).step(&x(), &x(), &Sgd::new(0.1).init(&x())?)
        }),
        fails!("an optimizer of a tensor without gradients", Optimizer::new(Sgd::new(0.1), &x())),
        fails!("a step before a sweep", {
            Optimizer::new(Sgd::new(0.1), &x().requires_grad_())?.step()
        }),
        fails!("a schedule from a negative rate", Cosine::new(-0.1, 10).lr(0)),
        fails!("a schedule of steps of no size", Steps::new(0.1, 0, 0.5).lr(0)),
        fails!("a negative factor of a schedule", Steps::new(0.1, 10, -0.5).lr(0)),
        fails!("a cosine of no steps", Cosine::new(0.1, 0).lr(0)),
        fails!("a cosine down to a negative rate", Cosine::new(0.1, 10).least(-0.1).lr(0)),
        fails!("a warm-up from zero", Warmup::new(0.1, 0.0, 10).lr(0)),
        fails!("a warm-up from more than the rate", Warmup::new(0.1, 2.0, 10).lr(0)),
        fails!("a warm-up that another schedule cuts off", {
            Warmup::new(0.1, 0.1, 10).then(5, Cosine::new(0.1, 100)).lr(0)
        }),
        fails!("a cycle of no steps", OneCycle::new(0.1, 0).lr(0)),
        fails!("a cycle that rises for longer than it takes", {
            OneCycle::new(0.1, 100).rise(1.5).lr(0)
        }),
        fails!("a cycle that divides by zero", OneCycle::new(0.1, 100).divisors(0.0, 1e4).lr(0)),
    ]
}
