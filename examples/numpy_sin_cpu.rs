//! A kernel for one device only: a call on another device is an error that says what there is.

use maquette::prelude::*;

#[custom_op("numpy_sin_cpu::numpy_sin", device_types("cpu"))]
fn numpy_sin(x: &Tensor) -> Result<Tensor> {
    Ok(Tensor::from(x.read::<f32>()?.mapv(f32::sin)))
}

#[register_fake(numpy_sin)]
fn numpy_sin_fake(_cx: &FakeCtx, x: &Tensor) -> Result<Tensor> {
    Ok(x.new_empty(x.sizes(), x.dtype()))
}

/// Chosen by its argument `device`, since it takes no tensor.
#[custom_op("numpy_sin_cpu::arange_sin", device_types("cpu"))]
fn arange_sin(n: i64, device: Device) -> Result<Tensor> {
    let _ = device;
    Ok(Tensor::from((0..n).map(|i| (i as f32).sin()).collect::<Vec<f32>>()))
}

pub fn report() -> Result<String> {
    let x = Tensor::from([0.0f32, 0.5, 1.0]);
    let traced = trace(|x: Tensor| numpy_sin(&x), x.clone())?;
    let y = traced.run(x)?.to_vec::<f32>()?;
    let Err(elsewhere) = arange_sin(3, Device::cuda(0)).ok().cloned() else {
        bail!("there is no kernel for cuda")
    };
    let first_line = elsewhere.to_string().lines().next().unwrap_or_default().to_owned();
    Ok(format!("{}\n{y:?}\non cuda: {first_line}\n", traced.graph()))
}

#[allow(dead_code)] // the tests include this file and call `report`
fn main() -> Result<()> {
    print!("{}", report()?);
    Ok(())
}
