use maquette::prelude::*;

#[custom_op("ui::optional")]
fn optional(x: &Tensor) -> Result<Option<Tensor>> {
    x.ok().cloned().map(Some)
}

fn main() {}
