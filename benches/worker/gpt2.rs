//! One step of decoding with the sizes of GPT-2
//! ([Radford et al.](https://cdn.openai.com/better-language-models/language_models_are_unsupervised_multitask_learners.pdf)):
//! 12 layers, 768 wide, 12 heads, 50,257 tokens. A custom operator writes keys and values into a
//! cache in place.

use super::encoder::{LayerNorm, Linear};
use super::{Run, normal};
use maquette::prelude::*;

const LAYERS: usize = 12;
const HEADS: i64 = 12;
const WIDTH: i64 = 768;
const VOCABULARY: i64 = 50_257;
const CAPACITY: i64 = 1_024;

/// Writes the only row of each head of `new`, `[heads, 1, width]`, to position `at` of a cache
/// `[heads, capacity, width]`.
#[custom_op("bench::append_")]
fn append(cache: &mut Tensor, new: &Tensor, at: i64) -> Result<()> {
    let new = new.read::<f32>()?;
    let mut cache = cache.write::<f32>()?;
    for (mut head, rows) in cache.outer_iter_mut().zip(new.outer_iter()) {
        let (to, row) = (head.outer_iter_mut().nth(at as usize), rows.outer_iter().next());
        let (Some(mut to), Some(row)) = (to, row) else { bail!("the cache is full") };
        to.assign(&row);
    }
    Ok(())
}

struct Block {
    attention_norm: LayerNorm,
    joined: Linear,
    attended: Linear,
    norm: LayerNorm,
    inner: Linear,
    output: Linear,
}

struct Gpt2 {
    word: Tensor,
    position: Tensor,
    blocks: Vec<Block>,
    norm: LayerNorm,
    at: i64,
}

impl Gpt2 {
    fn new(at: i64) -> Gpt2 {
        let block = |_| Block {
            attention_norm: LayerNorm::new(WIDTH),
            joined: Linear::new(WIDTH, 3 * WIDTH),
            attended: Linear::new(WIDTH, WIDTH),
            norm: LayerNorm::new(WIDTH),
            inner: Linear::new(WIDTH, 4 * WIDTH),
            output: Linear::new(4 * WIDTH, WIDTH),
        };
        Gpt2 {
            word: normal(&[VOCABULARY, WIDTH]) * 0.02,
            position: normal(&[CAPACITY, WIDTH]) * 0.02,
            blocks: (0..LAYERS).map(block).collect(),
            norm: LayerNorm::new(WIDTH),
            at,
        }
    }

    /// The scores after a token `[1]` at position `self.at`.
    fn step(&self, token: &Tensor, caches: &[Tensor]) -> Tensor {
        let at = self.at;
        let mut x = self.word.embedding(token) + self.position.slice(0, at..at + 1);
        for (block, cache) in self.blocks.iter().zip(caches.chunks(2)) {
            let joined = block.joined.forward(&block.attention_norm.forward(&x));
            let part = |i: i64| {
                let own = joined.slice(-1, i * WIDTH..(i + 1) * WIDTH);
                own.unflatten(-1, [HEADS, -1]).transpose(0, 1)
            };
            for (i, cache) in cache.iter().enumerate() {
                // A failure poisons the cache, which the attention reports.
                let _ = append(&mut cache.clone(), &part(i as i64 + 1), at);
            }
            let filled = |i: usize| cache[i].slice(1, ..at + 1);
            let y = part(0).scaled_dot_product_attention(
                &filled(0),
                &filled(1),
                None,
                false,
                None,
                false,
            );
            x = &x + block.attended.forward(&y.transpose(0, 1).flatten(1, 2));
            let inner = block.inner.forward(&block.norm.forward(&x)).gelu_approximate("tanh");
            x = &x + block.output.forward(&inner);
        }
        self.norm.forward(&x).linear(&self.word, None)
    }
}

/// A step with a cache that holds `position` tokens.
pub fn run(position: i64) -> Result<Run> {
    let model = Gpt2::new(position);
    let caches: Vec<Tensor> =
        (0..2 * LAYERS).map(|_| normal(&[HEADS, CAPACITY, WIDTH / HEADS])).collect();
    let compiled = maquette::compile(move |(token, caches): (Tensor, Vec<Tensor>)| {
        model.step(&token, &caches)
    });
    let token = Tensor::from([464i64]);
    Ok(Box::new(move || compiled.call((token.clone(), caches.clone())).map(drop)))
}
