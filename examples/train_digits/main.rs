//! Training from scratch: a network with a custom operator learns to read digits, eagerly and as
//! one compiled graph of forward pass, backward pass and the optimizer's update. `--device test:0`
//! trains on another device than the CPU.

mod net;
mod plot;

use maquette::io::Weights;
use maquette::optim::{AdamW, Algorithm, OneCycle, Schedule, State, clip_grad_norm};
use maquette::prelude::*;
use maquette::value_and_grad;
// `--device test:0`: the driver registers itself where its crate is linked.
use maquette_test_device as _;
use net::{Params, Running};
use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

static DIGITS: &[u8] = include_bytes!("../../data/digits/digits.safetensors");
const SEED: u64 = 13;
const BATCH: usize = 64;
const LR: f64 = 0.01;
const MAX_NORM: f64 = 1.0;
const OPTIMIZER: AdamW = AdamW::new(LR);
const EPOCHS: usize = 10;
const USAGE: &str = "train_digits [--epochs N] [--svg FILE] [--device DEVICE]";

/// The inputs of a step. The step writes the first three.
type Inputs = (Params, Running, State, Tensor, Tensor);

/// A step of training on a batch: the loss before it.
fn step((params, running, state, images, labels): Inputs) -> Result<Tensor> {
    let loss = |params: Params| params.loss(&running, &images, &labels);
    let (loss, grads) = value_and_grad(loss)(params.clone())?;
    let (grads, _) = clip_grad_norm(&grads, MAX_NORM)?;
    OPTIMIZER.step(&params, &grads, &state)?;
    Ok(loss)
}

/// A network in training.
struct Learner {
    params: Params,
    running: Running,
    state: State,
    losses: Vec<f32>,
    times: Vec<Duration>,
}

impl Learner {
    fn new(device: Device) -> Result<Learner> {
        let params = Params::random(SEED, device);
        let state = OPTIMIZER.init(&params)?;
        let running = Running::new(device);
        Ok(Learner { params, running, state, losses: Vec::new(), times: Vec::new() })
    }

    fn inputs(&self, images: &Tensor, labels: &Tensor) -> Inputs {
        let (params, running) = (self.params.clone(), self.running.clone());
        (params, running, self.state.clone(), images.clone(), labels.clone())
    }

    /// Runs a step, and notes its loss and its time.
    fn learn(&mut self, lr: f64, step: impl FnOnce() -> Result<Tensor>) -> Result<()> {
        self.state.set_lr(lr)?;
        let started = Instant::now();
        let loss = step()?;
        self.times.push(started.elapsed());
        self.losses.push(loss.item::<f32>()?);
        Ok(())
    }

    /// The bits of all that a step writes, and of the losses.
    fn bits(&self) -> Result<Vec<u32>> {
        let all = (
            self.params.clone(),
            self.running.clone(),
            self.state.moments[0].tensors.clone(),
            self.state.moments[1].tensors.clone(),
        );
        let (_, leaves) = ops::tree::flatten_values(&all)?;
        let mut bits: Vec<u32> = self.losses.iter().map(|x| x.to_bits()).collect();
        for leaf in &leaves {
            bits.extend(leaf.tensor()?.to_vec::<f32>()?.into_iter().map(f32::to_bits));
        }
        Ok(bits)
    }

    /// The median time of a step, without the first, which compiles.
    fn time(&self) -> Duration {
        let mut times = self.times[1.min(self.times.len())..].to_vec();
        times.sort();
        times.get(times.len() / 2).copied().unwrap_or_default()
    }
}

/// The rows of all images in random order.
fn shuffled(count: usize, seed: &mut u64) -> Vec<i64> {
    let mut rows: Vec<i64> = (0..count as i64).collect();
    for i in (1..count).rev() {
        *seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        rows.swap(i, (*seed >> 33) as usize % (i + 1));
    }
    rows
}

/// A line on the terminal that shows how far the training is.
fn progress(done: usize, of: usize, loss: f32) {
    let mut out = std::io::stderr();
    if out.is_terminal() {
        let full = 40 * done / of.max(1);
        let bar = format!("{}{}", "█".repeat(full), "░".repeat(40 - full));
        let end = if done == of { "\r\x1b[K" } else { "" };
        // A terminal that cannot be written to shows nothing.
        let _ = write!(out, "\r{bar} {done}/{of} steps, loss {loss:.4} {end}");
    }
}

/// Trains two networks on a device, from the same parameters on the same batches, eagerly and
/// compiled. The second text is the loss curve.
pub fn train(epochs: usize, device: Device) -> Result<(String, String)> {
    net::register_derivative()?;
    let digits = Weights::from_safetensors(DIGITS)?;
    let there = |name: &str| -> Result<Tensor> { Ok(digits.get(name)?.to_device(device)) };
    let (images, labels) = (there("train.images")?, there("train.labels")?);
    let count = labels.numel().as_i64().unwrap_or_default() as usize;
    let steps = epochs * (count / BATCH);
    let schedule = OneCycle::new(LR, steps as u64);

    let (mut eager, mut compiled) = (Learner::new(device)?, Learner::new(device)?);
    let compiled_step = CompileOptions::new().name("step").compile(step);
    let mut seed = SEED;
    for _ in 0..epochs {
        for rows in shuffled(count, &mut seed).chunks_exact(BATCH) {
            let rows = Tensor::from(rows.to_vec()).to_device(device);
            let (x, y) = (images.index_select(0, &rows), labels.index_select(0, &rows));
            let lr = schedule.lr(eager.losses.len() as u64)?;
            let inputs = eager.inputs(&x, &y);
            eager.learn(lr, || step(inputs))?;
            let inputs = compiled.inputs(&x, &y);
            compiled.learn(lr, || compiled_step.call(inputs))?;
            let loss = compiled.losses.last().copied().unwrap_or_default();
            progress(eager.losses.len(), steps, loss);
        }
    }

    let per_epoch = count / BATCH;
    let mut out = format!("{steps} steps of {BATCH} of {count} images, AdamW, one cycle\n");
    for (epoch, losses) in eager.losses.chunks(per_epoch).enumerate() {
        let mean = losses.iter().sum::<f32>() / losses.len() as f32;
        out += &format!("epoch {:>2}: mean loss {mean:.4}\n", epoch + 1);
    }
    let equal = eager.bits()? == compiled.bits()?;
    out += &format!(
        "losses, parameters, statistics and moments, eager and compiled: {}\n",
        if equal { "the same bits" } else { "other bits" }
    );
    ensure!(equal, "the compiled training differs from the eager one");
    let (images, labels) = (there("test.images")?, there("test.labels")?);
    let predicted = compiled.params.predict(&compiled.running, &images).to_vec::<i64>()?;
    let labels = labels.to_vec::<i64>()?;
    let right = predicted.iter().zip(&labels).filter(|(a, b)| a == b).count();
    let accuracy = right as f64 / labels.len() as f64;
    out += &format!("test accuracy: {accuracy:.4} ({right} of {} images)\n", labels.len());
    let [eager_time, compiled_time] = [&eager, &compiled].map(|l| l.time().as_secs_f64() * 1e3);
    out += &format!("time of a step: eager {eager_time:.2} ms, compiled {compiled_time:.2} ms\n");
    out += &format!(
        "compiled {} time, in {:.0} ms with the first step\n",
        compiled_step.compilations(),
        compiled.times[0].as_secs_f64() * 1e3
    );
    let title = format!("Training on digits: test accuracy {accuracy:.4}");
    Ok((out, plot::svg(&title, &eager.losses, &compiled.losses)))
}

/// A short training, for the tests.
#[allow(dead_code)] // for the tests, which include this file
pub fn report() -> Result<String> {
    report_on(Device::Cpu)
}

/// A short training on a device.
#[allow(dead_code)] // for the tests, which include this file
pub fn report_on(device: Device) -> Result<String> {
    let (text, svg) = train(1, device)?;
    ensure!(svg.ends_with("</svg>\n") && svg.matches("<polyline").count() == 2, "no curves");
    Ok(text)
}

#[allow(dead_code)] // the tests include this file and call `report`
fn main() -> Result<()> {
    let (mut epochs, mut path) = (EPOCHS, "train_digits.svg".to_owned());
    let mut device = Device::Cpu;
    let mut args = std::env::args().skip(1);
    while let Some(arg) = args.next() {
        match (arg.as_str(), args.next()) {
            ("--epochs", Some(n)) => match n.parse() {
                Ok(n) if n > 0 => epochs = n,
                _ => bail!("`--epochs` must be a number from 1, found `{n}`; usage: {USAGE}"),
            },
            ("--svg", Some(file)) => path = file,
            ("--device", Some(name)) => device = name.parse().map_err(Error::other)?,
            _ => bail!("usage: {USAGE}"),
        }
    }
    let (text, svg) = train(epochs, device)?;
    print!("{text}");
    std::fs::write(&path, svg).map_err(|e| Error::msg(format!("cannot write {path}: {e}")))?;
    println!("loss curve: {path}");
    Ok(())
}
