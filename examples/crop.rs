//! An operator whose output is not row-major: the fake kernel promises the strides too, and every
//! run checks them.

use maquette::prelude::*;

/// Cuts `pic` `[channels, height, width]` to the box `[left, top, right, bottom]`. The kernel works
/// on `[height, width, channels]`, as image libraries do, so its output's strides are permuted.
#[custom_op("crop::crop")]
fn crop(pic: &Tensor, cut: &[i64]) -> Result<Tensor> {
    let &[left, top, right, bottom] = cut else {
        bail!("the box needs four numbers, found {}", cut.len())
    };
    let pic = pic.to_array::<f32>()?;
    let hwc = pic.permuted_axes(vec![1, 2, 0]);
    let cut = hwc.slice_each_axis(|axis| match axis.axis.index() {
        0 => maquette::ndarray::Slice::from(top as isize..bottom as isize),
        1 => maquette::ndarray::Slice::from(left as isize..right as isize),
        _ => maquette::ndarray::Slice::from(..),
    });
    Ok(Tensor::from(cut.as_standard_layout().into_owned()).permute([2, 0, 1]))
}

#[register_fake(crop)]
fn crop_fake(_cx: &FakeCtx, pic: &Tensor, cut: &[SymInt]) -> Result<Tensor> {
    let &[left, top, right, bottom] = cut else {
        bail!("the box needs four numbers, found {}", cut.len())
    };
    let hwc = pic.new_empty([bottom - top, right - left, pic.size(0)], pic.dtype());
    Ok(hwc.permute([2, 0, 1]))
}

fn model(pic: Tensor) -> Tensor {
    crop(&pic, [1, 0, 4, 2]) * 0.5
}

pub fn report() -> Result<String> {
    let pic = Tensor::arange(60).to_dtype(DType::F32).view([3, 4, 5]);
    let traced = TraceOptions::symbolic().names(["pic"]).trace(model, pic.clone())?;
    let (eager, run) = (model(pic.clone()), traced.run(pic)?);
    let strides: Vec<Option<i64>> = run.strides().iter().map(|s| s.as_i64()).collect();
    ensure!(
        eager.to_vec::<f32>()? == run.to_vec::<f32>()?,
        "the graph and the eager program differ"
    );
    Ok(format!("{}\nsizes {:?}, strides {strides:?}\n", traced.graph(), run.sizes_i64()?))
}

#[allow(dead_code)] // the tests include this file and call `report`
fn main() -> Result<()> {
    print!("{}", report()?);
    Ok(())
}
