//! Programs with tensors of their own, which become inputs of the graph.

use crate::consts::ConstEntry;
use crate::options::TraceOptions;
use crate::record::Recorder;
use crate::traced::Traced;
use maquette_ir::Loc;
use maquette_ir::graph::{ValueId, ValueType};
use maquette_ops::{Result, Tensor, Tree};

/// A tensor of the program's own that its graph takes as an input.
#[derive(Clone, Debug)]
pub struct State {
    /// The tensor itself.
    pub tensor: Tensor,
    /// Which it is of those the trace was told of: several where one tensor was given several
    /// times, none if the program captured it.
    pub given_indices: Vec<usize>,
    /// Whether the program writes to its memory.
    pub is_mutated: bool,
}

impl TraceOptions {
    /// As [`TraceOptions::trace`], of a program that has tensors of its own. In the graph these are
    /// the first inputs, in order, each under its name and whether it is used or not; those that
    /// are one tensor are one input. A captured tensor whose memory the program writes is an input
    /// too, behind them; any other is a constant.
    ///
    /// # Errors
    /// As [`TraceOptions::trace`].
    #[track_caller]
    pub fn trace_with_state<I: Tree, O: Tree>(
        &self,
        f: impl FnOnce(I) -> O,
        state: &[(String, Tensor)],
        inputs: I,
    ) -> Result<Traced<I, O::Output>> {
        self.record(f, Some(state), inputs, Loc::caller())
    }
}

impl Recorder {
    /// Makes a tensor of the program's own an input, unless it is one.
    pub(crate) fn input_state(&mut self, at: usize, name: &str, t: &Tensor) -> Result<()> {
        let known =
            self.const_index(t, |r, ty, _| r.builder.input(ValueType::Tensor(ty), Some(name)))?;
        match self.state.get_mut(known) {
            Some(given) => given.push(at),
            None => self.state.push(vec![at]),
        }
        Ok(())
    }

    /// Makes captured tensors inputs where the program writes to their memory, and gives all inputs
    /// that are the program's own tensors.
    pub(crate) fn take_state(&mut self) -> Vec<State> {
        let given = std::mem::take(&mut self.state);
        let captured = self.consts.all().iter().skip(given.len()).filter(|k| k.is_mutated());
        let lifted: Vec<ValueId> = captured.map(|k| k.value).collect();
        self.builder.lift_constants(&lifted, given.len());
        let is_input = |(i, k): &(usize, &ConstEntry)| *i < given.len() || k.is_mutated();
        let state = self.consts.all().iter().enumerate().filter(is_input);
        state
            .map(|(i, k)| State {
                tensor: k.tensor.clone(),
                given_indices: given.get(i).cloned().unwrap_or_default(),
                is_mutated: k.is_mutated(),
            })
            .collect()
    }
}
