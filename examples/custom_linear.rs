//! A fake kernel that checks its arguments: wrong shapes are found while tracing, or by asking fake
//! tensors, without any data.

use maquette::prelude::*;

#[custom_op("custom_linear::custom_linear")]
fn custom_linear(x: &Tensor, weight: &Tensor, bias: &Tensor) -> Result<Tensor> {
    let (x, w, b) = (x.to_array::<f32>()?, weight.to_array::<f32>()?, bias.to_array::<f32>()?);
    let (x, w) = (
        x.into_dimensionality::<maquette::ndarray::Ix2>()?,
        w.into_dimensionality::<maquette::ndarray::Ix2>()?,
    );
    Ok(Tensor::from(x.dot(&w.t()) + &b))
}

#[register_fake(custom_linear)]
fn custom_linear_fake(_cx: &FakeCtx, x: &Tensor, weight: &Tensor, bias: &Tensor) -> Result<Tensor> {
    ensure!(x.dim() == 2, "x must be a matrix, found {} dimensions", x.dim());
    ensure!(weight.dim() == 2, "weight must be a matrix, found {} dimensions", weight.dim());
    ensure!(bias.dim() == 1, "bias must be a vector, found {} dimensions", bias.dim());
    ensure!(
        x.size(1).eq(weight.size(1)).guard()?,
        "x has {} columns, weight has {}: they must be equal",
        x.size(1),
        weight.size(1)
    );
    ensure!(
        weight.size(0).eq(bias.size(0)).guard()?,
        "weight has {} rows, bias has {} elements: they must be equal",
        weight.size(0),
        bias.size(0)
    );
    Ok(x.new_empty([x.size(0), weight.size(0)], x.dtype()))
}

pub fn report() -> Result<String> {
    let fake = |sizes: &[i64]| Tensor::fake(sizes, DType::F32);
    let y = custom_linear(&fake(&[2, 4]), &fake(&[3, 4]), &fake(&[3]));
    let mut out = format!("fake: {:?} gives {:?}\n", "[2, 4], [3, 4], [3]", y.ok()?.sizes_i64()?);

    let Err(e) = custom_linear(&fake(&[2, 4]), &fake(&[3, 3]), &fake(&[3])).ok().cloned() else {
        bail!("4 and 3 columns do not fit")
    };
    out += &format!("fake: {e}\n\n");

    let sample = (
        Tensor::zeros([2, 4], DType::F32),
        Tensor::zeros([3, 4], DType::F32),
        Tensor::zeros([3], DType::F32),
    );
    let traced = TraceOptions::symbolic()
        .names(["x", "weight", "bias"])
        .trace(|(x, w, b)| custom_linear(&x, &w, &b), sample)?;
    out += &traced.graph().to_string();
    Ok(out)
}

#[allow(dead_code)] // the tests include this file and call `report`
fn main() -> Result<()> {
    print!("{}", report()?);
    Ok(())
}
