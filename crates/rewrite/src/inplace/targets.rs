//! Where values belong: the memory that they, or what they become part of, are left in.

use super::deed::Deed;
use super::{Loc, Planner};
use crate::dag::{Meta, SpecId};
use crate::error::{Reason, Result};
use crate::functional::{Output, Outside};
use maquette_ir::graph::{Arg, Stmt, ValueId};
use maquette_ir::buffer_plan::BufferId;
use maquette_ir::sym::Expr;
use maquette_ir::view::ViewSpec;
use smallvec::SmallVec;

/// The place in which a value is left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Goal {
    pub at: Loc,
    /// It is an output's own memory: other memory of this layout will do.
    pub output: bool,
}

/// How far users of a value are followed.
pub(super) const DEPTH: usize = 4;
/// How many versions of a tensor back its memory is looked for.
const VERSIONS: usize = 16;

impl Planner<'_> {
    /// The buffer of a tensor outside.
    pub(super) fn outside(&self, which: Outside) -> BufferId {
        let at = match which {
            Outside::Input(i) => i,
            Outside::Memory(i) => self.graph.inputs().len() - self.program.memories.len() + i,
            Outside::Const(i) => self.graph.inputs().len() + i,
        };
        BufferId(at as u32)
    }

    /// A result of the graph that is a list of integers, as a view.
    pub(super) fn given_place(&mut self, at: usize) -> Result<SpecId> {
        let list = self.graph.outputs().get(at).copied();
        self.listed(list.as_slice())
    }

    /// An offset, sizes and strides, which lists may hold, as a view.
    pub(super) fn listed(&mut self, given: &[Arg]) -> Result<SpecId> {
        let mut numbers: SmallVec<[Expr; 9]> = SmallVec::new();
        let mut all = true;
        for arg in given {
            self.graph.for_each_leaf(*arg, &mut |leaf| match leaf {
                Arg::Int(e) => numbers.push(e),
                _ => all = false,
            });
        }
        if !all {
            return Err(Reason::Internal("a place is no list of integers").into());
        }
        let (offset, rest) = numbers.split_first().ok_or(Reason::Internal("a place has no offset"))?;
        let (sizes, strides) = rest.split_at(rest.len() / 2);
        let spec = ViewSpec::strided(*offset, sizes, strides, &mut self.session.symbols)?;
        Ok(self.session.spec(spec))
    }

    /// The place that is written back.
    pub(super) fn written_back(&mut self, j: usize) -> Result<Loc> {
        let m = &self.program.mutations[j];
        let (buffer, place) = (self.outside(m.target), m.place);
        let spec = match place {
            Some(at) => self.given_place(at)?,
            None => self.entered.get(buffer.index()).copied().flatten().ok_or(Reason::Internal("memory that is written is nowhere"))?,
        };
        Ok(Loc { buffer, spec })
    }

    /// The value of a result.
    pub(super) fn result(&self, at: usize) -> Option<ValueId> {
        match self.graph.outputs().get(at) {
            Some(Arg::Value(v)) if self.graph.tensor_type(*v).is_some() => Some(*v),
            _ => None,
        }
    }

    /// The layout of an output in its own memory.
    pub(super) fn layout(&mut self, v: ValueId, place: Option<usize>) -> Result<SpecId> {
        match place {
            Some(at) => self.given_place(at),
            None => self.rows(v),
        }
    }

    /// Fills in where values are left.
    pub(super) fn goals(&mut self) -> Result<()> {
        for j in 0..self.program.mutations.len() {
            let at = self.written_back(j)?;
            if let Some(v) = self.result(self.program.mutations[j].result) {
                self.goals[v.index()].get_or_insert(Goal { at, output: false });
            }
        }
        let program = self.program;
        program.outputs.iter().try_for_each(|o| self.output_goal(o))?;
        for stmt in self.graph.body().iter().rev() {
            let Stmt::Node(node) = stmt else { continue };
            let pass = |p: &mut Self, from: ValueId, to: ValueId| {
                let goal = p.goals[from.index()];
                let to = &mut p.goals[to.index()];
                *to = to.or(goal);
            };
            match self.deeds[node.index()].clone() {
                Deed::Store { base, result, .. } => pass(self, result, base),
                Deed::Strided { of, result } => pass(self, result, of),
                Deed::View { base, spec, result } => {
                    if let Some(goal) = self.goals[result.index()]
                        && let Some(at) = self.turned(base, spec, goal.at)
                    {
                        self.goals[base.index()].get_or_insert(Goal { at, ..goal });
                    }
                }
                Deed::Run(run) => run.writes.iter().for_each(|&(before, after)| pass(self, after, before)),
            }
        }
        Ok(())
    }

    fn output_goal(&mut self, o: &Output) -> Result<()> {
        let (result, place) = match o {
            Output::Result { result, place } => (*result, *place),
            Output::Shared { result, whole, .. } => (*result, Some(*whole)),
            Output::Alias { .. } => return Ok(()),
            Output::List(l) => return l.iter().try_for_each(|o| self.output_goal(o)),
        };
        let Some(v) = self.result(result).filter(|v| self.goals[v.index()].is_none()) else { return Ok(()) };
        let layout = self.layout(v, place)?;
        let at = self.new_buffer(v, layout)?;
        self.goals[v.index()] = Some(Goal { at, output: true });
        Ok(())
    }

    /// Where a value lies if a view of all of it lies here.
    fn turned(&mut self, base: ValueId, spec: SpecId, at: Loc) -> Option<Loc> {
        let t = self.graph.tensor_type(base)?;
        let meta = Meta { dtype: t.dtype, device: t.device, layout: t.layout, sizes: t.sizes.clone() };
        let meta = self.session.meta(meta);
        let back = self.session.inverse(spec, meta)?;
        Some(Loc { spec: self.session.compose(at.spec, back)?, ..at })
    }

    /// Where a value could be made so that it need not be copied later, the best first. Places of outputs are left out.
    pub(super) fn targets(&mut self, v: ValueId) -> SmallVec<[Loc; 4]> {
        let mut found = SmallVec::new();
        self.follow(v, 0, &mut found);
        found
    }

    fn follow(&mut self, v: ValueId, depth: usize, found: &mut SmallVec<[Loc; 4]>) {
        if let Some(Goal { at, output: false }) = self.goals[v.index()] {
            found.push(at);
        }
        if depth == DEPTH {
            return;
        }
        for i in 0..self.graph.users(v).len() {
            let node = self.graph.users(v)[i];
            match self.deeds[node.index()].clone() {
                Deed::Store { base, source, spec, .. } if source == v => {
                    if let Some(at) = self.version(base)
                        && let Some(spec) = self.session.compose(at.spec, spec)
                    {
                        found.push(Loc { spec, ..at });
                    }
                }
                Deed::Store { base, result, .. } if base == v => self.follow(result, depth + 1, found),
                Deed::Strided { result, .. } => self.follow(result, depth + 1, found),
                Deed::View { base, spec, result } => {
                    let from = found.len();
                    let mut turned = SmallVec::new();
                    self.follow(result, depth + 1, &mut turned);
                    for at in turned {
                        found.extend(self.turned(base, spec, at));
                    }
                    found.truncate(from + DEPTH);
                }
                Deed::Run(run) => {
                    for &(_, after) in run.writes.iter().filter(|(before, _)| *before == v) {
                        self.follow(after, depth + 1, found);
                    }
                }
                Deed::Store { .. } => {}
            }
        }
    }

    /// Where a value lies, or will lie since an earlier version of it does.
    fn version(&self, mut v: ValueId) -> Option<Loc> {
        for _ in 0..VERSIONS {
            if let Some(at) = self.locs[v.index()] {
                return Some(at);
            }
            match &self.deeds[self.graph.producer(v)?.index()] {
                Deed::Store { base, .. } => v = *base,
                _ => return None,
            }
        }
        None
    }
}
