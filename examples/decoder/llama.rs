//! A decoder as Llama's ([Touvron et al.](https://arxiv.org/abs/2302.13971)): RMS norms, rotary
//! embeddings, grouped-query attention, SwiGLU. The cache of keys and values is the caller's, and
//! is written in place.

use maquette::prelude::*;

/// The sizes of a decoder.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    pub vocabulary: i64,
    pub layers: i64,
    pub width: i64,
    pub hidden: i64,
    /// Heads that ask.
    pub heads: i64,
    /// Heads that are asked; each serves `heads / kv_heads` of the others.
    pub kv_heads: i64,
    /// The longest text.
    pub max_length: i64,
}

impl Config {
    fn head_width(&self) -> i64 {
        self.width / self.heads
    }
}

/// Tokens to the scores of the next one.
pub struct Llama {
    config: Config,
    /// Tokens as vectors, `[vocabulary, width]`.
    embedding: Tensor,
    blocks: Vec<Block>,
    norm: RmsNorm,
    head: Tensor,
    rotation: Rotation,
}

/// Attention, then a gated network; before each of them a norm, around each of them a residual
/// connection.
struct Block {
    attention_norm: RmsNorm,
    attention: Attention,
    network_norm: RmsNorm,
    network: SwiGlu,
}

struct Attention {
    query: Tensor,
    key: Tensor,
    value: Tensor,
    output: Tensor,
    /// `[heads, key and value heads]`
    heads: [i64; 2],
}

struct SwiGlu {
    gate: Tensor,
    up: Tensor,
    down: Tensor,
}

struct RmsNorm(Tensor);

/// What one layer remembers of the tokens so far: `[kv_heads, capacity, head_width]` each, filled
/// from the front.
#[derive(Clone, Tree)]
pub struct Cache {
    pub keys: Tensor,
    pub values: Tensor,
}

impl Llama {
    /// With random weights, on a device. The same seed gives the same weights on every machine.
    pub fn random(config: Config, seed: u64, device: Device) -> Llama {
        ops::random::manual_seed(seed);
        let Config { vocabulary, layers, width, hidden, heads, kv_heads, .. } = config;
        let weights = |out: i64, from: i64| {
            let drawn = Tensor::zeros([out, from], DType::F32);
            drawn.normal_(0.0, 1.0 / (from as f64).sqrt()).to_device(device)
        };
        let norm =
            || RmsNorm(Tensor::ones([width], DType::F32).uniform_(0.5, 1.5).to_device(device));
        let head_width = config.head_width();
        let block = |_| Block {
            attention_norm: norm(),
            attention: Attention {
                query: weights(heads * head_width, width),
                key: weights(kv_heads * head_width, width),
                value: weights(kv_heads * head_width, width),
                output: weights(width, heads * head_width),
                heads: [heads, kv_heads],
            },
            network_norm: norm(),
            network: SwiGlu {
                gate: weights(hidden, width),
                up: weights(hidden, width),
                down: weights(width, hidden),
            },
        };
        Llama {
            config,
            embedding: weights(vocabulary, width),
            blocks: (0..layers).map(block).collect(),
            norm: norm(),
            head: weights(vocabulary, width),
            rotation: Rotation::new(config.max_length, head_width, device),
        }
    }

    /// Empty caches for texts of at most `capacity` tokens, one for each layer.
    pub fn caches(&self, capacity: i64) -> Vec<Cache> {
        let sizes = [self.config.kv_heads, capacity, self.config.head_width()];
        let empty = || self.embedding.new_zeros(sizes, DType::F32);
        self.blocks.iter().map(|_| Cache { keys: empty(), values: empty() }).collect()
    }

    /// The scores after each token of a text, `[length]` to `[length, vocabulary]`: nothing is
    /// remembered.
    pub fn recompute(&self, tokens: &Tensor) -> Tensor {
        self.run(tokens, 0.into(), None)
    }

    /// The scores after the last token of a text, `[length]` to `[1, vocabulary]`. The caches hold
    /// what the tokens before it left, and get what it adds.
    pub fn step(&self, tokens: &Tensor, caches: &[Cache]) -> Result<Tensor> {
        for cache in caches {
            tokens.size(0).le(cache.keys.size(1)).check("the text must fit into the cache")?;
        }
        Ok(self.run(tokens, tokens.size(0) - 1, Some(caches)))
    }

    /// The tokens from `start` on.
    fn run(&self, tokens: &Tensor, start: SymInt, caches: Option<&[Cache]>) -> Tensor {
        let end = tokens.size(0);
        let rotation = self.rotation.part(start, end);
        let mut x = self.embedding.embedding(&tokens.slice(0, start..end));
        for (i, block) in self.blocks.iter().enumerate() {
            let cache = caches.and_then(|c| c.get(i));
            x = &x
                + block.attention.forward(
                    &block.attention_norm.forward(&x),
                    &rotation,
                    cache,
                    start,
                );
            x = &x + block.network.forward(&block.network_norm.forward(&x));
        }
        self.norm.forward(&x).linear(&self.head, None)
    }
}

impl Attention {
    /// `[tokens, width]` to the same. With a cache it is for one token, which may look at all that
    /// the cache holds.
    fn forward(
        &self,
        x: &Tensor,
        rotation: &Rotation,
        cache: Option<&Cache>,
        start: SymInt,
    ) -> Tensor {
        let [heads, kv_heads] = self.heads;
        let split = |weight: &Tensor, heads: i64| {
            x.linear(weight, None).unflatten(-1, [heads, -1]).transpose(0, 1)
        };
        let q = rotation.apply(&split(&self.query, heads));
        let (mut k, mut v) =
            (rotation.apply(&split(&self.key, kv_heads)), split(&self.value, kv_heads));
        if let Some(cache) = cache {
            (k, v) = (append(&cache.keys, &k, start), append(&cache.values, &v, start));
        }
        let attended = q.scaled_dot_product_attention(&k, &v, None, cache.is_none(), None, true);
        // for one token the heads lie side by side already; a copy in every case makes no length
        // special
        let together = attended.transpose(0, 1).clone_as(MemoryFormat::Contiguous).flatten(1, 2);
        together.linear(&self.output, None)
    }
}

/// Writes `new` into a cache at `start`, and returns the part of the cache that is filled now.
fn append(cache: &Tensor, new: &Tensor, start: SymInt) -> Tensor {
    let end = start + new.size(1);
    cache.slice(1, start..end).copy_(new);
    cache.slice(1, ..end)
}

impl SwiGlu {
    fn forward(&self, x: &Tensor) -> Tensor {
        (x.linear(&self.gate, None).silu() * x.linear(&self.up, None)).linear(&self.down, None)
    }
}

impl RmsNorm {
    fn forward(&self, x: &Tensor) -> Tensor {
        x * (x.square().mean_dim([-1], true) + 1e-5).rsqrt() * &self.0
    }
}

/// Rotary embeddings ([Su et al.](https://arxiv.org/abs/2104.09864)): the cosines and sines of each
/// position's angles, `[positions, head_width]`.
struct Rotation {
    cos: Tensor,
    sin: Tensor,
}

impl Rotation {
    fn new(positions: i64, head_width: i64, device: Device) -> Rotation {
        let table = |f: fn(f64) -> f64| {
            let angle = |position: i64, i: i64| {
                position as f64
                    * 10_000f64.powf(-2.0 * (i % (head_width / 2)) as f64 / head_width as f64)
            };
            let rows =
                (0..positions).flat_map(|p| (0..head_width).map(move |i| f(angle(p, i)) as f32));
            Tensor::from_vec(rows.collect(), [positions, head_width]).to_device(device)
        };
        Rotation { cos: table(f64::cos), sin: table(f64::sin) }
    }

    /// That of the positions from `start` to `end`.
    fn part(&self, start: SymInt, end: SymInt) -> Rotation {
        Rotation { cos: self.cos.slice(0, start..end), sin: self.sin.slice(0, start..end) }
    }

    /// Turns the pairs (element, element half a head further) of `[heads, positions, head_width]`.
    fn apply(&self, x: &Tensor) -> Tensor {
        let half = x.size(-1).floor_div(2);
        let turned = Tensor::cat([&-x.slice(-1, half..), &x.slice(-1, ..half)], -1);
        x * &self.cos + turned * &self.sin
    }
}
