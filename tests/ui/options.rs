use maquette::prelude::*;

#[custom_op("ui::unknown", devices("cpu"))]
fn unknown(x: &Tensor) -> Result<Tensor> {
    x.ok().cloned()
}

#[custom_op("ui::twice", device_types("cpu"), device_types("cuda"))]
fn twice(x: &Tensor) -> Result<Tensor> {
    x.ok().cloned()
}

#[custom_op("ui::equals", schema = "(Tensor x) -> Tensor")]
fn equals(x: &Tensor) -> Result<Tensor> {
    x.ok().cloned()
}

#[custom_op("ui::effect", effect("io"))]
fn effect(x: &Tensor) -> Result<Tensor> {
    x.ok().cloned()
}

fn main() {}
