//! Encoders as BERT ([Devlin et al.](https://arxiv.org/abs/1810.04805)), from tokens to a vector.

use super::{Run, normal, weight};
use maquette::prelude::*;

/// The sizes of an encoder.
#[derive(Clone, Copy)]
pub struct Sizes {
    layers: usize,
    heads: i64,
    width: i64,
    inner: i64,
}

/// all-MiniLM-L6-v2.
pub const MINILM: Sizes = Sizes { layers: 6, heads: 12, width: 384, inner: 1_536 };
/// BERT-base.
pub const BERT_BASE: Sizes = Sizes { layers: 12, heads: 12, width: 768, inner: 3_072 };

const VOCABULARY: i64 = 30_522;

pub struct Linear {
    weight: Tensor,
    bias: Tensor,
}

impl Linear {
    pub fn new(from: i64, out: i64) -> Linear {
        Linear { weight: weight(&[out, from]), bias: normal(&[out]) * 0.02 }
    }

    pub fn forward(&self, x: &Tensor) -> Tensor {
        x.linear(&self.weight, Some(&self.bias))
    }
}

pub struct LayerNorm {
    weight: Tensor,
    bias: Tensor,
}

impl LayerNorm {
    pub fn new(width: i64) -> LayerNorm {
        LayerNorm { weight: Tensor::ones([width], DType::F32), bias: normal(&[width]) * 0.02 }
    }

    pub fn forward(&self, x: &Tensor) -> Tensor {
        x.layer_norm([x.size(-1)], Some(&self.weight), Some(&self.bias), 1e-5)
    }
}

struct Layer {
    query: Linear,
    key: Linear,
    value: Linear,
    attended: Linear,
    attended_norm: LayerNorm,
    inner: Linear,
    output: Linear,
    output_norm: LayerNorm,
}

impl Layer {
    fn new(Sizes { width, inner, .. }: Sizes) -> Layer {
        let square = || Linear::new(width, width);
        Layer {
            query: square(),
            key: square(),
            value: square(),
            attended: square(),
            attended_norm: LayerNorm::new(width),
            inner: Linear::new(width, inner),
            output: Linear::new(inner, width),
            output_norm: LayerNorm::new(width),
        }
    }

    fn forward(&self, x: &Tensor, allowed: &Tensor, heads: i64) -> Tensor {
        let split = |x: Tensor| x.unflatten(-1, [heads, -1]).transpose(1, 2);
        let [q, k, v] = [&self.query, &self.key, &self.value].map(|part| split(part.forward(x)));
        let y = q.scaled_dot_product_attention(&k, &v, Some(allowed), false, None, false);
        let y = y.transpose(1, 2).flatten(2, 3);
        let x = self.attended_norm.forward(&(self.attended.forward(&y) + x));
        self.output_norm.forward(&(self.output.forward(&self.inner.forward(&x).gelu()) + &x))
    }
}

/// An encoder on a batch of full sentences.
pub fn run(sizes: Sizes, batch: i64, length: i64) -> Run {
    let word = normal(&[VOCABULARY, sizes.width]);
    let position = normal(&[512, sizes.width]);
    let norm = LayerNorm::new(sizes.width);
    let layers: Vec<Layer> = (0..sizes.layers).map(|_| Layer::new(sizes)).collect();
    let compiled = maquette::compile(move |(ids, mask): (Tensor, Tensor)| {
        let allowed = mask.ne(0).unsqueeze(1).unsqueeze(1);
        let mut x = norm.forward(&(word.embedding(&ids) + position.slice(0, ..ids.size(1))));
        for layer in &layers {
            x = layer.forward(&x, &allowed, sizes.heads);
        }
        let words = mask.unsqueeze(-1).type_as(&x);
        let mean = (x * &words).sum_dim([1], false) / words.sum_dim([1], false);
        &mean / mean.linalg_vector_norm(2, [-1], true)
    });
    let ids = Tensor::full([batch, length], 2_000i64, DType::I64);
    let mask = Tensor::ones([batch, length], DType::I64);
    Box::new(move || compiled.call((ids.clone(), mask.clone())).map(drop))
}
