use maquette::prelude::*;

#[custom_op("ui::f")]
fn f(x: &Tensor) -> Result<Tensor> {
    x.ok().cloned()
}

#[register_kernel(f)]
fn no_device(x: &Tensor) -> Result<Tensor> {
    x.ok().cloned()
}

#[register_kernel("ui::f", "cuda")]
fn by_name(x: &Tensor) -> Result<Tensor> {
    x.ok().cloned()
}

#[register_fake(f)]
fn no_context(x: &Tensor) -> Result<Tensor> {
    x.ok().cloned()
}

#[register_fake(f, "cpu")]
fn with_device(cx: &FakeCtx, x: &Tensor) -> Result<Tensor> {
    x.ok().cloned()
}

fn main() {}
