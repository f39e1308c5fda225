//! `maquette demo`: traces a network with two custom operators once, with a dynamic batch size, and
//! runs the trace on real images in batches of several sizes.

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

/// Traces the network and runs it.
pub fn run(out: &mut Output, confidence: f64, graph_only: bool) -> Result<()> {
    let digits = Weights::from_safetensors(DIGITS)?;
    let (images, labels) =
        (digits.get("test.images")?, digits.get("test.labels")?.to_vec::<i64>()?);
    let expected = Weights::from_safetensors(EXPECTED)?.get("test.logits")?;
    let cnn = Cnn::new(&Weights::from_safetensors(CNN)?)?;

    let started = Instant::now();
    let sample = images.slice(0, 0..2);
    let traced = TraceOptions::new()
        .name("digits")
        .names(["images"])
        .dynamic(0, 0, Dim::new("batch").min(1).max(MAX_BATCH))
        .trace(|images: Tensor| cnn.forward(&images, confidence), sample)?;
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

    heading(out, "The same graph on 360 test images, in batches")?;
    writeln!(
        out,
        "{:>6}  {:>9}  {:>9}  {:>10}  {:>12}",
        "batch", "accuracy", "confident", "of those", "time"
    )?;
    let mut largest = 0.0f32;
    let bar = ProgressBar::new(BATCHES.len() as u64 * labels.len() as u64).with_style(style()?);
    for batch in BATCHES {
        let started = Instant::now();
        let (mut right, mut kept, mut kept_right) = (0, 0, 0);
        let mut at = 0;
        while at < labels.len() {
            let end = (at + batch as usize).min(labels.len());
            let found: Prediction = traced.run(images.slice(0, at as i64..end as i64))?;
            let (digit, rows) =
                (found.digit.to_vec::<i64>()?, found.confident_rows.to_vec::<i64>()?);
            right += digit.iter().zip(&labels[at..end]).filter(|(a, b)| a == b).count();
            kept += rows.len();
            let confident = found.confident_digit.to_vec::<i64>()?;
            kept_right += rows
                .iter()
                .zip(&confident)
                .filter(|(row, digit)| labels[at + **row as usize] == **digit)
                .count();
            largest =
                largest.max(difference(&found.logits, &expected.slice(0, at as i64..end as i64))?);
            bar.inc((end - at) as u64);
            at = end;
        }
        let share = |n: usize, of: usize| n as f64 / of.max(1) as f64;
        bar.suspend(|| {
            writeln!(
                out,
                "{batch:>6}  {:>9.4}  {kept:>9}  {:>10.4}  {:>9.2} ms",
                share(right, labels.len()),
                share(kept_right, kept),
                millis(started.elapsed())
            )
        })?;
    }
    bar.finish_and_clear();
    writeln!(out, "\nlargest difference from PyTorch's logits: {GREEN}{largest:.1e}{GREEN:#}\n")?;

    heading(out, "What to try next")?;
    writeln!(
        out,
        "  cargo run --release -- demo --confidence 0.5       keep more rows: the same graph, \
            other sizes"
    )?;
    writeln!(
        out,
        "  cargo run --release -- demo --graph-only > g.txt   then: cargo run --release -- graph \
            --dot g.txt"
    )?;
    writeln!(
        out,
        "  cargo run --release -- ops demo                    the two custom operators of this demo"
    )?;
    writeln!(
        out,
        "  cargo run --release --example custom_nonzero       a data-dependent size, step by step"
    )?;
    Ok(())
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
    Ok(a.read::<f32>()?
        .iter()
        .zip(b.read::<f32>()?.iter())
        .map(|(x, y)| (x - y).abs())
        .fold(0.0, f32::max))
}
