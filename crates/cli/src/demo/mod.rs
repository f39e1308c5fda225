//! `maquette demo`: traces a network with two custom operators once, with a dynamic batch size,
//! compiles it, and runs it on real images in batches of several sizes, with eager's time beside
//! it.

mod model;
mod operators;

use crate::commands::{BOLD, DIM, GREEN, highlight};
use crate::output::Output;
use indicatif::{ProgressBar, ProgressStyle};
use maquette::io::Weights;
use maquette::prelude::*;
use model::{Cnn, Prediction};
use std::io::Write;
use std::time::{Duration, Instant};

static DIGITS: &[u8] = include_bytes!("../../../../data/digits/digits.safetensors");
static CNN: &[u8] = include_bytes!("../../../../data/digits/cnn.safetensors");
static EXPECTED: &[u8] = include_bytes!("../../../../data/digits/cnn_expected.safetensors");

/// The numbers of images per call.
const BATCHES: [i64; 5] = [1, 7, 32, 128, 360];
/// The greatest batch size for which the trace is valid.
const MAX_BATCH: i64 = 512;
/// How often all images are predicted, compiled and eagerly by turns. The least times are shown.
const ROUNDS: usize = 5;

/// What the predictions of all images are worth.
#[derive(Default)]
struct Score {
    right: usize,
    confident: usize,
    confident_right: usize,
    /// The largest difference from the expected logits.
    difference: f32,
}

/// Traces the network, compiles it, and runs it on a device.
pub fn run(out: &mut Output, confidence: f64, graph_only: bool, device: Device) -> Result<()> {
    let digits = Weights::from_safetensors(DIGITS)?;
    let (images, labels) =
        (digits.get("test.images")?.to_device(device), digits.get("test.labels")?.to_vec::<i64>()?);
    let expected = Weights::from_safetensors(EXPECTED)?.get("test.logits")?;
    let cnn = Cnn::new(&Weights::from_safetensors(CNN)?, device)?;

    let batch = || Dim::new("batch").min(1).max(MAX_BATCH);
    let started = Instant::now();
    let traced = TraceOptions::new()
        .name("digits")
        .names(["images"])
        .dynamic(0, 0, batch())
        .trace(|images: Tensor| cnn.forward(&images, confidence), images.slice(0, 0..2))?;
    let trace_time = started.elapsed();

    if graph_only {
        writeln!(out, "{}", highlight::graph(&traced.graph().to_string()))?;
        return Ok(());
    }
    heading(out, "The traced graph")?;
    writeln!(out, "{}", highlight::graph(&traced.graph().to_string()))?;
    let nodes = traced.graph().node_count();
    writeln!(
        out,
        "{DIM}traced {nodes} nodes in {:.2} ms, for every batch from 1 to {MAX_BATCH}{DIM:#}\n",
        millis(trace_time)
    )?;

    let eager = |images: Tensor| cnn.forward(&images, confidence);
    let compiled = CompileOptions::new()
        .name("digits")
        .dynamic(0, 0, batch())
        .names(["images"])
        .compile(eager);
    let started = Instant::now();
    compiled.call(images.slice(0, 0..2))?;
    let compile_time = started.elapsed();

    heading(out, "The compiled network on 360 test images, in batches, and its eager time")?;
    let call = |part| compiled.call(part);
    let largest = show_batches(out, &images, (&labels, &expected), call, |part| Ok(eager(part)))?;
    writeln!(
        out,
        "{DIM}compiled {} by the first call, in {:.2} ms; the least time of {ROUNDS}{DIM:#}",
        if compiled.compilations() == 1 { "once" } else { "several times" },
        millis(compile_time)
    )?;
    writeln!(out, "\nlargest difference from PyTorch's logits: {GREEN}{largest:.1e}{GREEN:#}\n")?;

    heading(out, "What to try next")?;
    Ok(out.write_all(NEXT.as_bytes())?)
}

/// Commands for someone who has seen the demo.
const NEXT: &str = "  \
  cargo run --release -- demo --confidence 0.5       keep more rows: the same graph, other sizes
  cargo run --release -- demo --graph-only > g.txt   then: cargo run --release -- graph --dot g.txt
  cargo run --release -- ops demo                    the two custom operators of this demo
  cargo run --release --example custom_nonzero       a data-dependent size, step by step
";

/// Predicts all images in batches of each size, compiled and eagerly, and writes a line for each
/// size. Returns the largest difference from the expected logits.
fn show_batches(
    out: &mut Output,
    images: &Tensor,
    (labels, expected): (&[i64], &Tensor),
    compiled: impl Fn(Tensor) -> Result<Prediction>,
    eager: impl Fn(Tensor) -> Result<Prediction>,
) -> Result<f32> {
    writeln!(
        out,
        "{:>6}  {:>9}  {:>9}  {:>10}  {:>12}  {:>12}",
        "batch", "accuracy", "confident", "of those", "compiled", "eager"
    )?;
    let mut largest = 0.0f32;
    let bar = ProgressBar::new(BATCHES.len() as u64 * labels.len() as u64).with_style(style()?);
    for batch in BATCHES {
        let mut least = [Duration::MAX; 2];
        let mut score = Score::default();
        for _ in 0..ROUNDS {
            let (time, predictions) = timed(images, batch, &compiled)?;
            least[0] = least[0].min(time);
            score = Score::of(&predictions, labels, expected)?;
            let (time, _) = timed(images, batch, &eager)?;
            least[1] = least[1].min(time);
        }
        largest = largest.max(score.difference);
        bar.inc(labels.len() as u64);
        let share = |n: usize, of: usize| n as f64 / of.max(1) as f64;
        let Score { right, confident, confident_right, .. } = score;
        let [compiled, eager] = least.map(millis);
        bar.suspend(|| {
            writeln!(
                out,
                "{batch:>6}  {:>9.4}  {confident:>9}  {:>10.4}  {compiled:>9.2} ms  \
                    {eager:>9.2} ms",
                share(right, labels.len()),
                share(confident_right, confident),
            )
        })?;
    }
    bar.finish_and_clear();
    Ok(largest)
}

/// The predictions for all images in batches, and how long they took.
fn timed(
    images: &Tensor,
    batch: i64,
    predict: impl Fn(Tensor) -> Result<Prediction>,
) -> Result<(Duration, Vec<Prediction>)> {
    let count = images.size(0).as_i64().unwrap_or_default();
    let started = Instant::now();
    let starts = (0..count).step_by(batch as usize);
    let part = |at: i64| predict(images.slice(0, at..(at + batch).min(count)));
    let predictions = starts.map(part).collect::<Result<_>>()?;
    Ok((started.elapsed(), predictions))
}

impl Score {
    /// Compares the predictions for all images with their labels, and with the expected logits.
    fn of(predictions: &[Prediction], labels: &[i64], expected: &Tensor) -> Result<Score> {
        let mut score = Score::default();
        let mut at = 0;
        for found in predictions {
            let digit = found.digit.to_vec::<i64>()?;
            let end = at + digit.len();
            let labels = &labels[at..end];
            score.right += digit.iter().zip(labels).filter(|(a, b)| a == b).count();
            let (rows, confident) =
                (found.confident_rows.to_vec::<i64>()?, found.confident_digit.to_vec::<i64>()?);
            score.confident += rows.len();
            let is_right = |(row, digit): &(&i64, &i64)| labels[**row as usize] == **digit;
            score.confident_right += rows.iter().zip(&confident).filter(is_right).count();
            let expected = expected.slice(0, at as i64..end as i64);
            score.difference = score.difference.max(difference(&found.logits, &expected)?);
            at = end;
        }
        Ok(score)
    }
}

fn heading(out: &mut Output, text: &str) -> Result<()> {
    Ok(writeln!(out, "{BOLD}{text}{BOLD:#}\n")?)
}

fn millis(d: Duration) -> f64 {
    d.as_secs_f64() * 1e3
}

fn style() -> Result<ProgressStyle> {
    ProgressStyle::with_template("{bar:40.cyan/dim} {pos}/{len} images").map_err(Error::other)
}

/// The largest absolute difference between two tensors.
fn difference(a: &Tensor, b: &Tensor) -> Result<f32> {
    let (a, b) = (a.to_vec::<f32>()?, b.to_vec::<f32>()?);
    Ok(a.iter().zip(&b).map(|(x, y)| (x - y).abs()).fold(0.0, f32::max))
}
