//! Modules called with other tensors than their own.

use maquette::autograd::{checkpoint, custom_vjp};
use maquette::func::{buffers, functional_call, grad, parameters};
use maquette::optim::{Adam, Algorithm, Optimizer, Sgd, State};
use maquette::prelude::*;
use maquette::{autocast, value_and_grad};
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

fn given<const N: usize>(tensors: [(&str, Tensor); N]) -> Params {
    tensors.into_iter().map(|(name, t)| (name.to_owned(), t)).collect()
}

/// How the module below computes the product of `x` and `w`.
#[derive(Clone, Copy)]
enum By {
    Inputs,
    Captured,
    Backward,
    Checkpoint,
}

#[derive(Module)]
#[module(Tensor -> Result<Tensor>)]
struct Product {
    w: Tensor,
    #[module(skip)]
    by: By,
}

impl Product {
    fn new(by: By) -> Product {
        Product { w: Tensor::from([2.0]).requires_grad_(), by }
    }

    fn forward(&self, x: Tensor) -> Result<Tensor> {
        let w = self.w.clone();
        let y = match self.by {
            By::Inputs => custom_vjp(
                &[x, w],
                |ctx, t| {
                    t.iter().for_each(|t| ctx.save(t));
                    Ok(vec![&t[0] * &t[1]])
                },
                |ctx, g| Ok(vec![Some(&g[0] * &ctx.saved(1)?), Some(&g[0] * &ctx.saved(0)?)]),
            ),
            By::Captured => custom_vjp(
                &[x],
                |ctx, t| {
                    ctx.save(&w);
                    Ok(vec![&t[0] * &w])
                },
                |ctx, g| Ok(vec![Some(&g[0] * &ctx.saved(0)?)]),
            ),
            By::Backward => {
                let of = w.clone();
                custom_vjp(
                    &[x],
                    |_, t| Ok(vec![&t[0] * &of]),
                    move |_, g| Ok(vec![Some(&g[0] * &w)]),
                )
            }
            By::Checkpoint => return checkpoint(move |x: Tensor| (x * &w).exp())(x),
        };
        Ok(y?[0].clone())
    }
}

#[test]
fn custom_derivatives_use_the_given_tensors() {
    for by in [By::Inputs, By::Captured, By::Backward] {
        let net = Product::new(by);
        let loss = |(p, x): (Params, Tensor)| {
            functional_call(&net, &p, x).unwrap_or_else(Tensor::poison).sum()
        };
        let inputs = || (given([("w", Tensor::from([3.0]))]), Tensor::from([1.0]));
        let (value, (p, dx)) = value_and_grad(loss)(inputs()).unwrap();
        let dw = if matches!(by, By::Inputs) { 1.0 } else { 0.0 };
        assert_eq!((numbers(&value), numbers(&dx)), (vec![3.0], vec![3.0]), "{}", by as u8);
        assert_eq!(numbers(&p["w"]), [dw], "{}", by as u8);
        let compiled = compile(value_and_grad(loss));
        let (_, (p, dx)) = compiled.call(inputs()).unwrap();
        assert_eq!((numbers(&p["w"]), numbers(&dx)), (vec![dw], vec![3.0]), "{}", by as u8);
        assert!(net.w.grad().is_none());
    }
}

#[test]
fn derivatives_of_a_custom_derivative_reach_the_given_tensors() {
    // The derivative reads what it captures, so its own derivative has the given tensor's history.
    let net = Product::new(By::Backward);
    let (p, x) = (Tensor::from([3.0]).requires_grad_(), Tensor::from([1.0]).requires_grad_());
    let y = functional_call(&net, &given([("w", &p * 2.0)]), x.clone()).unwrap();
    let options = maquette::autograd::BackwardOptions { create_graph: true, ..Default::default() };
    let of = |y: &Tensor, x: &Tensor| {
        let (y, x) = (std::slice::from_ref(y), std::slice::from_ref(x));
        maquette::autograd::grad(y, x, &[], options).unwrap().remove(0).unwrap()
    };
    let dx = of(&y.sum(), &x);
    assert_eq!((numbers(&dx), numbers(&of(&dx.sum(), &p))), (vec![6.0], vec![2.0]));
}

#[test]
fn checkpoints_run_again_with_the_given_tensors() {
    let net = Product::new(By::Checkpoint);
    let x = || Tensor::from([1.0]);
    let loss = |p: Params| functional_call(&net, &p, x()).unwrap_or_else(Tensor::poison).sum();
    let p = || given([("w", Tensor::from([3.0]))]);
    let expected = [3.0f64.exp()];
    assert_eq!(numbers(&grad(loss)(p()).unwrap()["w"]), expected);
    assert_eq!(numbers(&compile(grad(loss)).call(p()).unwrap()["w"]), expected);
    // The sweep runs in another call of the module, which gives it something else.
    let y = net.forward(x()).unwrap().sum();
    let sweep = Sweep { w: net.w.clone(), y };
    functional_call(&sweep, &p(), x()).unwrap();
    assert_eq!(numbers(&net.w.grad().unwrap()), [2.0f64.exp()]);
}

/// A module that differentiates something else when it is called.
#[derive(Module)]
#[module(Tensor -> Result<Tensor>)]
struct Sweep {
    w: Tensor,
    #[module(skip)]
    y: Tensor,
}

impl Sweep {
    fn forward(&self, x: Tensor) -> Result<Tensor> {
        self.y.backward()?;
        Ok(x)
    }
}

#[derive(Module)]
#[module(Tensor -> Tensor)]
struct Two {
    a: Tensor,
    b: Tensor,
}

impl Two {
    fn new() -> Two {
        Two { a: Tensor::from([[1.0]]), b: Tensor::from([[10.0]]) }
    }

    fn forward(&self, x: Tensor) -> Tensor {
        let by_vjp = |w: &Tensor| {
            let y = custom_vjp(
                &[x.clone(), w.clone()],
                |_, t| Ok(vec![&t[0] * &t[1]]),
                |_, g| Ok(vec![None, Some(g[0].clone())]),
            );
            y.map_or_else(Tensor::poison, |y| y[0].clone())
        };
        let linear = x.linear(&self.a, None) - x.linear(&self.b, None);
        linear + (by_vjp(&self.a) - by_vjp(&self.b)) * 100.0
    }
}

#[test]
fn given_tensors_may_be_the_modules_own_of_other_names() {
    let x = || Tensor::from([[1.0]]);
    let swapped = |net: &Two| given([("a", net.b.clone()), ("b", net.a.clone())]);
    let net = Two::new();
    assert_eq!(numbers(&functional_call(&net, &swapped(&net), x()).unwrap()), [909.0]);
    let cast = autocast(DType::BF16, || functional_call(&net, &swapped(&net), x()).unwrap());
    assert_eq!(numbers(&cast), [909.0]);
    let net = Two::new();
    [&net.a, &net.b].into_iter().for_each(|t| drop(t.requires_grad_()));
    let y = functional_call(&net, &swapped(&net), x()).unwrap();
    assert_eq!(numbers(&y), [909.0]);
    y.sum().backward().unwrap();
    let found = [&net.a, &net.b].map(|t| numbers(&t.grad().unwrap()));
    assert_eq!(found, [[-101.0], [101.0]]);
    // A call inside of another one: the inner names are of what the outer one gives.
    #[derive(Module)]
    #[module(Tensor -> Result<Tensor>)]
    struct Outer {
        net: Two,
    }
    impl Outer {
        fn forward(&self, x: Tensor) -> Result<Tensor> {
            let (a, b) = (self.net.a.clone(), self.net.b.clone());
            functional_call(&self.net, &given([("a", b), ("b", a)]), x)
        }
    }
    let (outer, [a, b]) = (Outer { net: Two::new() }, [3.0, 5.0].map(|v| Tensor::from([[v]])));
    let y = functional_call(&outer, &given([("net.a", a), ("net.b", b)]), x()).unwrap();
    assert_eq!(numbers(&y), [202.0]);
    let twice = given([("net.a", outer.net.b.clone()), ("net.b", outer.net.a.clone())]);
    assert_eq!(numbers(&functional_call(&outer, &twice, x()).unwrap()), [-909.0]);
}

#[test]
fn a_tensor_with_two_names_has_one_given_tensor() {
    let net = Net::new();
    let other = || Tensor::from([[1.0, 0.0], [0.0, 1.0]]);
    let same = other();
    let both = given([("layers.0.weight", same.clone()), ("tied", same.clone())]);
    let one = given([("tied", same)]);
    let [both, one] = [both, one].map(|p| numbers(&functional_call(&net, &p, x()).unwrap()));
    assert_eq!(both, one);
    let differ = given([("layers.0.weight", other()), ("tied", other())]);
    let e = functional_call(&net, &differ, x()).unwrap_err().to_string();
    assert!(e.contains("`layers.0.weight` and `tied` are names of one tensor"), "{e}");
    assert!(e.contains("functional_call.rs:"), "{e}");
    // The module's own counts as given, where it is named.
    let differ = given([("layers.0.weight", other()), ("tied", net.tied.clone())]);
    functional_call(&net, &differ, x()).unwrap_err();
}
