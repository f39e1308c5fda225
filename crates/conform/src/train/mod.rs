//! Recorded training: a few steps of a network with an optimizer, as PyTorch ran them.
//!
//! A recording is a pair of files, `NAME.json` (the network, the optimizer, the losses) and
//! `NAME.safetensors`. The network itself is written in Rust (`nets`). The steps run twice:
//! eagerly, and as one compiled function, of forward pass, backward pass and update. Losses,
//! gradients, parameters, buffers and the optimizer's state after each step must be close to
//! PyTorch's; those of the compiled function must have the bits of the eager ones.

mod drawn;
mod nets;
mod optimizer;
mod recording;

pub use recording::Recording;

use super::compare::equal_bits;
use maquette_ops::func::value_and_grad;
use maquette_ops::{Error, Result, Tensor};
use maquette_optim::{State, clip_grad_norm};
use nets::Named;
use optimizer::Groups;
use recording::{Difference, Kind};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// How often each way runs to be timed. The least time counts.
const ROUNDS: usize = 3;

/// What came of a recording.
#[derive(Clone, Debug)]
pub struct TrainReport {
    /// The largest relative difference from PyTorch in each kind of tensor, by its name.
    pub differences: BTreeMap<&'static str, f64>,
    /// What differs too much, or the error; empty if the recording agrees.
    pub failures: Vec<String>,
    /// The time of the last step, eagerly and compiled.
    pub times: [Duration; 2],
}

/// What a step leaves besides the tensors that it updates.
type Found = (Tensor, Vec<Tensor>, Option<Tensor>);

/// The tensors that steps update.
struct Run {
    params: Vec<Tensor>,
    buffers: Vec<Tensor>,
    states: Vec<State>,
}

type StepInputs = (Vec<Tensor>, Vec<Tensor>, Vec<State>, Tensor, Tensor);

impl Run {
    fn new(recording: &Recording, groups: &Groups) -> Result<Run> {
        let tensors = |prefix: &str, names: &[String]| -> Result<Vec<Tensor>> {
            names.iter().map(|n| recording.tensor(&format!("{prefix}.{n}"))).collect()
        };
        let params = tensors("param", &recording.params)?;
        let buffers = tensors("buffer", &recording.buffers)?;
        let states = groups.init(&params)?;
        Ok(Run { params, buffers, states })
    }

    fn inputs(&self, (x, y): (Tensor, Tensor)) -> StepInputs {
        (self.params.clone(), self.buffers.clone(), self.states.clone(), x, y)
    }

    /// All tensors that a step leaves.
    fn tensors(&self, (loss, grads, norm): &Found) -> Vec<Tensor> {
        let moments = self.states.iter().flat_map(|s| s.moments.iter().flat_map(|m| &m.tensors));
        let written = self.params.iter().chain(&self.buffers).chain(moments);
        written.chain([loss]).chain(grads).chain(norm).cloned().collect()
    }
}

/// A step of training. It writes parameters, buffers and states.
fn step(
    recording: &Recording,
    groups: &Groups,
    (params, buffers, states, x, y): StepInputs,
) -> Result<Found> {
    let loss = |params: Vec<Tensor>| {
        let named = Named::new([(&recording.params, &params), (&recording.buffers, &buffers)]);
        nets::loss(recording, &named, &x, &y).unwrap_or_else(Tensor::poison)
    };
    let (loss, grads) = value_and_grad(loss)(params.clone())?;
    let (clipped, norm) = match recording.clip {
        Some(max) => {
            let (clipped, norm) = clip_grad_norm(&grads, max)?;
            (clipped, Some(norm))
        }
        None => (grads.clone(), None),
    };
    groups.step(&params, &clipped, &states)?;
    Ok((loss, grads, norm))
}

/// Runs a recording eagerly and compiled.
pub fn check_training(recording: &Recording) -> TrainReport {
    let mut report = TrainReport {
        differences: BTreeMap::new(),
        failures: Vec::new(),
        times: [Duration::MAX; 2],
    };
    let mut checked = || check(recording, &mut report);
    if let Err(e) = maquette_check::values::catch_panics("the network", &mut checked) {
        report.failures.push(e.to_string());
    }
    report
}

fn check(recording: &Recording, report: &mut TrainReport) -> Result<()> {
    nets::register()?;
    let groups = Groups::new(recording)?;
    let eager = |inputs: StepInputs| step(recording, &groups, inputs);
    let compiled = maquette_driver::compile(&eager);
    for round in 0..ROUNDS {
        let runs = [Run::new(recording, &groups)?, Run::new(recording, &groups)?];
        for k in 1..=recording.steps {
            let batch = || {
                Ok::<_, Error>((
                    recording.tensor(&format!("{k}.x"))?,
                    recording.tensor(&format!("{k}.y"))?,
                ))
            };
            let inputs = [runs[0].inputs(batch()?), runs[1].inputs(batch()?)];
            let [for_eager, for_compiled] = inputs;
            let started = Instant::now();
            let found = eager(for_eager)?;
            let eager_time = started.elapsed();
            let started = Instant::now();
            let same = compiled.call(for_compiled)?;
            let compiled_time = started.elapsed();
            if k == recording.steps {
                report.times[0] = report.times[0].min(eager_time);
                report.times[1] = report.times[1].min(compiled_time);
            }
            if round == 0 {
                compare_with_recorded(recording, &groups, k, &runs[0], &found, report)?;
                let (a, b) = (runs[0].tensors(&found), runs[1].tensors(&same));
                for (i, (a, b)) in a.iter().zip(&b).enumerate() {
                    if !equal_bits(a, b).map_err(Error::msg)? {
                        let message =
                            format!("step {k}: tensor {i} of the compiled step has other bits");
                        report.failures.push(message);
                    }
                }
            }
        }
    }
    if compiled.compilations() != 1 {
        let n = compiled.compilations();
        report.failures.push(format!("the step was compiled {n} times; expected once"));
    }
    Ok(())
}

/// Compares all tensors of a step with those recorded.
fn compare_with_recorded(
    recording: &Recording,
    groups: &Groups,
    k: usize,
    run: &Run,
    (loss, grads, norm): &Found,
    report: &mut TrainReport,
) -> Result<()> {
    let mut all = vec![(Kind::Loss, format!("{k}.loss"), loss.clone())];
    let mut add = |kind, prefix: &str, names: &[String], tensors: &[Tensor]| {
        for (name, t) in names.iter().zip(tensors) {
            all.push((kind, format!("{k}.{prefix}.{name}"), t.clone()));
        }
    };
    add(Kind::Gradient, "grad", &recording.params, grads);
    add(Kind::Parameter, "param", &recording.params, &run.params);
    add(Kind::Buffer, "buffer", &recording.buffers, &run.buffers);
    for (names, state) in groups.names(recording).iter().zip(&run.states) {
        for moment in &state.moments {
            add(Kind::State, moment.name, names, &moment.tensors);
        }
    }
    if let Some(norm) = norm {
        all.push((Kind::Gradient, format!("{k}.norm"), norm.clone()));
    }
    for (kind, name, found) in all {
        let Difference { relative, tolerance } = recording.difference(&name, &found)?;
        let largest = report.differences.entry(kind.name()).or_default();
        *largest = largest.max(relative);
        if relative > tolerance {
            let message = format!("`{name}` differs by {relative:.1e}, and may by {tolerance:.0e}");
            report.failures.push(message);
        }
    }
    Ok(())
}
