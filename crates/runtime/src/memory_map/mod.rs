//! Maps of a program's memory: which buffer lies where, and from which kernel to which.
//!
//! A map is that of an instance: of inputs of given layouts. If a size depends on data, it ends
//! where the size is bound.

mod svg;
mod text;

use crate::executable::Executable;
use crate::instance::{End, Place, Segment};
use crate::planned::Planned;
use crate::profile::described_kernel;
use maquette_invoke::SourceInfo;
use maquette_ir::Loc;
use maquette_ir::buffer_plan::{Buffer, BufferId, ResultDest, Step as PlanStep};
use maquette_ir::graph::ValueId;
use maquette_ops::{Result, Value};
use std::collections::BTreeMap;

/// Where the values of a program lie, and when. Displays as text for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemoryMap {
    /// The name of the graph.
    pub name: String,
    /// The kernels, in the order in which they run.
    pub kernels: Vec<MappedKernel>,
    /// The buffers, in the order of their first use.
    pub buffers: Vec<MappedBuffer>,
    /// The bytes of the arena.
    pub arena_bytes: u64,
    /// Whether a size that depends on data ends the map.
    pub ends_early: bool,
}

/// A kernel of a map.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MappedKernel {
    /// Its operators, as [`KernelProfile::label`](crate::profile::KernelProfile::label).
    pub label: String,
    /// Their lines.
    pub lines: Vec<Loc>,
}

/// A buffer of a map.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MappedBuffer {
    /// The values that lie in it, by their names in the graph, in the order of the plan.
    pub values: Vec<String>,
    /// Where it is.
    pub memory: BufferMemory,
    /// Its size.
    pub bytes: u64,
    /// The positions of its first and its last kernel.
    pub lifetime: (usize, usize),
}

/// The memory in which a buffer lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BufferMemory {
    /// An input.
    Input,
    /// A constant.
    Constant,
    /// New memory for an output.
    Output,
    /// What an operator returns.
    Returned,
    /// The arena, which runs share.
    Arena {
        /// The first byte.
        offset: u64,
    },
}

impl BufferMemory {
    /// In a word.
    pub const fn name(self) -> &'static str {
        match self {
            BufferMemory::Input => "input",
            BufferMemory::Constant => "constant",
            BufferMemory::Output => "output",
            BufferMemory::Returned => "returned",
            BufferMemory::Arena { .. } => "arena",
        }
    }
}

impl Executable {
    /// The map of the memory in which the program runs on these inputs. `None` if it does not run
    /// compiled. Nothing is run.
    ///
    /// # Errors
    /// The inputs do not fit the program.
    pub fn memory_map(
        &self,
        inputs: &[Value],
        source_info: &SourceInfo<'_>,
    ) -> Result<Option<MemoryMap>> {
        let Some(planned) = self.planned() else { return Ok(None) };
        let (planned, instance) = planned.prepared(inputs, source_info)?;
        Ok(Some(mapped(planned, &instance.first)))
    }
}

/// The map of a segment.
fn mapped(planned: &Planned, segment: &Segment) -> MemoryMap {
    let mut kernels = Vec::new();
    // The plan step of each kernel, in ascending order.
    let mut starts: Vec<usize> = Vec::new();
    for (step, at) in segment.plan_steps.iter().enumerate() {
        if let Some(kernel) = described_kernel(planned, segment, step) {
            kernels.push(MappedKernel { label: kernel.label(), lines: kernel.lines() });
            starts.push(*at);
        }
    }
    let names = value_names(planned);
    let mut buffers: Vec<MappedBuffer> = Vec::new();
    for (index, buffer) in planned.plan.buffers.iter().enumerate() {
        let Some((place, bytes)) = segment.buffer(BufferId(index as u32)) else { continue };
        let Some((first, last)) = planned.uses.steps_of(index) else { continue };
        let is_output = planned.uses.is_output.get(index) == Some(&true);
        // From the first kernel that uses it to the last, or to the end.
        let first = starts.partition_point(|at| *at < first);
        let last = starts.partition_point(|at| *at <= last).saturating_sub(1);
        let end = kernels.len().saturating_sub(1);
        let memory = match buffer {
            Buffer::Input(_) => BufferMemory::Input,
            Buffer::Const(_) => BufferMemory::Constant,
            _ if place.base as usize >= planned.plan.buffers.len() => {
                BufferMemory::Arena { offset: place.start.max(0) as u64 }
            }
            Buffer::New { .. } => BufferMemory::Output,
            Buffer::Returned(_) => BufferMemory::Returned,
        };
        let lifetime = match memory {
            BufferMemory::Input | BufferMemory::Constant => (0, end),
            _ if is_output => (first.min(end), end),
            _ => (first.min(end), last.max(first.min(end))),
        };
        let values = names.get(&(index as u32)).cloned().unwrap_or_default();
        buffers.push(MappedBuffer { values, memory, bytes, lifetime });
    }
    buffers.sort_by_key(|buffer| buffer.lifetime.0);
    MemoryMap {
        name: planned.program.graph.name().to_owned(),
        kernels,
        buffers,
        arena_bytes: segment.arena_bytes as u64,
        ends_early: matches!(segment.end, End::Bind { .. }),
    }
}

/// By buffer: the names of its values.
fn value_names(planned: &Planned) -> BTreeMap<u32, Vec<String>> {
    let graph = &planned.program.graph;
    let mut names: BTreeMap<u32, Vec<String>> = BTreeMap::new();
    let mut add = |buffer: BufferId, v: ValueId| {
        let name = graph.value_name(v).to_string();
        let of_buffer = names.entry(buffer.0).or_default();
        if !of_buffer.contains(&name) {
            of_buffer.push(name);
        }
    };
    for (index, buffer) in planned.plan.buffers.iter().enumerate() {
        let value = match buffer {
            Buffer::Input(i) => graph.inputs().get(*i).copied(),
            Buffer::Const(i) => graph.consts().get(*i).map(|c| c.value()),
            Buffer::New { .. } | Buffer::Returned(_) => None,
        };
        if let Some(v) = value {
            add(BufferId(index as u32), v);
        }
    }
    for step in &planned.plan.steps {
        match step {
            PlanStep::Alias { value, view } => add(view.buffer, *value),
            PlanStep::Copy { value, to, .. } => add(to.buffer, *value),
            PlanStep::Node { results, .. } => {
                for (v, to) in results {
                    match to {
                        ResultDest::Into(view) => add(view.buffer, *v),
                        ResultDest::Returned(buffer) => add(*buffer, *v),
                    }
                }
            }
            PlanStep::Stmt(_) => {}
        }
    }
    names
}

impl MemoryMap {
    /// The greatest number of bytes of the arena that are in use at one time. No arena is smaller.
    pub fn live_bytes(&self) -> u64 {
        let in_arena = |b: &&MappedBuffer| matches!(b.memory, BufferMemory::Arena { .. });
        let live = |kernel: usize| -> u64 {
            let alive = self.buffers.iter().filter(in_arena);
            let alive = alive.filter(|b| b.lifetime.0 <= kernel && kernel <= b.lifetime.1);
            alive.map(|b| b.bytes).sum()
        };
        (0..self.kernels.len()).map(live).max().unwrap_or_default()
    }

    /// The bytes that all buffers of the arena would take beside each other.
    pub fn bytes_without_sharing(&self) -> u64 {
        let in_arena = |b: &&MappedBuffer| matches!(b.memory, BufferMemory::Arena { .. });
        self.buffers.iter().filter(in_arena).map(|b| b.bytes).sum()
    }
}

impl Segment {
    /// Where a buffer lies, and its bytes; `None` if the segment does not use it.
    fn buffer(&self, buffer: BufferId) -> Option<(Place, u64)> {
        let at = self.place_of(buffer)?;
        Some((at.place, at.bytes()?.max(0) as u64))
    }
}
