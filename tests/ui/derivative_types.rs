use maquette::prelude::*;

#[custom_op("ui::f")]
fn f(x: &Tensor) -> Result<Tensor> {
    x.ok().cloned()
}

#[register_autograd(f)]
fn no_options(ctx: &AutogradCtx, grads: &[Tensor]) -> Result<Vec<Tensor>> {
    Ok(vec![grads[0].clone()])
}

#[register_autograd(f)]
fn of_numbers(ctx: &AutogradCtx, grads: &[f64]) -> Result<Vec<Option<Tensor>>> {
    Ok(vec![])
}

fn setup(ctx: &mut AutogradCtx, inputs: &[Value]) -> Result<()> {
    Ok(())
}

#[register_autograd(f, setup_context = setup)]
fn other_setup(ctx: &AutogradCtx, grads: &[Option<Tensor>]) -> Result<Vec<Option<Tensor>>> {
    Ok(vec![grads[0].clone()])
}

fn main() {}
