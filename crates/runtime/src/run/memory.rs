//! The memory of runs: arenas, the addresses of bases, and handles.
//!
//! Safety of this module: see [`run`](super).
#![allow(unsafe_code)]

use super::Run;
use super::late::forget_late;
use crate::instance::{External, HandleLife, Segment, TensorAt};
use maquette_device::Address;
use maquette_invoke::wrong_graph;
use maquette_ops::internals::{MetaInternals, TensorInternals};
use maquette_ops::{Arena, Args, Error, Result, Tensor, Value};

/// The memory of runs, which later runs use again.
#[derive(Default)]
pub(crate) struct RunMemory {
    /// By depth of the segment.
    arenas: Vec<Option<KeptArena>>,
    /// Handles to tensors in arenas, by depth.
    pub(super) handles: Vec<Handles>,
    /// By base.
    pub(super) bases: Vec<Base>,
    /// By value: the numbers that operators computed, and tensors whose sizes bind symbols.
    pub(super) values: Vec<Option<Value>>,
    /// The tensors of the outputs, while they are built.
    pub(super) planned: Vec<Option<Tensor>>,
}

/// An arena that several runs use.
struct KeptArena {
    arena: Arena,
    bytes: usize,
    /// The number of consecutive runs, up to the last, that needed less than half of it.
    larger: u32,
}

/// An arena is replaced after so many consecutive runs that need less than half of it.
const MAX_LARGER_RUNS: u32 = 16;

/// Handles to tensors in arenas, for the steps of one segment.
#[derive(Default)]
pub(super) struct Handles {
    /// The id of the segment.
    segment: u64,
    /// By slot.
    tensors: Vec<Option<Tensor>>,
    /// The slots of handles that end with the run.
    of_run: Vec<u32>,
    /// The arguments of the calls that are prepared.
    pub args: Vec<Args>,
}

/// The memory of a base in one run.
#[derive(Default)]
pub(super) struct Base {
    /// `None` until a launch needs it.
    address: Option<Address>,
    /// A handle with the rights of the run.
    pub tensor: Option<Tensor>,
    /// Whether an operator returned it with the strides that the graph declares.
    pub has_declared_strides: bool,
}

impl Base {
    #[inline]
    pub fn address(&mut self) -> Result<Address> {
        match self.address {
            Some(address) => Ok(address),
            None => self.find_address(),
        }
    }

    #[cold]
    fn find_address(&mut self) -> Result<Address> {
        let address = self.tensor.as_ref().ok_or_else(wrong_graph)?.address()?;
        self.address = Some(address);
        Ok(address)
    }
}

impl RunMemory {
    /// Makes room for the buffers of a plan and the values of its graph.
    pub fn begin_run(&mut self, buffers: usize, values: usize) {
        self.bases.resize_with(buffers, Base::default);
        self.values.resize_with(values, || None);
    }

    /// The bytes of the arenas.
    #[cfg(test)]
    pub fn arena_bytes(&self) -> usize {
        self.arenas.iter().flatten().map(|kept| kept.bytes).sum()
    }

    /// Drops all that belongs to one run. After a failed run it drops the arenas, too: a kernel may
    /// have poisoned them, or kept a guard.
    pub fn end_run(&mut self, failed: bool) {
        self.bases.iter_mut().for_each(|base| *base = Base::default());
        self.values.iter_mut().for_each(|value| *value = None);
        self.planned.clear();
        for Handles { tensors, of_run, .. } in &mut self.handles {
            for slot in of_run.drain(..) {
                if let Some(tensor) = tensors.get_mut(slot as usize) {
                    *tensor = None;
                }
            }
        }
        if failed {
            self.arenas.clear();
            self.handles.clear();
        }
    }
}

impl Run<'_> {
    /// Gives the bases of a segment their memory.
    pub(super) fn enter(&mut self, segment: &Segment) -> Result<()> {
        for (buffer, which) in &segment.externals {
            let tensor = match which {
                External::Input(i) => match self.inputs.get(*i) {
                    Some(Value::Tensor(t)) => t.clone(),
                    _ => return Err(wrong_graph()),
                },
                External::Const(i) => {
                    self.external.consts().get(*i).ok_or_else(wrong_graph)?.clone()
                }
            };
            self.set_base(buffer.0, tensor)?;
        }
        for (buffer, len, dtype) in &segment.outputs {
            let given = self.outputs.for_buffer(*buffer, self.external.outputs());
            let tensor = match given {
                Some(t) => t.clone(),
                None => Tensor::new_memory(self.planned.device, *len, *dtype)?,
            };
            self.set_base(buffer.0, tensor)?;
        }
        let (depth, memory) = (segment.depth, &mut *self.memory);
        let base = self.planned.plan.buffers.len() + depth;
        if memory.bases.len() <= base {
            memory.bases.resize_with(base + 1, Base::default);
        }
        if memory.arenas.len() <= depth {
            memory.arenas.resize_with(depth + 1, || None);
        }
        if memory.handles.len() <= depth {
            memory.handles.resize_with(depth + 1, Default::default);
        }
        let slot = &mut memory.arenas[depth];
        if segment.arena_bytes > 0 {
            let needed = segment.arena_bytes;
            if let Some(kept) = slot {
                let is_larger = kept.bytes / 2 > needed;
                kept.larger = if is_larger { kept.larger + 1 } else { 0 };
            }
            let serves = |kept: &KeptArena| kept.bytes >= needed && kept.larger < MAX_LARGER_RUNS;
            if !slot.as_ref().is_some_and(serves) {
                // The old arena goes first, with its handles: both together may not fit.
                *slot = None;
                memory.handles.iter_mut().for_each(|h| *h = Handles::default());
                let arena = Arena::new(self.planned.device, needed)?;
                *slot = Some(KeptArena { arena, bytes: needed, larger: 0 });
            }
            let arena = &slot.as_ref().ok_or_else(wrong_graph)?.arena;
            if self.late.is_some() {
                forget_late(&arena.bytes());
            }
            let address = Some(arena.address());
            let tensor = segment.lends_memory.then(|| arena.bytes());
            memory.bases[base] = Base { address, tensor, has_declared_strides: false };
        }
        let handles = &mut memory.handles[depth];
        // Also for a segment that keeps no handles: its outputs must not be those of another one.
        if handles.segment != segment.id {
            let slots = if segment.lends_memory { segment.slots } else { 0 };
            handles.segment = segment.id;
            handles.tensors.clear();
            handles.of_run.clear();
            handles.tensors.resize(slots as usize, None);
            handles.args.clear();
            handles.args.resize_with(segment.kept_calls as usize, Args::new);
        }
        Ok(())
    }

    pub(super) fn set_base(&mut self, base: u32, tensor: Tensor) -> Result<()> {
        self.memory.set_base(base, tensor, false)
    }

    /// A handle to a tensor in the memory of the run.
    pub(super) fn tensor(&mut self, segment: &Segment, at: &TensorAt) -> Result<Tensor> {
        let arena = (at.base as usize).checked_sub(self.planned.plan.buffers.len());
        if let Some(arena) = arena {
            return self.memory.arena_tensor(segment.depth, arena, at);
        }
        self.memory.own_tensor(segment.depth, at)
    }
}

impl RunMemory {
    pub(super) fn set_base(
        &mut self,
        base: u32,
        tensor: Tensor,
        has_declared_strides: bool,
    ) -> Result<()> {
        let slot = self.bases.get_mut(base as usize).ok_or_else(wrong_graph)?;
        *slot = Base { address: None, tensor: Some(tensor), has_declared_strides };
        Ok(())
    }

    /// A handle to a tensor in an arena, for a step of the segment of depth `depth`.
    fn arena_tensor(&mut self, depth: usize, arena: usize, at: &TensorAt) -> Result<Tensor> {
        let handles = self.handles.get_mut(depth);
        let mut slot = handles.and_then(|handles| handles.tensors.get_mut(at.slot as usize));
        if let Some(Some(handle)) = &slot {
            return Ok(handle.clone());
        }
        let base = self.bases.get_mut(at.base as usize).ok_or_else(wrong_graph)?;
        if base.tensor.is_none() {
            // Only the error of a launch wants a handle where no step does.
            let arena = self.arenas.get(arena).and_then(Option::as_ref);
            base.tensor = arena.map(|kept| kept.arena.bytes());
        }
        let base = base.tensor.as_ref().ok_or_else(wrong_graph)?;
        // SAFETY: steps read only what earlier steps of this run wrote as the same dtype.
        let handle = unsafe { base.bytes_as(at.meta.clone()) }?;
        if let Some(slot) = &mut slot {
            **slot = Some(handle.clone());
        }
        Ok(handle)
    }

    /// A handle to a tensor that is not in an arena, for a step of the segment of depth `depth`.
    pub(super) fn own_tensor(&mut self, depth: usize, at: &TensorAt) -> Result<Tensor> {
        let base = self.bases.get(at.base as usize).ok_or_else(wrong_graph)?;
        let base = base.tensor.as_ref().ok_or_else(wrong_graph)?;
        if at.handle == HandleLife::Base {
            return Ok(base.clone());
        }
        let handles = self.handles.get_mut(depth).filter(|_| at.handle == HandleLife::Run);
        let mut slot = handles.and_then(|Handles { tensors, of_run, .. }| {
            tensors.get_mut(at.slot as usize).map(|slot| (slot, of_run))
        });
        if let Some((Some(handle), _)) = &slot {
            return Ok(handle.clone());
        }
        let number = || Error::msg("a layout of the program is not a number");
        let (layout, start) = (at.meta.concrete(), base.meta().offset().as_i64());
        let (layout, start) = layout.zip(start).ok_or_else(number)?;
        let start = start.checked_add(layout.offset).ok_or_else(number)?;
        let handle = base.with_layout(&layout.sizes, &layout.strides, start)?;
        if let Some((slot, of_run)) = &mut slot {
            **slot = Some(handle.clone());
            of_run.push(at.slot);
        }
        Ok(handle)
    }
}
