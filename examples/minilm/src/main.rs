//! Sentence embeddings by all-MiniLM-L6-v2: one trace with symbolic batch and length, over weights
//! that stay in their file.
//!
//! `cargo run --release --example minilm -- [--opaque-attention] [--graph] [--explain] [--time]
//! [--cold] [--device DEVICE] [MODEL_DIR [SENTENCE]…]`
//!
//! `--explain` prints what became one kernel, and `--time` how long eager and compiled runs take.
//! `--cold` prints how long it takes from the start of the process to the first answer.
//! `--device test:0` runs the model on another device than the CPU.
//!
//! `MODEL_DIR` holds `config.json`, `tokenizer.json` and `model.safetensors`. It is `target/minilm`
//! if none is named.

pub mod attention;
pub mod bert;
pub mod tokens;

use attention::Attention;
use bert::{Bert, Config};
use maquette::prelude::*;
// `--device test:0`: the driver registers itself where its crate is linked.
use maquette_test_device as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use tokens::{Tokens, Words};

/// What is compared where no sentence is given.
const SENTENCES: [&str; 5] = [
    "A cat sleeps on the warm windowsill",
    "The kitten naps in the sun",
    "The compiler rejects the program",
    "Borrow checking found an error in my code",
    "We had soup and fresh bread for dinner",
];

/// The most tokens of a sentence, as the model was trained.
pub const MAX_TOKENS: usize = 256;

/// What the command line asks for.
struct Request {
    folder: PathBuf,
    attention: Attention,
    graph: bool,
    explain: bool,
    time: bool,
    cold: bool,
    device: Device,
    sentences: Vec<String>,
}

impl Request {
    fn parse(mut args: impl Iterator<Item = String>) -> Result<Request> {
        let mut attention = Attention::Builtin;
        let (mut graph, mut explain, mut time, mut cold) = (false, false, false, false);
        let (mut device, mut words) = (Device::Cpu, Vec::new());
        while let Some(arg) = args.next() {
            match &*arg {
                "--opaque-attention" => attention = Attention::Opaque,
                "--graph" => graph = true,
                "--explain" => explain = true,
                "--time" => time = true,
                "--cold" => cold = true,
                "--device" => {
                    let name = args.next().unwrap_or_default();
                    device = name.parse().map_err(Error::other)?;
                }
                a if a.starts_with("--") => bail!(
                    "`{a}` is not an option; there are --opaque-attention, --graph, --explain, \
                     --time, --cold and --device"
                ),
                _ => words.push(arg),
            }
        }
        let mut words = words.into_iter();
        let folder = words.next().map_or_else(default_folder, PathBuf::from);
        let mut sentences: Vec<String> = words.collect();
        if sentences.is_empty() {
            sentences = SENTENCES.map(String::from).to_vec();
        }
        Ok(Request { folder, attention, graph, explain, time, cold, device, sentences })
    }
}

/// Where the model is if nobody says: `MAQUETTE_MINILM`, or else `target/minilm`.
pub fn default_folder() -> PathBuf {
    std::env::var_os("MAQUETTE_MINILM").map_or_else(
        || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/minilm"),
        PathBuf::from,
    )
}

fn report(request: &Request) -> Result<String> {
    let Request { folder, attention, graph, explain, time, cold, device, sentences } = request;
    ensure!(
        folder.join("model.safetensors").is_file(),
        "there is no model in {}; the README says how to get it",
        folder.display()
    );
    let sentences: Vec<&str> = sentences.iter().map(String::as_str).collect();
    if *cold {
        return first_answer(folder, *attention, *device, &sentences);
    }
    let (words, bert) = (Words::load(folder, MAX_TOKENS)?, Bert::load(folder, *device)?);

    let started = Instant::now();
    let traced = bert.trace(*attention)?;
    let trace_time = started.elapsed();
    if *graph {
        return Ok(traced.graph().to_string());
    }
    let compiled = bert.compile(*attention);
    if *time {
        return times(&bert, *attention, *device);
    }
    let Tokens { ids, mask } = words.encode(&sentences)?.to_device(*device);
    let sizes = ids.sizes_i64()?;
    let started = Instant::now();
    bert.forward(&ids, &mask, *attention).ok()?;
    let eager_time = started.elapsed();
    let started = Instant::now();
    let vectors = compiled.call((ids.clone(), mask.clone()))?;
    let first_time = started.elapsed();
    let started = Instant::now();
    compiled.call((ids, mask))?;
    let run_time = started.elapsed();
    if *explain {
        return Ok(format!("{}\n", compiled.explain()));
    }

    let Config { layers, heads, width, .. } = bert.config;
    let mut out = format!(
        "BERT, {layers} layers of {heads} heads, {width} wide; its weights are pages of their \
            file\n"
    );
    out += &format!(
        "traced {} nodes in {:.1} ms, for every size:\n",
        traced.graph().node_count(),
        millis(trace_time)
    );
    out += &format!("  {}\n", symbols(traced.graph()));
    out += &format!(
        "{} sentences of at most {} tokens: eagerly {:.1} ms, compiled {:.1} ms (the first call, \
         with compilation, {:.1} ms)\n\n",
        sizes[0],
        sizes[1],
        millis(eager_time),
        millis(run_time),
        millis(first_time)
    );
    out += &table(&sentences, &vectors.matmul(&vectors.t()))?;
    Ok(out)
}

/// How long it takes until the first answer: the vectors of the sentences.
fn first_answer(
    folder: &Path,
    attention: Attention,
    device: Device,
    sentences: &[&str],
) -> Result<String> {
    let started = Instant::now();
    let words = Words::load(folder, MAX_TOKENS)?;
    let words_time = started.elapsed();
    let bert = Bert::load(folder, device)?;
    let compiled = bert.compile(attention);
    let Tokens { ids, mask } = words.encode(sentences)?.to_device(device);
    let tokens = ids.size(1);
    let called = Instant::now();
    compiled.call((ids, mask))?;
    Ok(format!(
        "{} sentences of at most {tokens} tokens, first answer after {:.1} ms: the tokenizer loads in \
            {:.1} ms, and the first call takes {:.1} ms\n",
        sentences.len(),
        millis(started.elapsed()),
        millis(words_time),
        millis(called.elapsed())
    ))
}

/// How long eager and compiled runs take, by turns: the least of many.
fn times(bert: &Bert, attention: Attention, device: Device) -> Result<String> {
    let compiled = bert.compile(attention);
    let mut out = "batch x length   eager ms   compiled ms   ratio\n".to_owned();
    for (batch, length) in [(1i64, 16i64), (1, 128), (4, 128), (8, 128)] {
        let ids = Tensor::full([batch, length], 2_000, DType::I64).to_device(device);
        let mask = Tensor::ones([batch, length], DType::I64).to_device(device);
        let (mut eager, mut fused) = (Duration::MAX, Duration::MAX);
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_secs(2) {
            let started = Instant::now();
            bert.forward(&ids, &mask, attention).ok()?;
            eager = eager.min(started.elapsed());
            let started = Instant::now();
            drop(compiled.call((ids.clone(), mask.clone()))?);
            fused = fused.min(started.elapsed());
        }
        out += &format!(
            "{:>14}   {:>8.2}   {:>11.2}   {:>5.2}\n",
            format!("{batch} x {length}"),
            millis(eager),
            millis(fused),
            fused.as_secs_f64() / eager.as_secs_f64()
        );
    }
    Ok(out)
}

/// The graph's symbols and their ranges. Its text has them, too, but also a digest of each weight.
fn symbols(graph: &Graph) -> String {
    let table = graph.symbols();
    let range = |s| format!("{} in {}", table.name(s), table.range(s));
    table.symbols().map(range).collect::<Vec<_>>().join(", ")
}

/// Each sentence beside its similarity to every other.
fn table(sentences: &[&str], similarity: &Tensor) -> Result<String> {
    let similarity = similarity.read::<f32>()?;
    let width = sentences.iter().map(|s| s.chars().count()).max().unwrap_or(0).clamp(10, 48);
    let number = |x: &f32| format!("{x:>7.3}");
    let heads: String = (1..=sentences.len()).map(|n| format!("{n:>7}")).collect();
    let mut out = format!("   {:width$}{heads}\n", "similarity");
    for (i, (sentence, row)) in sentences.iter().zip(similarity.outer_iter()).enumerate() {
        let shown: String = sentence.chars().take(width).collect();
        out +=
            &format!("{:>2} {shown:width$}{}\n", i + 1, row.iter().map(number).collect::<String>());
    }
    Ok(out)
}

fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

#[allow(dead_code)] // the tests include this file
fn main() -> Result<()> {
    print!("{}", report(&Request::parse(std::env::args().skip(1))?)?);
    Ok(())
}
