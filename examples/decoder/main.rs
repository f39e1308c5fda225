//! Greedy decoding with a cache of keys and values that the graph writes in place: one step,
//! compiled once, serves every length of text and every size of cache. `--device test:0` runs it on
//! another device than the CPU.

pub mod llama;

// `--device test:0`: the driver registers itself where its crate is linked.
use maquette_test_device as _;

use llama::{Cache, Config, Llama};
use maquette::prelude::*;
use std::time::{Duration, Instant};

const CONFIG: Config = Config {
    vocabulary: 100,
    layers: 2,
    width: 32,
    hidden: 64,
    heads: 4,
    kv_heads: 2,
    max_length: 64,
};
const SEED: u64 = 13;
const PROMPT: [i64; 4] = [31, 41, 59, 26];
/// How many tokens are added to the prompt.
const NEW_TOKENS: usize = 16;
/// How often a text is generated, compiled and eagerly by turns. The least times are shown.
const ROUNDS: usize = 20;

/// What a step works on.
#[derive(Clone, Tree)]
struct State {
    tokens: Tensor,
    caches: Vec<Cache>,
}

/// A text, and the scores after each of its tokens but the last.
struct Decoded {
    tokens: Vec<i64>,
    scores: Vec<Vec<f32>>,
}

#[allow(dead_code)] // for the tests, which include this file
pub fn report() -> Result<String> {
    report_on(Device::Cpu)
}

/// What the example prints, with the decoder on a device.
pub fn report_on(device: Device) -> Result<String> {
    let llama = Llama::random(CONFIG, SEED, device);
    let length = Dim::new("length").min(1).max(CONFIG.max_length);
    let capacity = Dim::new("capacity").min(1);

    // the sample decides nothing: its sizes become symbols
    let tokens = Tensor::from([0i64; 3]).to_device(device);
    let sample = State { tokens, caches: llama.caches(8) };
    let caches = 1..=2 * CONFIG.layers as usize;
    let options = caches.clone().fold(TraceOptions::new().dynamic(0, 0, length.clone()), |o, i| {
        o.dynamic(i, 1, capacity.clone())
    });
    let eager_step = |s: State| llama.step(&s.tokens, &s.caches);
    let step = options.name("step").trace(eager_step, sample)?;
    // the same symbols; compiled by the first call
    let options = CompileOptions::new().name("step").dynamic(0, 0, length.clone());
    let options = caches.fold(options, |o, i| o.dynamic(i, 1, capacity.clone()));
    let compiled_step = options.compile(eager_step);
    let recompute =
        CompileOptions::new().dynamic(0, 0, length).compile(|t: Tensor| llama.recompute(&t));

    let graph = step.graph().to_string();
    let with = |what: &'static str| graph.lines().filter(move |l| l.contains(what)).map(str::trim);
    let Config { layers, width, heads, kv_heads, .. } = CONFIG;
    let mut out = format!(
        "a random decoder: {layers} blocks, {width} wide, {heads} heads on {kv_heads} of keys and \
            values\n"
    );
    out += &format!("one step, traced once: {} nodes\n", step.graph().node_count());
    for line in with("where ").chain(with("guard ")).chain(with("assert ")).chain(with("copy_(")) {
        out += &format!("  {line}\n");
    }

    let whole = greedy(device, |tokens| last_row(&recompute.call(tokens)?))?;
    out += &format!(
        "\nprompt: {PROMPT:?}\nby recomputing the whole text: {:?}\n",
        &whole.tokens[PROMPT.len()..]
    );
    let with_cache = |capacity: i64| {
        let caches = llama.caches(capacity);
        greedy(device, |tokens| {
            last_row(&compiled_step.call(State { tokens, caches: caches.clone() })?)
        })
    };
    for capacity in [20, 48] {
        let cached = with_cache(capacity)?;
        out +=
            &format!("with a cache for {capacity} tokens: {:?}\n", &cached.tokens[PROMPT.len()..]);
        ensure!(cached.tokens == whole.tokens, "the cache changes the text");
        let difference = difference(&cached, &whole);
        ensure!(difference < 1e-4, "the cache changes the scores, by {difference:e}");
        out += &format!("  the same text; largest difference of scores: {difference:.0e}\n");
    }
    if let Err(e) = with_cache(8) {
        out += &format!(
            "with a cache for 8 tokens: {}\n",
            e.to_string().lines().next().unwrap_or_default()
        );
    }
    ensure!(compiled_step.compilations() == 1, "a length or a size of the cache compiles again");

    let caches = llama.caches(20);
    let text = |step: &dyn Fn(State) -> Result<Tensor>| -> Result<Duration> {
        let started = Instant::now();
        greedy(device, |tokens| last_row(&step(State { tokens, caches: caches.clone() })?))?;
        Ok(started.elapsed())
    };
    let mut least = [Duration::MAX; 2];
    for _ in 0..ROUNDS {
        least[0] = least[0].min(text(&|s| compiled_step.call(s))?);
        least[1] = least[1].min(text(&eager_step)?);
    }
    let [compiled, eager] =
        least.map(|t| t.as_secs_f64() * 1e6 / (PROMPT.len() + NEW_TOKENS) as f64);
    out += &format!("time of a step: compiled {compiled:.0} µs, eager {eager:.0} µs\n");
    Ok(out)
}

/// Extends the prompt by the best token each time. `scores` gives those after the last token of a
/// text, which is on the device.
fn greedy(device: Device, mut scores: impl FnMut(Tensor) -> Result<Vec<f32>>) -> Result<Decoded> {
    let mut text = Decoded { tokens: PROMPT.to_vec(), scores: Vec::new() };
    for length in 1..PROMPT.len() + NEW_TOKENS {
        let next = scores(Tensor::from(text.tokens[..length].to_vec()).to_device(device))?;
        if length == text.tokens.len() {
            let best = next
                .iter()
                .enumerate()
                .max_by(|a, b| a.1.total_cmp(b.1))
                .map_or(0, |(token, _)| token);
            text.tokens.push(best as i64);
        }
        text.scores.push(next);
    }
    Ok(text)
}

fn last_row(scores: &Tensor) -> Result<Vec<f32>> {
    scores.select(0, -1).to_vec()
}

fn difference(a: &Decoded, b: &Decoded) -> f32 {
    a.scores
        .iter()
        .flatten()
        .zip(b.scores.iter().flatten())
        .map(|(a, b)| (a - b).abs())
        .fold(0.0, f32::max)
}

#[allow(dead_code)] // the tests include this file and call `report`
fn main() -> Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let device = match &args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => Device::Cpu,
        ["--device", name] => name.parse().map_err(Error::other)?,
        _ => bail!("usage: decoder [--device DEVICE], such as `test:0`"),
    };
    print!("{}", report_on(device)?);
    Ok(())
}
