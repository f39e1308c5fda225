//! The memory of runs: arenas, the addresses of bases, and handles.
//!
//! Safety of this module: see [`run`](super).
#![allow(unsafe_code)]

use super::{Run, missing};
use crate::instance::{External, Segment, TensorAt};
use maquette_ops::{Arena, Error, Result, Tensor, Value};

/// The memory of runs, which later runs use again.
#[derive(Default)]
pub(crate) struct RunMemory {
    /// By depth of the segment.
    arenas: Vec<Option<(Arena, usize)>>,
    /// Handles to tensors in arenas: by depth, the id of the segment that they are of, and the
    /// handles by slot.
    handles: Vec<(u64, Vec<Option<Tensor>>)>,
    /// By base.
    pub(super) bases: Vec<Base>,
    /// By value: the numbers that operators computed, and tensors whose sizes bind symbols.
    pub(super) values: Vec<Option<Value>>,
}

/// The memory of a base in one run.
#[derive(Default)]
pub(super) struct Base {
    /// Null until a launch needs it.
    address: Address,
    /// A handle with the rights of the run.
    pub tensor: Option<Tensor>,
}

impl Base {
    pub fn address(&mut self) -> Result<*mut u8> {
        if self.address.0.is_null() {
            let tensor = self.tensor.as_ref().ok_or_else(missing)?;
            self.address = Address(tensor.host_address()?.as_ptr());
        }
        Ok(self.address.0)
    }
}

/// An address.
#[derive(Clone, Copy)]
struct Address(*mut u8);

impl Default for Address {
    fn default() -> Address {
        Address(std::ptr::null_mut())
    }
}

// SAFETY: a pool of memories moves between threads only between runs, when no address is used.
unsafe impl Send for Address {}

impl RunMemory {
    /// Makes room for the buffers of a plan and the values of its graph.
    pub fn begin_run(&mut self, buffers: usize, values: usize) {
        self.bases.resize_with(buffers, Base::default);
        self.values.resize_with(values, || None);
    }

    /// Drops all that belongs to one run. After a failed run it drops the arenas, too: a kernel may
    /// have poisoned them, or kept a guard.
    pub fn end_run(&mut self, failed: bool) {
        self.bases.iter_mut().for_each(|base| *base = Base::default());
        self.values.iter_mut().for_each(|value| *value = None);
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
                    _ => return Err(missing()),
                },
                External::Const(i) => self.external.consts().get(*i).ok_or_else(missing)?.clone(),
            };
            self.set_base(buffer.0, tensor)?;
        }
        for (buffer, len, dtype) in &segment.outputs {
            self.set_base(buffer.0, Tensor::new_memory(*len, *dtype)?)?;
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
            let arena = match slot {
                Some((arena, bytes)) if *bytes >= segment.arena_bytes => arena,
                _ => {
                    // The old arena goes first, with its handles: both together may not fit.
                    *slot = None;
                    for (id, handles) in &mut memory.handles {
                        (*id, *handles) = (0, Vec::new());
                    }
                    let arena = Arena::new(segment.arena_bytes)?;
                    &mut slot.insert((arena, segment.arena_bytes)).0
                }
            };
            let address = Address(arena.address().as_ptr());
            let tensor = segment.lends_memory.then(|| arena.bytes());
            memory.bases[base] = Base { address, tensor };
        }
        let (id, handles) = &mut memory.handles[depth];
        if segment.lends_memory && *id != segment.id {
            *id = segment.id;
            handles.clear();
            handles.resize(segment.slots as usize, None);
        }
        Ok(())
    }

    pub(super) fn set_base(&mut self, base: u32, tensor: Tensor) -> Result<()> {
        let slot = self.memory.bases.get_mut(base as usize).ok_or_else(missing)?;
        *slot = Base { address: Address::default(), tensor: Some(tensor) };
        Ok(())
    }

    /// A handle to a tensor in the memory of the run.
    pub(super) fn tensor(&mut self, segment: &Segment, at: &TensorAt) -> Result<Tensor> {
        let arena = (at.base as usize).checked_sub(self.planned.plan.buffers.len());
        let base = self.memory.bases.get_mut(at.base as usize).ok_or_else(missing)?;
        if let (Some(depth), None) = (arena, &base.tensor) {
            // Only the error of a launch wants a handle where no step does.
            let arena = self.memory.arenas.get(depth).and_then(Option::as_ref);
            base.tensor = arena.map(|(arena, _)| arena.bytes());
        }
        let base = base.tensor.as_ref().ok_or_else(missing)?;
        if at.is_whole {
            return Ok(base.clone());
        }
        if arena.is_some() {
            let handles = self.memory.handles.get_mut(segment.depth).map(|(_, handles)| handles);
            let mut slot = handles.and_then(|handles| handles.get_mut(at.slot as usize));
            if let Some(Some(handle)) = &slot {
                return Ok(handle.clone());
            }
            // SAFETY: steps read only what earlier steps of this run wrote as the same dtype.
            let handle = unsafe { base.bytes_as(at.meta.clone()) }?;
            if let Some(slot) = &mut slot {
                **slot = Some(handle.clone());
            }
            return Ok(handle);
        }
        let number = || Error::msg("a layout of the program is not a number");
        let (layout, start) = (at.meta.concrete(), base.storage_offset().as_i64());
        let (layout, start) = layout.zip(start).ok_or_else(number)?;
        base.with_layout(&layout.sizes, &layout.strides, start + layout.offset)
    }
}
