//! Kernels for two devices, registered apart, and who gets the call.

use maquette::prelude::*;

/// Where a kernel runs: `0` for the host.
#[custom_op("second_device::place", device_types("cpu"))]
fn place(device: Device) -> Result<i64> {
    let _ = device;
    Ok(0)
}

/// The same for the first GPU: `1`. A real kernel would launch something.
#[register_kernel(place, "cuda")]
fn place_cuda(device: Device) -> Result<i64> {
    Ok(1 + i64::from(device.index()))
}

#[custom_op("second_device::numpy_sin", device_types("cpu"))]
fn numpy_sin(x: &Tensor) -> Result<Tensor> {
    Ok(Tensor::from(x.read::<f32>()?.mapv(f32::sin)))
}

#[register_kernel(numpy_sin, "cuda")]
fn numpy_sin_cuda(x: &Tensor) -> Result<Tensor> {
    bail!("there is no GPU in this example, and {x:?} asks for one")
}

#[register_fake(numpy_sin)]
fn numpy_sin_fake(_cx: &FakeCtx, x: &Tensor) -> Result<Tensor> {
    Ok(x.new_empty(x.sizes(), x.dtype()))
}

pub fn report() -> Result<String> {
    let mut out = String::new();
    for device in [Device::Cpu, Device::cuda(0), Device::cuda(1)] {
        out += &format!("place({device}) = {}\n", place(device)?);
    }
    let Err(e) = place(Device::new(DeviceKind::Xpu, 0)) else {
        bail!("there is no kernel for xpu")
    };
    out += &format!("place(xpu): {}\n\n", e.to_string().lines().next().unwrap_or_default());

    // tracing needs no device: a graph for the GPU can be made anywhere
    let on_gpu = Tensor::fake_of(ops::Meta::contiguous([3], DType::F32).on(Device::cuda(0)));
    let traced = TraceOptions::new().names(["x"]).trace(|x: Tensor| numpy_sin(&x), on_gpu)?;
    out += &traced.graph().to_string();
    Ok(out)
}

#[allow(dead_code)] // the tests include this file and call `report`
fn main() -> Result<()> {
    print!("{}", report()?);
    Ok(())
}
