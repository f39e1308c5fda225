//! Destination analysis: the memory in which each value ends.
//!
//! **Problem.** A value that is computed in a temporary buffer and then stored elsewhere costs a
//! copy. In MLIR's One-Shot Bufferize, values in destination-passing style carry their destination,
//! and `-eliminate-empty-tensors` finds it for the others; here a backward pass finds it for every
//! value.
//!
//! **Algorithm.** The roots are the results that are written back to external memory, at their
//! write-back region, and the outputs, each in a new buffer. A reverse pass over the body
//! propagates a destination from a result to the operand whose memory the result can share: from a
//! store to its base, from a value in other strides to the value itself, from a mutated argument's
//! new value to its old one, and from a view that is a permutation of all elements to its base,
//! through the inverse of the view. The first destination found for a value stays.
//! [`Planner::candidate_destinations`] adds, when a value is placed, the regions of the tensors
//! that the value will be stored into, unless the value is an output.
//!
//! A destination is a preference only; [`interference`](super::interference) decides whether it may
//! be used.
//!
//! **Cost.** One step for each node; candidates follow users for `MAX_USER_DEPTH` steps and
//! versions for `MAX_VERSIONS`.

use super::node_kind::NodeKind;
use super::{BufferRegion, Planner};
use crate::error::{Reason, Result};
use crate::functionalize::value_graph::{Meta, SpecId};
use maquette_ir::buffer_plan::BufferId;
use maquette_ir::functional_program::{ExternalTensor, Output};
use maquette_ir::graph::{Arg, Stmt, ValueId};
use maquette_ir::sym::Expr;
use maquette_ir::view::ViewSpec;
use smallvec::SmallVec;

/// The region in which a value ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Destination {
    /// The region.
    pub at: BufferRegion,
    /// The region is a buffer reserved for an output. It can be replaced by any buffer of this
    /// layout, unlike external memory.
    pub output: bool,
}

/// The maximum depth to which users of a value are followed.
pub(super) const MAX_USER_DEPTH: usize = 4;
/// The maximum number of earlier versions of a tensor that are searched for its region.
const MAX_VERSIONS: usize = 16;

impl Planner<'_> {
    /// The buffer of an external tensor. Inputs come first, shared memories are the last inputs,
    /// and constants follow.
    pub(super) fn external_buffer(&self, which: ExternalTensor) -> BufferId {
        let at = match which {
            ExternalTensor::Input(i) => i,
            ExternalTensor::SharedMemory(i) => {
                self.graph.inputs().len() - self.program.memories.len() + i
            }
            ExternalTensor::Const(i) => self.graph.inputs().len() + i,
        };
        BufferId(at as u32)
    }

    /// A layout that the graph returns, as a list of integers.
    pub(super) fn returned_layout(&mut self, at: usize) -> Result<SpecId> {
        let list = self.program.layout(at);
        let list = list.ok_or(Reason::Internal("a returned layout is not a list of integers"))?;
        self.layout_from_ints(list.iter())
    }

    /// A layout given as an offset, then sizes, then strides.
    pub(super) fn layout_from_ints(
        &mut self,
        numbers: impl IntoIterator<Item = Expr>,
    ) -> Result<SpecId> {
        let numbers: SmallVec<[Expr; 9]> = numbers.into_iter().collect();
        let (offset, rest) =
            numbers.split_first().ok_or(Reason::Internal("a layout has no offset"))?;
        let (sizes, strides) = rest.split_at(rest.len() / 2);
        let spec = ViewSpec::strided(*offset, sizes, strides, &mut self.interner.symbols)?;
        Ok(self.interner.spec(spec))
    }

    /// The region to which the `j`-th mutation is written back.
    pub(super) fn write_back_region(&mut self, j: usize) -> Result<BufferRegion> {
        let m = &self.program.mutations[j];
        let (buffer, layout) = (self.external_buffer(m.target), m.layout);
        let spec = match layout {
            Some(at) => self.returned_layout(at)?,
            None => self
                .external_specs
                .get(buffer.index())
                .copied()
                .flatten()
                .ok_or(Reason::Internal("an external tensor has no region"))?,
        };
        Ok(BufferRegion { buffer, spec })
    }

    /// The tensor that the graph returns at a position, if it is one.
    pub(super) fn result(&self, at: usize) -> Option<ValueId> {
        match self.graph.outputs().get(at) {
            Some(Arg::Value(v)) if self.graph.tensor_type(*v).is_some() => Some(*v),
            _ => None,
        }
    }

    /// The layout of an output in its own memory: the one returned, or row-major.
    pub(super) fn layout(&mut self, v: ValueId, layout: Option<usize>) -> Result<SpecId> {
        match layout {
            Some(at) => self.returned_layout(at),
            None => self.rows(v),
        }
    }

    /// Computes the destination of every value.
    pub(super) fn compute_destinations(&mut self) -> Result<()> {
        for j in 0..self.program.mutations.len() {
            let at = self.write_back_region(j)?;
            if let Some(v) = self.result(self.program.mutations[j].result) {
                self.destinations[v.index()].get_or_insert(Destination { at, output: false });
            }
        }
        let program = self.program;
        program.outputs.iter().try_for_each(|o| self.output_destination(o))?;
        for stmt in self.graph.body().iter().rev() {
            let Stmt::Node(node) = stmt else { continue };
            let pass = |p: &mut Self, from: ValueId, to: ValueId| {
                let destination = p.destinations[from.index()];
                let to = &mut p.destinations[to.index()];
                *to = to.or(destination);
            };
            match self.node_kinds[node.index()].clone() {
                NodeKind::Store { base, result, .. } => pass(self, result, base),
                NodeKind::Strided { of, result } => pass(self, result, of),
                // What is computed again is read, and ends nowhere else.
                NodeKind::Barrier { .. } | NodeKind::Empty { .. } => {}
                NodeKind::View { base, spec, result } => {
                    if let Some(destination) = self.destinations[result.index()]
                        && let Some(at) = self.through_view(base, spec, destination.at)
                    {
                        self.destinations[base.index()]
                            .get_or_insert(Destination { at, ..destination });
                    }
                }
                NodeKind::Call(call) => {
                    call.writes.iter().for_each(|&(before, after)| pass(self, after, before))
                }
            }
        }
        Ok(())
    }

    /// Reserves a buffer for an output that needs memory of its own.
    fn output_destination(&mut self, o: &Output) -> Result<()> {
        let (result, layout) = match o {
            Output::Result { result, layout } => (*result, *layout),
            Output::Shared { result, storage_layout: whole, .. } => (*result, Some(*whole)),
            Output::Alias { .. } => return Ok(()),
            Output::List(l) => return l.iter().try_for_each(|o| self.output_destination(o)),
        };
        let Some(v) = self.result(result) else { return Ok(()) };
        self.mark_returned(v, layout)?;
        if self.destinations[v.index()].is_some() {
            return Ok(());
        }
        let layout = self.layout(v, layout)?;
        let at = self.new_buffer(v, layout)?;
        self.destinations[v.index()] = Some(Destination { at, output: true });
        Ok(())
    }

    /// Marks the value of an output, and the values of which it is a view with all elements.
    fn mark_returned(&mut self, mut v: ValueId, layout: Option<usize>) -> Result<()> {
        let mut at = self.layout(v, layout)?;
        loop {
            self.returned[v.index()] = true;
            let Some(node) = self.graph.producer(v) else { return Ok(()) };
            let NodeKind::View { base, spec, .. } = self.node_kinds[node.index()] else {
                return Ok(());
            };
            let Some(of_base) = self.layout_through_view(base, spec, at) else { return Ok(()) };
            (v, at) = (base, of_base);
        }
    }

    /// The region of `base`, if the view `spec` of it, which has all its elements, is in region
    /// `at`.
    fn through_view(
        &mut self,
        base: ValueId,
        spec: SpecId,
        at: BufferRegion,
    ) -> Option<BufferRegion> {
        Some(BufferRegion { spec: self.layout_through_view(base, spec, at.spec)?, ..at })
    }

    /// The layout of `base`, if the view `spec` of it, which has all its elements, has layout `at`.
    pub(super) fn layout_through_view(
        &mut self,
        base: ValueId,
        spec: SpecId,
        at: SpecId,
    ) -> Option<SpecId> {
        let t = self.graph.tensor_type(base)?;
        let meta =
            Meta { dtype: t.dtype, device: t.device, layout: t.layout, sizes: t.sizes.clone() };
        let meta = self.interner.meta(meta);
        let back = self.interner.inverse(spec, meta)?;
        self.interner.compose(at, back)
    }

    /// Regions in which a value could be computed without a later copy, the best first. Buffers
    /// reserved for outputs are not among them: any other buffer of that layout will do. Neither
    /// are the tensors into which an output is stored. It needs memory of its own: computed where
    /// it is stored, it or that tensor would be copied in the end, and the tensor may be larger.
    pub(super) fn candidate_destinations(&mut self, v: ValueId) -> SmallVec<[BufferRegion; 4]> {
        let mut found = SmallVec::new();
        self.collect_destinations(v, 0, !self.returned[v.index()], &mut found);
        found
    }

    /// Collects the candidates of a value, following its users from `depth` on; with `stored`, also
    /// the tensors into which it is stored.
    fn collect_destinations(
        &mut self,
        v: ValueId,
        depth: usize,
        stored: bool,
        found: &mut SmallVec<[BufferRegion; 4]>,
    ) {
        if let Some(Destination { at, output: false }) = self.destinations[v.index()] {
            found.push(at);
        }
        if depth == MAX_USER_DEPTH {
            return;
        }
        for i in 0..self.graph.users(v).len() {
            let node = self.graph.users(v)[i];
            match self.node_kinds[node.index()].clone() {
                NodeKind::Store { base, source, spec, .. } if source == v && stored => {
                    if let Some(at) = self.region_of_version(base)
                        && let Some(spec) = self.interner.compose(at.spec, spec)
                    {
                        found.push(BufferRegion { spec, ..at });
                    }
                }
                NodeKind::Store { base, result, .. } if base == v => {
                    self.collect_destinations(result, depth + 1, stored, found)
                }
                NodeKind::Strided { result, .. } => {
                    self.collect_destinations(result, depth + 1, stored, found)
                }
                NodeKind::View { base, spec, result } => {
                    let from = found.len();
                    let mut viewed = SmallVec::new();
                    self.collect_destinations(result, depth + 1, stored, &mut viewed);
                    for at in viewed {
                        found.extend(self.through_view(base, spec, at));
                    }
                    found.truncate(from + MAX_USER_DEPTH);
                }
                NodeKind::Call(call) => {
                    for &(_, after) in call.writes.iter().filter(|(before, _)| *before == v) {
                        self.collect_destinations(after, depth + 1, stored, found);
                    }
                }
                NodeKind::Store { .. } | NodeKind::Barrier { .. } | NodeKind::Empty { .. } => {}
            }
        }
    }

    /// The region of a value, or that of an earlier version which it will share: a store aliases
    /// its base.
    fn region_of_version(&self, mut v: ValueId) -> Option<BufferRegion> {
        for _ in 0..MAX_VERSIONS {
            if let Some(at) = self.regions[v.index()] {
                return Some(at);
            }
            match &self.node_kinds[self.graph.producer(v)?.index()] {
                NodeKind::Store { base, .. } => v = *base,
                _ => return None,
            }
        }
        None
    }
}
