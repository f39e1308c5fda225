use maquette::prelude::*;

#[custom_op("ui::containers")]
fn containers(owned: Tensor, list: Vec<Tensor>, text: String, pair: (i64, i64), sizes: [i64; 2]) -> Result<Tensor> {
    Ok(owned)
}

#[custom_op("ui::numbers")]
fn numbers(n: usize, eps: &f32, flags: Option<u8>, out: &mut [f64]) -> Result<Tensor> {
    todo!()
}

#[custom_op("ui::patterns")]
fn patterns((a, b): &Tensor, _: i64) -> Result<Tensor> {
    todo!()
}

#[custom_op("ui::lifetime")]
fn lifetime(name: &'static str) -> Result<Tensor> {
    todo!()
}

fn main() {}
