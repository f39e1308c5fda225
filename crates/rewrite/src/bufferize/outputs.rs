//! The end: outputs in memory of their own, and what is written back.

use super::{BufferRegion, Planner, Time};
use crate::error::{Reason, Result};
use maquette_ir::buffer_plan::{Buffer, BufferId, BufferView, CopyReason};
use maquette_ir::fault_injection::{Fault, fault_injected};
use maquette_ir::functional_program::Output;
use rustc_hash::FxHashMap;

/// What outputs have taken.
#[derive(Default)]
struct Taken {
    buffers: Vec<BufferId>,
    /// Memory that several outputs see, by number.
    shared: FxHashMap<usize, BufferRegion>,
    places: Vec<Option<BufferView>>,
}

impl Planner<'_> {
    /// The places of outputs, one for each that is no list.
    pub(super) fn place_outputs(&mut self) -> Result<Vec<Option<BufferView>>> {
        let (program, mut taken) = (self.program, Taken::default());
        program.outputs.iter().try_for_each(|o| self.output(o, &mut taken))?;
        for j in 0..program.mutations.len() {
            self.write_back(j)?;
        }
        Ok(taken.places)
    }

    fn output(&mut self, o: &Output, taken: &mut Taken) -> Result<()> {
        let at = match o {
            Output::List(l) => return l.iter().try_for_each(|o| self.output(o, taken)),
            Output::Alias { .. } => None,
            Output::Result { result, layout: place } => self.own_memory(*result, *place, taken)?,
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
        taken.places.push(at.map(|at| self.buffer_view(at)));
        Ok(())
    }

    /// Memory that nothing else sees.
    fn own_memory(
        &mut self,
        result: usize,
        place: Option<usize>,
        taken: &mut Taken,
    ) -> Result<Option<BufferRegion>> {
        let Some(v) = self.result(result) else { return Ok(None) };
        let (layout, mut at) = (self.layout(v, place)?, self.region(v)?);
        let own =
            matches!(self.buffers[at.buffer.index()], Buffer::New { .. } | Buffer::Returned(_))
                || fault_injected(Fault::OutputsLieInInputs);
        let twice =
            taken.buffers.contains(&at.buffer) && !fault_injected(Fault::OutputsShareMemory);
        if !own || twice || !self.same_layout(at.spec, layout, true) {
            let to = self.new_buffer(v, layout)?;
            self.copy(v, at, to, CopyReason::Output);
            at = to;
        }
        taken.buffers.push(at.buffer);
        Ok(Some(at))
    }

    fn write_back(&mut self, j: usize) -> Result<()> {
        let (to, now): (BufferRegion, Time) = (self.write_back_region(j)?, self.end() + 1 + j);
        let Some(v) = self.result(self.program.mutations[j].result) else { return Ok(()) };
        let from = self.region(v)?;
        if self.same(from, to) {
            return Ok(());
        }
        // what is written back later, and lies where this is written
        if !fault_injected(Fault::WriteBackInAnyOrder)
            && !self.try_free(to, now, false, u64::MAX)?
        {
            return Err(Reason::Internal("too much lies where a value is written back").into());
        }
        let from = self.region(v)?;
        self.copy(v, from, to, CopyReason::Store);
        Ok(())
    }
}
