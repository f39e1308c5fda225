//! Operators alone and in short chains, in candle.

use super::{Run, normal, of_candle};
use candle_core::{DType, Device, Module, Result, Tensor};
use candle_nn::LayerNorm;
use candle_nn::ops::softmax_last_dim;

/// Eight elementwise operators.
pub fn pointwise(n: usize) -> Result<Run> {
    let (x, y) = (normal(&[n])?, normal(&[n])?);
    Ok(of_candle(move || {
        let e = ((((&x * &y)? + &x)?.relu()? - &y)? * 0.5)?;
        (e.maximum(&x)? + 1.0)?.abs()
    }))
}

/// A softmax of scaled and masked rows.
pub fn softmax(rows: usize, columns: usize) -> Result<Run> {
    let (x, mask) = (normal(&[rows, columns])?, normal(&[columns])?);
    Ok(of_candle(move || softmax_last_dim(&(&x * 0.125)?.broadcast_add(&mask)?)))
}

/// Attention with a mask, written as products and a softmax.
pub fn attention([batch, heads, length, width]: [usize; 4]) -> Result<Run> {
    let random = || normal(&[batch, heads, length, width]);
    let (q, k, v) = (random()?, random()?, random()?);
    let mask = Tensor::zeros((batch, 1, 1, length), DType::F32, &Device::Cpu)?;
    Ok(of_candle(move || {
        let scores = (q.matmul(&k.t()?)? / (width as f64).sqrt())?;
        softmax_last_dim(&scores.broadcast_add(&mask)?)?.matmul(&v)
    }))
}

/// Layer norm, gelu and a residual connection.
pub fn norm(rows: usize, columns: usize) -> Result<Run> {
    let x = normal(&[rows, columns])?;
    let norm = LayerNorm::new(normal(&[columns])?, normal(&[columns])?, 1e-5);
    Ok(of_candle(move || norm.forward(&x)?.gelu_erf()? + &x))
}

/// A product with a constant, bias and gelu.
pub fn linear(rows: usize, from: usize, out: usize) -> Result<Run> {
    let (x, linear) = (normal(&[rows, from])?, super::linear(from, out)?);
    Ok(of_candle(move || linear.forward(&x)?.gelu_erf()))
}

/// Products of matrices of 4 elements, one after another. A rotation keeps the elements at their
/// size.
pub fn tiny(count: usize) -> Result<Run> {
    let w = Tensor::new(&[[0.8f32, 0.6], [-0.6, 0.8]], &Device::Cpu)?;
    let x = normal(&[2, 2])?;
    Ok(of_candle(move || (0..count).try_fold(x.clone(), |x, _| x.matmul(&w))))
}
