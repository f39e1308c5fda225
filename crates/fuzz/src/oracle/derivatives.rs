//! The derivatives of the oracle's operators. Several kinds of rules take part: they read inputs,
//! outputs, numbers or nothing; one is a custom operator, one has an effect, one is of a view.

use super::library::{like, mixed_with_itself, op};
use maquette_ops::autograd::AutogradCtx;
use maquette_ops::{Error, FakeCtx, Op, Result, Tensor, Value, args};

type Gradients = Result<Vec<Option<Tensor>>>;

/// The slope of an element that is mixed with itself.
const ITSELF: f64 = 1.5;

pub(super) fn register() -> Result<()> {
    smooth()?;
    greedy()?;
    mix()?;
    let both = Op::find("oracle::both")?;
    both.register_autograd_with(
        |ctx: &mut AutogradCtx, inputs: &[Value], _: &[Value]| {
            ctx.save_value(inputs.get(1).is_some_and(|y| !y.is_none()));
            Ok(())
        },
        |ctx: &AutogradCtx, grads: &[Tensor]| -> Gradients {
            let (first, second) = (&grads[0] * ITSELF, &grads[1] * ITSELF);
            match ctx.value(0)? {
                Value::Bool(true) => Ok(vec![Some(first), Some(second)]),
                _ => Ok(vec![Some(first + second), None]),
            }
        },
    )?;
    // Gradients are shared and read-only, so the rule writes copies.
    Op::find("oracle::copies")?.register_autograd(|_: &AutogradCtx, grads: &[Tensor]| {
        Ok(grads.iter().map(|g| Some(g.clone_tensor().mul_(ITSELF))).collect())
    })?;
    Op::find("oracle::tail")?.register_autograd_with(
        |ctx: &mut AutogradCtx, inputs: &[Value], _: &[Value]| {
            let x = inputs.first().ok_or_else(|| Error::value("takes a tensor"))?.tensor()?;
            ctx.save_value(Value::Ints(x.sizes().into()));
            Ok(())
        },
        |ctx: &AutogradCtx, grads: &[Tensor]| -> Gradients {
            let Value::Ints(sizes) = ctx.value(0)? else {
                return Err(Error::value("sizes are saved"));
            };
            let all = grads[0].new_empty(&sizes[..], grads[0].dtype()).zero_();
            all.slice(0, 1..).copy_(&grads[0]).ok()?;
            Ok(vec![Some(all)])
        },
    )?;
    Op::find("oracle::tell")?.register_autograd_with(
        |ctx: &mut AutogradCtx, inputs: &[Value], _: &[Value]| {
            ctx.save_value(inputs.get(1).cloned().unwrap_or(Value::None));
            Ok(())
        },
        |ctx: &AutogradCtx, grads: &[Tensor]| -> Gradients {
            Op::find("oracle::log")?.call(args![&grads[0], ctx.value(0)?.clone()])?;
            Ok(vec![Some(&grads[0] * ITSELF), None])
        },
    )
}

/// An operator whose rule tries to write the gradient that it is given, which others may be given
/// too: the write is refused, and the rule writes a copy.
fn greedy() -> Result<()> {
    let greedy = op("greedy(Tensor x) -> Tensor").kernel(mixed_with_itself).register()?;
    greedy.register_fake(|_: &FakeCtx, x: &Tensor| -> Result<Tensor> { Ok(like(x)) })?;
    greedy.register_autograd(|_: &AutogradCtx, grads: &[Tensor]| {
        let written = grads[0].mul_(ITSELF);
        let gradient = match written.ok() {
            Ok(written) => written.clone(),
            Err(_) => grads[0].clone_tensor().mul_(ITSELF),
        };
        Ok(vec![Some(gradient)])
    })
}

/// An operator that is not linear, whose rule reads its input, and one whose rule reads its output.
fn smooth() -> Result<()> {
    let fake = |_: &FakeCtx, x: &Tensor| -> Result<Tensor> { Ok(like(x)) };
    let map = |x: &Tensor, f: fn(f64) -> f64| -> Result<Tensor> {
        let values = x.to_vec::<f64>()?.into_iter().map(f).collect();
        Ok(Tensor::from_vec(values, x.sizes()))
    };
    let wave =
        op("wave(Tensor x) -> Tensor").kernel(move |x: &Tensor| map(x, f64::sin)).register()?;
    wave.register_fake(fake)?;
    wave.register_autograd_with(
        |ctx: &mut AutogradCtx, inputs: &[Value], _: &[Value]| {
            inputs.iter().flat_map(Value::tensors).for_each(|x| ctx.save(x));
            Ok(())
        },
        |ctx: &AutogradCtx, grads: &[Tensor]| Ok(vec![Some(&grads[0] * &ctx.saved(0)?.cos())]),
    )?;
    let squash =
        op("squash(Tensor x) -> Tensor").kernel(move |x: &Tensor| map(x, f64::tanh)).register()?;
    squash.register_fake(fake)?;
    squash.register_autograd_with(
        |ctx: &mut AutogradCtx, _: &[Value], outputs: &[Value]| {
            outputs.iter().flat_map(Value::tensors).for_each(|y| ctx.save(y));
            Ok(())
        },
        |ctx: &AutogradCtx, grads: &[Tensor]| {
            let y = ctx.saved(0)?;
            Ok(vec![Some(&grads[0] * &(&y * &y * -1.0 + 1.0))])
        },
    )
}

/// The rule of `oracle::mix` is an operator: how often an element of `y` is read depends on sizes.
fn mix() -> Result<()> {
    let kernel = |g: &Tensor, y: &Tensor| -> Result<(Tensor, Tensor)> {
        let (given, n) = (g.to_vec::<f64>()?, y.numel().as_i64().unwrap_or_default() as usize);
        let factor = if n == 0 { 1.0 } else { 0.5 };
        let mut of_y = vec![0.0; n];
        given.iter().enumerate().filter(|_| n > 0).for_each(|(i, g)| of_y[i % n] += g);
        let of_x = given.iter().map(|g| g * factor).collect();
        Ok((Tensor::from_vec(of_x, g.sizes()), Tensor::from_vec(of_y, y.sizes())))
    };
    op("mix_backward(Tensor g, Tensor y) -> (Tensor, Tensor)")
        .kernel(kernel)
        .register()?
        .register_fake(|_: &FakeCtx, g: &Tensor, y: &Tensor| -> Result<(Tensor, Tensor)> {
            Ok((like(g), like(y)))
        })?;
    Op::find("oracle::mix")?.register_autograd_with(
        |ctx: &mut AutogradCtx, inputs: &[Value], _: &[Value]| {
            inputs.iter().skip(1).flat_map(Value::tensors).for_each(|y| ctx.save(y));
            Ok(())
        },
        |ctx: &AutogradCtx, grads: &[Tensor]| -> Gradients {
            let out = Op::find("oracle::mix_backward")?.call(args![&grads[0], &ctx.saved(0)?])?;
            out.iter().map(|g| g.tensor().cloned().map(Some)).collect()
        },
    )
}
