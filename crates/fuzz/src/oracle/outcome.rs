//! The observable outcome of a run, and the comparison of two outcomes.

use super::library::{self, LoggedCall};
use super::mode::{RunResult, WriteCount};
use super::program::RunInputs;
use maquette_check::values::{are_same_elements, compare_metadata, element_bytes, flatten, show};
use maquette_ir::{DType, Device};
use maquette_ops::random::{Philox, apart};
use maquette_ops::{Result, Tensor, Value};

/// Runs `f` with a fixed state of the random number generator. Draws do not advance the thread's
/// own generator.
pub(super) fn with_fixed_seed<R>(f: impl FnOnce() -> R) -> R {
    apart(&mut Philox { seed: 7, offset: 0 }, f)
}

/// Everything that a run makes observable.
#[derive(Debug)]
pub struct Outcome {
    outputs: Vec<Output>,
    /// The contents of every memory afterwards, including elements that no input views.
    memories: Vec<(DType, Vec<u8>)>,
    log: Vec<LoggedCall>,
    /// The number of elements that were written.
    pub(super) written: WriteCount,
}

/// An output as observed after the run.
#[derive(Debug)]
struct Output {
    value: Value,
    /// The elements, if the output is a tensor.
    bytes: Vec<u8>,
    /// The inputs, and the earlier outputs, that share its storage.
    shares: Vec<String>,
}

fn is_empty(t: &Tensor) -> bool {
    t.numel().as_i64() == Some(0)
}

/// What is compared of two outcomes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Comparison {
    /// Strides, and which outputs share memory.
    pub(crate) layouts: bool,
    /// The bits of NaNs. Which of two NaNs a product has depends on its kernel.
    pub(crate) nans: bool,
    /// The device on which outputs must be.
    pub(crate) device: Device,
}

impl Comparison {
    pub(crate) const ALL: Comparison =
        Comparison { layouts: true, nans: true, device: Device::Cpu };
}

fn dense(t: &Tensor) -> Tensor {
    t.detach().clone_tensor().contiguous()
}

/// Whether two outputs are equal tensors, apart from the bits of NaNs.
fn same_elements(a: &Output, b: &Output) -> bool {
    match (&a.value, &b.value) {
        (Value::Tensor(t), Value::Tensor(u)) if t.dtype() == u.dtype() => {
            are_same_elements(t.dtype(), &a.bytes, &b.bytes)
        }
        _ => false,
    }
}

impl Outcome {
    /// Runs `f` on `run_inputs` and records the outcome.
    pub(crate) fn of(
        run_inputs: &RunInputs,
        f: impl FnOnce(&[Tensor]) -> Result<RunResult>,
    ) -> Result<Outcome> {
        library::take_log();
        let returned = with_fixed_seed(|| f(&run_inputs.inputs));
        let log = library::take_log();
        let RunResult { outputs: returned, written } = returned?;
        let values = flatten(&returned);
        let mut outputs: Vec<Output> = Vec::new();
        for value in &values {
            let mut output = Output { value: value.clone(), bytes: Vec::new(), shares: Vec::new() };
            if let Value::Tensor(t) = value {
                output.bytes = element_bytes(t)?;
                // whether an empty tensor shares memory is not observable
                let share = |u: &Tensor| u.shares_storage(t) && !is_empty(u) && !is_empty(t);
                let inputs = run_inputs
                    .inputs
                    .iter()
                    .enumerate()
                    .filter(|(_, u)| share(u))
                    .map(|(i, _)| format!("input {i}"));
                let same = |o: &Output| o.value.tensors().any(share);
                let earlier = outputs
                    .iter()
                    .enumerate()
                    .filter(|(_, o)| same(o))
                    .map(|(i, _)| format!("output {i}"));
                output.shares = inputs.chain(earlier).collect();
            }
            outputs.push(output);
        }
        let memories = run_inputs.memories.iter();
        let memories =
            memories.map(|t| Ok((t.dtype(), element_bytes(t)?))).collect::<Result<_>>()?;
        Ok(Outcome { outputs, memories, log, written })
    }

    /// Compares `found` with this outcome; an error describes the first difference. Strides of
    /// empty tensors and of dimensions of size 1 are not observable.
    pub(crate) fn difference(&self, found: &Outcome, by: Comparison) -> Result<(), String> {
        if self.outputs.len() != found.outputs.len() {
            return Err(format!(
                "{} outputs instead of {}",
                found.outputs.len(),
                self.outputs.len()
            ));
        }
        for (i, (e, f)) in self.outputs.iter().zip(&found.outputs).enumerate() {
            match (&e.value, &f.value) {
                (Value::Tensor(_), Value::Tensor(b)) if b.device() != by.device => {
                    let (found, expected) = (b.device(), by.device);
                    return Err(format!("output {i} is on {found} instead of {expected}"));
                }
                (Value::Tensor(a), Value::Tensor(b)) => {
                    let (a, b) =
                        if by.layouts { (a.clone(), b.clone()) } else { (dense(a), dense(b)) };
                    compare_metadata(&a, &b).map_err(|what| format!("output {i}: {what}"))?
                }
                // numbers are compared as printed, which distinguishes all bits
                (a, b) if show(a) == show(b) => {}
                (a, b) => return Err(format!("output {i} is {} instead of {}", show(b), show(a))),
            }
            if e.bytes != f.bytes && (by.nans || !same_elements(e, f)) {
                return Err(format!(
                    "output {i} has the elements {} instead of {}",
                    show(&f.value),
                    show(&e.value)
                ));
            }
            if by.layouts && e.shares != f.shares {
                return Err(format!(
                    "output {i} shares memory with {:?} instead of {:?}",
                    f.shares, e.shares
                ));
            }
        }
        for (i, ((dtype, e), (_, f))) in self.memories.iter().zip(&found.memories).enumerate() {
            if let Some(at) = e.iter().zip(f).position(|(a, b)| a != b)
                && (by.nans || !are_same_elements(*dtype, e, f))
            {
                return Err(format!("memory {i} differs after the run, at byte {at}"));
            }
        }
        let is_same = |(e, f): (&LoggedCall, &LoggedCall)| {
            let is_same = || e.call == f.call && are_same_elements(e.dtype, &e.bytes, &f.bytes);
            e == f || !by.nans && is_same()
        };
        let mut pairs = self.log.iter().zip(&found.log);
        match self.log.len() == found.log.len() && pairs.all(is_same) {
            true => Ok(()),
            false => {
                let text = |log: &[LoggedCall]| {
                    log.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n  ")
                };
                let (found, expected) = (text(&found.log), text(&self.log));
                Err(format!("the effects are\n  {found}\ninstead of\n  {expected}"))
            }
        }
    }
}
