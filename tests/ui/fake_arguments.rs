use maquette::prelude::*;

#[custom_op("ui::scale")]
fn scale(x: &Tensor, by: f64) -> Result<Tensor> {
    let _ = by;
    x.ok().cloned()
}

#[register_fake(scale)]
fn too_few(_cx: &FakeCtx, x: &Tensor) -> Result<Tensor> {
    x.ok().cloned()
}

#[register_fake(scale)]
fn of_another_type(_cx: &FakeCtx, x: &Tensor, _by: SymInt) -> Result<Tensor> {
    x.ok().cloned()
}

#[register_kernel(scale, "cuda")]
fn too_many(x: &Tensor, _by: f64, _bias: Option<&Tensor>) -> Result<Tensor> {
    x.ok().cloned()
}

fn main() {}
