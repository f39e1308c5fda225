//! Engines in Rust as peers of `compare.py`: `maquette-peers candle`, or
//! `maquette-peers tract DIRECTORY`, where the directory has a program `CASE.onnx`.
//!
//! The protocol is in `serve`. What an engine cannot run is no case of it, and its error is
//! printed. `RAYON_NUM_THREADS` says how many threads run.
//!
//! Weights and inputs are random: they do not matter for the time.

mod encoder;
mod gpt2;
mod images;
mod onnx;
#[path = "../../../worker/serve.rs"]
mod serve;
mod small;

use anyhow::{Result, bail};
use candle_core::{Device, Tensor};
use candle_nn::{LayerNorm, Linear};
use std::path::PathBuf;

/// A run of a case.
type Run = serve::Run<anyhow::Error>;

/// A run in candle, which computes when it is called: the result need not be read.
fn of_candle(mut f: impl FnMut() -> candle_core::Result<Tensor> + 'static) -> Run {
    Box::new(move || Ok(f().map(drop)?))
}

fn normal(sizes: &[usize]) -> candle_core::Result<Tensor> {
    Tensor::randn(0f32, 1.0, sizes, &Device::Cpu)
}

/// Weights `[out, from, …]` such that values keep their size from layer to layer.
fn weight(sizes: &[usize]) -> candle_core::Result<Tensor> {
    let from: usize = sizes.iter().skip(1).product();
    normal(sizes)? / (from.max(1) as f64).sqrt()
}

fn linear(from: usize, out: usize) -> candle_core::Result<Linear> {
    Ok(Linear::new(weight(&[out, from])?, Some((normal(&[out])? * 0.02)?)))
}

fn layer_norm(width: usize) -> candle_core::Result<LayerNorm> {
    let ones = Tensor::ones(width, candle_core::DType::F32, &Device::Cpu)?;
    Ok(LayerNorm::new(ones, (normal(&[width])? * 0.02)?, 1e-5))
}

/// The numbers in the name of a case: `pointwise 4096`, `norm 128x384`.
fn numbers(text: &str) -> Option<Vec<usize>> {
    text.split('x').map(|n| n.parse().ok()).collect()
}

/// A case in candle by its name, ready to run.
fn candle_case(name: &str) -> Result<Option<Run>> {
    let Some((kind, sizes)) = name.split_once(' ') else { return Ok(None) };
    let Some(sizes) = numbers(sizes) else { return Ok(None) };
    Ok(Some(match (kind, &sizes[..]) {
        ("pointwise", &[n]) => small::pointwise(n)?,
        ("softmax", &[rows, columns]) => small::softmax(rows, columns)?,
        ("attention" | "attention-fast", &[b, heads, length, width]) => {
            small::attention([b, heads, length, width])?
        }
        ("norm", &[rows, columns]) => small::norm(rows, columns)?,
        ("linear", &[rows, from, out]) => small::linear(rows, from, out)?,
        ("tiny", &[count]) => small::tiny(count)?,
        ("minilm", &[batch, length]) => encoder::run(encoder::MINILM, batch, length)?,
        ("bert", &[batch, length]) => encoder::run(encoder::BERT_BASE, batch, length)?,
        ("squeezenet", &[batch]) => images::run(images::SqueezeNet::new()?, batch)?,
        ("resnet18", &[batch]) => images::run(images::ResNet18::new()?, batch)?,
        ("mobilenet2", &[batch]) => images::run(images::MobileNet2::new()?, batch)?,
        ("gpt2", &[position]) => gpt2::run(position)?,
        _ => return Ok(None),
    }))
}

enum Engine {
    Candle,
    Tract(PathBuf),
}

impl Engine {
    fn from_args() -> Result<Engine> {
        let mut args = std::env::args().skip(1);
        match (args.next().as_deref(), args.next()) {
            (Some("candle"), None) => Ok(Engine::Candle),
            (Some("tract"), Some(directory)) => Ok(Engine::Tract(directory.into())),
            _ => bail!("usage: maquette-peers candle | maquette-peers tract DIRECTORY"),
        }
    }

    /// A case by its name, ready to run: it has run once.
    fn case(&self, name: &str) -> Result<Option<Run>> {
        let mut run = match self {
            Engine::Candle => candle_case(name)?,
            Engine::Tract(directory) => onnx::case(&directory.join(format!("{name}.onnx")))?,
        };
        if let Some(run) = &mut run {
            run()?;
        }
        Ok(run)
    }
}

fn main() -> std::result::Result<(), serve::Failure> {
    let engine = Engine::from_args()?;
    serve::serve(|name| {
        Ok(engine.case(name).unwrap_or_else(|e| {
            eprintln!("{name}: {e:#}");
            None
        }))
    })
}
