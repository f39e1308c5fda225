//! An operator whose output is not row-major: the fake kernel promises the strides too, and every
//! run checks them. Its derivative calls another custom operator, `paste`.

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

/// `below` `[channels, height, width]` with `above` on it, whose left upper corner is `corner`:
/// `[left, top]`.
#[custom_op("crop::paste")]
fn paste(below: &Tensor, above: &Tensor, corner: &[i64]) -> Result<Tensor> {
    let &[left, top] = corner else {
        bail!("the corner needs two numbers, found {}", corner.len())
    };
    let (mut pic, above) = (below.to_array::<f32>()?, above.to_array::<f32>()?);
    let (height, width) = (above.shape()[1] as i64, above.shape()[2] as i64);
    pic.slice_each_axis_mut(|axis| match axis.axis.index() {
        1 => maquette::ndarray::Slice::from(top as isize..(top + height) as isize),
        2 => maquette::ndarray::Slice::from(left as isize..(left + width) as isize),
        _ => maquette::ndarray::Slice::from(..),
    })
    .assign(&above);
    Ok(Tensor::from(pic))
}

#[register_fake(paste)]
fn paste_fake(
    _cx: &FakeCtx,
    below: &Tensor,
    _above: &Tensor,
    _corner: &[SymInt],
) -> Result<Tensor> {
    Ok(below.new_empty(below.sizes(), below.dtype()))
}

/// The gradient of a picture is zero outside of the box.
#[register_autograd(crop, setup_context = crop_setup)]
fn crop_backward(ctx: &AutogradCtx, grads: &[Tensor]) -> Result<Vec<Option<Tensor>>> {
    let (sizes, corner) = (ctx.value(0)?.ints()?, ctx.value(1)?.ints()?);
    let zeros = grads[0].new_zeros(sizes, grads[0].dtype());
    Ok(vec![Some(paste(&zeros, &grads[0], corner)), None])
}

fn crop_setup(ctx: &mut AutogradCtx, inputs: &[Value], _outputs: &[Value]) -> Result<()> {
    let (pic, cut) = (inputs[0].tensor()?, inputs[1].ints()?);
    ctx.save_value(Value::from_dims(pic.sizes())); // symbolic in a trace
    ctx.save_value(Value::from_dims(&cut[..2]));
    Ok(())
}

#[register_autograd(paste, setup_context = paste_setup)]
fn paste_backward(ctx: &AutogradCtx, grads: &[Tensor]) -> Result<Vec<Option<Tensor>>> {
    let (sizes, corner) = (ctx.value(0)?.ints()?, ctx.value(1)?.ints()?);
    let (&[channels, height, width], &[left, top]) = (sizes, corner) else {
        bail!("a picture has three dimensions, and its corner two")
    };
    let below = ctx.needs_input_grad(0).then(|| {
        let hole = grads[0].new_zeros([channels, height, width], grads[0].dtype());
        paste(&grads[0], &hole, corner)
    });
    let cut = [left, top, left + width, top + height];
    let above = ctx.needs_input_grad(1).then(|| crop(&grads[0], cut));
    Ok(vec![below, above, None])
}

fn paste_setup(ctx: &mut AutogradCtx, inputs: &[Value], _outputs: &[Value]) -> Result<()> {
    ctx.save_value(Value::from_dims(inputs[1].tensor()?.sizes()));
    ctx.save_value(inputs[2].clone());
    Ok(())
}

fn model(pic: Tensor) -> Tensor {
    crop(&pic, [1, 0, 4, 2]) * 0.5
}

pub fn report() -> Result<String> {
    let pic = Tensor::arange(60).to_dtype(DType::F32).view([3, 4, 5]);
    let traced = TraceOptions::symbolic().names(["pic"]).trace(model, pic.clone())?;
    let (eager, run) = (model(pic.clone()), traced.run(pic.clone())?);
    let strides: Vec<Option<i64>> = run.strides().iter().map(|s| s.as_i64()).collect();
    ensure!(
        eager.to_vec::<f32>()? == run.to_vec::<f32>()?,
        "the graph and the eager program differ"
    );
    let of_crop = maquette::grad(|pic: Tensor| model(pic).square().sum());
    let gradient = TraceOptions::symbolic().names(["pic"]).trace(&of_crop, pic.clone())?;
    let (eager, replayed) = (of_crop(pic.clone())?, gradient.run(pic)?);
    ensure!(
        eager.to_vec::<f32>()? == replayed.to_vec::<f32>()?,
        "the gradient in the graph and the eager one differ"
    );
    Ok(format!(
        "{}\nsizes {:?}, strides {strides:?}\n{}\ngradient of the first channel {:?}\n",
        traced.graph(),
        run.sizes_i64()?,
        gradient.graph(),
        eager.select(0, 0).to_vec::<f32>()?
    ))
}

#[allow(dead_code)] // the tests include this file and call `report`
fn main() -> Result<()> {
    print!("{}", report()?);
    Ok(())
}
