//! Modules called with other tensors than their own.

use maquette::func::{buffers, functional_call, grad, parameters};
use maquette::optim::{Adam, Algorithm, Optimizer, Sgd, State};
use maquette::prelude::*;
use maquette::value_and_grad;
use std::collections::BTreeMap;

type Params = BTreeMap<String, Tensor>;

#[derive(Module)]
struct Linear {
    weight: Tensor,
    bias: Tensor,
}

#[derive(Module)]
#[module(Tensor -> Tensor)]
struct Net {
    layers: Vec<Linear>,
    #[buffer]
    calls: Tensor,
    /// The first layer's weight, under another name.
    tied: Tensor,
}

impl Net {
    fn new() -> Net {
        let layer = |w: [[f64; 2]; 2], b| Linear { weight: Tensor::from(w), bias: Tensor::from(b) };
        let layers = vec![
            layer([[1.0, 2.0], [3.0, 4.0]], [0.5, -0.5]),
            layer([[0.5, -1.0], [0.25, 2.0]], [0.0, 1.0]),
        ];
        let tied = layers[0].weight.clone();
        Net { layers, calls: Tensor::zeros([1], DType::F64), tied }
    }

    fn forward(&self, x: Tensor) -> Tensor {
        self.calls.add_(1.0);
        let [first, second] = self.layers.as_slice() else {
            return Tensor::poison(Error::msg("two layers"));
        };
        let h = x.linear(&first.weight, Some(&first.bias)).tanh();
        h.linear(&second.weight, Some(&second.bias)).mm(&self.tied)
    }
}

fn numbers(t: &Tensor) -> Vec<f64> {
    t.to_vec::<f64>().unwrap()
}

fn x() -> Tensor {
    Tensor::from([[1.0, -1.0], [0.5, 0.25]])
}

#[test]
fn given_tensors_stand_in_the_places_of_the_modules_own() {
    let (net, other) = (Net::new(), Net::new());
    other.layers[0].weight.mul_(0.5);
    let expected = numbers(&other.forward(x()));
    let given = parameters(&other);
    assert_eq!(
        given.keys().collect::<Vec<_>>(),
        ["layers.0.bias", "layers.0.weight", "layers.1.bias", "layers.1.weight"]
    );
    assert_ne!(numbers(&net.forward(x())), expected);
    assert_eq!(numbers(&functional_call(&net, &given, x()).unwrap()), expected);
    assert_eq!(numbers(&net.calls), [2.0]);

    // A given buffer is written, and the module's is not.
    let state = BTreeMap::from([("calls".to_owned(), Tensor::from([7.0]))]);
    functional_call(&net, &state, x()).unwrap();
    assert_eq!((numbers(&net.calls), numbers(&state["calls"])), (vec![2.0], vec![8.0]));
    assert_eq!(buffers(&net).keys().collect::<Vec<_>>(), ["calls"]);
}

#[test]
fn gradients_are_those_of_leaves() {
    let net = Net::new();
    let loss = |p: Params| functional_call(&net, &p, x()).unwrap_or_else(Tensor::poison).sum();
    let gradients = grad(loss)(parameters(&net)).unwrap();
    let leaves = parameters(&net);
    leaves.values().for_each(|p| drop(p.requires_grad_()));
    net.forward(x()).sum().backward().unwrap();
    for (name, p) in &leaves {
        assert_eq!(numbers(&gradients[name]), numbers(&p.grad().unwrap()), "{name}");
    }
}

#[test]
fn a_step_compiles() {
    let step = |net: &Net, (p, s, x): (Params, State, Tensor)| -> Result<Tensor> {
        let loss = |p: Params| {
            let y = functional_call(net, &p, x.clone()).unwrap_or_else(Tensor::poison);
            (&y * &y).mean()
        };
        let (loss, grads) = value_and_grad(loss)(p.clone())?;
        Adam::new(0.1).step(&p, &grads, &s)?;
        Ok(loss)
    };
    let (a, b) = (Net::new(), Net::new());
    let states = [&a, &b].map(|net| Adam::new(0.1).init(&parameters(net)).unwrap());
    let compiled = compile(|inputs: (Params, State, Tensor)| step(&b, inputs));
    for _ in 0..5 {
        let expected = step(&a, (parameters(&a), states[0].clone(), x())).unwrap();
        let found = compiled.call((parameters(&b), states[1].clone(), x())).unwrap();
        assert_eq!(numbers(&expected), numbers(&found));
        for (name, p) in parameters(&a) {
            assert_eq!(numbers(&p), numbers(&parameters(&b)[&name]), "{name}");
        }
    }
    assert_eq!((numbers(&a.calls), numbers(&b.calls)), (vec![5.0], vec![5.0]));
    assert_eq!(compiled.compilations(), 1);
}

#[test]
fn optimizers_take_modules() {
    let net = Net::new();
    let refused = Optimizer::of_module(Sgd::new(0.1), &net).unwrap_err().to_string();
    assert!(refused.starts_with("the parameter `layers.0.weight` is no leaf"), "{refused}");
    parameters(&net).values().for_each(|p| drop(p.requires_grad_()));
    let optimizer = Optimizer::of_module(Sgd::new(0.1), &net).unwrap();
    assert_eq!(optimizer.names().len(), 4);
    net.forward(x()).sum().backward().unwrap();
    optimizer.step().unwrap();
}

#[test]
fn what_is_refused() {
    #[derive(Module)]
    #[module(Tensor -> Result<Tensor>)]
    struct Reads {
        w: Tensor,
        #[module(skip)]
        compiled: bool,
    }
    impl Reads {
        fn forward(&self, x: Tensor) -> Result<Tensor> {
            if self.compiled {
                return compile(|x: Tensor| x * &self.w).call(x);
            }
            let factor = self.w.to_vec::<f64>()?[0];
            Ok(x * factor)
        }
    }
    let given = BTreeMap::from([("w".to_owned(), Tensor::from([3.0]))]);
    let net = |compiled| Reads { w: Tensor::from([2.0]), compiled };
    let e = functional_call(&net(false), &given, x()).unwrap_err().to_string();
    assert!(e.starts_with("a tensor of the module was read in a functional call"), "{e}");
    // A compiled function in the module uses the given tensor, too.
    let y = functional_call(&net(true), &given, Tensor::from([5.0])).unwrap();
    assert_eq!(numbers(&y), [15.0]);

    let call = |name: &str, t: Tensor| {
        let given = BTreeMap::from([(name.to_owned(), t)]);
        functional_call(&Net::new(), &given, x()).unwrap_err().to_string()
    };
    let e = call("layers.2.weight", x());
    assert!(e.starts_with("the module has no tensor `layers.2.weight`; there are: calls, "), "{e}");
    let e = call("calls", x());
    assert!(e.starts_with("`calls` is f64[1] in the module; found f64[2, 2]"), "{e}");
}
