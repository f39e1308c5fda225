//! Programs with tensors of their own, which become inputs of the graph.

use crate::options::TraceOptions;
use crate::traced::Traced;
use maquette_ir::Loc;
use maquette_ops::{Result, Tensor, Tree};

/// A tensor of the program's own that its graph takes as an input.
#[derive(Clone, Debug)]
pub struct State {
    /// The tensor itself.
    pub tensor: Tensor,
    /// Which it is of those the trace was told of: several where one tensor was given several times, none if the program captured it.
    pub given: Vec<usize>,
    /// Whether the program writes to its memory.
    pub written: bool,
}

impl TraceOptions {
    /// As [`TraceOptions::trace`], of a program that has tensors of its own. In the graph these are the first inputs, in order, each under its name
    /// and whether it is used or not; those that are one tensor are one input. A captured tensor whose memory the program writes is an input
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
    ) -> Result<Traced<I, O>> {
        self.record(f, Some(state), inputs, Loc::caller())
    }
}
