//! The buffers of a segment: when they are used, where they lie, and tensors in them.

use super::Builder;
use crate::arena_layout::{ALIGN, ArenaLayout, Lifetime};
use crate::instance::places::{BufferPlace, HandleLife};
use crate::instance::{External, Place, Step, TensorAt};
use maquette_invoke::{Callable, ConcreteLayout, concrete_layout, extent, too_large, wrong_graph};
use maquette_ir::buffer_plan::{Buffer, BufferId, BufferPlan, BufferView, ResultDest};
use maquette_ir::fault_injection::{Fault, fault_injected};
use maquette_ir::functional_ops::Callee;
use maquette_ir::graph::{Graph, Stmt, ValueId};
use maquette_ir::sym::Expr;
use maquette_ir::view::ViewSpec;
use maquette_ops::internals::MetaInternals;
use maquette_ops::{IntoDims, Meta, Result, Tensor, Value};
use smallvec::SmallVec;

type ConcreteDims = SmallVec<[i64; 6]>;

/// By buffer: its first and last step, and whether an output is in it. By node: its statement.
pub(crate) struct Uses {
    first: Vec<usize>,
    pub last: Vec<usize>,
    pub is_output: Vec<bool>,
    pub statements: Vec<usize>,
}

impl Uses {
    /// The first and the last plan step that uses a buffer; `None` if none does.
    pub fn steps_of(&self, buffer: usize) -> Option<(usize, usize)> {
        let (first, last) = (*self.first.get(buffer)?, *self.last.get(buffer)?);
        (first <= last).then_some((first, last))
    }

    pub fn of(graph: &Graph, plan: &BufferPlan) -> Uses {
        let buffers = plan.buffers.len();
        let mut uses = Uses {
            first: vec![usize::MAX; buffers],
            last: vec![0; buffers],
            is_output: vec![false; buffers],
            statements: vec![0; graph.node_count()],
        };
        for (at, step) in plan.steps.iter().enumerate() {
            step.for_each_buffer(&mut |b: BufferId| {
                if let (Some(first), Some(last)) =
                    (uses.first.get_mut(b.index()), uses.last.get_mut(b.index()))
                {
                    (*first, *last) = ((*first).min(at), at);
                }
            });
        }
        for output in plan.outputs.iter().flatten() {
            if let Some(is_output) = uses.is_output.get_mut(output.buffer.index()) {
                *is_output = true;
            }
        }
        for (at, stmt) in graph.body().iter().enumerate() {
            if let Stmt::Node(node) = stmt
                && let Some(statement) = uses.statements.get_mut(node.index())
            {
                *statement = at;
            }
        }
        uses
    }
}

impl Builder<'_> {
    /// Lays out the buffers that steps `from` to `to` use first, but for those of outputs: the new
    /// ones, and those of results that a launch writes.
    /// Returns the bytes of the arena. A buffer whose size cannot be found has no place: the step
    /// that uses it first reports why.
    pub(super) fn place_arena(&mut self, from: usize, to: usize) -> usize {
        let plan = &self.planned.plan;
        let mut new: Vec<(usize, BufferPlace)> = Vec::new();
        let mut lifetimes: Vec<Lifetime> = Vec::new();
        for (index, buffer) in plan.buffers.iter().enumerate() {
            let (Some(&first), Some(&last)) =
                (self.uses.first.get(index), self.uses.last.get(index))
            else {
                continue;
            };
            if first < from || to <= first || self.uses.is_output.get(index) != Some(&false) {
                continue;
            }
            let place = match buffer {
                Buffer::New { dtype, layout, .. } => self.layout(layout).and_then(|layout| {
                    let len = extent(layout.0, &layout.1, &layout.2).ok_or_else(too_large)?;
                    Ok(BufferPlace::own(BufferId(index as u32), len, *dtype))
                }),
                Buffer::Returned(v) if self.may_launch_into(*v) => {
                    self.returned(BufferId(index as u32), *v).map(|(place, _)| place)
                }
                Buffer::Input(_) | Buffer::Const(_) | Buffer::Returned(_) => continue,
            };
            let Ok(place) = place else { continue };
            let Some(bytes) = place.bytes().and_then(|bytes| u64::try_from(bytes).ok()) else {
                continue;
            };
            new.push((index, place));
            let last = if fault_injected(Fault::BuffersDieEarly) { first } else { last };
            lifetimes.push(Lifetime { bytes, first, last });
        }
        let ArenaLayout { offsets, bytes } = ArenaLayout::of(&lifetimes);
        // Empty tensors need a base, too.
        let bytes = bytes.max(u64::from(!new.is_empty()));
        let base = (plan.buffers.len() + self.depth) as u32;
        for ((index, place), offset) in new.into_iter().zip(offsets) {
            let place = BufferPlace { place: Place { base, start: offset as i64 }, ..place };
            self.places[index] = Some(place);
        }
        bytes as usize
    }

    /// Row-major memory for one step, after the buffers of the arena: for a tensor of the sizes
    /// and the dtype of another one. `end` is the end of the memory that the step has already.
    pub(super) fn temporary(&mut self, like: &TensorAt, end: &mut usize) -> Result<TensorAt> {
        let sizes = like.meta.sizes.iter().map(|n| n.as_i64());
        let sizes = sizes.collect::<Option<ConcreteDims>>().ok_or_else(wrong_graph)?;
        let mut strides: ConcreteDims = SmallVec::from_elem(1, sizes.len());
        for dim in (1..sizes.len()).rev() {
            let next = strides[dim].checked_mul(sizes[dim].max(1));
            strides[dim - 1] = next.ok_or_else(too_large)?;
        }
        let start = end.checked_next_multiple_of(ALIGN as usize).ok_or_else(too_large)?;
        let base = (self.planned.plan.buffers.len() + self.depth) as u32;
        let len = extent(0, &sizes, &strides).ok_or_else(too_large)?;
        let place = BufferPlace {
            place: Place { base, start: start as i64 },
            ..BufferPlace::own(BufferId(base), len, like.meta.dtype)
        };
        let bytes = place.bytes().and_then(|bytes| usize::try_from(bytes).ok());
        *end = bytes.and_then(|bytes| start.checked_add(bytes)).ok_or_else(too_large)?;
        self.arena_bytes = self.arena_bytes.max(*end).max(1);
        self.tensor_in(BufferId(base), place, 0, &sizes, &strides)
    }

    fn layout(&self, spec: &ViewSpec) -> Result<ConcreteLayout> {
        concrete_layout(spec, &|e| self.bindings.eval_in(&self.planned.plan.symbols, e))
    }

    /// The place of a buffer. The first use of a buffer gives it one.
    fn buffer(&mut self, b: BufferId) -> Result<BufferPlace> {
        let index = b.index();
        if let Some(Some(place)) = self.places.get(index) {
            let place = *place;
            self.list_external(b);
            return Ok(place);
        }
        let place = match self.planned.plan.buffers.get(index).ok_or_else(wrong_graph)? {
            Buffer::Input(i) => match self.inputs.get(*i) {
                Some(Value::Tensor(t)) => BufferPlace::given(b, extent_of(t)?, t.dtype()),
                _ => return Err(wrong_graph()),
            },
            Buffer::Const(i) => {
                let t = self.consts.get(*i).ok_or_else(wrong_graph)?;
                BufferPlace::given(b, extent_of(t)?, t.dtype())
            }
            Buffer::New { dtype, layout, .. } => {
                // The arena has a place for each that is not of an output.
                let (offset, sizes, strides) = self.layout(layout)?;
                let len = extent(offset, &sizes, &strides).ok_or_else(too_large)?;
                let place = BufferPlace::own(b, len, *dtype);
                place.bytes().ok_or_else(too_large)?;
                self.outputs.push((b, len, *dtype));
                place
            }
            Buffer::Returned(v) => {
                let (place, strides) = self.returned(b, *v)?;
                self.steps.push(Step::Adopt { buffer: b, value: *v, strides });
                BufferPlace { is_given: true, ..place }
            }
        };
        self.list_external(b);
        self.places[index] = Some(place);
        Ok(place)
    }

    /// Adds a buffer of the caller to those of the segment.
    fn list_external(&mut self, b: BufferId) {
        if let Some(external) = self.external(b)
            && self.listed.insert(b)
        {
            self.externals.push((b, external));
        }
    }

    /// The sizes and strides that the graph declares.
    fn declared(&self, v: ValueId) -> Result<(ConcreteDims, ConcreteDims)> {
        let ty = self.graph.tensor_type(v).ok_or_else(wrong_graph)?;
        let eval = |exprs: &[Expr]| -> Result<ConcreteDims> {
            exprs.iter().map(|e| self.bindings.eval(*e)).collect()
        };
        Ok((eval(&ty.sizes)?, eval(&ty.strides)?))
    }

    /// Memory of its own for a tensor that an operator returns, and the tensor's strides.
    fn returned(&self, b: BufferId, v: ValueId) -> Result<(BufferPlace, ConcreteDims)> {
        let ty = self.graph.tensor_type(v).ok_or_else(wrong_graph)?;
        let (sizes, strides) = self.declared(v)?;
        let len = extent(0, &sizes, &strides).ok_or_else(too_large)?;
        let place = BufferPlace::own(b, len, ty.dtype);
        place.bytes().ok_or_else(too_large)?;
        Ok((place, strides))
    }

    /// Whether the operator that returns a tensor may be launched into memory of the run instead.
    fn may_launch_into(&self, v: ValueId) -> bool {
        let Some(node) = self.graph.producer(v) else { return false };
        let binds = |v: ValueId| self.planned.bind_sources.contains(&v);
        !self.graph.result_values(node).any(binds)
            && Callable::find(self.graph, Callee::of(self.graph, node).id)
                .is_ok_and(|callable| callable.op.can_prepare())
    }

    /// The memory into which a launch can write a result. `None` if the operator returns it.
    pub(super) fn target(&mut self, v: ValueId, to: &ResultDest) -> Result<Option<TensorAt>> {
        let b = match to {
            ResultDest::Into(view) => return self.tensor(view).map(Some),
            ResultDest::Returned(b) => *b,
        };
        let is_output = self.uses.is_output.get(b.index()) == Some(&true);
        if is_output && self.may_launch_into(v) {
            let (place, _) = self.returned(b, v)?;
            self.outputs.push((b, place.len, place.dtype));
            self.places[b.index()] = Some(place);
        }
        let Some(&Some(place)) = self.places.get(b.index()) else { return Ok(None) };
        let (sizes, strides) = self.declared(v)?;
        self.tensor_in(b, place, 0, &sizes, &strides).map(Some)
    }

    /// Takes back the memory of results that the operator returns nevertheless.
    pub(super) fn discard_targets(&mut self, results: &[(ValueId, ResultDest)]) {
        for (_, to) in results {
            if let ResultDest::Returned(b) = to {
                self.outputs.retain(|(output, ..)| output != b);
                self.places[b.index()] = None;
            }
        }
    }

    pub(super) fn external(&self, b: BufferId) -> Option<External> {
        match self.planned.plan.buffers.get(b.index())? {
            Buffer::Input(i) => Some(External::Input(*i)),
            Buffer::Const(i) => Some(External::Const(*i)),
            Buffer::New { .. } | Buffer::Returned(_) => None,
        }
    }

    /// The tensor of a buffer view.
    pub(super) fn tensor(&mut self, view: &BufferView) -> Result<TensorAt> {
        let place = self.buffer(view.buffer)?;
        let (offset, sizes, strides) = self.layout(&view.spec)?;
        self.tensor_in(view.buffer, place, offset, &sizes, &strides)
    }

    /// The tensor of this layout in a buffer.
    fn tensor_in(
        &mut self,
        buffer: BufferId,
        place: BufferPlace,
        offset: i64,
        sizes: &[i64],
        strides: &[i64],
    ) -> Result<TensorAt> {
        let offset = if fault_injected(Fault::OffsetsOfViewsLost) { 0 } else { offset };
        let start = place.place.start / place.dtype.size() as i64;
        let start = start.checked_add(offset).ok_or_else(too_large)?;
        let meta = Meta::contiguous(sizes, place.dtype)
            .on(self.planned.device)
            .with_dims(sizes.into_dims(), strides.into_dims())
            .with_offset(start);
        let bytes = place.bytes().ok_or_else(too_large)?;
        let end = place.place.start.checked_add(bytes).ok_or_else(too_large)?;
        let bounds = (place.place.start, end);
        let is_returned =
            matches!(self.planned.plan.buffers.get(buffer.index()), Some(Buffer::Returned(_)));
        let handle = if place.place.base as usize >= self.planned.plan.buffers.len() {
            HandleLife::Arena
        } else if offset == 0 && place.is_given && self.is_whole(buffer, sizes, strides)? {
            HandleLife::Base
        } else if place.is_given && is_returned {
            HandleLife::Step
        } else {
            HandleLife::Run
        };
        let mut key: SmallVec<[i64; 12]> = SmallVec::new();
        key.extend([i64::from(place.place.base), place.dtype as i64, start]);
        key.extend(sizes.iter().chain(strides).copied());
        let next = self.slots.len() as u32;
        let slot = *self.slots.entry(key).or_insert(next);
        Ok(TensorAt { base: place.place.base, bounds, handle, slot, meta })
    }

    /// Whether the tensor of a buffer has these sizes and strides.
    fn is_whole(&self, b: BufferId, sizes: &[i64], strides: &[i64]) -> Result<bool> {
        let same = |t: &Tensor| {
            let at = t.meta().concrete();
            at.is_some_and(|at| at.sizes[..] == *sizes && at.strides[..] == *strides)
        };
        Ok(match self.planned.plan.buffers.get(b.index()).ok_or_else(wrong_graph)? {
            Buffer::Input(i) => matches!(self.inputs.get(*i), Some(Value::Tensor(t)) if same(t)),
            Buffer::Const(i) => self.consts.get(*i).is_some_and(same),
            Buffer::New { .. } => false,
            Buffer::Returned(v) => {
                let ty = self.graph.tensor_type(*v).ok_or_else(wrong_graph)?;
                let equal = |exprs: &[Expr], found: &[i64]| -> Result<bool> {
                    let declared = exprs.iter().map(|e| self.bindings.eval(*e));
                    Ok(declared.collect::<Result<SmallVec<[i64; 4]>>>()?[..] == *found)
                };
                // The tensor may have other strides along dimensions of size 1, and if it is empty.
                let strided = sizes.iter().all(|n| *n > 1);
                strided && equal(&ty.sizes, sizes)? && equal(&ty.strides, strides)?
            }
        })
    }
}

fn extent_of(t: &Tensor) -> Result<i64> {
    let at = t.meta().concrete().ok_or_else(wrong_graph)?;
    extent(0, &at.sizes, &at.strides).ok_or_else(too_large)
}
