//! A factory: without a tensor to dispatch on, its argument `device` chooses the kernel.

use maquette::prelude::*;

#[custom_op("factory::bar", device_types("cpu"))]
fn bar(device: Device) -> Result<Tensor> {
    let _ = device;
    Ok(Tensor::from([1.0f32, 1.0, 1.0]))
}

#[register_fake(bar)]
fn bar_fake(_cx: &FakeCtx, device: Device) -> Result<Tensor> {
    Ok(Tensor::fake_of(ops::Meta::contiguous([3], DType::F32).on(device)))
}

pub fn report() -> Result<String> {
    let traced = trace(|x: Tensor| bar(Device::Cpu) + x, Tensor::from([1.0f32, 2.0, 3.0]))?;
    let y = traced.run(Tensor::from([1.0f32, 2.0, 3.0]))?.to_vec::<f32>()?;
    Ok(format!("{}\n{y:?}\n", traced.graph()))
}

#[allow(dead_code)] // the tests include this file and call `report`
fn main() -> Result<()> {
    print!("{}", report()?);
    Ok(())
}
