use maquette::prelude::*;

#[register_fake(missing)]
fn of_nothing(_cx: &FakeCtx, x: &Tensor) -> Result<Tensor> {
    x.ok().cloned()
}

fn helper() {}

#[register_kernel(helper, "cpu")]
fn of_a_plain_function(x: &Tensor) -> Result<Tensor> {
    x.ok().cloned()
}

#[custom_op("ui::other_error")]
fn other_error(x: &Tensor) -> std::result::Result<Tensor, String> {
    x.ok().cloned().map_err(|e| e.to_string())
}

fn main() {}
