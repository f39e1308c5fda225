//! Programs in ONNX, run by tract in a pool of as many threads as candle has.

use super::{Run, normal};
use anyhow::{Result, bail};
use std::path::Path;
use tract_onnx::prelude::*;

/// A program's inputs: random numbers, and ones where they are integers, that is for tokens and
/// masks.
fn input(fact: &TypedFact) -> Result<TValue> {
    let sizes: Vec<usize> = fact.shape.eval_to_usize(&SymbolValues::default())?.to_vec();
    let len = sizes.iter().product();
    let tensor = match fact.datum_type {
        DatumType::F32 => Tensor::from_shape(&sizes, &normal(&[len])?.to_vec1::<f32>()?)?,
        DatumType::I64 => Tensor::from_shape(&sizes, &vec![1i64; len])?,
        dtype => bail!("an input of {dtype:?}"),
    };
    Ok(tensor.into())
}

/// A program in a file, ready to run, if the file is there.
pub fn case(file: &Path) -> Result<Option<Run>> {
    if !file.exists() {
        return Ok(None);
    }
    let model = tract_onnx::onnx().model_for_path(file)?.into_optimized()?;
    let inputs: TVec<TValue> =
        (0..model.inputs.len()).map(|i| input(model.input_fact(i)?)).collect::<Result<_>>()?;
    let threads = candle_core::utils::get_num_threads();
    let executor = Some(multithread::Executor::multithread(threads));
    let options = RunOptions { executor, ..Default::default() };
    let program = model.into_runnable_with_options(&options)?;
    Ok(Some(Box::new(move || program.run(inputs.clone()).map(drop))))
}
