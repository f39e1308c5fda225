//! An operator that writes into a buffer of the caller's. It returns nothing, so it needs no fake
//! kernel.

use maquette::prelude::*;

#[custom_op("numpy_sin_out::sin_out", device_types("cpu"))]
fn sin_out(input: &Tensor, output: &mut Tensor) -> Result<()> {
    let x = input.read::<f32>()?;
    output.write::<f32>()?.zip_mut_with(&x, |o, x| *o = x.sin());
    Ok(())
}

fn model(x: Tensor) -> Result<Tensor> {
    let mut out = x.new_empty(x.sizes(), x.dtype());
    sin_out(&x, &mut out)?;
    Ok(out)
}

pub fn report() -> Result<String> {
    let x = Tensor::from([0.0f32, 0.5, 1.0]);
    let traced = TraceOptions::symbolic().names(["x"]).trace(model, x.clone())?;
    let (eager, traced_run) = (model(x.clone())?.to_vec::<f32>()?, traced.run(x)?.to_vec::<f32>()?);
    Ok(format!("{}\neager  {eager:?}\ntraced {traced_run:?}\n", traced.graph()))
}

#[allow(dead_code)] // the tests include this file and call `report`
fn main() -> Result<()> {
    print!("{}", report()?);
    Ok(())
}
