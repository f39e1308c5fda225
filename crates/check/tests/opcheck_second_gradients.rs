//! What opcheck says of derivatives of registered derivatives.

use maquette_check::opcheck::opcheck;
use maquette_ops::autograd::AutogradCtx;
use maquette_ops::{FakeCtx, Op, Result, Tensor, Value, args, custom_op};

/// `x * x`, with a rule that multiplies the gradient by what `slope` makes of the saved tensors.
fn square(
    name: &str,
    save: fn(&mut AutogradCtx, &Tensor),
    slope: fn(&AutogradCtx) -> Result<Tensor>,
) -> Op {
    let kernel =
        |x: &Tensor| -> Result<Tensor> { Ok(Tensor::from(x.read::<f64>()?.mapv(|v| v * v))) };
    let op = custom_op(name).arg_names(["x"]).kernel(kernel).register().unwrap();
    op.register_fake(|_: &FakeCtx, x: &Tensor| -> Result<Tensor> {
        Ok(x.new_empty(x.sizes(), x.dtype()))
    })
    .unwrap();
    op.register_autograd_with(
        move |ctx: &mut AutogradCtx, inputs: &[Value], _: &[Value]| {
            save(ctx, inputs[0].tensor()?);
            Ok(())
        },
        move |ctx: &AutogradCtx, grads: &[Tensor]| Ok(vec![Some(&grads[0] * &slope(ctx)?)]),
    )
    .unwrap();
    op
}

fn sample() -> maquette_ops::Args {
    args![Tensor::from([0.5f64, -1.5, 2.0])]
}

#[test]
fn a_derivative_that_reads_an_intermediate_is_differentiated_once() {
    let op = square("second::intermediate", |ctx, x| ctx.save(&(x * 2.0)), |ctx| ctx.saved(0));
    let report = opcheck(&op, sample()).unwrap();
    let text = format!("{report}");
    assert!(text.contains("no second derivative: second::intermediate can be"), "{text}");
}

#[test]
fn a_second_derivative_that_is_wrong_is_found() {
    let right = square("second::right", |ctx, x| ctx.save(x), |ctx| Ok(ctx.saved(0)? * 2.0));
    let text = format!("{}", opcheck(&right, sample()).unwrap());
    assert!(!text.contains("second derivative"), "{text}");
    // right by value, and cut off from its operand
    let cut = square("second::cut", |ctx, x| ctx.save(x), |ctx| Ok(ctx.saved(0)?.detach() * 2.0));
    let e = opcheck(&cut, sample()).unwrap_err().to_string();
    assert!(e.contains("gradcheck of the gradient"), "{e}");
}
