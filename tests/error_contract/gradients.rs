//! Derivatives: what cannot be differentiated, and rules that are wrong.

use super::*;
use maquette::autocast;
use maquette::check::gradcheck::gradcheck;
use maquette::ops::autograd::{AutogradCtx, BackwardOptions, backward, custom_vjp, grad, no_grad};
use maquette::ops::func::{value_and_grad, vjp};

/// `[1, 2, 3]`, with a gradient.
fn w() -> Tensor {
    Tensor::from([1.0f64, 2.0, 3.0]).requires_grad_()
}

fn thrice(x: &Tensor) -> Result<Tensor> {
    Ok(Tensor::from(x.to_array::<f64>()?.mapv(|v| 3.0 * v)))
}

/// An operator that triples, with this rule.
fn ruled(
    name: &str,
    rule: impl Fn(&Tensor) -> Vec<Option<Tensor>> + Send + Sync + 'static,
) -> Result<Op> {
    let op = ops::custom_op(name).arg_names(["x"]).kernel(thrice).register()?;
    op.register_autograd(move |_, grads| Ok(rule(&grads[0])))?;
    Ok(op)
}

/// The sum of the operator's result.
fn summed(op: &Op, x: &Tensor) -> Result<Tensor> {
    Ok(op.call(args![x])?[0].tensor()?.sum())
}

/// `exp`, as a module.
#[derive(Module)]
#[module(Tensor -> Tensor)]
struct Exp;

impl Exp {
    fn forward(&self, x: Tensor) -> Tensor {
        x.exp()
    }
}

pub fn rows() -> Vec<Row> {
    vec![
        fails!("a second sweep through a graph", {
            let loss = w().exp().sum();
            loss.backward()?;
            loss.backward()
        }),
        fails!("a sweep through a part that another sweep has freed", {
            let shared = w().exp();
            (&shared * 2.0).sum().backward()?;
            (&shared * 3.0).sum().backward()
        }),
        fails!("a sweep from a tensor that is no scalar", w().exp().backward()),
        fails!("a first gradient of other sizes", {
            let ones = Tensor::ones([2], DType::F64);
            w().exp().backward_with(&ones, BackwardOptions::default())
        }),
        fails!("a sweep from a tensor that depends on no leaf", x().sum().backward()),
        fails!("a sweep from what was computed in `no_grad`", {
            let w = w();
            no_grad(|| w.sum()).backward()
        }),
        fails!("a gradient of integers", Tensor::from([1i64, 2]).requires_grad_()),
        fails!("a sweep from integers", w().argmax().backward()),
        fails!("a gradient with respect to what requires none", {
            let x = Tensor::from([1.0f64]);
            grad(&[(&x * &w()).sum()], &[x], &[], BackwardOptions::default())
        }),
        without(
            "a graph that is made on one thread and swept on another; two sweeps at once",
            "allowed: a graph belongs to no thread; gradients of a leaf add up",
        ),
        fails!("a sweep inside a trace, of what was computed before it", {
            let loss = w().exp().sum();
            trace(move |x: Tensor| -> Result<Tensor> { loss.backward().map(|()| x) }, x())
        }),
        fails!("a traced function that collects gradients in a leaf outside", {
            let w = w();
            let step = move |x: Tensor| -> Result<Tensor> {
                (&x * &w).sum().backward()?;
                w.grad().ok_or_else(|| Error::msg("there is no gradient"))
            };
            trace(step, Tensor::from([1.0f64, 2.0, 3.0]))?.run(Tensor::from([1.0f64, 2.0, 3.0]))
        }),
        fails!("compiling with inputs that require gradients", {
            compile(|w: Tensor| w.exp().sum()).call(w())
        }),
        fails!("a run of a trace with inputs that require gradients", {
            let f = |x: Tensor| &x + &x.detach();
            TraceOptions::new().names(["x"]).trace(f, w().detach())?.run(w())
        }),
        fails!("a run of a graph with an input that requires a gradient", {
            let traced = trace(|x: Tensor| x.exp(), w().detach())?;
            maquette::interp::Interpreter::new(traced.graph()).run(&[w().into()])
        }),
        fails!("a run of a trace that captured a tensor which requires a gradient", {
            let w = w();
            let x = w.detach();
            trace(move |x: Tensor| x * &w, x.clone())?.run(x)
        }),
        fails!("a call of an exported program with an input that requires a gradient", {
            let program = ExportOptions::new().names(["x"]).export(&Exp, w().detach())?;
            program.call(w())
        }),
        fails!("a call of an exported and compiled program with such an input", {
            let program = ExportOptions::new().names(["x"]).export(&Exp, w().detach())?;
            program.compile(Device::Cpu)?.call(w())
        }),
        fails!("a run of a trace inside `autocast`", {
            let traced = trace(|x: Tensor| x.exp(), w().detach())?;
            autocast(DType::BF16, || traced.run(w().detach()))
        }),
        fails!("a call of an exported program inside `autocast`", {
            let program = ExportOptions::new().export(&Exp, w().detach())?;
            autocast(DType::BF16, || program.call(w().detach()))
        }),
        fails!("a write to a leaf", w().add_(1.0)),
        fails!("a write to a view of a leaf", w().slice(0, 1..).add_(1.0)),
        fails!("a write through a view that was made in `no_grad`", {
            let y = w().exp();
            no_grad(|| y.slice(0, 1..)).mul_(w().slice(0, 1..))
        }),
        fails!("a write by a number, through a view of a view that was made in `no_grad`", {
            let y = w().exp();
            no_grad(|| y.slice(0, 1..)).unsqueeze(0).fill_(2.0)
        }),
        fails!("a write of what has a gradient, through a view of a buffer made in `no_grad`", {
            let buffer = Tensor::zeros([3], DType::F64);
            no_grad(|| buffer.slice(0, 1..)).copy_(&w().slice(0, 1..))
        }),
        fails!("a write to a recorded result through an array", {
            w().exp().write::<f64>()?.fill(0.0);
            Ok::<(), Error>(())
        }),
        fails!("a write to a leaf through an array", {
            w().write::<f64>()?.fill(0.0);
            Ok::<(), Error>(())
        }),
        fails!("a write to what a derivative reads", {
            let y = w().exp();
            y.mul_(2.0);
            y.sum().backward()
        }),
        fails!("a custom operator that mutates what requires a gradient", {
            let op = ops::custom_op("err::g_clear")
                .arg_names(["x"])
                .kernel(|x: &mut Tensor| -> Result<()> {
                    x.write::<f64>()?.fill(0.0);
                    Ok(())
                })
                .register()?;
            op.call(args![&w().exp()])
        }),
        fails!("a custom operator without a rule", {
            let op = ops::custom_op("err::g_missing").arg_names(["x"]).kernel(thrice).register()?;
            summed(&op, &w())?.backward()
        }),
        fails!("the same, in a trace", {
            let op = Op::find("err::g_missing")?;
            op.register_fake(copy_fake)?;
            let f = value_and_grad(move |x: Tensor| summed(&op, &x).unwrap_or_else(Tensor::poison));
            trace(f, Tensor::from([1.0f64, 2.0]))
        }),
        fails!("a rule for an operator that mutates", {
            Op::find("err::g_clear")?.register_autograd(|_, _| Ok(vec![]))
        }),
        fails!("a rule that gives too many gradients", {
            let op = ruled("err::g_two", |g| vec![Some(g * 3.0), None])?;
            summed(&op, &w())?.backward()
        }),
        fails!("a rule that gives a gradient of other sizes", {
            let op = ruled("err::g_sizes", |g| vec![Some(g.sum())])?;
            summed(&op, &w())?.backward()
        }),
        fails!("a rule that gives a gradient of another dtype", {
            let op = ruled("err::g_dtype", |g| vec![Some(g.to_dtype(DType::F32))])?;
            summed(&op, &w())?.backward()
        }),
        fails!("a rule that fails", {
            let op = ruled("err::g_fails", |g| vec![Some(g.mm(g))])?;
            summed(&op, &w())?.backward()
        }),
        fails!("a rule that writes the gradient that it is given", {
            let op = ruled("err::g_writes", |g| vec![Some(g.mul_(3.0))])?;
            let ones = Tensor::ones([3], DType::F64);
            op.call(args![&w()])?[0].tensor()?.backward_with(&ones, BackwardOptions::default())
        }),
        fails!("the same, in a trace", {
            let op = Op::find("err::g_writes")?;
            op.register_fake(copy_fake)?;
            let f = value_and_grad(move |x: Tensor| summed(&op, &x).unwrap_or_else(Tensor::poison));
            trace(f, Tensor::from([1.0f64, 2.0]))
        }),
        fails!("a hook that writes the gradient that it is given", {
            let w = w();
            w.register_hook(|g| Ok(Some(g.mul_(2.0))))?;
            (&w * 2.0).sum().backward()
        }),
        fails!("a rule that panics", {
            let op = ruled("err::g_panics", |_| panic!("out of luck"))?;
            summed(&op, &w())?.backward()
        }),
        fails!("a second derivative of a rule that reads an intermediate", {
            let f = |x: Tensor| {
                let forward = |ctx: &mut AutogradCtx, x: &[Tensor]| {
                    let slope = &x[0] * 2.0;
                    ctx.save(&slope);
                    Ok(vec![&x[0] * &x[0]])
                };
                let y = custom_vjp(&[x], forward, |ctx, g| Ok(vec![Some(&g[0] * ctx.saved(0)?)]));
                y.map_or_else(Tensor::poison, |y| y[0].sum())
            };
            let first =
                move |x: Tensor| ops::func::grad(f)(x).map_or_else(Tensor::poison, |g| g.sum());
            ops::func::grad(first)(Tensor::from([3.0f64]))
        }),
        fails!("the gradient of a function whose value is no scalar", {
            value_and_grad(|x: Tensor| x.exp())(Tensor::from([1.0f64, 2.0]))
        }),
        fails!("a weight of other sizes than the value", {
            let (_, pull) = vjp(|x: Tensor| x.exp(), Tensor::from([1.0f64, 2.0]))?;
            pull(Tensor::from([1.0f64]))
        }),
        fails!("several roots, one without a gradient", {
            backward(&[w().sum(), x().sum()], &[], BackwardOptions::default())
        }),
        fails!("a wrong rule, found by gradcheck", {
            let op = ruled("err::g_wrong", |g| vec![Some(g * 2.0)])?;
            gradcheck(|x| Ok(vec![op.call(args![&x[0]])?[0].tensor()?.clone()]), &[w().detach()])
        }),
        fails!("a rule that is right on the sample, found by gradcheck", {
            // adds the elements of an expanded gradient as if they were apart in memory
            let op = ruled("err::g_strides", |g| {
                let same = g.as_strided([g.size(0)], [1], None);
                vec![Some(if g.strides()[0].as_i64() == Some(2) { same } else { g * 3.0 })]
            })?;
            gradcheck(|x| Ok(vec![op.call(args![&x[0]])?[0].tensor()?.clone()]), &[w().detach()])
        }),
        fails!("gradcheck of floats that are not exact", {
            gradcheck(|x| Ok(vec![x[0].exp()]), &[x()])
        }),
    ]
}
