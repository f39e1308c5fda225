//! Our side of `benches/peers/compare.py`, whose protocol is in `serve`.
//!
//! Weights and inputs are random: they do not matter for the time. Everything is compiled, but for
//! the cases `-eager`; weights are packed at the first run, which is not timed.

mod encoder;
mod gpt2;
mod images;
mod serve;
mod small;
mod training;

use maquette::prelude::*;

/// A run of a case.
type Run = serve::Run<Error>;

fn normal(sizes: &[i64]) -> Tensor {
    Tensor::randn(sizes.to_vec(), DType::F32)
}

/// Weights `[out, from, …]` such that values keep their size from layer to layer.
fn weight(sizes: &[i64]) -> Tensor {
    let from: i64 = sizes.iter().skip(1).product();
    normal(sizes) * (1.0 / (from.max(1) as f64).sqrt())
}

/// The numbers in the name of a case: `pointwise 4096`, `norm 128x384`.
fn numbers(text: &str) -> Option<Vec<i64>> {
    text.split('x').map(|n| n.parse().ok()).collect()
}

/// A case by its name, ready to run.
fn case(name: &str) -> Result<Option<Run>> {
    ops::random::manual_seed(1);
    let Some((kind, sizes)) = name.split_once(' ') else { return Ok(None) };
    let Some(sizes) = numbers(sizes) else { return Ok(None) };
    Ok(match (kind, &sizes[..]) {
        ("pointwise", &[n]) => Some(small::pointwise(n)),
        ("softmax", &[rows, columns]) => Some(small::softmax(rows, columns)),
        ("attention", &[b, heads, length, width]) => {
            Some(small::attention([b, heads, length, width], false))
        }
        ("attention-fast", &[b, heads, length, width]) => {
            Some(small::attention([b, heads, length, width], true))
        }
        ("norm", &[rows, columns]) => Some(small::norm(rows, columns)),
        ("linear", &[rows, from, out]) => Some(small::linear(rows, from, out)),
        ("tiny", &[count]) => Some(small::tiny(count)),
        ("minilm", &[batch, length]) => Some(encoder::run(encoder::MINILM, batch, length)),
        ("bert", &[batch, length]) => Some(encoder::run(encoder::BERT_BASE, batch, length)),
        ("squeezenet", &[batch]) => Some(images::run(images::SqueezeNet::new(), batch)),
        ("resnet18", &[batch]) => Some(images::run(images::ResNet18::new(), batch)),
        ("mobilenet2", &[batch]) => Some(images::run(images::MobileNet2::new(), batch)),
        ("mlp-eager", &[batch]) => Some(training::mlp(batch, false)),
        ("mlp-step", &[batch]) => Some(training::mlp(batch, true)),
        ("transformer-eager", &[batch]) => Some(training::transformer(batch, false)),
        ("transformer-step", &[batch]) => Some(training::transformer(batch, true)),
        ("gpt2", &[position]) => Some(gpt2::run(position)?),
        _ => None,
    })
}

fn main() -> std::result::Result<(), serve::Failure> {
    serve::serve(case)
}
