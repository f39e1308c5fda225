//! One step of decoding with the sizes of GPT-2
//! ([Radford et al.](https://cdn.openai.com/better-language-models/language_models_are_unsupervised_multitask_learners.pdf))
//! in candle: 12 layers, 768 wide, 12 heads, 50,257 tokens. Keys and values are written into a
//! cache in place.

use super::{Run, layer_norm, linear, normal, of_candle};
use candle_core::{Device, Module, Result, Tensor};
use candle_nn::ops::softmax_last_dim;
use candle_nn::{Embedding, LayerNorm, Linear};

const LAYERS: usize = 12;
const HEADS: usize = 12;
const WIDTH: usize = 768;
const VOCABULARY: usize = 50_257;
const CAPACITY: usize = 1_024;

struct Block {
    attention_norm: LayerNorm,
    joined: Linear,
    attended: Linear,
    norm: LayerNorm,
    inner: Linear,
    output: Linear,
    /// Keys and values, `[heads, capacity, width]`.
    caches: [Tensor; 2],
}

impl Block {
    fn new() -> Result<Block> {
        let cache = || normal(&[HEADS, CAPACITY, WIDTH / HEADS]);
        Ok(Block {
            attention_norm: layer_norm(WIDTH)?,
            joined: linear(WIDTH, 3 * WIDTH)?,
            attended: linear(WIDTH, WIDTH)?,
            norm: layer_norm(WIDTH)?,
            inner: linear(WIDTH, 4 * WIDTH)?,
            output: linear(4 * WIDTH, WIDTH)?,
            caches: [cache()?, cache()?],
        })
    }

    fn forward(&self, x: &Tensor, at: usize) -> Result<Tensor> {
        let joined = self.joined.forward(&self.attention_norm.forward(x)?)?;
        let part = |i: usize| {
            joined.narrow(1, i * WIDTH, WIDTH)?.reshape((HEADS, 1, WIDTH / HEADS))?.contiguous()
        };
        for (i, cache) in self.caches.iter().enumerate() {
            cache.slice_set(&part(i + 1)?, 1, at)?;
        }
        let [keys, values] = &self.caches;
        let scores = part(0)?.matmul(&keys.narrow(1, 0, at + 1)?.t()?)?;
        let scores = (scores / ((WIDTH / HEADS) as f64).sqrt())?;
        let y = softmax_last_dim(&scores)?.matmul(&values.narrow(1, 0, at + 1)?)?;
        let x = (x + self.attended.forward(&y.reshape((1, WIDTH))?)?)?;
        let inner = self.inner.forward(&self.norm.forward(&x)?)?.gelu()?;
        x + self.output.forward(&inner)?
    }
}

/// A step with a cache that holds `position` tokens.
pub fn run(position: usize) -> Result<Run> {
    let word = Embedding::new((normal(&[VOCABULARY, WIDTH])? * 0.02)?, WIDTH);
    let positions = (normal(&[CAPACITY, WIDTH])? * 0.02)?;
    let blocks: Vec<Block> = (0..LAYERS).map(|_| Block::new()).collect::<Result<_>>()?;
    let norm = layer_norm(WIDTH)?;
    let scores = Linear::new(word.embeddings().clone(), None);
    let token = Tensor::new(&[464u32], &Device::Cpu)?;
    Ok(of_candle(move || {
        let x = (word.forward(&token)? + positions.narrow(0, position, 1)?)?;
        let x = blocks.iter().try_fold(x, |x, block| block.forward(&x, position))?;
        scores.forward(&norm.forward(&x)?)
    }))
}
