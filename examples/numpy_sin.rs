//! An opaque operator: the tracer sees a name, a schema and a fake kernel, never the kernel. Its
//! derivative consists of operators.

use maquette::prelude::*;

#[custom_op("numpy_sin::numpy_sin")]
fn numpy_sin(x: &Tensor) -> Result<Tensor> {
    Ok(Tensor::from(x.read::<f32>()?.mapv(f32::sin)))
}

#[register_fake(numpy_sin)]
fn numpy_sin_fake(_cx: &FakeCtx, x: &Tensor) -> Result<Tensor> {
    Ok(x.new_empty(x.sizes(), x.dtype()))
}

#[register_autograd(numpy_sin, setup_context = numpy_sin_setup)]
fn numpy_sin_backward(ctx: &AutogradCtx, grads: &[Tensor]) -> Result<Vec<Option<Tensor>>> {
    Ok(vec![Some(&grads[0] * ctx.saved(0)?.cos())])
}

fn numpy_sin_setup(ctx: &mut AutogradCtx, inputs: &[Value], _outputs: &[Value]) -> Result<()> {
    ctx.save(inputs[0].tensor()?);
    Ok(())
}

pub fn report() -> Result<String> {
    let x = Tensor::from([0.0f32, 0.5, 1.0]);
    let traced =
        TraceOptions::symbolic().names(["x"]).trace(|x: Tensor| numpy_sin(&x) * 2.0, x.clone())?;
    let traced_run = traced.run(x.clone())?.to_vec::<f32>()?;
    let eager = (numpy_sin(&x) * 2.0).to_vec::<f32>()?;
    let x = x.requires_grad_();
    (numpy_sin(&x) * 2.0).sum().backward()?;
    let gradient = x.grad().map(|g| g.to_vec::<f32>()).transpose()?;
    Ok(format!(
        "{}\neager  {eager:?}\ntraced {traced_run:?}\ngradient {gradient:?}\n",
        traced.graph()
    ))
}

#[allow(dead_code)] // the tests include this file and call `report`
fn main() -> Result<()> {
    print!("{}", report()?);
    Ok(())
}
