use maquette::prelude::*;

#[custom_op("ui::f")]
fn f(x: &Tensor) -> Result<Tensor> {
    x.ok().cloned()
}

#[register_autograd]
fn no_operator(ctx: &AutogradCtx, grads: &[Tensor]) -> Result<Vec<Option<Tensor>>> {
    Ok(vec![Some(grads[0].clone())])
}

#[register_autograd("ui::f")]
fn by_name(ctx: &AutogradCtx, grads: &[Tensor]) -> Result<Vec<Option<Tensor>>> {
    Ok(vec![Some(grads[0].clone())])
}

#[register_autograd(f, setup = keep)]
fn unknown_option(ctx: &AutogradCtx, grads: &[Tensor]) -> Result<Vec<Option<Tensor>>> {
    Ok(vec![Some(grads[0].clone())])
}

#[register_autograd(f, setup_context)]
fn no_path(ctx: &AutogradCtx, grads: &[Tensor]) -> Result<Vec<Option<Tensor>>> {
    Ok(vec![Some(grads[0].clone())])
}

#[register_autograd(f)]
fn no_context(grads: &[Tensor]) -> Result<Vec<Option<Tensor>>> {
    Ok(vec![Some(grads[0].clone())])
}

#[register_autograd(f)]
fn one_gradient(ctx: &AutogradCtx, grad: &Tensor) -> Result<Vec<Option<Tensor>>> {
    Ok(vec![Some(grad.clone())])
}

#[register_autograd(f)]
fn no_result(ctx: &AutogradCtx, grads: &[Tensor]) -> Vec<Option<Tensor>> {
    vec![Some(grads[0].clone())]
}

fn main() {}
