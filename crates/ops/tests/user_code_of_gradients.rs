//! Derivatives and hooks that break their contract: they write what they are given, panic, or read
//! what has no derivative.

use maquette_aten as _;
use maquette_ir::DType;
use maquette_ops::autograd::{
    AutogradCtx, AutogradRule, BackwardOptions, checkpoint, custom_vjp, grad,
};
use maquette_ops::func::value_and_grad;
use maquette_ops::{Error, Op, Result, Tensor, args, custom_op, func};

fn leaf<const N: usize>(x: [f64; N]) -> Tensor {
    Tensor::from(x).requires_grad_()
}

fn values(t: &Tensor) -> Vec<f64> {
    t.to_vec::<f64>().unwrap()
}

fn one(op: Op, args: maquette_ops::Args) -> Tensor {
    op.call(args).unwrap().remove(0).tensor().unwrap().clone()
}

/// An operator that triples, with this rule.
fn thrice(name: &str, rule: AutogradRule) -> Op {
    let kernel =
        |x: &Tensor| -> Result<Tensor> { Ok(Tensor::from(x.read::<f64>()?.mapv(|v| 3.0 * v))) };
    custom_op(name).kernel(kernel).autograd(rule).register().unwrap()
}

/// The error of a sweep through the operator and a user of the same gradient.
fn refusal(op: Op) -> (String, Tensor) {
    let (a, b) = (leaf([1.0, 2.0]), leaf([1.0, 2.0]));
    let sum = one(op, args![&a]) + &b;
    let seed = Tensor::from([3.0f64, 3.0]);
    let e = sum.backward_with(&seed, BackwardOptions::default()).unwrap_err().to_string();
    assert_eq!(values(&seed), [3.0, 3.0], "{e}");
    (e, b)
}

#[test]
fn a_given_gradient_is_read_only() {
    let call = |name, write: fn(&Tensor) -> Result<()>| {
        let rule = AutogradRule::new(move |_, grads| {
            write(&grads[0])?;
            Ok(vec![Some(&grads[0] * 3.0)])
        });
        refusal(thrice(name, rule)).0
    };
    let in_place = call("user_code::in_place", |g| g.mul_(100.0).ok().map(drop));
    assert!(in_place.contains("the derivative of user_code::in_place"), "{in_place}");
    let guard = call("user_code::guard", |g| {
        g.clone().write::<f64>()?.fill(100.0);
        Ok(())
    });
    assert!(guard.contains("the derivative of user_code::guard"), "{guard}");
    let view = call("user_code::view", |g| g.slice(0, 1..).fill_(100.0).ok().map(drop));
    assert!(view.contains("the derivative of user_code::view"), "{view}");
    let cut = call("user_code::cut", |g| g.detach().fill_(100.0).ok().map(drop));
    assert!(cut.contains("the derivative of user_code::cut"), "{cut}");
}

#[test]
fn hooks_and_closures_do_not_write_gradients() {
    let (a, b) = (leaf([1.0]), leaf([1.0]));
    a.register_hook(|g| Ok(Some(g.mul_(100.0)))).unwrap();
    let seed = Tensor::from([3.0f64]);
    let e = (&a + &b).backward_with(&seed, BackwardOptions::default()).unwrap_err().to_string();
    assert!(e.contains("a hook of"), "{e}");
    assert_eq!(values(&seed), [3.0]);

    let x = leaf([1.0]);
    let y = custom_vjp(
        &[x],
        |_, x| Ok(vec![&x[0] * 3.0]),
        |_, grads| Ok(vec![Some(grads[0].mul_(100.0))]),
    )
    .unwrap();
    let e = y[0].backward_with(&seed, BackwardOptions::default()).unwrap_err().to_string();
    assert!(e.contains("the derivative of custom_vjp"), "{e}");
    assert_eq!(values(&seed), [3.0]);
}

#[test]
fn a_gradient_may_be_returned_and_its_copy_written() {
    let rule = AutogradRule::new(|_, grads| Ok(vec![Some(grads[0].clone_tensor().mul_(3.0))]));
    let op = thrice("user_code::copy", rule);
    let x = leaf([1.0, 2.0]);
    one(op, args![&x]).sum().backward().unwrap();
    assert_eq!(values(&x.grad().unwrap()), [3.0, 3.0]);
}

/// `exp(2 x)` by a rule that reads what `save` keeps in its place.
fn doubled_exponential(x: &Tensor, save: fn(&mut AutogradCtx, &Tensor, &Tensor)) -> Result<Tensor> {
    let y = custom_vjp(
        std::slice::from_ref(x),
        move |ctx, x| {
            let y = (&x[0] * 2.0).exp();
            save(ctx, &x[0], &y);
            Ok(vec![y])
        },
        |ctx, grads| Ok(vec![Some(&grads[0] * &(ctx.saved(0)? * 2.0))]),
    )?;
    Ok(y[0].clone())
}

fn second(save: fn(&mut AutogradCtx, &Tensor, &Tensor)) -> Result<Vec<f64>> {
    let inner = move |x: Tensor| doubled_exponential(&x, save).unwrap_or_else(Tensor::poison).sum();
    let outer =
        func::grad(move |x: Tensor| func::grad(inner)(x).map_or_else(Tensor::poison, |g| g.sum()));
    outer(Tensor::from([0.0f64]))?.to_vec()
}

#[test]
fn an_intermediate_of_the_forward_has_no_second_derivative() {
    // the output itself has a history
    assert_eq!(second(|ctx, _, y| ctx.save(y)).unwrap(), [4.0]);
    for save in [
        (|ctx, _, y| ctx.save(&(y * 1.0))) as fn(&mut AutogradCtx, &Tensor, &Tensor),
        |ctx, x, _| ctx.save(&(x * 2.0).exp()),
        // a view of the output is no output
        |ctx, _, y| ctx.save(&y.slice(0, ..)),
        // no constant, though no operator has it from a tensor
        |ctx, _, y| ctx.save(&Tensor::full([1], y.item::<f64>().unwrap_or_default(), DType::F64)),
    ] {
        let e = second(save).unwrap_err().to_string();
        assert!(e.contains("custom_vjp") && e.contains("differentiated once"), "{e}");
    }
    // the first derivative is right, and recording it is no error
    let x = leaf([0.0]);
    let y = doubled_exponential(&x, |ctx, _, y| ctx.save(&(y * 1.0))).unwrap();
    let options = BackwardOptions { create_graph: true, ..BackwardOptions::default() };
    let first = grad(&[y], std::slice::from_ref(&x), &[None], options).unwrap().remove(0).unwrap();
    assert_eq!(values(&first), [2.0]);
    assert!(first.requires_grad());
}

#[test]
fn an_operator_that_saves_what_its_setup_computed_is_differentiated_once() {
    let rule = AutogradRule::new(|ctx, grads| Ok(vec![Some(&grads[0] * &ctx.saved(0)?)]))
        .setup_context(|ctx, inputs, _| {
            ctx.save(&(inputs[0].tensor()? * 2.0));
            Ok(())
        });
    let square = custom_op("user_code::square")
        .kernel(|x: &Tensor| -> Result<Tensor> {
            Ok(Tensor::from(x.read::<f64>()?.mapv(|v| v * v)))
        })
        .autograd(rule)
        .register()
        .unwrap();
    let f = move |x: Tensor| one(square, args![&x]).sum();
    assert_eq!(func::grad(f)(Tensor::from([3.0f64])).unwrap().to_vec::<f64>().unwrap(), [6.0]);
    let second =
        func::grad(move |x: Tensor| func::grad(f)(x).map_or_else(Tensor::poison, |g| g.sum()));
    let e = second(Tensor::from([3.0f64])).unwrap_err().to_string();
    assert!(e.contains("user_code::square") && e.contains("differentiated once"), "{e}");
}

#[test]
fn constants_that_a_rule_saves_have_no_derivative() {
    let mask = Tensor::from([1.0f64, 0.0]);
    let f = move |x: Tensor| {
        let mask = mask.clone();
        let y = custom_vjp(
            &[x],
            move |ctx, x| {
                ctx.save(&mask);
                ctx.save(&x[0]);
                ctx.save(&x[0].gt(0.0));
                Ok(vec![&x[0] * &x[0] * &mask])
            },
            |ctx, grads| {
                let slope = &(ctx.saved(0)? * 2.0) * &ctx.saved(1)?;
                Ok(vec![Some(ctx.saved(2)?.where_(&grads[0] * &slope, 0.0))])
            },
        );
        y.map_or_else(Tensor::poison, |y| y[0].sum())
    };
    let second =
        func::grad(move |x: Tensor| func::grad(&f)(x).map_or_else(Tensor::poison, |g| g.sum()));
    assert_eq!(values(&second(Tensor::from([3.0f64, 3.0])).unwrap()), [2.0, 0.0]);
}

/// The text of an error that a panic has become.
fn is_panic<T>(result: Result<T>, what: &str) {
    let e = result.map(drop).unwrap_err().to_string();
    assert!(
        e.contains(&format!("{what} panicked")) && e.contains("user_code_of_gradients.rs"),
        "{e}"
    );
    assert!(e.contains("unlucky"), "{e}");
}

#[test]
fn panics_of_derivatives_are_errors() {
    let op = thrice("user_code::panics", AutogradRule::new(|_, _| panic!("unlucky {}", 7)));
    is_panic(one(op, args![&leaf([1.0])]).sum().backward(), "derivative");

    let rule = AutogradRule::new(|_, _| Ok(vec![None])).setup_context(|_, _, _| panic!("unlucky"));
    let op = thrice("user_code::setup_panics", rule);
    is_panic(op.call(args![&leaf([1.0])]), "setup of the derivative");

    let x = leaf([1.0]);
    x.register_hook(|_| panic!("unlucky")).unwrap();
    is_panic((&x * 2.0).sum().backward(), "hook");

    is_panic(
        custom_vjp(&[leaf([1.0])], |_, _| panic!("unlucky"), |_, _| Ok(vec![None])),
        "closure",
    );
    let backward =
        |_: &AutogradCtx, _: &[Tensor]| -> Result<Vec<Option<Tensor>>> { panic!("unlucky") };
    let y = custom_vjp(&[leaf([1.0])], |_, x| Ok(vec![&x[0] * 2.0]), backward).unwrap();
    is_panic(y[0].sum().backward(), "derivative");
    let f = value_and_grad(move |x: Tensor| {
        let y = custom_vjp(&[x], |_, x| Ok(vec![&x[0] * 2.0]), backward);
        y.map_or_else(Tensor::poison, |y| y[0].sum())
    });
    is_panic(f(Tensor::from([1.0f64])), "derivative");

    // the thread goes on as before
    let x = leaf([2.0]);
    (&x * &x).sum().backward().unwrap();
    assert_eq!(values(&x.grad().unwrap()), [4.0]);
}

#[test]
fn panics_of_checkpointed_functions_are_errors() {
    use std::sync::atomic::{AtomicUsize, Ordering};
    let first = checkpoint(|_: Tensor| -> Tensor { panic!("unlucky") });
    is_panic(first(leaf([1.0])), "checkpointed function");
    let runs = AtomicUsize::new(0);
    let again = checkpoint(move |x: Tensor| {
        assert!(runs.fetch_add(1, Ordering::Relaxed) == 0, "unlucky");
        x.exp()
    });
    is_panic(again(leaf([1.0])).unwrap().sum().backward(), "checkpointed function");
    let fine = checkpoint(|x: Tensor| x.exp());
    let x = leaf([0.0]);
    fine(x.clone()).unwrap().sum().backward().unwrap();
    assert_eq!(values(&x.grad().unwrap()), [1.0]);
}

/// A payload whose destructor panics.
struct Bomb(u32);

impl Drop for Bomb {
    fn drop(&mut self) {
        if self.0 > 0 {
            std::panic::panic_any(Bomb(self.0 - 1));
        }
        panic!("the destructor");
    }
}

#[test]
fn payloads_whose_destructors_panic_do_not_unwind() {
    let op = custom_op("user_code::bomb")
        .kernel(|_: &Tensor| -> Result<Tensor> { std::panic::panic_any(Bomb(1)) })
        .register()
        .unwrap();
    let e: Error = op.call(args![&Tensor::from([1.0f64])]).unwrap_err();
    assert!(e.to_string().contains("its kernel panicked"), "{e}");
    let op =
        thrice("user_code::bomb_rule", AutogradRule::new(|_, _| std::panic::panic_any(Bomb(0))));
    let e = one(op, args![&leaf([1.0])]).sum().backward().unwrap_err();
    assert!(e.to_string().contains("its derivative panicked"), "{e}");
}
