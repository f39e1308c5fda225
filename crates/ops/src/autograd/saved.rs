//! What a call keeps for its derivative.

use super::checkpoint::{self, Recomputed};
use super::history::{self, Tracking};
use super::node::{Edge, Edges, lock};
use super::rule::{Rule, Saved};
use crate::dispatch::mode;
use crate::dispatch::value::{Args, Value};
use crate::error::{AutogradError, Error, Result};
use crate::library::Op;
use crate::tensor::Tensor;
use crate::tensor::meta::Meta;
use maquette_ir::Loc;
use maquette_ir::fault_injection::{Fault, fault_injected};
use smallvec::SmallVec;
use std::sync::{Mutex, OnceLock};

/// A tensor as it was at the call. The handle has no history of its own: the graph would keep
/// itself alive, and dropping it would recurse.
pub(crate) struct SavedTensor(Held);

enum Held {
    Kept {
        handle: Tensor,
        version: u64,
    },
    /// Not kept, but computed again by the sweep.
    Recomputed(Box<Recomputed>),
}

/// The number of writes of a tensor's memory so far, with those that a trace has only recorded.
pub(super) fn version(t: &Tensor) -> u64 {
    let recorded = mode::active().mode().map_or(0, |mode| mode.writes(t).0);
    t.writes().wrapping_add(recorded)
}

/// The line of the last write that a trace has recorded.
pub(super) fn last_recorded_write(t: &Tensor) -> Option<Loc> {
    mode::active().mode().and_then(|mode| mode.writes(t).1)
}

impl SavedTensor {
    pub(crate) fn new(t: &Tensor) -> SavedTensor {
        if let Some(mode) = mode::active().mode() {
            mode.differentiates();
        }
        if checkpoint::is_active()
            && let Some(recomputed) = checkpoint::save(t)
        {
            return SavedTensor(Held::Recomputed(Box::new(recomputed)));
        }
        if let Ok(storage) = t.own_storage() {
            storage.watch_writes();
        }
        SavedTensor(Held::Kept { handle: t.untracked(), version: version(t) })
    }

    /// The tensor, with `edge` as its history where the caller records derivatives.
    ///
    /// # Errors
    /// Its memory was written since, or it cannot be computed again.
    pub(crate) fn unpack(&self, edge: Option<&Edge>, op: &str, called: Loc) -> Result<Tensor> {
        let handle = match &self.0 {
            Held::Kept { handle, .. } => {
                self.check_unwritten(op, called)?;
                handle.clone()
            }
            Held::Recomputed(recomputed) => {
                let (handle, before) = recomputed.get()?;
                check_version(&handle, before, handle.writes(), op, called)?;
                handle
            }
        };
        match edge {
            Some(edge) if super::grad_mode::is_grad_enabled() => {
                let t = handle.untracked();
                history::set(&t, Tracking::Result { edge: edge.clone(), writes: 0 });
                Ok(t)
            }
            _ => Ok(handle),
        }
    }

    /// Checks that the memory was not written since, unless the tensor is to be computed again.
    fn check_unwritten(&self, op: &str, called: Loc) -> Result<()> {
        match &self.0 {
            Held::Kept { handle, version: before } => {
                check_version(handle, *before, version(handle), op, called)
            }
            Held::Recomputed(_) => Ok(()),
        }
    }
}

/// Checks that a saved tensor has the version with which it was saved.
fn check_version(saved: &Tensor, before: u64, now: u64, op: &str, called: Loc) -> Result<()> {
    if now == before || fault_injected(Fault::SavedWritesUnchecked) {
        return Ok(());
    }
    let written = last_recorded_write(saved).or(saved.own_storage()?.last_write());
    let (op, tensor) = (op.to_owned(), saved.meta().to_string());
    Err(AutogradError::SavedWasWritten { op, tensor, called, written }.into())
}

/// A recorded call: its operator, and the parts of its arguments and results that the rule reads.
pub(crate) struct SavedCall {
    pub(crate) op: Op,
    pub(crate) loc: Loc,
    pub(crate) rule: Rule,
    /// The arguments, with `None` in place of a tensor, and lists of bools in place of lists with
    /// tensors.
    pub(crate) args: Args,
    /// For each argument, its first tensor operand and the number of these.
    pub(crate) operands: SmallVec<[(u32, u32); 6]>,
    /// The metadata of each tensor operand.
    pub(crate) metas: SmallVec<[Meta; 2]>,
    /// The metadata of each result. It is set after the call.
    pub(crate) results: OnceLock<SmallVec<[Meta; 1]>>,
    /// The operands that the rule reads, by index.
    inputs: SmallVec<[(u32, SavedTensor); 2]>,
    /// The results that the rule reads, by index. They are set after the call.
    outputs: Mutex<SmallVec<[(u32, SavedTensor); 1]>>,
}

impl SavedCall {
    /// Keeps what `rule` reads, where an operand that it reads it for needs a gradient. `fresh`
    /// gives the tensor to keep in place of an operand that the call will write.
    pub(crate) fn new(
        op: Op,
        loc: Loc,
        rule: Rule,
        args: &[Value],
        needs: &dyn Fn(usize) -> bool,
        keep: &dyn Fn(&Tensor) -> Result<Tensor>,
    ) -> Result<SavedCall> {
        let mut operands: SmallVec<[(u32, u32); 6]> = SmallVec::new();
        let mut metas = SmallVec::new();
        let mut inputs: SmallVec<[(u32, SavedTensor); 2]> = SmallVec::new();
        for (i, arg) in args.iter().enumerate() {
            let first = metas.len() as u32;
            let is_read = rule.reads_input(i, needs);
            for t in arg.tensors() {
                if is_read {
                    inputs.push((metas.len() as u32, SavedTensor::new(&keep(t)?)));
                }
                metas.push(t.meta().clone());
            }
            operands.push((first, metas.len() as u32 - first));
        }
        let args = args.iter().map(without_tensors);
        Ok(SavedCall {
            op,
            loc,
            rule,
            args: args.collect(),
            operands,
            metas,
            results: OnceLock::new(),
            inputs,
            outputs: Mutex::default(),
        })
    }

    /// Keeps the results that the rule reads.
    pub(crate) fn save_outputs(&self, outputs: &[Tensor]) {
        self.results.get_or_init(|| outputs.iter().map(|t| t.meta().clone()).collect());
        let mut saved = lock(&self.outputs);
        for (i, t) in outputs.iter().enumerate() {
            if self.rule.reads_output(i) {
                saved.push((i as u32, SavedTensor::new(t)));
            }
        }
    }

    pub(crate) fn input(&self, operand: usize, next: &Edges) -> Result<Tensor> {
        let found = self.inputs.iter().find(|(i, _)| *i as usize == operand);
        let Some((_, saved)) = found else {
            return Err(self.not_saved(Saved::Input(operand)));
        };
        let edge = next.get(operand).and_then(Option::as_ref);
        saved.unpack(edge, self.op.name(), self.loc)
    }

    /// A result. `node` is the node of the call, the history of its results.
    pub(crate) fn output(&self, index: usize, edge: Option<&Edge>) -> Result<Tensor> {
        let outputs = lock(&self.outputs);
        let found = outputs.iter().find(|(i, _)| *i as usize == index);
        match found {
            Some((_, saved)) => saved.unpack(edge, self.op.name(), self.loc),
            None => Err(self.not_saved(Saved::Output(index))),
        }
    }

    /// Checks that nothing which the call has saved was written since. A rule may read sizes of
    /// what it has saved before it fails with the error of reading it.
    ///
    /// # Errors
    /// As [`SavedTensor::unpack`].
    pub(crate) fn check_unwritten(&self) -> Result<()> {
        let check =
            |(_, saved): &(u32, SavedTensor)| saved.check_unwritten(self.op.name(), self.loc);
        self.inputs.iter().try_for_each(check)?;
        lock(&self.outputs).iter().try_for_each(check)
    }

    fn not_saved(&self, what: Saved) -> Error {
        Error::value(format!(
            "the derivative of `{}` reads {what}, which it does not list among those that it saves",
            self.op.name()
        ))
    }
}

/// What a rule sees of an argument beside its tensors.
fn without_tensors(v: &Value) -> Value {
    match v {
        Value::List(l) if v.tensors().next().is_some() => {
            Value::List(l.iter().map(|x| Value::Bool(matches!(x, Value::Tensor(_)))).collect())
        }
        Value::Tensor(_) => Value::None,
        other => other.clone(),
    }
}
