//! The end of the program: outputs get memory of their own, and results are written back to
//! external memory.
//!
//! An output that is a fresh tensor in the program must share no buffer with an input or another
//! output (P4 of [`maquette_ir::buffer_plan`]); it is copied if its value lies in such a buffer or
//! has another layout. Write-backs run one after another. A value that is still to be written back,
//! and that lies where another one is written first, is copied away before.

use super::{BufferRegion, Planner, Time};
use crate::error::{Reason, Result};
use maquette_ir::buffer_plan::{Buffer, BufferId, BufferView, CopyReason};
use maquette_ir::fault_injection::{Fault, fault_injected};
use maquette_ir::functional_program::Output;
use rustc_hash::FxHashMap;

/// The memory that outputs occupy so far.
#[derive(Default)]
struct Taken {
    /// Buffers that an output owns.
    buffers: Vec<BufferId>,
    /// Memory that several outputs share, by its number.
    shared: FxHashMap<usize, BufferRegion>,
    regions: Vec<Option<BufferView>>,
}

impl Planner<'_> {
    /// The regions of the outputs, one for each output that is not a list; `None` for outputs that
    /// need none.
    pub(super) fn place_outputs(&mut self) -> Result<Vec<Option<BufferView>>> {
        let (program, mut taken) = (self.program, Taken::default());
        program.outputs.iter().try_for_each(|o| self.output(o, &mut taken))?;
        for j in 0..program.mutations.len() {
            self.write_back(j)?;
        }
        Ok(taken.regions)
    }

    /// Places one output.
    fn output(&mut self, o: &Output, taken: &mut Taken) -> Result<()> {
        let at = match o {
            Output::List(l) => return l.iter().try_for_each(|o| self.output(o, taken)),
            Output::Alias { .. } => None,
            Output::Result { result, layout } => self.own_memory(*result, *layout, taken)?,
            Output::Shared { memory, result, storage_layout: whole, .. } => {
                match taken.shared.get(memory) {
                    Some(at) => Some(*at),
                    None => {
                        let at = self.own_memory(*result, Some(*whole), taken)?;
                        taken.shared.extend(at.map(|at| (*memory, at)));
                        at
                    }
                }
            }
        };
        taken.regions.push(at.map(|at| self.buffer_view(at)));
        Ok(())
    }

    /// Gives a result memory that no input and no other output shares, in the layout at this
    /// position of the graph's outputs.
    fn own_memory(
        &mut self,
        result: usize,
        layout: Option<usize>,
        taken: &mut Taken,
    ) -> Result<Option<BufferRegion>> {
        let Some(v) = self.result(result) else { return Ok(None) };
        let (layout, mut at) = (self.layout(v, layout)?, self.region(v)?);
        let own =
            matches!(self.buffers[at.buffer.index()], Buffer::New { .. } | Buffer::Returned(_))
                || fault_injected(Fault::OutputsLieInInputs);
        let is_taken =
            taken.buffers.contains(&at.buffer) && !fault_injected(Fault::OutputsShareMemory);
        if !own || is_taken || !self.same_layout(at.spec, layout, true) {
            let to = self.new_buffer(v, layout)?;
            self.copy(v, at, to, CopyReason::Output);
            at = to;
        }
        taken.buffers.push(at.buffer);
        Ok(Some(at))
    }

    /// Copies the `j`-th mutation's result to its external memory, if it is not there already.
    fn write_back(&mut self, j: usize) -> Result<()> {
        let (to, now): (BufferRegion, Time) = (self.write_back_region(j)?, self.end() + 1 + j);
        let Some(v) = self.result(self.program.mutations[j].result) else { return Ok(()) };
        let from = self.region(v)?;
        if self.same(from, to) {
            return Ok(());
        }
        // spill the values in this region that are still to be written back elsewhere
        if !fault_injected(Fault::WriteBackInAnyOrder)
            && !self.try_free(to, now, false, u64::MAX)?
        {
            return Err(Reason::Internal(
                "cannot spill the values in the destination of a write-back",
            )
            .into());
        }
        let from = self.region(v)?;
        self.copy(v, from, to, CopyReason::Store);
        Ok(())
    }
}
