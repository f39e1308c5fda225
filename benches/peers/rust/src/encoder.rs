//! Encoders as BERT ([Devlin et al.](https://arxiv.org/abs/1810.04805)) in candle, from tokens to a
//! vector. Attention is as in `candle_transformers::models::bert`.

use super::{Run, layer_norm, linear, normal, of_candle};
use candle_core::{DType, Device, Module, Result, Tensor};
use candle_nn::ops::softmax_last_dim;
use candle_nn::{Embedding, LayerNorm, Linear};

/// The sizes of an encoder.
#[derive(Clone, Copy)]
pub struct Sizes {
    layers: usize,
    heads: usize,
    width: usize,
    inner: usize,
}

/// all-MiniLM-L6-v2.
pub const MINILM: Sizes = Sizes { layers: 6, heads: 12, width: 384, inner: 1_536 };
/// BERT-base.
pub const BERT_BASE: Sizes = Sizes { layers: 12, heads: 12, width: 768, inner: 3_072 };

const VOCABULARY: usize = 30_522;

struct Layer {
    query: Linear,
    key: Linear,
    value: Linear,
    attended: Linear,
    attended_norm: LayerNorm,
    inner: Linear,
    output: Linear,
    output_norm: LayerNorm,
    heads: usize,
}

impl Layer {
    fn new(Sizes { heads, width, inner, .. }: Sizes) -> Result<Layer> {
        let square = || linear(width, width);
        Ok(Layer {
            query: square()?,
            key: square()?,
            value: square()?,
            attended: square()?,
            attended_norm: layer_norm(width)?,
            inner: linear(width, inner)?,
            output: linear(inner, width)?,
            output_norm: layer_norm(width)?,
            heads,
        })
    }

    fn forward(&self, x: &Tensor, mask: &Tensor) -> Result<Tensor> {
        let (batch, length, width) = x.dims3()?;
        let split = |part: &Linear| {
            let sizes = (batch, length, self.heads, width / self.heads);
            part.forward(x)?.reshape(sizes)?.transpose(1, 2)?.contiguous()
        };
        let (q, k, v) = (split(&self.query)?, split(&self.key)?, split(&self.value)?);
        let scores = (q.matmul(&k.t()?)? / ((width / self.heads) as f64).sqrt())?;
        let y = softmax_last_dim(&scores.broadcast_add(mask)?)?.matmul(&v)?;
        let y = y.transpose(1, 2)?.contiguous()?.flatten_from(2)?;
        let x = self.attended_norm.forward(&(self.attended.forward(&y)? + x)?)?;
        let y = self.output.forward(&self.inner.forward(&x)?.gelu_erf()?)?;
        self.output_norm.forward(&(y + x)?)
    }
}

struct Encoder {
    word: Embedding,
    position: Tensor,
    norm: LayerNorm,
    layers: Vec<Layer>,
}

impl Encoder {
    fn new(sizes: Sizes) -> Result<Encoder> {
        Ok(Encoder {
            word: Embedding::new(normal(&[VOCABULARY, sizes.width])?, sizes.width),
            position: normal(&[512, sizes.width])?,
            norm: layer_norm(sizes.width)?,
            layers: (0..sizes.layers).map(|_| Layer::new(sizes)).collect::<Result<_>>()?,
        })
    }

    fn forward(&self, ids: &Tensor, mask: &Tensor) -> Result<Tensor> {
        let mask = mask.to_dtype(DType::F32)?;
        let added = ((1.0 - &mask)? * f64::from(f32::MIN))?.unsqueeze(1)?.unsqueeze(1)?;
        let position = self.position.narrow(0, 0, ids.dim(1)?)?;
        let mut x = self.norm.forward(&self.word.forward(ids)?.broadcast_add(&position)?)?;
        for layer in &self.layers {
            x = layer.forward(&x, &added)?;
        }
        let words = mask.unsqueeze(2)?;
        let mean = x.broadcast_mul(&words)?.sum(1)?.broadcast_div(&words.sum(1)?)?;
        mean.broadcast_div(&mean.sqr()?.sum_keepdim(1)?.sqrt()?)
    }
}

/// An encoder on a batch of full sentences.
pub fn run(sizes: Sizes, batch: usize, length: usize) -> Result<Run> {
    let encoder = Encoder::new(sizes)?;
    let ids = Tensor::full(2_000u32, (batch, length), &Device::Cpu)?;
    let mask = Tensor::ones((batch, length), DType::U32, &Device::Cpu)?;
    Ok(of_candle(move || encoder.forward(&ids, &mask)))
}
