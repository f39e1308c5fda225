//! The region in which a node writes a value.
//!
//! The choice is greedy, with a fixed order of preference. A candidate region is taken only if it
//! is writable, free of [conflicts](super::interference), and apart from the operands (or, for an
//! element-wise operator, exactly one of them):
//!
//! 1. the region in which the value will be stored, or to which it will be
//!    [written back](super::destinations), even if other values must be copied first;
//! 2. for an element-wise operator, and for a product with what follows, the region of an operand
//!    over which it can be written and that is dead afterwards;
//! 3. the memory reserved for an output;
//! 4. a new buffer, in the layout of an `ir::strided` node that reads the value, or else with the
//!    channels of [images](super::image_layouts) last, in a layout in which a view needs no copy,
//!    or in the declared layout; row-major if that is not injective.
//!
//! Two separate limits bound the copies of the first choice, each by the size of the value:
//! operands in the region are copied if they have at most as many elements, and other values in the
//! region are spilled if they have fewer. Together, these copies may exceed the value. Whether the
//! whole plan copies too much is decided later, by `select_plan`.

use super::destinations::{Destination, MAX_USER_DEPTH};
use super::node_kind::{NodeKind, OpCall};
use super::{BufferRegion, Planner, Time};
use crate::error::Result;
use crate::functionalize::value_graph::SpecId;
use maquette_ir::buffer_plan::{Buffer, CopyReason};
use maquette_ir::fault_injection::{Fault, fault_injected};
use maquette_ir::graph::{Placement, ValueId};
use maquette_ir::sym::Expr;
use smallvec::SmallVec;

/// The memory in which a node can write a result.
#[derive(Clone, Copy)]
pub(super) struct Target<'a> {
    pub placement: Placement,
    /// The operands over which the result may be written, beside those of
    /// [`Placement::Elementwise`].
    pub over: &'a [ValueId],
}

impl Target<'_> {
    /// Any memory but that of operands.
    pub const ANYWHERE: Target<'static> = Target { placement: Placement::Anywhere, over: &[] };

    fn is_over(&self, operand: ValueId) -> bool {
        self.placement == Placement::Elementwise || self.over.contains(&operand)
    }

    fn is_over_any(&self) -> bool {
        self.placement == Placement::Elementwise || !self.over.is_empty()
    }
}

impl Planner<'_> {
    /// Chooses the region in which a node writes a result, in the order of preference of the
    /// [module](self). Operands that overlap the chosen region are copied, and `reads` is updated.
    /// That is allowed if they have no more elements than the result.
    pub(super) fn choose_region(
        &mut self,
        now: Time,
        v: ValueId,
        reads: &mut [(ValueId, BufferRegion)],
        target: Target<'_>,
    ) -> Result<BufferRegion> {
        let Target { placement, .. } = target;
        let (budget, declared) = (self.elements(v), self.declared_layout(v)?);
        let candidates = self.candidate_destinations(v);
        let has_declared_strides = placement == Placement::Dense || self.is_read_with_strides(v);
        let suited = |p: &mut Self, at: BufferRegion| {
            !has_declared_strides || p.same_layout(at.spec, declared, false)
        };
        for at in candidates {
            if !suited(self, at) {
                continue;
            }
            let clashing = self.clashing(at, reads, target);
            let cost =
                clashing.iter().map(|i| self.elements(reads[*i].0)).fold(0, u64::saturating_add);
            if cost <= budget
                && self.is_writable(at, now)
                && self.try_free(at, now, false, budget)?
            {
                for i in clashing {
                    let (operand, from) = reads[i];
                    let declared = self.declared_layout(operand)?;
                    reads[i].1 = self.new_buffer(operand, declared)?;
                    self.copy(operand, from, reads[i].1, CopyReason::Operand);
                }
                return Ok(at);
            }
        }
        let destination = self.destinations[v.index()];
        if target.is_over_any() {
            for &(_, at) in reads.iter().filter(|(operand, _)| target.is_over(*operand)) {
                let suits = destination.is_none_or(|g| self.same_layout(g.at.spec, at.spec, true));
                let keeps = self.same_layout(at.spec, declared, false)
                    || !self.strides_are_observed(v, MAX_USER_DEPTH);
                if suits
                    && keeps
                    && self.is_whole_buffer(v, at)?
                    && self.is_suitable(now, at, reads, target)
                {
                    return Ok(at);
                }
            }
        }
        if let Some(Destination { at, output: true }) = destination
            && suited(self, at)
            && self.is_suitable(now, at, reads, target)
        {
            return Ok(at);
        }
        self.new_region(v, declared, placement)
    }

    /// The region of an empty tensor: where what is stored into it ends, if that is free, and
    /// otherwise new memory. No value is copied to make room, since nothing is written there yet.
    pub(super) fn empty_region(&mut self, now: Time, v: ValueId) -> Result<BufferRegion> {
        if let Some(at) = self.free_destination(now, v, &[]) {
            return Ok(at);
        }
        let declared = self.declared_layout(v)?;
        self.new_region(v, declared, Placement::Anywhere)
    }

    /// Where a value will be stored or returned, if nothing has to be copied to write there.
    pub(super) fn free_destination(
        &mut self,
        now: Time,
        v: ValueId,
        reads: &[(ValueId, BufferRegion)],
    ) -> Option<BufferRegion> {
        let output = self.destinations[v.index()].filter(|d| d.output).map(|d| d.at);
        let mut candidates = self.candidate_destinations(v).into_iter().chain(output);
        candidates.find(|at| self.is_suitable(now, *at, reads, Target::ANYWHERE))
    }

    /// A new buffer in the layout of an `ir::strided` node that reads the value, or else in that
    /// which its views need, or in the declared one.
    fn new_region(
        &mut self,
        v: ValueId,
        declared: SpecId,
        placement: Placement,
    ) -> Result<BufferRegion> {
        let wanted =
            self.graph.users(v).iter().find_map(|node| match &self.node_kinds[node.index()] {
                NodeKind::Strided { result, .. } => Some(*result),
                _ => None,
            });
        let layout = match wanted {
            Some(strided) => self.declared_layout(strided)?,
            None if placement == Placement::Dense => declared,
            None => match self.image_layout(v)? {
                Some(layout) => layout,
                None => self.layout_for_views(v, declared, MAX_USER_DEPTH)?.unwrap_or(declared),
            },
        };
        let to = self.new_buffer(v, layout)?;
        if self.injective(to) {
            return Ok(to);
        }
        let rows = self.rows(v)?;
        self.new_buffer(v, rows)
    }

    /// A layout of a value that is declared as `declared`, in which a view of it has strides that
    /// has none in that layout and would be a copy: the reshape of a permutation, as where the
    /// heads of an attention are put together. The elements of the last dimension stay neighbours,
    /// since operators compute them together. `None` if there is no such view.
    fn layout_for_views(
        &mut self,
        v: ValueId,
        declared: SpecId,
        depth: usize,
    ) -> Result<Option<SpecId>> {
        if self.strides_are_observed(v, MAX_USER_DEPTH) {
            return Ok(None);
        }
        let wanted = self.layout_with_strides(v, declared, depth)?;
        let is_dense_in_rows = |spec: &SpecId| {
            let dims = self.interner.specs[spec.index()].dims();
            dims.last().is_none_or(|dim| dim.stride == Expr::Int(1))
        };
        Ok(wanted.filter(is_dense_in_rows))
    }

    /// As [`Planner::layout_for_views`], with any strides. `at` is the layout that the value has
    /// otherwise.
    fn layout_with_strides(
        &mut self,
        v: ValueId,
        at: SpecId,
        depth: usize,
    ) -> Result<Option<SpecId>> {
        for i in 0..self.graph.users(v).len() {
            let NodeKind::View { base, spec, result } =
                self.node_kinds[self.graph.users(v)[i].index()]
            else {
                continue;
            };
            let wanted = match self.interner.compose(at, spec) {
                None => Some(self.rows(result)?),
                Some(_) if depth == 0 => None,
                Some(viewed) => self.layout_with_strides(result, viewed, depth - 1)?,
            };
            if let Some(wanted) = wanted
                && let Some(layout) = self.layout_through_view(base, spec, wanted)
            {
                return Ok(Some(layout));
            }
        }
        Ok(None)
    }

    /// The region in which a call mutates an operand: the operand's own if that is free, else a
    /// destination, else a new buffer; the last two get a copy of the operand.
    #[expect(clippy::too_many_arguments, reason = "everything else that the call touches")]
    pub(super) fn mutated_region(
        &mut self,
        now: Time,
        call: &OpCall,
        (before, after): (ValueId, ValueId),
        here: BufferRegion,
        reads: &[(ValueId, BufferRegion)],
        befores: &[BufferRegion],
        taken: &[BufferRegion],
    ) -> Result<BufferRegion> {
        let layout = self.declared_layout(before)?;
        let fits = |p: &mut Self, at: BufferRegion| {
            !call.observes_strides
                || p.same_layout(at.spec, layout, false)
                || fault_injected(Fault::MutatedInAnyStrides)
        };
        let budget = self.elements(before).saturating_mul(if self.is_destination(after, here) {
            2
        } else {
            1
        });
        if fits(self, here)
            && (taken.iter().all(|t| self.disjoint(*t, here))
                || fault_injected(Fault::MutatedTensorsOverlap))
            && self.is_writable(here, now)
            && self.try_free(here, now, false, budget)?
        {
            return Ok(here);
        }
        let others: SmallVec<[BufferRegion; 4]> = reads
            .iter()
            .map(|(_, at)| *at)
            .chain(befores.iter().copied())
            .chain(taken.iter().copied())
            .collect();
        for at in self.candidate_destinations(after) {
            if fits(self, at)
                && others.iter().all(|o| self.disjoint(*o, at))
                && self.is_writable(at, now)
                && self.is_free(at, now, true)
            {
                self.copy(before, here, at, CopyReason::Mutate);
                return Ok(at);
            }
        }
        let to = self.new_buffer(before, layout)?;
        self.copy(before, here, to, CopyReason::Mutate);
        Ok(to)
    }

    /// Copies tensors that `v` will be stored into, if they lie in external memory that must not be
    /// written. They would be copied at the store anyway; if they are copied first, `v` can be
    /// computed directly in the copy, unless it is an output.
    pub(super) fn make_room(&mut self, now: Time, v: ValueId) -> Result<()> {
        if self.returned[v.index()] {
            return Ok(());
        }
        for i in 0..self.graph.users(v).len() {
            let NodeKind::Store { base, source, result, .. } =
                self.node_kinds[self.graph.users(v)[i].index()]
            else {
                continue;
            };
            let Some(at) = self.regions[base.index()]
                .filter(|_| source == v && !self.live[result.index()].is_empty())
            else {
                continue;
            };
            if self.is_external(at) && !self.is_writable(at, now) {
                self.spill(base, now)?;
            }
        }
        Ok(())
    }

    /// Whether an operator observes the strides of a value, or of a view of it.
    fn strides_are_observed(&self, v: ValueId, depth: usize) -> bool {
        self.graph.users(v).iter().any(|node| match &self.node_kinds[node.index()] {
            NodeKind::Strided { .. } => true,
            NodeKind::View { result, .. } | NodeKind::Barrier { result, .. } => {
                depth > 0 && self.strides_are_observed(*result, depth - 1)
            }
            NodeKind::Call(call) => call.observes_strides,
            NodeKind::Store { .. } | NodeKind::Empty { .. } => false,
        })
    }

    /// Whether a call reads a value and observes its strides. In other strides the value would be
    /// copied for the call, so nothing is gained if it is computed where it is stored.
    fn is_read_with_strides(&self, v: ValueId) -> bool {
        let is_reader = |call: &OpCall| call.observes_strides && call.reads.contains(&v);
        let mut kinds = self.graph.users(v).iter().map(|node| &self.node_kinds[node.index()]);
        kinds.any(|kind| matches!(kind, NodeKind::Call(call) if is_reader(call)))
    }

    /// The positions of operands that overlap a region in which the operator writes. An operand in
    /// exactly that region does not count if the result may be written over it.
    fn clashing(
        &mut self,
        at: BufferRegion,
        reads: &[(ValueId, BufferRegion)],
        target: Target<'_>,
    ) -> SmallVec<[usize; 2]> {
        let clash = |p: &mut Self, (v, o): (ValueId, BufferRegion)| {
            let is_over = target.is_over(v) || fault_injected(Fault::AnyOperatorInPlace);
            !(is_over && p.same(o, at)
                || p.disjoint(o, at)
                || fault_injected(Fault::OperandsNeverConflict))
        };
        (0..reads.len()).filter(|i| clash(self, reads[*i])).collect()
    }

    /// Whether a node may write a region without any copy: no operand overlaps it, and no value in
    /// it is needed afterwards.
    fn is_suitable(
        &mut self,
        now: Time,
        at: BufferRegion,
        reads: &[(ValueId, BufferRegion)],
        target: Target<'_>,
    ) -> bool {
        self.clashing(at, reads, target).is_empty()
            && self.is_writable(at, now)
            && self.is_free(at, now, false)
    }

    /// Whether a region is a destination of a value.
    pub(super) fn is_destination(&mut self, v: ValueId, at: BufferRegion) -> bool {
        self.candidate_destinations(v).into_iter().any(|t| self.same(t, at))
    }

    /// Whether a region is an entire buffer that the plan owns, of a value's sizes and dtype.
    fn is_whole_buffer(&mut self, v: ValueId, at: BufferRegion) -> Result<bool> {
        let (whole, dtype) = match &self.buffers[at.buffer.index()] {
            Buffer::New { dtype, layout, .. } => (self.interner.spec(layout.clone()), Some(*dtype)),
            &Buffer::Returned(u) => {
                (self.declared_layout(u)?, self.graph.tensor_type(u).map(|t| t.dtype))
            }
            Buffer::Input(_) | Buffer::Const(_) => return Ok(false),
        };
        let graph = self.graph;
        let Some(t) = graph.tensor_type(v).filter(|t| Some(t.dtype) == dtype) else {
            return Ok(false);
        };
        let sizes: SmallVec<[Expr; 4]> = self.interner.specs[at.spec.index()].sizes().collect();
        let alike = sizes.len() == t.sizes.len()
            && sizes.iter().zip(&t.sizes).all(|(a, b)| self.interner.equal(*a, *b));
        Ok(alike && self.same_layout(at.spec, whole, true))
    }
}
