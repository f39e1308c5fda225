//! A data-dependent size: the tracer calls it u0, and every run of the graph binds it from the real
//! output.

use maquette::prelude::*;

#[custom_op("custom_nonzero::custom_nonzero")]
fn custom_nonzero(x: &Tensor) -> Result<Tensor> {
    let x = x.read::<f32>()?;
    let mut indices = Vec::new();
    for (index, _) in x.indexed_iter().filter(|(_, v)| **v != 0.0) {
        indices.extend((0..x.ndim()).map(|d| index[d] as i64));
    }
    let rank = x.ndim() as i64;
    let rows = indices.len() as i64 / rank.max(1);
    Ok(Tensor::from_vec(indices, [rows, rank]))
}

#[register_fake(custom_nonzero)]
fn custom_nonzero_fake(cx: &FakeCtx, x: &Tensor) -> Result<Tensor> {
    let nnz = cx.new_dynamic_size()?;
    Ok(x.new_empty([nnz, x.dim().into()], DType::I64))
}

/// The indices of the nonzero elements, each plus one.
fn model(x: Tensor) -> Tensor {
    custom_nonzero(&x) + 1
}

pub fn report() -> Result<String> {
    let x = Tensor::from([0.0f32, 1.0, 0.0, 2.0]);
    let traced = TraceOptions::symbolic().names(["x"]).trace(model, x)?;
    let mut out = format!("{}\n", traced.graph());
    for data in [vec![0.0f32, 1.0, 0.0, 2.0], vec![0.0; 3], vec![5.0; 2]] {
        let (eager, run) =
            (model(Tensor::from(data.clone())), traced.run(Tensor::from(data.clone()))?);
        ensure!(
            eager.to_vec::<i64>()? == run.to_vec::<i64>()?,
            "the graph and the eager program differ on {data:?}"
        );
        out += &format!("{data:?} -> {:?} {:?}\n", run.sizes_i64()?, run.to_vec::<i64>()?);
    }
    Ok(out)
}

#[allow(dead_code)] // the tests include this file and call `report`
fn main() -> Result<()> {
    print!("{}", report()?);
    Ok(())
}
