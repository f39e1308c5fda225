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

type Number = u8;

#[custom_op("ui::alias")]
fn alias(x: &Tensor, n: Number) -> Result<Tensor> {
    x.ok().cloned()
}

#[custom_op("ui::other_error")]
fn other_error(x: &Tensor) -> std::result::Result<Tensor, String> {
    x.ok().cloned().map_err(|e| e.to_string())
}

#[custom_op("ui::other_output")]
fn other_output(x: &Tensor) -> Result<String> {
    Ok(x.meta().to_string())
}

#[derive(Tree)]
struct Holder {
    name: String,
}

fn main() {}
