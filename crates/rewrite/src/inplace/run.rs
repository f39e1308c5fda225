//! Forwards: a place for each value, at the time it is made.

use super::deed::{Deed, Run};
use super::targets::{DEPTH, Goal};
use super::{Loc, Planner, Time};
use crate::dag::SpecId;
use crate::error::{Reason, Result};
use crate::lift::{APART, DISTINCT};
use maquette_ir::graph::{Arg, NodeId, Placement, ValueId};
use maquette_ir::fault_injection::fault_injected;
use maquette_ir::buffer_plan::{Buffer, ResultDest, Step, CopyReason};
use maquette_ir::sym::Expr;
use maquette_ir::copy_cost::{OverlapCondition, Traffic};
use maquette_ir::view::ViewSpec;
use smallvec::SmallVec;

impl Planner<'_> {
    pub(super) fn node(&mut self, now: Time, node: NodeId) -> Result<()> {
        match self.deeds[node.index()].clone() {
            Deed::View { base, spec, result } => self.view(now, node, base, spec, result),
            Deed::Store { base, source, spec, result } => self.store(now, base, source, spec, result),
            Deed::Strided { of, result } => {
                let (at, wanted) = (self.loc(of)?, self.declared(result)?);
                if self.same_layout(at.spec, wanted, false) || self.needs[result.index()].is_empty() {
                    self.lies(result, at);
                    return Ok(());
                }
                let to = self.new_buffer(result, wanted)?;
                self.copy(of, at, to, CopyReason::Strides);
                self.put(result, to);
                Ok(())
            }
            Deed::Run(run) => {
                self.run(now, node, &run)?;
                self.checked(node)
            }
        }
    }

    /// From a check on, what it checks holds, or the run has ended.
    fn checked(&mut self, node: NodeId) -> Result<()> {
        match (self.graph.op_name(node), self.graph.args(node)) {
            (APART, &[a, b, ..]) => {
                let (a, b) = (self.listed(&[a])?, self.listed(&[b])?);
                self.session.assume_disjoint(a, b);
            }
            (DISTINCT, &[sizes, strides, ..]) => {
                let like = self.listed(&[Arg::Int(Expr::Int(0)), sizes, strides])?;
                self.session.assume_injective(like);
            }
            _ => {}
        }
        Ok(())
    }

    fn view(&mut self, now: Time, node: NodeId, base: ValueId, spec: SpecId, result: ValueId) -> Result<()> {
        let at = self.loc(base)?;
        if let Some(spec) = self.session.compose(at.spec, spec) {
            let there = Loc { spec, ..at };
            if !self.is_changed(result) || self.injective(there) {
                self.lies(result, there);
                return Ok(());
            }
            // elements that share their place, of which some will change: now, so that what changes can be made in place
            let to = self.choose(now, result, &mut [(base, at)], Placement::Anywhere)?;
            self.copy(result, there, to, CopyReason::Store);
            self.put(result, to);
            return Ok(());
        }
        // no strides give this view of the place: it is a copy, as it is eagerly
        let mut read = [(base, at)];
        let to = self.choose(now, result, &mut read, Placement::Anywhere)?;
        let (from, into) = (self.place(read[0].1), self.place(to));
        let (reads, results) = (vec![(base, from)], vec![(result, ResultDest::Into(into))]);
        self.copied(result, 1);
        let (rows, lies) = (self.rows(base)?, read[0].1.spec);
        // the kernel takes views of rows
        let packed = !self.same_layout(lies, rows, false);
        self.copied(base, u64::from(packed));
        self.steps.push(Step::Node { node, reads, writes: Vec::new(), results });
        self.put(result, to);
        Ok(())
    }

    fn store(&mut self, now: Time, base: ValueId, source: ValueId, spec: SpecId, result: ValueId) -> Result<()> {
        let (whole, from) = (self.loc(base)?, self.loc(source)?);
        if self.needs[result.index()].is_empty() {
            self.lies(result, whole);
            return Ok(());
        }
        // where elements share their place, one cannot be replaced alone
        if self.injective(whole)
            && let Some(spec) = self.session.compose(whole.spec, spec)
        {
            let part = Loc { spec, ..whole };
            if self.same(part, from) {
                self.lies(result, whole);
                return Ok(());
            }
            let price = self.elements(base).saturating_mul(if self.belongs(result, whole) { 2 } else { 1 });
            if self.usable(part, now) && self.cleared(part, now, false, price)? {
                self.copy(source, from, part, CopyReason::Store);
                self.lies(result, whole);
                return Ok(());
            }
        }
        let mut read = [(base, whole), (source, from)];
        let to = self.choose(now, result, &mut read, Placement::Anywhere)?;
        let [(_, whole), (_, from)] = read;
        let (to, part) = match self.session.compose(to.spec, spec) {
            Some(part) => (to, part),
            None => {
                // in rows every view of a value is one of its place
                let rows = self.rows(result)?;
                (self.new_buffer(result, rows)?, spec)
            }
        };
        self.copy(base, whole, to, CopyReason::Keep);
        self.copy(source, from, Loc { spec: part, ..to }, CopyReason::Store);
        self.lies(result, to);
        Ok(())
    }

    fn run(&mut self, now: Time, node: NodeId, run: &Run) -> Result<()> {
        let mut reads: SmallVec<[(ValueId, Loc); 3]> = SmallVec::new();
        for &v in &run.reads {
            let mut at = self.loc(v)?;
            let declared = self.declared(v)?;
            if run.opaque && !self.same_layout(at.spec, declared, false) {
                at = self.laid_out(v, at, declared)?;
            }
            reads.push((v, at));
        }
        let befores = run.writes.iter().map(|(before, _)| self.loc(*before)).collect::<Result<SmallVec<[Loc; 2]>>>()?;
        let mut writes: SmallVec<[Loc; 2]> = SmallVec::new();
        for (i, &(before, after)) in run.writes.iter().enumerate() {
            let to = self.mutated(now, run, (before, after), befores[i], &reads, &befores, &writes)?;
            writes.push(to);
            self.claimed.push(to);
        }
        self.claimed.clear();
        for (v, at) in &mut reads {
            // it may have been copied away just now
            let (kept, declared) = (self.loc(*v)?, self.declared(*v)?);
            if !run.opaque || self.same_layout(kept.spec, declared, false) {
                *at = kept;
            }
        }
        let mut results: Vec<(ValueId, ResultDest)> = Vec::new();
        let mut made: SmallVec<[(ValueId, Loc); 2]> = SmallVec::new();
        for &v in &run.results {
            if run.placement == Placement::Allocates {
                let (buffer, spec) = (self.buffer(Buffer::Returned(v)), self.declared(v)?);
                results.push((v, ResultDest::Returned(buffer)));
                made.push((v, Loc { buffer, spec }));
            } else {
                self.make_room(now, v)?;
                let to = self.choose(now, v, &mut reads, run.placement)?;
                results.push((v, ResultDest::Into(self.place(to))));
                made.push((v, to));
            }
        }
        made.extend(run.writes.iter().zip(&writes).map(|((_, after), at)| (*after, *at)));
        self.count(run, &reads, &made)?;
        let reads = reads.into_iter().map(|(v, at)| (v, self.place(at))).collect();
        let writes = writes.into_iter().map(|at| self.place(at)).collect();
        self.steps.push(Step::Node { node, reads, writes, results });
        made.into_iter().for_each(|(v, at)| self.put(v, at));
        Ok(())
    }

    /// A value laid out for an operator that looks at strides; in memory that nothing else is written to, so that others like it read it too.
    fn laid_out(&mut self, v: ValueId, at: Loc, layout: SpecId) -> Result<Loc> {
        if let Some(there) = self.laid_out.get(&(v, layout)) {
            return Ok(*there);
        }
        let to = self.new_buffer(v, layout)?;
        self.copy(v, at, to, CopyReason::Strides);
        self.laid_out.insert((v, layout), to);
        Ok(to)
    }

    /// Adds what a call writes, and copies on the side.
    fn count(&mut self, run: &Run, reads: &[(ValueId, Loc)], made: &[(ValueId, Loc)]) -> Result<()> {
        let own = made.len() - run.writes.len();
        for (i, &(v, at)) in made.iter().enumerate() {
            let sizes = self.graph.tensor_type(v).map_or(&[][..], |t| &t.sizes);
            self.cost.add(sizes, run.write_model.per_element(i >= own, run.converts));
            if i < own && run.placement == Placement::Dense {
                let declared = self.declared(v)?;
                let direct = self.same_layout(at.spec, declared, false);
                self.copied(v, u64::from(!direct));
            }
        }
        for &(v, at) in reads {
            let mut needs_copy = |to: &Loc| {
                let same = self.same(at, *to);
                run.write_model.needs_operand_copy(|| same, || !self.apart(at, *to))
            };
            let there: SmallVec<[Loc; 2]> = made[own..].iter().map(|(_, to)| *to).filter(&mut needs_copy).collect();
            let condition = match there.as_slice() {
                [] => continue,
                _ if fault_injected("copies: operands in the way are free") => continue,
                [to] => {
                    let (read, written, symbols) = self.session.pair(at.spec, to.spec);
                    OverlapCondition::of(read, written, run.write_model, symbols)
                }
                _ => None,
            };
            let times = 1 + run.again.iter().filter(|u| **u == v).count() as u64;
            match condition {
                Some(condition) => {
                    self.cost.add_estimate(self.graph.tensor_type(v).map_or(&[], |t| &t.sizes), Traffic::copy(times));
                    self.cost.copied.add_if(condition, times);
                }
                None => self.copied(v, times),
            }
        }
        Ok(())
    }

    /// What a value will be stored in is copied before the value is made, where it cannot stay in any case: so the value can be made in it.
    fn make_room(&mut self, now: Time, v: ValueId) -> Result<()> {
        for i in 0..self.graph.users(v).len() {
            let Deed::Store { base, source, result, .. } = self.deeds[self.graph.users(v)[i].index()] else { continue };
            let Some(at) = self.locs[base.index()].filter(|_| source == v && !self.needs[result.index()].is_empty()) else { continue };
            if self.is_outside(at) && !self.usable(at, now) {
                self.evacuate(base, now)?;
            }
        }
        Ok(())
    }

    /// Where an operator mutates a value: in place, or a copy.
    #[expect(clippy::too_many_arguments, reason = "everything else that the call touches")]
    fn mutated(
        &mut self,
        now: Time,
        run: &Run,
        (before, after): (ValueId, ValueId),
        here: Loc,
        reads: &[(ValueId, Loc)],
        befores: &[Loc],
        taken: &[Loc],
    ) -> Result<Loc> {
        let layout = self.declared(before)?;
        let fits = |p: &mut Self, at: Loc| {
            !run.opaque || p.same_layout(at.spec, layout, false) || fault_injected("plan: what is mutated may have any strides")
        };
        let price = self.elements(before).saturating_mul(if self.belongs(after, here) { 2 } else { 1 });
        if fits(self, here)
            && (taken.iter().all(|t| self.apart(*t, here)) || fault_injected("plan: mutated tensors may meet"))
            && self.usable(here, now)
            && self.cleared(here, now, false, price)?
        {
            return Ok(here);
        }
        let others: SmallVec<[Loc; 4]> =
            reads.iter().map(|(_, at)| *at).chain(befores.iter().copied()).chain(taken.iter().copied()).collect();
        for at in self.targets(after) {
            if fits(self, at) && others.iter().all(|o| self.apart(*o, at)) && self.usable(at, now) && self.free(at, now, true) {
                self.copy(before, here, at, CopyReason::Mutate);
                return Ok(at);
            }
        }
        let to = self.new_buffer(before, layout)?;
        self.copy(before, here, to, CopyReason::Mutate);
        Ok(to)
    }

    /// Whether a part of a value is replaced, or an operator mutates it.
    fn is_changed(&self, v: ValueId) -> bool {
        self.graph.users(v).iter().any(|node| match &self.deeds[node.index()] {
            Deed::Store { base, .. } => *base == v,
            Deed::Run(run) => run.writes.iter().any(|(before, _)| *before == v),
            Deed::View { .. } | Deed::Strided { .. } => false,
        })
    }

    /// The layout that the graph declares, from the start of memory.
    fn declared(&mut self, v: ValueId) -> Result<SpecId> {
        let t = self.graph.tensor_type(v).ok_or(Reason::Internal("a value in memory is no tensor"))?;
        let spec = ViewSpec::strided(Expr::Int(0), &t.sizes, &t.strides, &mut self.session.symbols)?;
        Ok(self.session.spec(spec))
    }

    /// Where a result is written, of an operator that reads these. What is in the way is read from a copy, if that costs less.
    fn choose(&mut self, now: Time, v: ValueId, reads: &mut [(ValueId, Loc)], placement: Placement) -> Result<Loc> {
        let (price, declared) = (self.elements(v), self.declared(v)?);
        let targets = self.targets(v);
        let suited = |p: &mut Self, at: Loc| placement != Placement::Dense || p.same_layout(at.spec, declared, false);
        for at in targets {
            if !suited(self, at) {
                continue;
            }
            let clashes = self.clashes(at, reads, placement);
            let cost = clashes.iter().map(|i| self.elements(reads[*i].0)).fold(0, u64::saturating_add);
            if cost <= price && self.usable(at, now) && self.cleared(at, now, false, price)? {
                for i in clashes {
                    let (operand, from) = reads[i];
                    let declared = self.declared(operand)?;
                    reads[i].1 = self.new_buffer(operand, declared)?;
                    self.copy(operand, from, reads[i].1, CopyReason::Operand);
                }
                return Ok(at);
            }
        }
        let goal = self.goals[v.index()];
        if placement == Placement::Elementwise {
            for &(_, at) in reads.iter() {
                let suits = goal.is_none_or(|g| self.same_layout(g.at.spec, at.spec, true));
                let keeps = self.same_layout(at.spec, declared, false) || !self.is_looked_at(v, DEPTH);
                if suits && keeps && self.is_all(v, at)? && self.fitting(now, at, reads, placement) {
                    return Ok(at);
                }
            }
        }
        if let Some(Goal { at, output: true }) = goal
            && suited(self, at)
            && self.fitting(now, at, reads, placement)
        {
            return Ok(at);
        }
        let wanted = self.graph.users(v).iter().find_map(|node| match &self.deeds[node.index()] {
            Deed::Strided { result, .. } => Some(*result),
            _ => None,
        });
        let layout = match wanted {
            Some(strided) => self.declared(strided)?,
            None => declared,
        };
        let to = self.new_buffer(v, layout)?;
        if self.injective(to) {
            return Ok(to);
        }
        let rows = self.rows(v)?;
        self.new_buffer(v, rows)
    }

    /// Whether an operator that looks at strides takes a value, or views of it.
    fn is_looked_at(&self, v: ValueId, depth: usize) -> bool {
        self.graph.users(v).iter().any(|node| match &self.deeds[node.index()] {
            Deed::Strided { .. } => true,
            Deed::View { result, .. } => depth > 0 && self.is_looked_at(*result, depth - 1),
            Deed::Run(run) => run.opaque,
            Deed::Store { .. } => false,
        })
    }

    /// The operands that are in the way of an operator that writes here.
    fn clashes(&mut self, at: Loc, reads: &[(ValueId, Loc)], placement: Placement) -> SmallVec<[usize; 2]> {
        let elementwise = placement == Placement::Elementwise;
        let elementwise = elementwise || fault_injected("plan: any operator may write over an operand");
        let clash =
            |p: &mut Self, o: Loc| !(elementwise && p.same(o, at) || p.apart(o, at) || fault_injected("plan: operands are never in the way"));
        (0..reads.len()).filter(|i| clash(self, reads[*i].1)).collect()
    }

    fn fitting(&mut self, now: Time, at: Loc, reads: &[(ValueId, Loc)], placement: Placement) -> bool {
        self.clashes(at, reads, placement).is_empty() && self.usable(at, now) && self.free(at, now, false)
    }

    /// Whether a value is left here, or stored into one that is.
    fn belongs(&mut self, v: ValueId, at: Loc) -> bool {
        self.targets(v).into_iter().any(|t| self.same(t, at))
    }

    /// Whether a place is all of a buffer of the plan's own, of a value's sizes and dtype.
    fn is_all(&mut self, v: ValueId, at: Loc) -> Result<bool> {
        let (whole, dtype) = match &self.buffers[at.buffer.index()] {
            Buffer::New { dtype, layout, .. } => (self.session.spec(layout.clone()), Some(*dtype)),
            &Buffer::Returned(u) => (self.declared(u)?, self.graph.tensor_type(u).map(|t| t.dtype)),
            Buffer::Input(_) | Buffer::Const(_) => return Ok(false),
        };
        let graph = self.graph;
        let Some(t) = graph.tensor_type(v).filter(|t| Some(t.dtype) == dtype) else { return Ok(false) };
        let sizes: SmallVec<[Expr; 4]> = self.session.specs[at.spec.index()].sizes().collect();
        let alike = sizes.len() == t.sizes.len() && sizes.iter().zip(&t.sizes).all(|(a, b)| self.session.equal(*a, *b));
        Ok(alike && self.same_layout(at.spec, whole, true))
    }
}
