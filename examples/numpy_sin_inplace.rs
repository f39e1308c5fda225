//! An in-place operator: mutation is in the signature, and every view of the storage sees it.

use maquette::prelude::*;

#[custom_op("numpy_sin_inplace::numpy_sin_")]
fn numpy_sin_(x: &mut Tensor) -> Result<()> {
    x.write::<f32>()?.mapv_inplace(f32::sin);
    Ok(())
}

/// Mutates a part of its argument, and returns the whole.
fn model(x: Tensor) -> Result<Tensor> {
    let y = x.clone_tensor();
    let mut first_row = y.select(0, 0);
    numpy_sin_(&mut first_row)?;
    Ok(y + 1.0)
}

pub fn report() -> Result<String> {
    let x = Tensor::from([[0.0f32, 0.5], [1.0, 1.5]]);
    let traced = TraceOptions::symbolic().names(["x"]).trace(model, x.clone())?;
    let (eager, traced_run) = (model(x.clone())?.to_vec::<f32>()?, traced.run(x)?.to_vec::<f32>()?);
    Ok(format!("{}\neager  {eager:?}\ntraced {traced_run:?}\n", traced.graph()))
}

#[allow(dead_code)] // the tests include this file and call `report`
fn main() -> Result<()> {
    print!("{}", report()?);
    Ok(())
}
