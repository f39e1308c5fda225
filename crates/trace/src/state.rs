//! Programs with tensors of their own (parameters, buffers), which become inputs of the graph.

use crate::consts::ConstEntry;
use crate::options::TraceOptions;
use crate::record::Recorder;
use crate::traced::Traced;
use maquette_ir::Loc;
use maquette_ir::graph::{ValueId, ValueType};
use maquette_ops::{Result, Tensor, Tree, mode};

/// A tensor of the program's own that the graph takes as an input.
#[derive(Clone, Debug)]
pub struct State {
    /// The tensor itself.
    pub tensor: Tensor,
    /// Its indices in the state given to the trace: several if one tensor was given several times,
    /// none if the program captured it.
    pub given_indices: Vec<usize>,
    /// Whether the program writes to its memory.
    pub is_mutated: bool,
}

impl TraceOptions {
    /// Like [`TraceOptions::trace`], for a program with tensors of its own.
    ///
    /// In the graph, the tensors of `state` are the first inputs, in order and under their names,
    /// even if they are unused; entries that are the same tensor are one input. A captured tensor
    /// that the program mutates becomes an input after them. Any other captured tensor is a
    /// constant.
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
        self.record(f, Some(state), inputs, Loc::caller()).map_err(mode::failed)
    }
}

impl Recorder {
    /// Makes a tensor of the program's own an input, unless it already is one.
    pub(crate) fn input_state(&mut self, at: usize, name: &str, t: &Tensor) -> Result<()> {
        let known =
            self.const_index(t, |r, ty, _| r.builder.input(ValueType::Tensor(ty), Some(name)))?;
        match self.state.get_mut(known) {
            Some(indices) => indices.push(at),
            None => self.state.push(vec![at]),
        }
        Ok(())
    }

    /// Turns captured tensors that the program mutates into inputs, and returns the state of all
    /// inputs that are the program's own tensors.
    pub(crate) fn take_state(&mut self) -> Vec<State> {
        let indices = std::mem::take(&mut self.state);
        let captured = self.consts.all().iter().skip(indices.len()).filter(|k| k.is_mutated());
        let lifted: Vec<ValueId> = captured.map(|k| k.value).collect();
        self.builder.lift_constants(&lifted, indices.len());
        let is_input = |(i, k): &(usize, &ConstEntry)| *i < indices.len() || k.is_mutated();
        let state = self.consts.all().iter().enumerate().filter(is_input);
        state
            .map(|(i, k)| State {
                tensor: k.tensor.clone(),
                given_indices: indices.get(i).cloned().unwrap_or_default(),
                is_mutated: k.is_mutated(),
            })
            .collect()
    }
}
