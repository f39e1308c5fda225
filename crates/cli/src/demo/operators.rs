//! The demo's two custom operators. They are opaque to the tracer: it knows only their schemas and
//! fake kernels.

use maquette::prelude::*;

/// Images of bytes `[n, 8, 8]`, 0 to 16, as floats `[n, 1, 8, 8]`, 0 to 1.
#[custom_op("demo::normalize")]
pub fn normalize(images: &Tensor) -> Result<Tensor> {
    let pixels = images.read::<u8>()?;
    let floats = pixels.mapv(|p| f32::from(p) / 16.0);
    Ok(Tensor::from(floats.insert_axis(maquette::ndarray::Axis(1))))
}

#[register_fake(normalize)]
fn normalize_fake(_cx: &FakeCtx, images: &Tensor) -> Result<Tensor> {
    ensure!(
        images.dim() == 3,
        "images must be [n, height, width], found {} dimensions",
        images.dim()
    );
    ensure!(images.dtype() == DType::U8, "images must be bytes, found {}", images.dtype());
    Ok(images.new_empty([images.size(0), 1.into(), images.size(1), images.size(2)], DType::F32))
}

/// The rows of `probabilities` `[n, classes]` whose largest entry is at least `threshold`, as
/// indices `[k]`. Their number depends on the data.
#[custom_op("demo::confident_rows")]
pub fn confident_rows(probabilities: &Tensor, threshold: f64) -> Result<Tensor> {
    let p = probabilities.read::<f32>()?;
    let sure =
        |row: maquette::ndarray::ArrayViewD<f32>| row.iter().any(|&x| f64::from(x) >= threshold);
    let rows =
        p.outer_iter().enumerate().filter(|(_, row)| sure(row.view())).map(|(i, _)| i as i64);
    Ok(Tensor::from(rows.collect::<Vec<i64>>()))
}

#[register_fake(confident_rows)]
fn confident_rows_fake(cx: &FakeCtx, probabilities: &Tensor, _threshold: f64) -> Result<Tensor> {
    let kept = cx.new_dynamic_size()?;
    kept.le(probabilities.size(0))
        .check("the number of confident rows must be at most the number of rows")?;
    Ok(probabilities.new_empty([kept], DType::I64))
}
