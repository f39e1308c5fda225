use maquette::prelude::*;

fn plain(x: &Tensor) -> Result<Tensor> {
    x.ok().cloned()
}

#[custom_op("ui::numpy_sin")]
fn numpy_sin(x: &Tensor) -> Result<Tensor> {
    x.ok().cloned()
}

#[register_fake(plain)]
fn of_a_function(_cx: &FakeCtx, x: &Tensor) -> Result<Tensor> {
    x.ok().cloned()
}


#[register_fake(numpy_sine)]
fn of_a_typo(_cx: &FakeCtx, x: &Tensor) -> Result<Tensor> {
    x.ok().cloned()
}

#[register_autograd(ops::plain)]
fn in_a_module(_ctx: &AutogradCtx, grads: &[Tensor]) -> Result<Vec<Option<Tensor>>> {
    Ok(vec![Some(grads[0].clone())])
}

fn main() {}
