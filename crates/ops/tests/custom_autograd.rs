//! Derivatives of custom operators: what they are given, what they keep, and what is refused.

use maquette_aten as _;
use maquette_ops::autograd::{
    AutogradCtx, AutogradRule, BackwardOptions, backward, custom_vjp, grad,
};
use maquette_ops::library::{self, Kind, Library};
use maquette_ops::{Op, Result, Tensor, Value, args, custom_op};

fn leaf<const N: usize>(x: [f64; N]) -> Tensor {
    Tensor::from(x).requires_grad_()
}

fn values(t: &Tensor) -> Vec<f64> {
    t.to_vec::<f64>().unwrap()
}

fn gradient(t: &Tensor) -> Vec<f64> {
    values(&t.grad().expect("a gradient"))
}

fn one(op: Op, args: maquette_ops::Args) -> Tensor {
    op.call(args).unwrap().remove(0).tensor().unwrap().clone()
}

fn map(f: impl Fn(f64) -> f64 + Send + Sync + 'static) -> impl Fn(&Tensor) -> Result<Tensor> {
    move |x: &Tensor| Ok(Tensor::from(x.read::<f64>()?.mapv(&f)))
}

#[test]
fn lists_have_a_gradient_for_each_element() {
    // the sum of `w[i] * xs[i]`, plus `bias`
    let kernel = |xs: &[Option<Tensor>], w: &[f64], bias: Option<&Tensor>| -> Result<Tensor> {
        let mut sum = Tensor::from([0.0f64, 0.0]);
        for (x, w) in xs.iter().zip(w) {
            if let Some(x) = x {
                sum += x * *w;
            }
        }
        Ok(bias.map_or(sum.clone(), |b| &sum + b))
    };
    let rule = AutogradRule::new(|ctx, grads| {
        let weights = ctx.value(0)?.list()?.to_vec();
        let needs = ctx.needs_input_grads(0);
        let of = |(w, needs): (&Value, &bool)| -> Result<Option<Tensor>> {
            Ok(if *needs { Some(&grads[0] * w.float()?) } else { None })
        };
        let mut all = weights.iter().zip(needs).map(of).collect::<Result<Vec<_>>>()?;
        all.push(None);
        all.push(ctx.needs_input_grad(2).then(|| grads[0].clone()));
        Ok(all)
    })
    .setup_context(|ctx, inputs, _| {
        ctx.save_value(inputs[1].clone());
        Ok(())
    });
    let op = custom_op("custom_autograd::weighted")
        .schema("(Tensor?[] xs, float[] w, Tensor? bias) -> Tensor")
        .kernel(kernel)
        .autograd(rule)
        .register()
        .unwrap();
    let (a, b, bias) = (leaf([1.0, 2.0]), Tensor::from([5.0f64, 6.0]), leaf([0.5, 0.5]));
    let xs = |l: Vec<Option<&Tensor>>| {
        Value::from(l.into_iter().map(|t| t.cloned()).collect::<Vec<_>>())
    };
    let list = xs(vec![Some(&a), None, Some(&b)]);
    let y = one(op, args![list, vec![2.0, 3.0, 4.0], &bias]);
    assert_eq!(values(&y), [22.5, 28.5]);
    y.sum().backward().unwrap();
    assert_eq!((gradient(&a), gradient(&bias)), (vec![2.0, 2.0], vec![1.0, 1.0]));
    // without the optional tensor, and with an empty list
    let y = one(op, args![xs(vec![Some(&a)]), vec![7.0], Value::None]);
    y.sum().backward().unwrap();
    assert_eq!(gradient(&a), [9.0, 9.0]);
    let y = one(op, args![xs(vec![]), Vec::<f64>::new(), &bias]);
    y.sum().backward().unwrap();
    assert_eq!(gradient(&bias), [2.0, 2.0]);
}

/// `x * 2` and `x * 3`.
fn two(name: &str, rule: AutogradRule) -> Op {
    custom_op(name)
        .kernel(|x: &Tensor| -> Result<(Tensor, Tensor)> { Ok((x * 2.0, x * 3.0)) })
        .autograd(rule)
        .register()
        .unwrap()
}

#[test]
fn several_outputs() {
    let sum = |grads: &[Tensor]| Ok(vec![Some(&grads[0] * 2.0 + &grads[1] * 3.0)]);
    let op = two("custom_autograd::two_zeros", AutogradRule::new(move |_, grads| sum(grads)));
    let x = leaf([1.0]);
    let out = op.call(args![&x]).unwrap();
    out[1].tensor().unwrap().sum().backward().unwrap();
    assert_eq!(gradient(&x), [3.0]);
    let out = op.call(args![&x]).unwrap();
    let both = [out[0].tensor().unwrap().sum(), out[1].tensor().unwrap().sum()];
    backward(&both, &[], BackwardOptions::default()).unwrap();
    assert_eq!(gradient(&x), [8.0]);
}

#[test]
fn an_undefined_gradient_is_none() {
    let rule = AutogradRule::with_undefined(|_, grads| {
        assert!(grads[0].is_none());
        Ok(vec![grads[1].as_ref().map(|g| g * 3.0)])
    });
    let op = two("custom_autograd::two_undefined", rule);
    let x = leaf([1.0]);
    op.call(args![&x]).unwrap()[1].tensor().unwrap().sum().backward().unwrap();
    assert_eq!(gradient(&x), [3.0]);
}

#[test]
fn an_output_without_gradient() {
    let rule = AutogradRule::new(|_, grads| Ok(vec![Some(&grads[1] * 3.0)])).setup_context(
        |ctx, _, outputs| {
            ctx.mark_non_differentiable(outputs[0].tensor()?);
            Ok(())
        },
    );
    let op = two("custom_autograd::two_marked", rule);
    let out = op.call(args![leaf([1.0])]).unwrap();
    let requires = |i: usize| out[i].tensor().unwrap().requires_grad();
    assert!(!requires(0) && requires(1));
}

#[test]
fn saved_inputs_and_outputs_have_derivatives_of_their_own() {
    // saves the output of `exp`, so the second derivative goes through the call itself
    let op = custom_op("custom_autograd::exp").kernel(map(f64::exp)).register().unwrap();
    let setup = |ctx: &mut AutogradCtx, _: &[Value], outputs: &[Value]| {
        ctx.save(outputs[0].tensor()?);
        Ok(())
    };
    op.register_autograd_with(setup, |ctx, grads| Ok(vec![Some(&grads[0] * &ctx.saved(0)?)]))
        .unwrap();
    let x = leaf([0.5]);
    let options = BackwardOptions { create_graph: true, ..Default::default() };
    let mut y = one(op, args![&x]).sum();
    for _ in 0..3 {
        y = grad(&[y], std::slice::from_ref(&x), &[], options).unwrap().remove(0).unwrap();
        assert_eq!(values(&y), [0.5f64.exp()]);
        y = y.sum();
    }
    // a write to what is saved
    let y = one(op, args![&x]);
    y.mul_(2.0);
    let e = y.sum().backward().unwrap_err().to_string();
    assert!(e.contains("the derivative of custom_autograd::exp") && e.contains("written"), "{e}");
    // backward twice
    let y = one(op, args![&x]);
    y.backward().unwrap();
    let e = y.backward().unwrap_err().to_string();
    assert!(e.contains("custom_autograd::exp") && e.contains("retain_graph"), "{e}");
}

#[test]
fn concurrent_sweeps_keep_their_histories() {
    let op = custom_op("custom_autograd::square").kernel(map(|v| v * v)).register().unwrap();
    let setup = |ctx: &mut AutogradCtx, inputs: &[Value], _: &[Value]| {
        ctx.save(inputs[0].tensor()?);
        Ok(())
    };
    op.register_autograd_with(setup, |ctx, grads| Ok(vec![Some(ctx.saved(0)? * 2.0 * &grads[0])]))
        .unwrap();
    let x = leaf([3.0]);
    let y = one(op, args![&x]).sum();
    let options = BackwardOptions { create_graph: true, ..Default::default() };
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..50 {
                    let of = |t: &Tensor| {
                        grad(std::slice::from_ref(t), std::slice::from_ref(&x), &[], options)
                    };
                    let first = of(&y).unwrap().remove(0).unwrap();
                    let second = of(&first.sum()).unwrap().remove(0).unwrap();
                    assert_eq!((values(&first), values(&second)), (vec![6.0], vec![2.0]));
                }
            });
        }
    });
}

#[test]
fn a_library_takes_its_derivative_with_it() {
    let op = custom_op("custom_autograd::triple").kernel(map(|v| 3.0 * v)).register().unwrap();
    op.register_autograd(|_, grads| Ok(vec![Some(&grads[0] * 3.0)])).unwrap();
    let run = || {
        let x = leaf([1.0]);
        one(op, args![&x]).sum().backward().unwrap();
        gradient(&x)[0]
    };
    assert_eq!(run(), 3.0);
    let lib = Library::new("custom_autograd", Kind::Fragment).unwrap();
    let rule = || AutogradRule::new(|_, grads| Ok(vec![Some(&grads[0] * 30.0)]));
    lib.register_autograd("triple", rule()).unwrap();
    assert_eq!(run(), 30.0);
    assert!(
        op.registrations().iter().any(|r| r.starts_with("derivative") && r.contains("overridden"))
    );
    let e = lib.register_autograd("triple", rule()).unwrap_err().to_string();
    assert!(e.contains("custom_autograd::triple") && e.contains("derivative"), "{e}");
    // a call that was recorded keeps its derivative
    let x = leaf([1.0]);
    let y = one(op, args![&x]).sum();
    drop(lib);
    y.backward().unwrap();
    assert_eq!((gradient(&x)[0], run()), (30.0, 3.0));
    // that of a builtin operator, too
    let lib = Library::new("aten", Kind::Impl).unwrap();
    lib.register_autograd("softsign", rule()).unwrap();
    drop(lib);
    let lib = Library::new("custom_autograd_later", Kind::Fragment).unwrap();
    lib.register_autograd("f", rule()).unwrap();
    let op = lib.define("f(Tensor x) -> Tensor", &[]).unwrap();
    lib.impl_("f", "cpu", map(|v| v)).unwrap();
    let x = leaf([1.0]);
    one(op, args![&x]).sum().backward().unwrap();
    assert_eq!(gradient(&x), [30.0]);
}

#[test]
fn an_operator_that_writes_has_no_derivative() {
    let rule = || AutogradRule::new(|_, _| Ok(vec![]));
    let kernel = |x: &mut Tensor| -> Result<()> { x.mul_(2.0).ok().map(drop) };
    let op = custom_op("custom_autograd::double_").kernel(kernel);
    let e = op.autograd(rule()).register().unwrap_err().to_string();
    assert!(e.contains("custom_autograd::double_ writes its arguments"), "{e}");
    let lib = Library::new("custom_autograd_writes", Kind::Fragment).unwrap();
    lib.register_autograd("g", rule()).unwrap();
    let e = lib.define("g(Tensor(a!) x) -> ()", &[]).unwrap_err().to_string();
    assert!(e.contains("custom_autograd_writes::g writes its arguments"), "{e}");
    assert!(library::register_autograd("no name", rule()).is_err());
}

/// The error of a sweep through a call of an operator `(Tensor x, float s) -> Tensor`.
fn refused(
    name: &str,
    backward: impl Fn(&AutogradCtx, &[Tensor]) -> Result<Vec<Option<Tensor>>> + Send + Sync + 'static,
) -> String {
    let kernel = |x: &Tensor, s: f64| -> Result<Tensor> { Ok(x * s) };
    let op = custom_op(name).arg_names(["x", "s"]).kernel(kernel);
    let op = op.autograd(AutogradRule::new(backward)).register().unwrap();
    let x = leaf([1.0, 2.0]);
    let e = one(op, args![&x, 2.0]).sum().backward().unwrap_err().to_string();
    assert!(e.contains(name) && e.contains("custom_autograd.rs:"), "{e}");
    e
}

#[test]
fn wrong_gradients_name_the_operator_and_the_line() {
    let e = refused("custom_autograd::none", |_, _| Ok(vec![]));
    assert!(e.contains("gives 0 gradients for 2 arguments"), "{e}");
    let e = refused("custom_autograd::three", |_, g| Ok(vec![Some(g[0].clone()), None, None]));
    assert!(e.contains("gives 3 gradients for 2 arguments"), "{e}");
    let e = refused("custom_autograd::sizes", |_, g| Ok(vec![Some(g[0].sum())]));
    assert!(e.contains("gives the gradient f64[] for argument `x`, which is f64[2]"), "{e}");
    let e = refused("custom_autograd::dtype", |_, g| {
        Ok(vec![Some(g[0].to_dtype(maquette_ir::DType::F32))])
    });
    assert!(e.contains("gives the gradient f32[2] for argument `x`, which is f64[2]"), "{e}");
    let e =
        refused("custom_autograd::number", |_, g| Ok(vec![Some(g[0].clone()), Some(g[0].clone())]));
    assert!(e.contains("a gradient for argument `s`, which is no tensor"), "{e}");
    let e = refused("custom_autograd::own", |_, _| maquette_ops::bail!("no idea"));
    assert!(e.contains("no idea"), "{e}");
    let e = refused("custom_autograd::unsaved", |ctx, _| Ok(vec![Some(ctx.saved(0)?)]));
    assert!(e.contains("no tensor was saved as number 0: `save` was not called"), "{e}");
}

#[test]
fn a_tensor_is_no_value() {
    let rule =
        AutogradRule::new(|_, g| Ok(vec![Some(g[0].clone())])).setup_context(|ctx, inputs, _| {
            ctx.save_value(inputs[0].clone());
            Ok(())
        });
    let op =
        custom_op("custom_autograd::kept").kernel(map(|v| v)).autograd(rule).register().unwrap();
    let e = op.call(args![leaf([1.0])]).unwrap_err().to_string();
    assert!(e.contains("keep a tensor with `save`") && e.contains("custom_autograd::kept"), "{e}");
}

#[test]
fn without_a_rule_the_error_shows_how_to_write_one() {
    let op = custom_op("custom_autograd::without").kernel(map(|v| v)).register().unwrap();
    let e = one(op, args![leaf([1.0])]).sum().backward().unwrap_err().to_string();
    for part in [
        "custom_autograd::without has no derivative",
        "#[register_autograd(without)]",
        "fn backward(ctx: &AutogradCtx, grads: &[Tensor]) -> Result<Vec<Option<Tensor>>>",
        "setup_context",
    ] {
        assert!(e.contains(part), "{e}");
    }
}

#[test]
fn a_closure_may_save_and_mark_its_outputs() {
    let exp = |x: &Tensor| {
        let y = custom_vjp(
            std::slice::from_ref(x),
            |ctx, x| {
                let (y, rounded) = (x[0].exp(), x[0].round());
                ctx.save(&y);
                ctx.mark_non_differentiable(&rounded);
                Ok(vec![rounded, y])
            },
            |ctx, grads| Ok(vec![Some(&grads[1] * &ctx.saved(0)?)]),
        );
        let [rounded, y] = &y.unwrap()[..] else { panic!("two outputs") };
        assert!(!rounded.requires_grad() && y.requires_grad());
        y.clone()
    };
    let x = leaf([0.0]);
    let options = BackwardOptions { create_graph: true, ..Default::default() };
    let mut y = exp(&x).sum();
    for _ in 0..3 {
        y = grad(&[y], std::slice::from_ref(&x), &[], options).unwrap().remove(0).unwrap();
        assert_eq!(values(&y), [1.0]);
        y = y.sum();
    }
}

/// What `forward` makes of `x`, with a derivative that turns the sign.
fn reversed(x: &Tensor, forward: impl FnOnce(&Tensor) -> Tensor) -> Tensor {
    let y = custom_vjp(
        std::slice::from_ref(x),
        |_, x| Ok(vec![forward(&x[0])]),
        |_, grads| Ok(vec![Some(grads[0].neg())]),
    );
    y.unwrap().remove(0)
}

#[test]
fn outputs_that_share_memory_are_not_written() {
    let message = "shares memory with";
    type Forward = fn(&Tensor) -> Tensor;
    let forwards: [Forward; 2] = [Tensor::clone, |x| x.view([2])];
    for forward in forwards {
        // the memory of a leaf, and of a result; a failed write poisons it
        let inputs: [fn() -> Tensor; 2] = [|| leaf([1.0, 2.0]), || leaf([1.0, 2.0]) * 1.0];
        for input in inputs {
            let e = reversed(&input(), forward).mul_(10.0).ok().unwrap_err().to_string();
            assert!(e.contains(message) && e.contains("custom_autograd.rs:"), "{e}");
            let part = reversed(&input(), forward).select(0, 1);
            let e = part.mul_(10.0).ok().unwrap_err().to_string();
            assert!(e.contains(message), "{e}");
        }
        // what shares the memory is written
        let x = leaf([1.0, 2.0]);
        let input = &x * 1.0;
        let y = reversed(&input, forward);
        let before = (&y * 2.0).sum();
        input.mul_(10.0);
        let e = y.sum().backward().unwrap_err().to_string();
        assert!(e.contains(message) && e.contains("custom_vjp"), "{e}");
        before.backward().unwrap();
        assert_eq!(gradient(&x), [-2.0, -2.0]);
    }
    // An output with memory of its own may be written, and so may a copy.
    let x = leaf([1.0, 2.0]);
    let y = reversed(&x, |x| x * 1.0);
    y.mul_(10.0);
    let copy = reversed(&x, Tensor::clone).clone_tensor();
    copy.mul_(3.0);
    (y + copy).sum().backward().unwrap();
    assert_eq!(gradient(&x), [-13.0, -13.0]);
}

#[test]
fn a_captured_tensor_that_is_returned_keeps_its_history() {
    let (x, w) = (leaf([1.0]), leaf([2.0]));
    let y = reversed(&x, |_| w.clone());
    assert!(w.is_leaf() && !y.is_same(&w));
    (&y * &w).sum().backward().unwrap();
    assert_eq!((gradient(&x), gradient(&w)), (vec![-2.0], vec![2.0]));
}
