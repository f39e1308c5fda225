//! Functional calls of which an input is a tensor of the module: what `forward` takes from the
//! module is replaced, and what it is given is not. Traces see the same.

use maquette::func::{functional_call, grad, parameters};
use maquette::prelude::*;
use std::collections::BTreeMap;

type Params = BTreeMap<String, Tensor>;

#[derive(Module)]
#[module((Tensor, Tensor) -> Tensor)]
struct Net {
    w: Tensor,
    #[buffer]
    seen: Tensor,
}

impl Net {
    fn new() -> Net {
        Net { w: Tensor::from([1.0, 2.0]), seen: Tensor::from([0.0, 0.0]) }
    }

    fn forward(&self, (x, y): (Tensor, Tensor)) -> Tensor {
        x * &self.w * 10.0 + y
    }
}

fn numbers(t: &Tensor) -> Vec<f64> {
    t.to_vec::<f64>().unwrap()
}

fn given() -> Params {
    Params::from([("w".to_owned(), Tensor::from([100.0, 100.0]))])
}

#[test]
fn an_input_that_is_the_modules_own_weight_is_not_replaced() {
    let net = Net::new();
    let call = |p: Params| -> Result<Tensor> {
        functional_call(&net, &p, (net.w.clone(), Tensor::zeros([2], DType::F64)))
    };
    assert_eq!(numbers(&call(given()).unwrap()), [1000.0, 2000.0]);
    // captured by the trace, and as an input of it
    assert_eq!(numbers(&compile(call).call(given()).unwrap()), [1000.0, 2000.0]);
    let with_inputs =
        |(p, x): (Params, Tensor)| -> Result<Tensor> { functional_call(&net, &p, (x.clone(), x)) };
    let expected = numbers(&with_inputs((given(), net.w.clone())).unwrap());
    assert_eq!(expected, [1001.0, 2002.0]);
    let compiled = compile(with_inputs);
    assert_eq!(numbers(&compiled.call((given(), net.w.clone())).unwrap()), expected);
}

#[test]
fn gradients_go_to_the_given_tensor_and_to_the_input() {
    let net = Net::new();
    net.w.requires_grad_();
    let loss = |p: Params| {
        functional_call(&net, &p, (net.w.clone(), net.w.clone()))
            .unwrap_or_else(Tensor::poison)
            .sum()
    };
    let p = given();
    p["w"].requires_grad_();
    loss(p.clone()).backward().unwrap();
    assert_eq!(numbers(&p["w"].grad().unwrap()), [10.0, 20.0]);
    assert_eq!(numbers(&net.w.grad().unwrap()), [1001.0, 1001.0]);
    net.w.set_grad(None).unwrap();
    let plain = Net::new();
    let loss = |p: Params| {
        let input = (plain.w.clone(), plain.w.clone());
        functional_call(&plain, &p, input).unwrap_or_else(Tensor::poison).sum()
    };
    let expected = grad(loss)(given()).unwrap();
    assert_eq!(numbers(&expected["w"]), [10.0, 20.0]);
    assert_eq!(numbers(&compile(grad(loss)).call(given()).unwrap()["w"]), [10.0, 20.0]);
}

/// Writes its input, and returns it.
#[derive(Module)]
#[module((Tensor, Tensor) -> (Tensor, Tensor, Tensor))]
struct Writer {
    w: Tensor,
}

impl Writer {
    fn forward(&self, (x, y): (Tensor, Tensor)) -> (Tensor, Tensor, Tensor) {
        let is_same = if x.is_same(&y) { 1.0 } else { 2.0 };
        x.mul_(3.0);
        (x, &self.w + 0.5, y * is_same)
    }
}

#[test]
fn a_written_input_is_the_modules_memory() {
    let eager = Writer { w: Tensor::from([1.0, 2.0]) };
    let call = |net: &Writer, p: Params| -> Result<(Tensor, Tensor, Tensor)> {
        functional_call(net, &p, (net.w.clone(), net.w.clone()))
    };
    let (x, w, y) = call(&eager, given()).unwrap();
    assert!(x.is_same(&eager.w));
    assert_eq!((numbers(&w), numbers(&y)), (vec![100.5, 100.5], vec![3.0, 6.0]));
    assert_eq!(numbers(&eager.w), [3.0, 6.0]);

    let traced = Writer { w: Tensor::from([1.0, 2.0]) };
    let compiled = compile(|p: Params| call(&traced, p));
    let (x, w, y) = compiled.call(given()).unwrap();
    assert_eq!((numbers(&x), numbers(&w)), (vec![3.0, 6.0], vec![100.5, 100.5]));
    assert_eq!((numbers(&y), numbers(&traced.w)), (vec![3.0, 6.0], vec![3.0, 6.0]));
}

/// Passes its own weight to another module with the same weight.
#[derive(Module)]
#[module(Tensor -> Result<Tensor>)]
struct Outer {
    w: Tensor,
    #[module(skip)]
    inner: Net,
}

impl Outer {
    fn forward(&self, x: Tensor) -> Result<Tensor> {
        let inner = Params::from([("w".to_owned(), Tensor::from([7.0, 7.0]))]);
        functional_call(&self.inner, &inner, (self.w.clone(), x))
    }
}

#[test]
fn inner_calls_take_what_the_outer_one_has_given() {
    let inner = Net::new();
    let outer = Outer { w: inner.w.clone(), inner };
    // The outer call gives 100 for its attribute, and the inner one 7 for that of its module.
    let call = |p: Params| functional_call(&outer, &p, outer.w.clone());
    assert_eq!(numbers(&call(given()).unwrap()), [7001.0, 7002.0]);
    assert_eq!(numbers(&compile(call).call(given()).unwrap()), [7001.0, 7002.0]);
    assert_eq!(parameters(&outer).keys().collect::<Vec<_>>(), ["w"]);
}
