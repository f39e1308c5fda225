//! The forward pass: assigns a buffer region to each value at the node that computes it, and emits
//! the steps of the plan.
//!
//! The pass is greedy, with a fixed order of preference. A candidate region is taken only if it is
//! writable, free of [conflicts](super::interference), and apart from the operands (or, for an
//! element-wise operator, exactly one of them):
//!
//! 1. the region of a [destination](super::destinations), or of a tensor that the value will be
//!    stored into, even if conflicting values must be copied away first, as long as these copies
//!    are smaller than the value;
//! 2. for an element-wise operator, the region of an operand that is dead afterwards;
//! 3. the memory reserved for an output;
//! 4. a new buffer.
//!
//! Nodes that only move data are handled by aliasing: a view aliases its base, and a store aliases
//! the base's region if the source can be written (or already lies) there. [`Planner::count`] adds
//! the elements that each node writes to the plan's cost.

use super::destinations::{Destination, MAX_USER_DEPTH};
use super::node_kind::{NodeKind, OpCall};
use super::{BufferRegion, Planner, Time};
use crate::error::{Reason, Result};
use crate::functionalize::value_graph::SpecId;
use maquette_ir::buffer_plan::{Buffer, CopyReason, ResultDest, Step};
use maquette_ir::copy_cost::{OverlapCondition, Traffic};
use maquette_ir::fault_injection::{Fault, fault_injected};
use maquette_ir::functional_ops::FunctionalOp;
use maquette_ir::graph::{NodeId, Placement, ValueId};
use maquette_ir::sym::Expr;
use maquette_ir::view::ViewSpec;
use smallvec::SmallVec;

impl Planner<'_> {
    /// Assigns memory to the results of a node, and emits its steps.
    pub(super) fn node(&mut self, now: Time, node: NodeId) -> Result<()> {
        match self.node_kinds[node.index()].clone() {
            NodeKind::View { base, spec, result } => self.view(now, node, base, spec, result),
            NodeKind::Store { base, source, spec, result } => {
                self.store(now, base, source, spec, result)
            }
            NodeKind::Strided { of, result } => {
                let (at, wanted) = (self.region(of)?, self.declared_layout(result)?);
                if self.same_layout(at.spec, wanted, false) || self.live[result.index()].is_empty()
                {
                    self.alias(result, at);
                    return Ok(());
                }
                let to = self.new_buffer(result, wanted)?;
                self.copy(of, at, to, CopyReason::Strides);
                self.put(result, to);
                Ok(())
            }
            NodeKind::Call(call) => {
                self.call(now, node, &call)?;
                self.assume_check(node)
            }
        }
    }

    /// After a runtime check, its condition holds, since the run ends otherwise.
    fn assume_check(&mut self, node: NodeId) -> Result<()> {
        match FunctionalOp::of(self.graph, node) {
            Ok(FunctionalOp::Disjoint { regions: [first, second] }) => {
                let first = self.layout_from_ints(first.iter())?;
                let second = self.layout_from_ints(second.iter())?;
                self.interner.assume_disjoint(first, second);
            }
            Ok(FunctionalOp::Injective { sizes, strides }) => {
                let numbers = [Expr::Int(0)].into_iter().chain(sizes.iter()).chain(strides.iter());
                let region = self.layout_from_ints(numbers)?;
                self.interner.assume_injective(region);
            }
            _ => {}
        }
        Ok(())
    }

    /// A view aliases its base, unless the base's layout or a later mutation requires a copy.
    fn view(
        &mut self,
        now: Time,
        node: NodeId,
        base: ValueId,
        spec: SpecId,
        result: ValueId,
    ) -> Result<()> {
        let at = self.region(base)?;
        if let Some(spec) = self.interner.compose(at.spec, spec) {
            let viewed = BufferRegion { spec, ..at };
            if !self.is_mutated_later(result) || self.injective(viewed) {
                self.alias(result, viewed);
                return Ok(());
            }
            // The view overlaps itself (it is expanded), and an operator or a store will change it.
            // It is copied now, so that the change can be made in place.
            let to = self.choose_region(now, result, &mut [(base, at)], Placement::Anywhere)?;
            self.copy(result, viewed, to, CopyReason::Store);
            self.put(result, to);
            return Ok(());
        }
        // No strides express this view of the region, as for `reshape` of a transposed tensor:
        // eager execution copies too.
        let mut read = [(base, at)];
        let to = self.choose_region(now, result, &mut read, Placement::Anywhere)?;
        let (from, into) = (self.buffer_view(read[0].1), self.buffer_view(to));
        let (reads, results) = (vec![(base, from)], vec![(result, ResultDest::Into(into))]);
        self.count_copies(result, 1);
        let (rows, actual) = (self.rows(base)?, read[0].1.spec);
        // the kernel takes only views of row-major values
        let packed = !self.same_layout(actual, rows, false);
        self.count_copies(base, u64::from(packed));
        self.steps.push(Step::Node { node, reads, writes: Vec::new(), results });
        self.put(result, to);
        Ok(())
    }

    /// A store aliases its base if the stored part may be overwritten there; otherwise base and
    /// source are copied to another region.
    fn store(
        &mut self,
        now: Time,
        base: ValueId,
        source: ValueId,
        spec: SpecId,
        result: ValueId,
    ) -> Result<()> {
        let (whole, from) = (self.region(base)?, self.region(source)?);
        if self.live[result.index()].is_empty() {
            self.alias(result, whole);
            return Ok(());
        }
        // in a region that overlaps itself, one element cannot be replaced alone
        if self.injective(whole)
            && let Some(spec) = self.interner.compose(whole.spec, spec)
        {
            let part = BufferRegion { spec, ..whole };
            if self.same(part, from) {
                self.alias(result, whole);
                return Ok(());
            }
            let budget = self
                .elements(base)
                .saturating_mul(if self.is_destination(result, whole) { 2 } else { 1 });
            if self.is_writable(part, now) && self.try_free(part, now, false, budget)? {
                self.copy(source, from, part, CopyReason::Store);
                self.alias(result, whole);
                return Ok(());
            }
        }
        let mut read = [(base, whole), (source, from)];
        let to = self.choose_region(now, result, &mut read, Placement::Anywhere)?;
        let [(_, whole), (_, from)] = read;
        let (to, part) = match self.interner.compose(to.spec, spec) {
            Some(part) => (to, part),
            None => {
                // every view of a row-major value can be composed with its region
                let rows = self.rows(result)?;
                (self.new_buffer(result, rows)?, spec)
            }
        };
        self.copy(base, whole, to, CopyReason::Keep);
        self.copy(source, from, BufferRegion { spec: part, ..to }, CopyReason::Store);
        self.alias(result, to);
        Ok(())
    }

    /// Places the mutated arguments and the results of a call, and moves operands that are in the
    /// way.
    fn call(&mut self, now: Time, node: NodeId, call: &OpCall) -> Result<()> {
        let mut reads: SmallVec<[(ValueId, BufferRegion); 3]> = SmallVec::new();
        for &v in &call.reads {
            let mut at = self.region(v)?;
            let declared = self.declared_layout(v)?;
            if call.observes_strides && !self.same_layout(at.spec, declared, false) {
                at = self.relayout(v, at, declared)?;
            }
            reads.push((v, at));
        }
        let befores = call
            .writes
            .iter()
            .map(|(before, _)| self.region(*before))
            .collect::<Result<SmallVec<[BufferRegion; 2]>>>()?;
        let mut writes: SmallVec<[BufferRegion; 2]> = SmallVec::new();
        for (i, &(before, after)) in call.writes.iter().enumerate() {
            let to = self.mutated_region(
                now,
                call,
                (before, after),
                befores[i],
                &reads,
                &befores,
                &writes,
            )?;
            writes.push(to);
            self.claimed.push(to);
        }
        self.claimed.clear();
        for (v, at) in &mut reads {
            // placing the written operands may have moved this one
            let (kept, declared) = (self.region(*v)?, self.declared_layout(*v)?);
            if !call.observes_strides || self.same_layout(kept.spec, declared, false) {
                *at = kept;
            }
        }
        let mut results: Vec<(ValueId, ResultDest)> = Vec::new();
        let mut placed: SmallVec<[(ValueId, BufferRegion); 2]> = SmallVec::new();
        for &v in &call.results {
            if call.placement == Placement::Allocates {
                let (buffer, spec) = (self.buffer(Buffer::Returned(v)), self.declared_layout(v)?);
                results.push((v, ResultDest::Returned(buffer)));
                placed.push((v, BufferRegion { buffer, spec }));
            } else {
                self.make_room(now, v)?;
                let to = self.choose_region(now, v, &mut reads, call.placement)?;
                results.push((v, ResultDest::Into(self.buffer_view(to))));
                placed.push((v, to));
            }
        }
        placed.extend(call.writes.iter().zip(&writes).map(|((_, after), at)| (*after, *at)));
        self.count(call, &reads, &placed)?;
        let reads = reads.into_iter().map(|(v, at)| (v, self.buffer_view(at))).collect();
        let writes = writes.into_iter().map(|at| self.buffer_view(at)).collect();
        self.steps.push(Step::Node { node, reads, writes, results });
        placed.into_iter().for_each(|(v, at)| self.put(v, at));
        Ok(())
    }

    /// A copy of a value in the layout that an operator with `observes_strides` requires. The
    /// buffer is never written again, so later reads of the same value in the same layout share it.
    fn relayout(&mut self, v: ValueId, at: BufferRegion, layout: SpecId) -> Result<BufferRegion> {
        if let Some(known) = self.relayouts.get(&(v, layout)) {
            return Ok(*known);
        }
        let to = self.new_buffer(v, layout)?;
        self.copy(v, at, to, CopyReason::Strides);
        self.relayouts.insert((v, layout), to);
        Ok(to)
    }

    /// Adds the elements that a call writes: its results, its mutated arguments, and the copies
    /// that the kernel makes of operands that overlap these.
    fn count(
        &mut self,
        call: &OpCall,
        reads: &[(ValueId, BufferRegion)],
        placed: &[(ValueId, BufferRegion)],
    ) -> Result<()> {
        let first_written = placed.len() - call.writes.len();
        for (i, &(v, at)) in placed.iter().enumerate() {
            let sizes = self.graph.tensor_type(v).map_or(&[][..], |t| &t.sizes);
            self.cost.add(sizes, call.write_model.per_element(i >= first_written, call.converts));
            if i < first_written && call.placement == Placement::Dense {
                let declared = self.declared_layout(v)?;
                let direct = self.same_layout(at.spec, declared, false);
                self.count_copies(v, u64::from(!direct));
            }
        }
        for &(v, at) in reads {
            let mut needs_copy = |to: &BufferRegion| {
                let same = self.same(at, *to);
                call.write_model.needs_operand_copy(|| same, || !self.disjoint(at, *to))
            };
            let overlapping: SmallVec<[BufferRegion; 2]> =
                placed[first_written..].iter().map(|(_, to)| *to).filter(&mut needs_copy).collect();
            let condition = match overlapping.as_slice() {
                [] => continue,
                _ if fault_injected(Fault::ConflictingOperandsAreFree) => continue,
                [to] => {
                    let (read, written, symbols) = self.interner.pair(at.spec, to.spec);
                    OverlapCondition::of(read, written, call.write_model, symbols)
                }
                _ => None,
            };
            let times = 1 + call.repeated_reads.iter().filter(|u| **u == v).count() as u64;
            match condition {
                Some(condition) => {
                    self.cost.add_estimate(
                        self.graph.tensor_type(v).map_or(&[], |t| &t.sizes),
                        Traffic::copy(times),
                    );
                    self.cost.copied.add_if(condition, times);
                }
                None => self.count_copies(v, times),
            }
        }
        Ok(())
    }

    /// Copies tensors that `v` will be stored into, if they lie in external memory that must not be
    /// written. They would be copied at the store anyway; if they are copied first, `v` can be
    /// computed directly in the copy.
    fn make_room(&mut self, now: Time, v: ValueId) -> Result<()> {
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

    /// The region in which a call mutates an operand: the operand's own if that is free, else a
    /// destination, else a new buffer; the last two get a copy of the operand.
    #[expect(clippy::too_many_arguments, reason = "everything else that the call touches")]
    fn mutated_region(
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

    /// Whether a store replaces a part of a value, or an operator mutates it.
    fn is_mutated_later(&self, v: ValueId) -> bool {
        self.graph.users(v).iter().any(|node| match &self.node_kinds[node.index()] {
            NodeKind::Store { base, .. } => *base == v,
            NodeKind::Call(call) => call.writes.iter().any(|(before, _)| *before == v),
            NodeKind::View { .. } | NodeKind::Strided { .. } => false,
        })
    }

    /// The layout that the graph's type declares, with offset 0.
    fn declared_layout(&mut self, v: ValueId) -> Result<SpecId> {
        let t = self
            .graph
            .tensor_type(v)
            .ok_or(Reason::Internal("a value with a buffer region is not a tensor"))?;
        let spec =
            ViewSpec::strided(Expr::Int(0), &t.sizes, &t.strides, &mut self.interner.symbols)?;
        Ok(self.interner.spec(spec))
    }

    /// Chooses the region in which a node writes a result, in the order of preference of the
    /// [module](self). Operands that overlap the chosen region are copied, and `reads` is updated,
    /// if that costs less than a copy of the result.
    fn choose_region(
        &mut self,
        now: Time,
        v: ValueId,
        reads: &mut [(ValueId, BufferRegion)],
        placement: Placement,
    ) -> Result<BufferRegion> {
        let (budget, declared) = (self.elements(v), self.declared_layout(v)?);
        let candidates = self.candidate_destinations(v);
        let suited = |p: &mut Self, at: BufferRegion| {
            placement != Placement::Dense || p.same_layout(at.spec, declared, false)
        };
        for at in candidates {
            if !suited(self, at) {
                continue;
            }
            let clashing = self.clashing(at, reads, placement);
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
        if placement == Placement::Elementwise {
            for &(_, at) in reads.iter() {
                let suits = destination.is_none_or(|g| self.same_layout(g.at.spec, at.spec, true));
                let keeps = self.same_layout(at.spec, declared, false)
                    || !self.strides_are_observed(v, MAX_USER_DEPTH);
                if suits
                    && keeps
                    && self.is_whole_buffer(v, at)?
                    && self.is_suitable(now, at, reads, placement)
                {
                    return Ok(at);
                }
            }
        }
        if let Some(Destination { at, output: true }) = destination
            && suited(self, at)
            && self.is_suitable(now, at, reads, placement)
        {
            return Ok(at);
        }
        let wanted =
            self.graph.users(v).iter().find_map(|node| match &self.node_kinds[node.index()] {
                NodeKind::Strided { result, .. } => Some(*result),
                _ => None,
            });
        let layout = match wanted {
            Some(strided) => self.declared_layout(strided)?,
            None => declared,
        };
        let to = self.new_buffer(v, layout)?;
        if self.injective(to) {
            return Ok(to);
        }
        let rows = self.rows(v)?;
        self.new_buffer(v, rows)
    }

    /// Whether an operator observes the strides of a value, or of a view of it.
    fn strides_are_observed(&self, v: ValueId, depth: usize) -> bool {
        self.graph.users(v).iter().any(|node| match &self.node_kinds[node.index()] {
            NodeKind::Strided { .. } => true,
            NodeKind::View { result, .. } => {
                depth > 0 && self.strides_are_observed(*result, depth - 1)
            }
            NodeKind::Call(call) => call.observes_strides,
            NodeKind::Store { .. } => false,
        })
    }

    /// The positions of operands that overlap a region in which the operator writes. An
    /// element-wise operator reads each element before it writes it, so an operand in exactly that
    /// region does not count.
    fn clashing(
        &mut self,
        at: BufferRegion,
        reads: &[(ValueId, BufferRegion)],
        placement: Placement,
    ) -> SmallVec<[usize; 2]> {
        let elementwise = placement == Placement::Elementwise;
        let elementwise = elementwise || fault_injected(Fault::AnyOperatorInPlace);
        let clash = |p: &mut Self, o: BufferRegion| {
            !(elementwise && p.same(o, at)
                || p.disjoint(o, at)
                || fault_injected(Fault::OperandsNeverConflict))
        };
        (0..reads.len()).filter(|i| clash(self, reads[*i].1)).collect()
    }

    /// Whether a node may write a region without any copy: no operand overlaps it, and no value in
    /// it is needed afterwards.
    fn is_suitable(
        &mut self,
        now: Time,
        at: BufferRegion,
        reads: &[(ValueId, BufferRegion)],
        placement: Placement,
    ) -> bool {
        self.clashing(at, reads, placement).is_empty()
            && self.is_writable(at, now)
            && self.is_free(at, now, false)
    }

    /// Whether a region is a destination of a value.
    fn is_destination(&mut self, v: ValueId, at: BufferRegion) -> bool {
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
