use maquette::prelude::*;

#[custom_op("ui::f")]
fn f(x: &Tensor) -> Result<Tensor> {
    x.ok().cloned()
}

#[register_autograd(f)]
fn no_options(_ctx: &AutogradCtx, grads: &[Tensor]) -> Result<Vec<Tensor>> {
    Ok(vec![grads[0].clone()])
}

fn setup(_ctx: &mut AutogradCtx, _inputs: &[Value]) -> Result<()> {
    Ok(())
}

#[register_autograd(f, setup_context = setup)]
fn other_setup(_ctx: &AutogradCtx, grads: &[Option<Tensor>]) -> Result<Vec<Option<Tensor>>> {
    Ok(vec![grads[0].clone()])
}

fn main() {}
