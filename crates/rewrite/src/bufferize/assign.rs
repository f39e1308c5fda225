//! The forward pass: assigns a buffer region to each value at the node that computes it, and emits
//! the steps of the plan.
//!
//! The pass is greedy: [`choose_region`](super::choose_region) has the order of preference.
//!
//! Nodes that only move data are handled by aliasing: a view aliases its base, and a store aliases
//! the base's region if the source can be written (or already lies) there. [`Planner::count`] adds
//! the elements that each node writes to the plan's cost.

use super::choose_region::Target;
use super::node_kind::{NodeKind, OpCall};
use super::{BufferRegion, Planner, Time};
use crate::error::{Reason, Result};
use crate::functionalize::value_graph::SpecId;
use maquette_ir::buffer_plan::{Buffer, BufferId, CopyReason, ResultDest, Step};
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
            NodeKind::Barrier { of, result } => {
                let at = self.region(of)?;
                self.alias(result, at);
                Ok(())
            }
            NodeKind::Empty { result } => {
                let at = self.empty_region(now, result)?;
                self.alias(result, at);
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

    /// A view aliases its base, unless a later mutation requires a copy. If no strides express the
    /// view of the base's region, as for `reshape` of a transposed tensor, which eager execution
    /// copies too, then it aliases a copy of the base.
    fn view(
        &mut self,
        now: Time,
        node: NodeId,
        base: ValueId,
        spec: SpecId,
        result: ValueId,
    ) -> Result<()> {
        let mut at = self.region(base)?;
        let mut composed = self.interner.compose(at.spec, spec);
        let rows = self.rows(base)?;
        if composed.is_none() && !self.same_layout(at.spec, rows, false) {
            at = self.copy_for_view(now, base, at, spec, result)?;
            composed = self.interner.compose(at.spec, spec);
        }
        let Some(spec) = composed else {
            return self.materialize_view(now, node, (base, at), result);
        };
        let viewed = BufferRegion { spec, ..at };
        if !self.is_mutated_later(result) || self.injective(viewed) {
            self.alias(result, viewed);
            return Ok(());
        }
        // The view overlaps itself (it is expanded), and an operator or a store will change it.
        // It is copied now, so that the change can be made in place.
        let to = self.choose_region(now, result, &mut [(base, at)], Target::ANYWHERE)?;
        self.copy(result, viewed, to, CopyReason::Store);
        self.put(result, to);
        Ok(())
    }

    /// A copy of `base` in a layout in which the view `spec` of it, `result`, has strides: where
    /// `result` will be stored, if that is free, or else in rows, which every view fits. Other
    /// views of the same value share the copy in rows.
    fn copy_for_view(
        &mut self,
        now: Time,
        base: ValueId,
        at: BufferRegion,
        spec: SpecId,
        result: ValueId,
    ) -> Result<BufferRegion> {
        if let Some(region) = self.free_destination(now, result, &[(base, at)])
            && let Some(layout) = self.layout_through_view(base, spec, region.spec)
        {
            let to = BufferRegion { spec: layout, ..region };
            self.copy(base, at, to, CopyReason::View);
            return Ok(to);
        }
        let rows = self.rows(base)?;
        self.relayout(base, at, rows, CopyReason::View)
    }

    /// Computes a view whose strides are not known even in row-major memory, where symbolic sizes
    /// leave them open.
    fn materialize_view(
        &mut self,
        now: Time,
        node: NodeId,
        base: (ValueId, BufferRegion),
        result: ValueId,
    ) -> Result<()> {
        let mut read = [base];
        let to = self.choose_region(now, result, &mut read, Target::ANYWHERE)?;
        let [(base, at)] = read;
        let (from, into) = (self.buffer_view(at), self.buffer_view(to));
        let (reads, results) = (vec![(base, from)], vec![(result, ResultDest::Into(into))]);
        self.count_copies(result, 1);
        self.written(to.buffer);
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
        let to = self.choose_region(now, result, &mut read, Target::ANYWHERE)?;
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
                at = self.relayout(v, at, declared, CopyReason::Strides)?;
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
                let over = call.overwrites.iter().filter(|(_, result)| *result == v);
                let over: SmallVec<[ValueId; 1]> = over.map(|(operand, _)| *operand).collect();
                let target = Target { placement: call.placement, over: &over };
                let to = self.choose_region(now, v, &mut reads, target)?;
                results.push((v, ResultDest::Into(self.buffer_view(to))));
                placed.push((v, to));
                if call.results.len() > 1 {
                    self.put(v, to);
                    self.placing.push(v);
                }
            }
        }
        placed.extend(call.writes.iter().zip(&writes).map(|((_, after), at)| (*after, *at)));
        self.count(call, &reads, &placed)?;
        placed.iter().for_each(|(_, at)| self.written(at.buffer));
        let reads = reads.into_iter().map(|(v, at)| (v, self.buffer_view(at))).collect();
        let writes = writes.into_iter().map(|at| self.buffer_view(at)).collect();
        self.steps.push(Step::Node { node, reads, writes, results });
        let placing = std::mem::take(&mut self.placing);
        for (v, at) in placed {
            if !placing.contains(&v) {
                self.put(v, at);
            }
        }
        Ok(())
    }

    /// A copy of a value in another layout. Later reads of the same value in the same layout share
    /// it, until something is written over it.
    fn relayout(
        &mut self,
        v: ValueId,
        at: BufferRegion,
        layout: SpecId,
        reason: CopyReason,
    ) -> Result<BufferRegion> {
        if let Some(&known) = self.relayouts.get(&(v, layout)) {
            return Ok(known);
        }
        let to = self.new_buffer(v, layout)?;
        self.copy(v, at, to, reason);
        self.relayouts.insert((v, layout), to);
        self.relayout_in.insert(to.buffer, (v, layout));
        Ok(to)
    }

    /// Notes that a step writes to a buffer: a copy of a value that lies there is none any more.
    pub(super) fn written(&mut self, buffer: BufferId) {
        if !fault_injected(Fault::CopiesOutliveWrites)
            && let Some(key) = self.relayout_in.remove(&buffer)
        {
            self.relayouts.remove(&key);
        }
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

    /// Whether a store replaces a part of a value, or an operator mutates it.
    fn is_mutated_later(&self, v: ValueId) -> bool {
        self.graph.users(v).iter().any(|node| match &self.node_kinds[node.index()] {
            NodeKind::Store { base, .. } => *base == v,
            NodeKind::Call(call) => call.writes.iter().any(|(before, _)| *before == v),
            NodeKind::View { .. }
            | NodeKind::Strided { .. }
            | NodeKind::Barrier { .. }
            | NodeKind::Empty { .. } => false,
        })
    }

    /// The layout that the graph's type declares, with offset 0.
    pub(super) fn declared_layout(&mut self, v: ValueId) -> Result<SpecId> {
        let t = self
            .graph
            .tensor_type(v)
            .ok_or(Reason::Internal("a value with a buffer region is not a tensor"))?;
        let spec =
            ViewSpec::strided(Expr::Int(0), &t.sizes, &t.strides, &mut self.interner.symbols)?;
        Ok(self.interner.spec(spec))
    }
}
