//! BERT ([Devlin et al.](https://arxiv.org/abs/1810.04805)) as a sentence encoder: embeddings, a
//! stack of encoder layers, the mean over the words, scaled to length 1. Field names are the
//! checkpoint's.

use super::attention::{Attention, attend};
use maquette::Compiled;
use maquette::io::Weights;
use maquette::prelude::*;
use std::path::Path;

/// Sentences to vectors.
pub struct Bert {
    pub config: Config,
    embeddings: Embeddings,
    layers: Vec<Layer>,
}

/// From tokens and their mask to vectors.
type Forward<'a> = Box<dyn Fn((Tensor, Tensor)) -> Tensor + 'a>;

/// A compiled encoder.
pub type CompiledBert<'a> = Compiled<(Tensor, Tensor), Tensor, Forward<'a>>;

/// What `config.json` says.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    pub layers: i64,
    pub heads: i64,
    pub width: i64,
    /// The most tokens of a sentence.
    pub max_length: i64,
    epsilon: f64,
}

/// What a token is, where it stands, and which part of the text it belongs to: here there is one
/// part.
struct Embeddings {
    word: Tensor,
    position: Tensor,
    part: Tensor,
    norm: LayerNorm,
}

/// Attention, then a network of one hidden layer; around each of them a residual connection and a
/// norm.
struct Layer {
    query: Linear,
    key: Linear,
    value: Linear,
    attended: Linear,
    attended_norm: LayerNorm,
    intermediate: Linear,
    output: Linear,
    output_norm: LayerNorm,
}

impl Config {
    fn load(path: &Path) -> Result<Config> {
        let text = std::fs::read_to_string(path)
            .map_err(|e| Error::msg(format!("cannot read {}: {e}", path.display())))?;
        let json: serde_json::Value = serde_json::from_str(&text).map_err(Error::other)?;
        let missing = |name: &str| Error::msg(format!("{} has no number `{name}`", path.display()));
        let int = |name: &str| json[name].as_i64().ok_or_else(|| missing(name));
        ensure!(
            json["hidden_act"] == "gelu",
            "the activation must be gelu, found {}",
            json["hidden_act"]
        );
        Ok(Config {
            layers: int("num_hidden_layers")?,
            heads: int("num_attention_heads")?,
            width: int("hidden_size")?,
            max_length: int("max_position_embeddings")?,
            epsilon: json["layer_norm_eps"].as_f64().ok_or_else(|| missing("layer_norm_eps"))?,
        })
    }
}

impl Bert {
    /// The model of `config.json` and `model.safetensors` in this folder, on a device. On the CPU
    /// the weights are pages of their file.
    pub fn load(folder: &Path, device: Device) -> Result<Bert> {
        let config = Config::load(&folder.join("config.json"))?;
        // SAFETY: nothing rewrites a checkpoint while this program runs.
        let weights = unsafe { Weights::map(folder.join("model.safetensors")) }?;
        let get = Checkpoint { weights: &weights, device, epsilon: config.epsilon };
        let embeddings = Embeddings {
            word: get.tensor("embeddings.word_embeddings.weight")?,
            position: get.tensor("embeddings.position_embeddings.weight")?,
            part: get.tensor("embeddings.token_type_embeddings.weight")?.select(0, 0),
            norm: get.norm("embeddings.LayerNorm")?,
        };
        let layer = |i: i64| -> Result<Layer> {
            let at = |name: &str| format!("encoder.layer.{i}.{name}");
            Ok(Layer {
                query: get.linear(&at("attention.self.query"))?,
                key: get.linear(&at("attention.self.key"))?,
                value: get.linear(&at("attention.self.value"))?,
                attended: get.linear(&at("attention.output.dense"))?,
                attended_norm: get.norm(&at("attention.output.LayerNorm"))?,
                intermediate: get.linear(&at("intermediate.dense"))?,
                output: get.linear(&at("output.dense"))?,
                output_norm: get.norm(&at("output.LayerNorm"))?,
            })
        };
        let layers = (0..config.layers).map(layer).collect::<Result<_>>()?;
        Ok(Bert { config, embeddings, layers })
    }

    /// Tokens `[batch, length]` and which of them are real (1) or padding (0), to unit vectors
    /// `[batch, width]`.
    pub fn forward(&self, ids: &Tensor, mask: &Tensor, attention: Attention) -> Tensor {
        // for every head and every asking token: [batch, 1, 1, length]
        let allowed = mask.ne(0).unsqueeze(1).unsqueeze(1);
        let mut x = self.embeddings.forward(ids);
        for layer in &self.layers {
            x = layer.forward(&x, &allowed, self.config.heads, attention);
        }
        let real = mask.unsqueeze(-1).type_as(&x);
        let mean = (x * &real).sum_dim([1], false) / real.sum_dim([1], false);
        &mean / mean.linalg_vector_norm(2, [-1], true)
    }

    /// One graph for every batch and every length.
    pub fn trace(&self, attention: Attention) -> Result<Traced<(Tensor, Tensor), Tensor>> {
        let (batch, length) = self.sizes();
        let sample = || Tensor::ones([2, 8], DType::I64);
        TraceOptions::new()
            .name("minilm")
            .names(["ids", "mask"])
            .dynamic(0, 0, batch.clone())
            .dynamic(0, 1, length.clone())
            .dynamic(1, 0, batch)
            .dynamic(1, 1, length)
            .trace(
                |(ids, mask): (Tensor, Tensor)| self.forward(&ids, &mask, attention),
                (sample(), sample()),
            )
    }

    /// The encoder, compiled once for every batch and every length.
    pub fn compile(&self, attention: Attention) -> CompiledBert<'_> {
        let (batch, length) = self.sizes();
        CompileOptions::new()
            .name("minilm")
            .names(["ids", "mask"])
            .dynamic(0, 0, batch.clone())
            .dynamic(0, 1, length.clone())
            .dynamic(1, 0, batch)
            .dynamic(1, 1, length)
            .compile(Box::new(move |(ids, mask)| self.forward(&ids, &mask, attention)))
    }

    /// The sizes that may change.
    fn sizes(&self) -> (Dim, Dim) {
        (Dim::new("batch").min(1), Dim::new("length").min(2).max(self.config.max_length))
    }
}

impl Embeddings {
    fn forward(&self, ids: &Tensor) -> Tensor {
        let position = self.position.slice(0, ..ids.size(1));
        self.norm.forward(&(self.word.embedding(ids) + &self.part + position))
    }
}

impl Layer {
    fn forward(&self, x: &Tensor, allowed: &Tensor, heads: i64, attention: Attention) -> Tensor {
        // [batch, heads, length, width / heads]
        let split = |x: Tensor| x.unflatten(-1, [heads, -1]).transpose(1, 2);
        let (q, k, v) = (
            split(self.query.forward(x)),
            split(self.key.forward(x)),
            split(self.value.forward(x)),
        );
        let attended = attend(attention, &q, &k, &v, allowed).transpose(1, 2).flatten(2, 3);
        let x = self.attended_norm.forward(&(self.attended.forward(&attended) + x));
        let hidden = self.intermediate.forward(&x).gelu();
        self.output_norm.forward(&(self.output.forward(&hidden) + &x))
    }
}

struct Linear {
    weight: Tensor,
    bias: Tensor,
}

impl Linear {
    fn forward(&self, x: &Tensor) -> Tensor {
        x.linear(&self.weight, Some(&self.bias))
    }
}

struct LayerNorm {
    weight: Tensor,
    bias: Tensor,
    epsilon: f64,
}

impl LayerNorm {
    fn forward(&self, x: &Tensor) -> Tensor {
        x.layer_norm([x.size(-1)], Some(&self.weight), Some(&self.bias), self.epsilon)
    }
}

/// Parts of the model by their names in the checkpoint.
struct Checkpoint<'a> {
    weights: &'a Weights,
    device: Device,
    epsilon: f64,
}

impl Checkpoint<'_> {
    fn tensor(&self, name: &str) -> Result<Tensor> {
        Ok(self.weights.get(name)?.to_device(self.device))
    }

    fn pair(&self, name: &str) -> Result<(Tensor, Tensor)> {
        Ok((self.tensor(&format!("{name}.weight"))?, self.tensor(&format!("{name}.bias"))?))
    }

    fn linear(&self, name: &str) -> Result<Linear> {
        let (weight, bias) = self.pair(name)?;
        Ok(Linear { weight, bias })
    }

    fn norm(&self, name: &str) -> Result<LayerNorm> {
        let (weight, bias) = self.pair(name)?;
        Ok(LayerNorm { weight, bias, epsilon: self.epsilon })
    }
}
