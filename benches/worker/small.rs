//! Operators alone and in short chains.

use super::{Run, normal, weight};
use maquette::FastMath;
use maquette::prelude::*;

/// A run of a compiled function of tensors.
fn compiled(
    f: impl Fn(Vec<Tensor>) -> Tensor + 'static,
    inputs: impl IntoIterator<Item = Tensor>,
) -> Run {
    compiled_with(CompileOptions::new(), f, inputs)
}

fn compiled_with(
    options: CompileOptions,
    f: impl Fn(Vec<Tensor>) -> Tensor + 'static,
    inputs: impl IntoIterator<Item = Tensor>,
) -> Run {
    let (compiled, inputs) = (options.compile(f), inputs.into_iter().collect::<Vec<Tensor>>());
    Box::new(move || compiled.call(inputs.clone()).map(drop))
}

/// Eight elementwise operators.
pub fn pointwise(n: i64) -> Run {
    let chain = |t: Vec<Tensor>| {
        let [x, y] = &t[..] else { return Tensor::zeros([0i64; 1], DType::F32) };
        let e = ((x * y + x).relu() - y) * 0.5;
        (e.maximum(x) + 1.0).abs()
    };
    compiled(chain, [normal(&[n]), normal(&[n])])
}

/// A softmax of scaled and masked rows.
pub fn softmax(rows: i64, columns: i64) -> Run {
    let f = |t: Vec<Tensor>| (&t[0] * 0.125 + &t[1]).softmax(-1);
    compiled(f, [normal(&[rows, columns]), normal(&[columns])])
}

/// Attention with a mask, written as products and a softmax; with `fast`, as one kernel.
pub fn attention([batch, heads, length, width]: [i64; 4], fast: bool) -> Run {
    let f = move |t: Vec<Tensor>| {
        let scores = t[0].matmul(&t[1].transpose(-2, -1)) / (width as f64).sqrt();
        (scores + &t[3]).softmax(-1).matmul(&t[2])
    };
    let [q, k, v] = [(); 3].map(|()| normal(&[batch, heads, length, width]));
    let mask = Tensor::zeros([batch, 1, 1, length], DType::F32);
    let options = CompileOptions::new().fast_math(FastMath::new().attention(fast));
    compiled_with(options, f, [q, k, v, mask])
}

/// Layer norm, gelu and a residual connection.
pub fn norm(rows: i64, columns: i64) -> Run {
    let f = move |t: Vec<Tensor>| {
        t[0].layer_norm([columns], Some(&t[1]), Some(&t[2]), 1e-5).gelu() + &t[0]
    };
    compiled(f, [normal(&[rows, columns]), normal(&[columns]), normal(&[columns])])
}

/// A product with a constant, bias and gelu.
pub fn linear(rows: i64, from: i64, out: i64) -> Run {
    let (w, b) = (weight(&[out, from]), normal(&[out]));
    compiled(move |t| t[0].linear(&w, Some(&b)).gelu(), [normal(&[rows, from])])
}

/// Products of matrices of 4 elements, one after another: nothing can be computed together. A
/// rotation keeps the elements at their size.
pub fn tiny(count: i64) -> Run {
    let w = Tensor::from_vec(vec![0.8f32, 0.6, -0.6, 0.8], [2, 2]);
    compiled(move |t| (0..count).fold(t[0].clone(), |x, _| x.mm(&w)), [normal(&[2, 2])])
}
